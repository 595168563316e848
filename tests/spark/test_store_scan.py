"""`format("arrowmq.store")` on stores that the Apache broker wrote, on a live store, and on damaged copies."""

from __future__ import annotations

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden
from live import Server
from test_source import connect, fill, source

from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.store.files import StoreDirectory
from arrowmq.wire.message_queue import MessageQueue

SAME = ["topic", "queueId", "queueOffset", "commitLogOffset", "msgId", "offsetMsgId", "flag", "sysFlag", "bornHost"]
SAME += ["storeHost", "reconsumeTimes", "storeSize"]


def comparable(row: Any) -> dict[str, Any]:
    return {
        **{name: row[name] for name in SAME},
        "tags": row["tags"],
        "keys": row["keys"],
        "properties": row["properties"],
        "body": hashlib.sha256(row["body"]).hexdigest(),
        "born": int(row["bornTimestamp"].replace(tzinfo=UTC).timestamp() * 1000 + 0.5),
        "stored": int(row["storeTimestamp"].replace(tzinfo=UTC).timestamp() * 1000 + 0.5),
    }


def expected_of(message: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: message[name] for name in SAME},
        "tags": message.get("tags"),
        "keys": (message.get("keys") or "").split(),
        "properties": message["properties"],
        "body": message["bodySha256"],
        "born": message["bornTimestamp"],
        "stored": message["storeTimestamp"],
    }


@pytest.mark.parametrize("variant", ["store-clean", "torn-properties", "bad-crc"])
def test_the_scan_equals_what_the_apache_broker_sees(spark: Any, golden: Golden, variant: str) -> None:
    path, expected = golden.store(variant)
    rows = spark.read.format("arrowmq.store").option("splitBytes", "200000").load(str(path)).collect()
    found = sorted((comparable(row) for row in rows), key=lambda row: row["commitLogOffset"])
    assert [expected_of(message) for message in expected["messages"]] == found
    assert {"broker-a"} == {row["brokerName"] for row in rows}


def test_a_topic_is_found_through_its_consume_queues(spark: Any, golden: Golden) -> None:
    path, expected = golden.store("plain")
    wanted = ["TopicBulk", "%RETRY%GroupRetry"]
    units = {unit[0] for queue in expected["queues"] if queue["topic"] in wanted for unit in queue["units"]}
    rows = spark.read.format("arrowmq.store").option("path", str(path)).option("topic", ",".join(wanted)).load()
    assert units == {row.commitLogOffset for row in rows.select("commitLogOffset").collect()}


def test_filters_of_the_query_are_used_and_right(spark: Any, golden: Golden) -> None:
    path, expected = golden.store("store-clean")
    sync = [message for message in expected["messages"] if message["topic"] == "TopicSync"]
    scan = spark.read.format("arrowmq.store").load(str(path)).where("topic = 'TopicSync' and tags = 'TagA'")
    assert sum(message.get("tags") == "TagA" for message in sync) == scan.count()
    middle = sorted(message["storeTimestamp"] for message in sync)[len(sync) // 2]
    moment = datetime.fromtimestamp(middle / 1000, UTC)
    scan = spark.read.format("arrowmq.store").load(str(path)).where("topic = 'TopicSync'")
    later = scan.where(scan.storeTimestamp >= moment).count()
    assert sum(message["storeTimestamp"] >= middle for message in sync) == later


def test_several_stores_are_one_table(spark: Any, golden: Golden) -> None:
    paths = [str(golden.store(variant)[0]) for variant in ("store-clean", "plain")]
    counts = [len(golden.store(variant)[1]["messages"]) for variant in ("store-clean", "plain")]
    scan = spark.read.format("arrowmq.store").option("path", ",".join(paths)).option("brokerName", "a,b")
    scan = scan.option("columns", "brokerName").load()
    assert {"a": counts[0], "b": counts[1]} == {
        row["brokerName"]: row["count"] for row in scan.groupBy("brokerName").count().collect()
    }


def test_offsets_topics_and_delays_are_tables(spark: Any, golden: Golden) -> None:
    path, expected = golden.store("store-clean")
    reader = spark.read.format("arrowmq.store").option("path", str(path))
    offsets = {
        (f"{row.topic}@{row.consumerGroup}", str(row.queueId)): row.offset
        for row in reader.option("table", "offsets").load().collect()
    }
    assert {
        (key, queue): offset for key, table in expected["groupOffsets"].items() for queue, offset in table.items()
    } == offsets
    topics = {row.topic: row.messages for row in reader.option("table", "topics").load().collect()}
    assert 2 == topics["%DLQ%GroupRetry"]
    delays = reader.option("table", "delays").load().collect()
    assert {17, 18} == {row.delayLevel for row in delays if row.kind == "level"}
    assert 2 == sum(row.topic == "TopicTimer" for row in delays if row.kind == "timer")


def test_damage_is_reported_and_not_fatal(spark: Any, golden: Golden) -> None:
    path, expected = golden.store("torn")
    reader = spark.read.format("arrowmq.store").option("path", str(path))
    assert len(expected["messages"]) == reader.load().count()
    damage = reader.option("table", "damage").load().collect()
    assert [974595] == [row.commitLogOffset for row in damage]
    with pytest.raises(Exception, match="option onDamage"):
        spark.read.format("arrowmq.store").option("path", str(path)).option("onDamage", "fail").load().count()


def whole(frame: Any) -> list[Any]:
    """Every column of every row, in the order of the log."""
    return sorted(frame.collect(), key=lambda row: row.commitLogOffset)


def test_the_scan_of_a_live_store_equals_what_its_broker_gives(spark: Any, server: Server) -> None:
    fill(server, "Alive", 500)
    cluster = connect(server)
    large = Outgoing(MessageQueue("Alive", "broker-a", 2), "ä".encode() * 3000, {"UNIQ_KEY": "LARGE", "TAGS": "big"})
    Sender(cluster, "tests", {}).send([large])
    cluster.close()
    served = whole(source(spark, server, topic="Alive"))
    reader = spark.read.format("arrowmq.store").option("path", str(server.store))
    assert 501 == len(served)
    assert served == whole(reader.option("topic", "Alive").load())
    everything = spark.read.format("arrowmq.store").load(str(server.store))
    assert served == [row for row in whole(everything) if row.topic == "Alive"]
    fill(server, "Alive", 20, first=500)
    assert 521 == reader.option("topic", "Alive").load().count()


def test_a_damaged_record_of_a_copy_is_left_out_and_listed(spark: Any, server: Server, tmp_path: Path) -> None:
    """Bodies, lengths and magics are overwritten in the copy: each costs one record, the others are all there."""
    fill(server, "Copied", 200)
    copy = tmp_path / "copy"
    shutil.copytree(server.store, copy)
    served = whole(source(spark, server, topic="Copied"))
    chosen = [served[20], served[77], served[140]]
    log = StoreDirectory(copy)
    for row, place in zip(chosen, (90, 2, 5), strict=True):
        segment = next(item for item in log.segments if item.start <= row.commitLogOffset < item.end)
        with open(segment.path, "r+b") as file:
            file.seek(row.commitLogOffset - segment.start + place)
            file.write(b"\x55\x55")
    reader = spark.read.format("arrowmq.store").option("path", str(copy))
    sound = [row for row in served if row not in chosen]
    assert sound == whole(reader.option("topic", "Copied").load())
    assert sound == [row for row in whole(spark.read.format("arrowmq.store").load(str(copy))) if row.topic == "Copied"]
    damage = spark.read.format("arrowmq.store").option("table", "damage").load(str(copy)).collect()
    assert sorted(row.commitLogOffset for row in chosen) == sorted(item.commitLogOffset for item in damage)
    assert all(item.reason for item in damage)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "/nowhere"}, "option path: /nowhere does not exist"),
        ({"path": "/"}, "option path: / holds no commitlog"),
        ({"path": "/", "tabel": "topics"}, "did you mean table"),
        ({"path": "/", "table": "queues"}, "option table: 'queues' is none of"),
        ({"path": "/", "splitBytes": "x"}, "option splitBytes"),
        ({"path": "/", "tags": "a ||"}, "option tags: 'a ||' is not an expression"),
        ({"path": "/", "sql": "price >"}, "option sql: "),
        ({"path": "/", "onDamage": "ignore"}, "option onDamage: 'ignore' is none of skip, fail"),
        ({"path": "/", "brokerName": "a,b"}, "option brokerName: names 2 brokers for 1 paths"),
        ({"path": "/", "includeHeaders": "maybe"}, "option includeHeaders: 'maybe' is neither"),
        ({}, "option path: say which store"),
    ],
)
def test_mistakes_are_named(spark: Any, given: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        spark.read.format("arrowmq.store").options(**given).load()
