"""Broadcasting, Arrow batches, message trace, namespaces, credentials, what the package exports and costs to import."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import subprocess
import sys
from pathlib import Path

import pytest

import arrowmq
from arrowmq.client.credentials import Credentials
from arrowmq.client.names import Namespace
from arrowmq.wire.frames import Command


async def test_every_broadcasting_member_gets_everything_and_remembers_where_it_was(
    cluster: str, topic: str, group: str, tmp_path: Path
) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=2)
        for n in range(10):
            await producer.send(topic, b"%d" % n)

        def member(name: str) -> arrowmq.Consumer:
            return arrowmq.Consumer(
                cluster, group=group, topic=topic, consume_from="first", broadcasting=True, offset_folder=tmp_path,
                instance_name=name,
            )  # fmt: skip

        for name in ("one", "two"):
            async with member(name) as consumer:
                seen = set()
                while len(seen) < 10:
                    for message in await consumer.receive(timeout_s=10):
                        seen.add(message.body)
                        await message.ack()
        await producer.send(topic, b"new")
        async with member("one") as consumer:
            message = await anext(consumer)
            await message.ack()
            assert b"new" == message.body
    assert 2 == len(list(tmp_path.rglob("offsets.json")))  # noqa: ASYNC240 - a test may wait for its disk


async def test_a_broken_offset_file_stops_the_start_instead_of_skipping_messages(
    cluster: str, topic: str, group: str, tmp_path: Path
) -> None:
    consumer = arrowmq.Consumer(
        cluster, group=group, topic=topic, broadcasting=True, offset_folder=tmp_path, instance_name="one"
    )
    path = tmp_path / consumer.client_id / group / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{torn")
    with pytest.raises(arrowmq.ArrowMQError, match="mend or remove"):
        await consumer.start()


async def test_messages_come_as_arrow_batches(cluster: str, topic: str, group: str) -> None:
    import pyarrow

    async with arrowmq.Producer(cluster) as producer:
        for n in range(20):
            await producer.send(topic, b"%d" % n, tag="t", keys=[f"k{n}"], properties={"n": str(n)})
    tables = []
    async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
        async for batch in consumer.batches(max_messages=8):
            tables.append(batch)
            if sum(each.num_rows for each in tables) == 20:
                break
    table = pyarrow.Table.from_batches(tables)
    assert sorted(b"%d" % n for n in range(20)) == sorted(table["body"].to_pylist())
    assert {"t"} == set(table["tag"].to_pylist())
    row = table.to_pylist()[0]
    assert [f"k{row['body'].decode()}"] == row["keys"]
    assert row["body"].decode() == dict(row["properties"])["n"]
    assert all(each.num_rows <= 8 for each in tables)


async def test_a_trace_tells_who_sent_and_who_consumed(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        trace_topic = f"trace_{topic}"
        await admin.create_topic(trace_topic, queues=1)
        async with (
            arrowmq.Producer(
                cluster, group=f"p{group}", hooks=[arrowmq.MessageTrace(cluster, group=f"p{group}", topic=trace_topic)]
            ) as producer,
            arrowmq.Consumer(
                cluster, group=group, topic=topic, consume_from="first",
                hooks=[arrowmq.MessageTrace(cluster, group=group, topic=trace_topic)],
            ) as consumer,
        ):  # fmt: skip
            receipt = await producer.send(topic, b"traced", tag="t", keys=["k"])
            await (await anext(consumer)).ack()
        # Closing the clients sends what is still queued.
        kinds = set()
        async with asyncio.timeout(20):
            while kinds != {"Pub", "SubBefore", "SubAfter"}:
                found = await admin.messages_by_key(trace_topic, receipt.msg_id)
                records = [r for message in found for r in message.body.decode().split("\x02") if receipt.msg_id in r]
                kinds = {record.split("\x01")[0] for record in records}
    pub = next(record.split("\x01") for record in records if record.startswith("Pub"))
    assert [f"p{group}", topic, receipt.msg_id, "t", "k"] == pub[3:8]
    assert "true" == pub[13]


async def test_a_namespace_renames_on_the_wire_only(cluster: str, topic: str, group: str) -> None:
    async with (
        arrowmq.Producer(cluster, namespace="ns") as producer,
        arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first", namespace="ns") as consumer,
        arrowmq.Admin(cluster) as admin,
    ):
        await producer.send(topic, b"x")
        message = await anext(consumer)
        await message.ack()
        assert topic == message.topic
        assert f"ns%{topic}" == message.record.topic
        assert f"ns%{topic}" in await admin.topics()


def test_names_in_a_namespace() -> None:
    namespace = Namespace("ns")
    assert ["ns%t", "%RETRY%ns%g", "TBW102", "ns%t", "rmq_sys_x"] == [
        namespace.wrap(name) for name in ("t", "%RETRY%g", "TBW102", "ns%t", "rmq_sys_x")
    ]
    assert ["t", "%RETRY%g", "other%t"] == [namespace.unwrap(name) for name in ("ns%t", "%RETRY%ns%g", "other%t")]


def test_a_signature_covers_sorted_values_and_body() -> None:
    request = Command.request(10, {"b": "2", "a": "1", "Z": "3"}, b"body")
    Credentials("ak", "sk", "token").sign(request)
    text = b"ak" + b"token" + b"3" + b"1" + b"2" + b"body"
    assert base64.b64encode(hmac.new(b"sk", text, hashlib.sha1).digest()).decode() == request.ext["Signature"]


def test_the_package_exports_what_a_user_needs_and_no_more() -> None:
    expected = [
        "Admin", "ArrowMQError", "Batching", "CompressionType", "ConsumeFrom", "ConsumeResult", "Consumer",
        "FlowControl", "Hook", "InvalidMessage", "InvalidName", "InvalidUse", "LitePullConsumer", "Message",
        "MessageQueue", "MessageTrace", "NamesrvUnreachable", "NoRoute", "PoppedMessage", "Producer", "Pulling",
        "PushConsumer",
        "ReceivedMessage", "Refused", "ReplyTimedOut", "RetryLater", "SendFailed", "SendReceipt", "SendStatus",
        "SendTimedOut", "SimpleConsumer", "TimedOut", "TraceContext", "Transaction", "TransactionListener",
        "TransactionState", "Unreachable", "__version__",
    ]  # fmt: skip
    assert sorted(expected) == sorted(arrowmq.__all__)
    assert all(hasattr(arrowmq, name) for name in expected)


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    """As installed packages are: compiled to bytecode before, which the first import does here. The time is measured by
    that of the standard library's own modules, for a busy machine slows both."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    code = (
        "import sys, time; begin = time.process_time(); import asyncio, dataclasses, inspect, json, logging, ssl;"
        "unit = time.process_time() - begin; begin = time.process_time(); import arrowmq;"
        "arrowmq.Producer; arrowmq.Consumer; arrowmq.Admin; spent = time.process_time() - begin;"
        "heavy = {'pyarrow', 'lark', 'click', 'rich', 'pyspark', 'uvloop'} & set(sys.modules);"
        "print(spent / unit, *heavy)"
    )
    quickest = 1000.0
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        spent, *heavy = done.stdout.split()
        assert [] == heavy
        quickest = min(quickest, float(spent))
    assert quickest < 4
