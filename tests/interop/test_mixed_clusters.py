"""Java and Python servers in one cluster: either NameServer, one topic over both brokers, one client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from oracle import apache, arrow, hands
from oracle.ports import broker_port, free_port
from oracle.process import Server
from oracle.scene import Scene

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

NAMESERVERS: dict[str, Callable[[Path, int], Server]] = {"apache": apache.namesrv, "arrowmq": arrow.namesrv}


@pytest.mark.parametrize("names_of", sorted(NAMESERVERS))
def test_one_topic_lies_over_brokers_of_both_kinds(names_of: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(NAMESERVERS[names_of](tmp_path / "namesrv", free_port()))
        java = stack.enter_context(
            apache.broker(tmp_path / "java", broker_port(), names.address, None, brokerName="broker-java")
        )
        python = stack.enter_context(
            arrow.broker(tmp_path / "python", broker_port(), names.address, name="broker-python")
        )
        hand = stack.enter_context(hands.start("java-5.5-json", names.address, python.address, tmp_path / "hand"))
        scene = stack.enter_context(Scene(hand, f"mixed_{names_of}"))
        topic = scene.topic(queues=4, brokers=f"{java.address},{python.address}")
        listener = scene.listener(hand, topic)
        assert len(listener.holds(8)) == 8
        sent = [{"key": f"k{i}", "tag": "T", "body": f"body {i}"} for i in range(160)]
        receipts = scene.producer(hand).send(topic, sent)
        assert {"broker-java": 80, "broker-python": 80} == Counter(receipt["broker"] for receipt in receipts)
        seen = listener.quiet(160)
        assert sorted(message["body"] for message in sent) == sorted(record["body"] for record in seen)
        assert {"broker-java": 80, "broker-python": 80} == Counter(record["broker"] for record in seen)
        second = scene.listener(hand, topic, listener.group)
        assert (len(listener.holds(4)), len(second.holds(4))) == (4, 4)
        assert not set(listener.holds()) & set(second.holds())
