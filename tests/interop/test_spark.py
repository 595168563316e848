"""Spark on a real Apache broker (topics read and written, its store scanned, live and as a copy), and what real clients
left on ours."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import apache, arrow
from oracle.hand import Hand
from oracle.ports import broker_port, free_port
from oracle.scene import Scene
from oracle.target import Target

from arrowmq.spark import pipelines, session
from arrowmq.spark.stream_start import unhurried
from waiting import block_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
ROWS = 3000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The NameServer's address and the store of the broker."""
    folder = tmp_path_factory.mktemp("apache")
    with apache.cluster(folder, free_port(), broker_port(), mappedFileSizeCommitLog=1 << 20) as (names, _):
        yield names.address, folder / "broker" / "store"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    started = session("interop", master="local[2]", is_short=True, **warehouse)
    yield started
    started.stop()


def whole(frame: Any) -> list[Any]:
    """Every column of every row, in the order of the log."""
    return sorted(frame.collect(), key=lambda row: row.commitLogOffset)


def source(reader: Any, namesrv: str, topic: str, **options: Any) -> Any:
    return reader.format("arrowmq").options(namesrv=namesrv, topic=topic, **options).load()


def test_topic_stream_live_store_and_copy_of_an_apache_broker_are_the_same_rows(
    spark: Any, broker: tuple[str, Path], tmp_path: Path
) -> None:
    namesrv, store = broker
    columns = ("concat('row ', id) as body", "concat('tag', id % 3) as tags", "concat('key', id) as keys")
    frame = spark.range(ROWS).selectExpr(
        *columns, "cast(id % 4 as int) as queueId", "map('n', cast(id as string)) as properties"
    )
    frame.write.format("arrowmq").options(namesrv=namesrv, topic="SparkRead").mode("append").save()
    served = whole(source(spark.read, namesrv, "SparkRead"))
    assert {f"row {number}".encode(): 1 for number in range(ROWS)} == Counter(bytes(row.body) for row in served)
    assert {"broker-a"} == {row.brokerName for row in served}
    assert ROWS // 3 == source(spark.read, namesrv, "SparkRead", tags="tag1").count()
    assert 499 == source(spark.read, namesrv, "SparkRead", sql="n > 2500").count()

    scan = spark.read.format("arrowmq.store").option("topic", "SparkRead")
    assert served == whole(scan.load(str(store)))
    shutil.copytree(store, tmp_path / "copy")
    assert served == whole(scan.load(str(tmp_path / "copy")))
    everything = spark.read.format("arrowmq.store").load(str(tmp_path / "copy"))
    assert served == [row for row in whole(everything) if row.topic == "SparkRead"]

    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000}
    stream = source(spark.readStream, namesrv, "SparkRead", **limited)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.option("path", str(tmp_path / "data")).trigger(availableNow=True)
    unhurried(lambda: writer.start().awaitTermination())
    assert served == whole(spark.read.parquet(str(tmp_path / "data")).select(*served[0].__fields__))


def test_an_analytic_replica_of_an_apache_broker_grows_with_it_and_is_read_meanwhile(
    spark: Any, broker: tuple[str, Path], tmp_path: Path
) -> None:
    """Each command of docs/analytic-replica.md: replica, tools, Spark; and the broker's cluster knows nothing of it."""
    namesrv, _ = broker
    folder = tmp_path / "archive" / "broker-a"

    def write(begin: int, end: int) -> None:
        frame = spark.range(begin, end).selectExpr("concat('row ', id) as body", "concat('tag', id % 3) as tags")
        frame.write.format("arrowmq").options(namesrv=namesrv, topic="Archived").mode("append").save()

    def run(*words: str) -> str:
        done = subprocess.run([*arrow.COMMAND, *words], env=arrow.environment(), capture_output=True, timeout=60)
        assert 0 == done.returncode, done.stderr
        return done.stdout.decode()

    def archived() -> Any:
        return spark.read.format("arrowmq.store").option("path", str(folder)).option("topic", "Archived").load()

    write(0, 600)
    command = [*arrow.COMMAND, "replica", "--of", namesrv, "--broker", "broker-a", "--dir", str(folder)]
    for begin, end in ((600, 900), (900, 1200)):  # stopped and started again: it goes on where it was
        replica = subprocess.Popen(
            [*command, "--stop-with-stdin"], env=arrow.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert replica.stdout is not None
            assert replica.stdout.readline().startswith(b"ready")
            write(begin, end)
            block_until(lambda end=end: archived().count() == end, 60)
            assert "Archived" in run("store", "stats", str(folder))
            dumped = run("store", "dump", str(folder), "--topic", "Archived").splitlines()
            assert end == len(dumped)
            counts = {row.tags: row["count"] for row in archived().groupBy("tags").count().collect()}
            assert {f"tag{number}": end // 3 for number in range(3)} == counts
            shown = run("cluster", "show", "-n", namesrv)
            assert 1 == shown.count("broker-a")
        finally:
            replica.communicate(timeout=30)
        assert 0 == replica.returncode
    assert {f"row {number}".encode(): 1 for number in range(1200)} == Counter(
        bytes(row.body) for row in whole(archived())
    )


def test_rows_of_a_task_keep_their_order_on_an_apache_broker(spark: Any, broker: tuple[str, Path]) -> None:
    """It takes requests of one connection in several threads."""
    namesrv, _ = broker
    frame = spark.range(0, 40_000, 1, 1).selectExpr(
        "cast(id as string) as body", "concat('key', id % 2) as shardingKey"
    )
    frame.write.format("arrowmq").options(namesrv=namesrv, topic="SparkOrder").mode("append").save()
    rows = source(spark.read, namesrv, "SparkOrder").select("queueId", "queueOffset", "body").collect()
    assert 40_000 == len(rows)
    for number in range(2):
        mine = sorted((row for row in rows if int(row.body) % 2 == number), key=lambda row: row.queueOffset)
        assert list(range(number, 40_000, 2)) == [int(row.body) for row in mine]


def test_the_exactly_once_sink_keeps_its_word_on_an_apache_broker(
    spark: Any, broker: tuple[str, Path], tmp_path: Path
) -> None:
    """The last batch is repeated, as after a crash between the sink's commit and Spark's own."""
    namesrv, _ = broker
    frame = spark.range(300).selectExpr("concat('row ', id) as body")
    frame.write.format("arrowmq").options(namesrv=namesrv, topic="SparkFrom").mode("append").save()

    def run() -> None:
        limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 200}
        stream = source(spark.readStream, namesrv, "SparkFrom", **limited).select("body")
        writer = stream.writeStream.format("arrowmq").options(namesrv=namesrv, topic="SparkTo")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        unhurried(lambda: writer.start().awaitTermination())

    run()
    commits = tmp_path / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    last.unlink()
    run()
    found = Counter(bytes(row.body) for row in source(spark.read, namesrv, "SparkTo").collect())
    assert {f"row {number}".encode(): 1 for number in range(300)} == found


def test_latencies_and_reasons_come_out_of_what_a_java_client_traced(
    spark: Any, cluster: Target, admin: Hand, scene: Scene, tmp_path: Path
) -> None:
    """Forty messages, of which the consumer refuses two for good."""
    topic, group = scene.topic(queues=2), scene.name("g")
    producer = scene.producer(admin, trace=True)
    producer.send(topic, [{"key": f"k{number}", "body": f"row {number}"} for number in range(40)])
    listener = scene.listener(admin, topic, group, trace=True, fail={"k3": -1, "k30": -1}, failDelay=-1, pause=20)
    assert 40 == len(listener.seen(40))

    def traced() -> Any:
        return pipelines.trace(spark, namesrv=cluster.namesrv, with_stored=True, report=str(tmp_path / "trace.html"))

    def are_all_there(found: Any) -> bool:
        mine = [row for row in found.by_group if row.consumerGroup == group and row.topic == topic]
        return [(40, 0)] == [(row.deliveries, row.unfinished) for row in mine]

    deadline = time.monotonic() + 60  # clients write their traces some time later
    while not are_all_there(found := traced()):
        assert time.monotonic() < deadline, f"not traced: {found}"
    (sent,) = (row for row in found.by_topic if row.topic == topic)
    assert (40, 0) == (sent.sends, sent.failed)
    assert 0 <= sent.send[0] <= sent.send[2] < 10_000
    (consumed,) = (row for row in found.by_group if row.consumerGroup == group)
    assert (topic, 40, 2, 0) == (consumed.topic, consumed.deliveries, consumed.failed, consumed.retried)
    assert 20 <= consumed.consumed[0] < 1000
    assert 0 <= consumed.waited[0] < 60_000
    assert 0 <= found.stored[topic][0] < 10_000
    assert 0 == found.unreadable
    assert topic in (tmp_path / "trace.html").read_text()
    letters = pipelines.dead_letters(
        spark, namesrv=cluster.namesrv, groups=[group], trace_topic="RMQ_SYS_TRACE_TOPIC"
    ).collect()
    assert {"k3", "k30"} == {row["keys"][0] for row in letters}
    assert {topic} == {row.originTopic for row in letters}
    assert all(", the last: refused by the listener" in row.why for row in letters), [row.why for row in letters]
