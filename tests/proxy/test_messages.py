"""The classes of the protocol's messages: made of our `.proto` files, and apart from those of other programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls

ROOT = Path(__file__).resolve().parents[2]


def test_the_modules_are_what_the_proto_files_say() -> None:
    tool = ROOT / "tools" / "protobuf_classes.py"
    checked = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert (0, "") == (checked.returncode, checked.stderr)


def test_another_program_may_have_its_own_file_for_the_same_names() -> None:
    """RocketMQ's own Python client registers these names in the pool that a process shares."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import Default

    foreign = FileDescriptorProto(name="foreign.proto", package="apache.rocketmq.v2", syntax="proto3")
    foreign.message_type.add(name="Status").field.add(name="other", number=1, type=9, label=1)
    Default().AddSerializedFile(foreign.SerializeToString())
    assert "code" in v2.Status.DESCRIPTOR.fields_by_name


def test_numbers_are_those_of_the_protocol() -> None:
    """A few that a slip would not show elsewhere."""
    assert 40402 == v2.TOPIC_NOT_FOUND
    assert 22 == v2.SystemProperties.DESCRIPTOR.fields_by_name["priority"].number
    assert 7 == calls.TelemetryCommand.DESCRIPTOR.fields_by_name["verify_message_command"].number
    assert [17] == [len(calls.DESCRIPTOR.services_by_name["MessagingService"].methods)]
