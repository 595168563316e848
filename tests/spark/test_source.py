"""Reading topics of a running server, as tables and as streams."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from live import Server, wait_for

from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.stream_start import unhurried
from arrowmq.wire.message_queue import MessageQueue


def connect(server: Server) -> Cluster:
    return Cluster(Connection((server.namesrv,), patience_s=20))


def fill(server: Server, topic: str, count: int, *, queues: int = 4, first: int = 0) -> dict[int, list[bytes]]:
    """Messages of known content; gives back each queue's bodies in order."""
    sent: dict[int, list[bytes]] = defaultdict(list)
    messages = []
    for number in range(first, first + count):
        queue = number % queues
        body = f"message {number}".encode()
        sent[queue].append(body)
        properties = {
            "TAGS": f"tag{number % 3}",
            "KEYS": f"key-{number} all",
            "UNIQ_KEY": uuid.uuid4().hex.upper(),
            "n": str(number),
        }
        messages.append(Outgoing(MessageQueue(topic, "broker-a", queue), body, properties))
    cluster = connect(server)
    Sender(cluster, "tests", {}).send(messages)
    cluster.close()
    return sent


def bodies_by_queue(rows: list[Any]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.queueOffset):
        found[row.queueId].append(bytes(row.body))
    return found


def source(spark: Any, server: Server, **options: Any) -> Any:
    reader = spark.read.format("arrowmq").option("namesrv", server.namesrv)
    return reader.options(**options).load()


def test_a_topic_is_read_whole_in_order_and_unchanged(spark: Any, server: Server) -> None:
    sent = fill(server, "ReadWhole", 2000)
    rows = source(spark, server, topic="ReadWhole", minPartitions=7).collect()
    assert sent == bodies_by_queue(rows)
    row = next(row for row in rows if bytes(row.body) == b"message 5")
    assert ("tag2", ["key-5", "all"], "5", "broker-a", "ReadWhole") == (
        row.tags, row["keys"], row.properties["n"], row.brokerName, row.topic,
    )  # fmt: skip


def test_offsets_and_times_bound_a_read(spark: Any, server: Server) -> None:
    fill(server, "ReadBounds", 400)
    starts = json.dumps({"ReadBounds": {"0": 10, "broker-a:1": -1, "2": -2}})
    ends = json.dumps({"ReadBounds": {"0": 15, "2": 3}})
    rows = source(spark, server, topic="ReadBounds", startingOffsets=starts, endingOffsets=ends).collect()
    counted = {queue: len(found) for queue, found in bodies_by_queue(rows).items()}
    assert {0: 5, 2: 3, 3: 100} == counted
    stamp = min(row.storeTimestamp for row in rows)
    whole = source(spark, server, topic="ReadBounds")
    assert 400 == whole.where(whole.storeTimestamp >= stamp).where(
        "storeTimestamp < now() + interval 1 hour"
    ).count() + (whole.where(whole.storeTimestamp < stamp).count())
    later = str(int(stamp.timestamp() * 1000) + 86_400_000)
    with pytest.raises(Exception, match=r"option startingTimestamp: .*no message stored at"):
        source(spark, server, topic="ReadBounds", startingTimestamp=later).count()
    late = {"startingTimestamp": later, "startingOffsetsByTimestampStrategy": "latest"}
    assert 0 == source(spark, server, topic="ReadBounds", **late).count()


def test_tags_sql_queues_and_pushed_filters_agree(spark: Any, server: Server) -> None:
    fill(server, "ReadFilters", 600)
    assert 400 == source(spark, server, topic="ReadFilters", tags="tag0 || tag2").count()
    assert 99 == source(spark, server, topic="ReadFilters", sql="n > 500").count()
    assert 300 == source(spark, server, queues='{"ReadFilters":[1,"broker-a:3"]}').count()
    whole = source(spark, server, topic="ReadFilters")
    assert 200 == whole.where("tags = 'tag1'").count()
    assert 50 == whole.where("queueId in (1, 2) and queueOffset >= 125").count()
    assert 600 == source(spark, server, topicPattern="ReadFil.*").count()


def test_filters_work_with_pushdown_switched_off(spark: Any, server: Server) -> None:
    fill(server, "ReadPlain", 40)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert 10 == source(spark, server, topic="ReadPlain").where("queueId = 1").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_columns_can_be_left_out(spark: Any, server: Server) -> None:
    fill(server, "ReadColumns", 8)
    assert ["topic", "queueId"] == source(spark, server, topic="ReadColumns", columns="queueId,topic").columns
    assert "properties" not in source(spark, server, topic="ReadColumns", includeHeaders="false").columns
    given = spark.read.format("arrowmq").option("namesrv", server.namesrv).option("topic", "ReadColumns")
    assert 8 == given.schema("queueOffset bigint, body binary").load().count()
    with pytest.raises(Exception, match="parse `body` yourself"):
        given.schema("amount double").load().count()


def test_mistakes_end_with_a_clear_sentence(spark: Any, server: Server) -> None:
    with pytest.raises(Exception, match="option topic: topic Nowhere does not exist"):
        source(spark, server, topic="Nowhere").count()
    with pytest.raises(Exception, match=r"no NameServer answers .option namesrv"):
        spark.read.format("arrowmq").option("namesrv", "127.0.0.1:1").option("topic", "x").option(
            "patienceMs", "10"
        ).load().count()
    fill(server, "ReadMistakes", 8)
    with pytest.raises(Exception, match=r"option endingOffsets: .*ends at 2, before the asked 99"):
        source(spark, server, topic="ReadMistakes", endingOffsets='{"ReadMistakes":{"0":99}}').count()


def run_stream(spark: Any, server: Server, out: Path, **options: Any) -> Any:
    stream = spark.readStream.format("arrowmq").option("namesrv", server.namesrv).options(**options).load()
    stream = stream.select("topic", "brokerName", "queueId", "queueOffset", "body")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    writer = writer.option("path", str(out / "data")).trigger(availableNow=True)

    def run() -> Any:
        query = writer.start()
        query.awaitTermination()
        return query

    return unhurried(run)


def test_a_stream_reads_everything_once_over_triggers_and_restarts(spark: Any, server: Server, tmp_path: Path) -> None:
    sent = fill(server, "Streamed", 1000)
    options = {
        "topic": "Streamed",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 300,
        "group": "StreamedGroup",
    }
    query = run_stream(spark, server, tmp_path, **options)
    assert [300, 300, 300, 100] == [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    for queue, bodies in fill(server, "Streamed", 200, first=1000).items():
        sent[queue] += bodies
    run_stream(spark, server, tmp_path, **options)
    run_stream(spark, server, tmp_path, **options)
    assert sent == bodies_by_queue(spark.read.parquet(str(tmp_path / "data")).collect())
    assert 1200 == sum(committed(server, "StreamedGroup", "Streamed").values())


def committed(server: Server, group: str, topic: str) -> dict[int, int]:
    """What the broker has stored as the group's progress."""
    from arrowmq.wire.codes import RequestCode
    from arrowmq.wire.frames import Command

    cluster = connect(server)
    route = cluster.route(topic)
    assert route is not None
    found = {}
    for queue in route.readable:
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue.queue_id)}
        answer = cluster.ask_broker("broker-a", Command.request(RequestCode.QUERY_CONSUMER_OFFSET, ext), "asking")
        found[queue.queue_id] = int(answer.ext["offset"])
    cluster.close()
    return found


def test_a_byte_limit_makes_small_batches(spark: Any, server: Server, tmp_path: Path) -> None:
    fill(server, "StreamedBytes", 200)
    query = run_stream(
        spark, server, tmp_path, topic="StreamedBytes", startingOffsets="earliest", maxBytesPerTrigger="10k"
    )
    rows = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert 200 == sum(rows)
    assert len(rows) > 2


def test_new_queues_are_read_from_their_beginning(spark: Any, server: Server, tmp_path: Path) -> None:
    from arrowmq.wire.codes import RequestCode
    from arrowmq.wire.frames import Command

    fill(server, "StreamedGrowing", 20)
    options = {"topic": "StreamedGrowing", "startingOffsets": "earliest"}
    run_stream(spark, server, tmp_path, **options)
    cluster = connect(server)
    ext = {
        "topic": "StreamedGrowing", "defaultTopic": "TBW102", "readQueueNums": "6", "writeQueueNums": "6", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    cluster.ask_broker("broker-a", Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), "growing a topic")
    wait_for(lambda: len(connect(server).route("StreamedGrowing").readable) == 6, "six queues in the route")  # type: ignore[union-attr]
    Sender(cluster, "tests", {}).send(
        [Outgoing(MessageQueue("StreamedGrowing", "broker-a", 5), b"new", {"UNIQ_KEY": "A"})]
    )
    run_stream(spark, server, tmp_path, **options)
    rows = spark.read.parquet(str(tmp_path / "data")).collect()
    assert 21 == len(rows)
    assert [b"new"] == [bytes(row.body) for row in rows if row.queueId == 5]
