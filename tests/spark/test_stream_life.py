"""What a stream lives through: retention that overtakes it, brokers that come, patience for enough messages, times."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live import Server, wait_for
from test_source import connect, fill, run_stream, source

from arrowmq import spark as arrowmq_spark
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.source.data_source import ArrowmqSource
from arrowmq.spark.stream_start import unhurried
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

SMALL_SEGMENTS = ("mappedFileSizeCommitLog=65536", "fileReservedTime=0", "deleteCommitLogFilesInterval=1")


def drop_old_segments(server: Server, topic: str) -> int:
    """Lets the broker delete what is past its retention time; the first offset of queue 0 that is left."""
    cluster = connect(server)
    queue = MessageQueue(topic, "broker-a", 0)
    command = Command.request(RequestCode.DELETE_EXPIRED_COMMITLOG, {})
    cluster.ask_broker("broker-a", command, "asking for deletion")
    wait_for(lambda: cluster.min_offsets([queue])[queue] > 0, "old segments deleted")
    first = cluster.min_offsets([queue])[queue]
    cluster.close()
    return first


def numbers(spark: Any, out: Path) -> list[int]:
    rows = spark.read.parquet(str(out / "data")).collect()
    return sorted(int(bytes(row.body).decode().split()[1]) for row in rows)


@pytest.fixture
def shrinking(tmp_path: Path) -> Any:
    with Server(tmp_path, *SMALL_SEGMENTS) as server:
        yield server


def test_retention_that_overtakes_a_stream_is_an_error_or_a_gap_as_asked(
    spark: Any, shrinking: Server, tmp_path: Path
) -> None:
    fill(shrinking, "Overtaken", 100, queues=1)
    options = {"topic": "Overtaken", "startingOffsets": "earliest"}
    run_stream(spark, shrinking, tmp_path / "out", **options)
    fill(shrinking, "Overtaken", 2000, queues=1, first=100)
    first = drop_old_segments(shrinking, "Overtaken")
    assert first > 100, "nothing that the stream had still to read was deleted"
    with pytest.raises(Exception, match=r"option failOnDataLoss: offsets 100 to \d+ of queue broker-a:0"):
        run_stream(spark, shrinking, tmp_path / "out", **options)
    assert list(range(100)) == numbers(spark, tmp_path / "out")  # nothing half written
    run_stream(spark, shrinking, tmp_path / "out", **options, failOnDataLoss="false")
    read = numbers(spark, tmp_path / "out")
    assert [*range(100), *range(first, 2100)] == read
    with pytest.raises(Exception, match=r"option startingOffsets: .*offset 7 is gone"):
        source(spark, shrinking, topic="Overtaken", startingOffsets='{"Overtaken":{"0":7}}').count()
    left = source(spark, shrinking, topic="Overtaken", startingOffsets='{"Overtaken":{"0":7}}', failOnDataLoss="false")
    assert 2100 - first == left.count()


def running(spark: Any, server: Server, out: Path, trigger: str, **options: Any) -> Any:
    """A stream that goes on until it is stopped."""
    stream = spark.readStream.format("arrowmq").option("namesrv", server.namesrv).options(**options).load()
    stream = stream.select("brokerName", "queueId", "queueOffset", "body")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    writer = writer.option("path", str(out / "data")).trigger(processingTime=trigger)

    def start() -> Any:
        query = writer.start()
        wait_for(lambda: query.recentProgress or query.exception() is not None, "a first batch")
        if query.exception() is not None:
            raise query.exception()
        return query

    return unhurried(start)


def wait_for_rows(spark: Any, out: Path, query: Any, is_enough: Callable[[list[Any]], bool], what: str) -> None:
    def arrived() -> bool:
        if query.exception() is not None:
            raise AssertionError(f"the stream ended: {query.exception()}")
        done = sum(progress["numInputRows"] for progress in query.recentProgress)
        return done > 0 and is_enough(spark.read.parquet(str(out / "data")).collect())

    wait_for(arrived, what, 120)


def test_a_broker_that_comes_while_a_stream_runs_is_read_from_its_beginning(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    fill(server, "Widened", 8)
    out = tmp_path / "out"
    query = running(spark, server, out, "200 milliseconds", topic="Widened", startingOffsets="earliest")
    try:
        wait_for_rows(spark, out, query, lambda rows: len(rows) == 8, "the rows of the first broker")
        (tmp_path / "second").mkdir()
        with Server(tmp_path / "second", joins=server.namesrv, name="broker-b") as second:
            assert second.broker != server.broker
            cluster = connect(server)
            ext = {
                "topic": "Widened", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            cluster.learn({"broker-b": second.broker})
            cluster.ask_broker("broker-b", Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), "making a topic")
            bodies = [
                Outgoing(MessageQueue("Widened", "broker-b", n % 2), b"of b", {"UNIQ_KEY": f"B{n}"}) for n in range(6)
            ]
            Sender(cluster, "tests", {}).send(bodies)
            cluster.close()
            wait_for_rows(spark, out, query, lambda rows: len(rows) == 14, "the rows of both brokers")
            query.stop()
            rows = spark.read.parquet(str(out / "data")).collect()
            assert {"broker-a": 8, "broker-b": 6} == {
                name: sum(row.brokerName == name for row in rows) for name in ("broker-a", "broker-b")
            }
            # The same queue numbers on two brokers: a number alone would be ambiguous.
            with pytest.raises(Exception, match=r"option startingOffsets: queue 0 .*say broker-a:0 or broker-b:0"):
                source(spark, server, topic="Widened", startingOffsets='{"Widened":{"0":1}}').count()
    finally:
        query.stop()


def test_a_stream_waits_for_enough_messages_or_for_long_enough(spark: Any, server: Server, tmp_path: Path) -> None:
    fill(server, "Patient", 10)
    out = tmp_path / "out"
    options = {"topic": "Patient", "startingOffsets": "earliest", "minOffsetsPerTrigger": "50"}
    query = running(spark, server, out, "100 milliseconds", **options, maxTriggerDelay="10m")
    try:
        wait_for_rows(spark, out, query, lambda rows: len(rows) == 10, "the first batch, which waits for nothing")
        fill(server, "Patient", 20, first=10)
        seen = len(query.recentProgress)
        wait_for(lambda: len(query.recentProgress) > seen or query.lastProgress["numInputRows"] == 0, "an idle trigger")
        fill(server, "Patient", 40, first=30)
        wait_for_rows(spark, out, query, lambda rows: len(rows) == 70, "all rows")
    finally:
        query.stop()
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert [10, 60] == sizes, "the twenty in between were too few for a batch of their own"
    fill(server, "Patient", 5, first=70)
    query = running(spark, server, out, "100 milliseconds", **options, maxTriggerDelay="300ms")
    try:
        wait_for_rows(spark, out, query, lambda rows: len(rows) == 75, "the first batch after a restart")
        fill(server, "Patient", 5, first=75)
        wait_for_rows(spark, out, query, lambda rows: len(rows) == 80, "the rest, after the longest delay")
    finally:
        query.stop()


def test_ranges_are_cut_into_as_many_tasks_as_asked(spark: Any, server: Server) -> None:
    fill(server, "Tasks", 400, queues=1)
    frame = source(spark, server, topic="Tasks", minPartitions=5)
    sizes = [row["count"] for row in frame.groupBy(spark_partition()).count().collect()]
    assert [80] * 5 == sizes
    assert 400 == frame.select("queueOffset").distinct().count()


def spark_partition() -> Any:
    from pyspark.sql.functions import spark_partition_id

    return spark_partition_id()


def test_times_choose_where_each_queue_begins_and_ends(spark: Any, server: Server) -> None:
    fill(server, "Timed", 40)
    early = max(row.storeTimestamp for row in source(spark, server, topic="Timed").collect())
    wait_for(lambda: now_ms() > epoch_ms(early) + 1, "another millisecond")
    split = now_ms()
    wait_for(lambda: now_ms() > split + 1, "another millisecond")
    fill(server, "Timed", 24, first=40)
    assert 24 == source(spark, server, topic="Timed", startingTimestamp=split).count()
    assert 40 == source(spark, server, topic="Timed", endingTimestamp=split).count()
    times = json.dumps({"Timed": {"0": split, "broker-a:1": split}})
    # Queues that are not named are read as without the option: from the earliest, to the latest.
    assert 6 + 6 + 16 + 16 == source(spark, server, topic="Timed", startingOffsetsByTimestamp=times).count()
    assert 10 + 10 + 16 + 16 == source(spark, server, topic="Timed", endingOffsetsByTimestamp=times).count()


def now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


def epoch_ms(moment: Any) -> int:
    from datetime import UTC

    return int(moment.replace(tzinfo=UTC).timestamp() * 1000)


def test_the_names_of_older_connectors_read_the_same(spark: Any, server: Server) -> None:
    fill(server, "Named", 30)
    old = {"nameServer": server.namesrv, "topic": "Named", "subExpression": "tag0", "pullBatchSize": "8"}
    assert 10 == spark.read.format("arrowmq").options(**old, pullTimeoutMs="5000").load().count()
    stream = {"nameserver.addr": server.namesrv, "consumer.topic": "Named", "consumer.group": "OldGroup"}
    stream |= {"consumer.tag": "tag1 || tag2", "pull.max.batch.size": "8", "pull.timeout.ms": "5000"}
    assert 20 == spark.read.format("arrowmq").options(**stream).load().count()
    kafka = {"kafka.bootstrap.servers": server.namesrv, "subscribe": "Named", "kafka.group.id": "KafkaGroup"}
    assert 30 == spark.read.format("arrowmq").options(**kafka, includeHeaders="true").load().count()
    assert (
        30
        == spark.read.format("arrowmq")
        .options(**{"kafka.bootstrap.servers": server.namesrv, "assign": '{"Named":[0,1,2,3]}'})
        .load()
        .count()
    )


class LateSource(ArrowmqSource):
    @classmethod
    def name(cls) -> str:
        return "arrowmq.late"


def test_a_stream_whose_python_process_came_too_late_is_started_again(
    spark: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job on a busy machine ended with an error before it had begun: Spark waits ten seconds for that process."""
    late = tmp_path / "late-python"
    late.write_text(
        f"""#!/bin/sh
case "$*" in *python_streaming_source_runner*)
  if [ ! -e {tmp_path}/was-late ]; then touch {tmp_path}/was-late; sleep 10.5; fi;;
esac
exec {sys.executable} "$@"
"""
    )
    late.chmod(0o755)
    fill(server, "Late", 30, queues=1)
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", str(late))
        spark.dataSource.register(LateSource)
    stream = spark.readStream.format("arrowmq.late").option("namesrv", server.namesrv).option("topic", "Late")
    rows = stream.option("startingOffsets", "earliest").load().select("body")
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "data"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with caplog.at_level(logging.WARNING, logger="arrowmq.spark.stream_start"):
        arrowmq_spark.run_stream(writer)
    assert "took more than ten seconds" in caplog.text
    assert 30 == spark.read.parquet(str(tmp_path / "data")).count()


def test_a_checkpoint_whose_first_batch_was_killed_begins_again_and_one_that_lost_its_offsets_does_not(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    """A kill while Spark wrote the offsets of batch 0 ended every later run of a job: found by random kills."""
    fill(server, "Begun", 30, queues=1)
    offsets, state = tmp_path / "checkpoint" / "offsets", tmp_path / "checkpoint" / "state"
    for folder in (offsets, state):
        folder.mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"4d45c97a-6079-478a-952b-ee306ac4f407"}')
    unfinished = ".0.5a2c0c1e-3b53-4a5e-9d56-0f6b7b1f3c11.tmp"
    (offsets / unfinished).write_text("v1\n{")
    (offsets / f".{unfinished}.crc").write_bytes(b"crc\0\0\0\2\0")
    (state / "kept").write_text("of batches whose offsets are gone")
    stream = spark.readStream.format("arrowmq").option("namesrv", server.namesrv).option("topic", "Begun")
    rows = stream.option("startingOffsets", "earliest").load().select("body")
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "data"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(Exception, match="should be empty on batch 0"):
        arrowmq_spark.run_stream(writer)
    assert (offsets / unfinished).exists()
    (state / "kept").unlink()
    arrowmq_spark.run_stream(writer)
    assert 30 == spark.read.parquet(str(tmp_path / "data")).count()
    assert not (offsets / unfinished).exists()
