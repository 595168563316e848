"""A million messages of 1 KiB over 8 queues: read in batch, in a stream of several triggers, and from the store files.

    python tests/spark/soak/large.py --on arrowmq --rows 1000000
    python tests/spark/soak/large.py --on apache

Each reading must have every message once, unchanged, without a hole, and in the order of its queue.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "interop")]

from live import Server  # noqa: E402

from arrowmq.spark import session  # noqa: E402
from arrowmq.spark.cluster import Cluster, Connection  # noqa: E402
from arrowmq.wire.codes import RequestCode  # noqa: E402
from arrowmq.wire.frames import Command  # noqa: E402

TOPIC, QUEUES = "SoakLarge", 8


@contextlib.contextmanager
def started(kind: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """A NameServer's address, and the store of its one broker."""
    if kind == "arrowmq":
        with Server(folder) as server:
            yield server.namesrv, server.store
        return
    from oracle import apache
    from oracle.ports import broker_port, free_port

    with (
        apache.namesrv(folder / "namesrv", free_port()) as names,
        apache.broker(folder / "broker", broker_port(), names.address, None, brokerName="broker-a"),
    ):
        yield names.address, folder / "broker" / "store"


def make_topic(namesrv: str) -> None:
    cluster = Cluster(Connection((namesrv,)))
    ext = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    for broker in cluster.brokers():
        cluster.ask_broker(broker, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), "making a topic")
    deadline = time.monotonic() + 60
    while (route := cluster.route(TOPIC)) is None or len(route.writable) < QUEUES:
        assert time.monotonic() < deadline, "the topic did not get its queues"
    cluster.close()


def check(frame: Any, rows: int, what: str) -> bool:
    """Each number once, its body unchanged, and growing with the offset within each queue, without a hole."""
    spark = frame.sparkSession
    number = "substring_index(cast(body as string), ' ', 1)"
    same = f"body = cast(rpad(concat({number}, ' '), 1024, 'x') as binary) as same"
    seen = frame.selectExpr("queueId", "queueOffset", f"cast({number} as bigint) as n", same).cache()
    began = time.monotonic()
    seen.count()
    took = time.monotonic() - began
    seen.createOrReplaceTempView("seen")
    (found,) = spark.sql(
        "select count(*) as n, count(distinct n) as distinct_n, count_if(same) as same, min(n) as first, "
        "max(n) as last, count(distinct queueId) as queues from seen"
    ).collect()
    (order,) = spark.sql(
        "select count_if(n < before) as backwards, count_if(queueOffset != place) as holes from (select n, "
        "queueOffset, lag(n) over (partition by queueId order by queueOffset) as before, "
        "row_number() over (partition by queueId order by queueOffset) - 1 as place from seen)"
    ).collect()
    seen.unpersist()
    is_sound = tuple(found) == (rows, rows, rows, 0, rows - 1, QUEUES) and tuple(order) == (0, 0)
    verdict = "as sent" if is_sound else f"NOT AS SENT: {found} {order}"
    print(f"{what}: {found.n} rows in {took:.1f} s ({found.n / took:,.0f} rows/s), {verdict}", flush=True)
    return is_sound


def read_all(spark: Any, namesrv: str, store: Path, folder: Path, rows: int) -> bool:
    def source(reader: Any) -> Any:
        return reader.format("arrowmq").option("namesrv", namesrv).option("topic", TOPIC)

    is_sound = check(source(spark.read).load(), rows, "batch")
    stream = (
        source(spark.readStream).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows // 4 + 1)
    )
    writer = stream.load().writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    began = time.monotonic()
    query = writer.trigger(availableNow=True).start(str(folder / "data"))
    query.awaitTermination()
    triggers = sum(progress["numInputRows"] > 0 for progress in query.recentProgress)
    print(f"stream: {triggers} triggers, {time.monotonic() - began:.1f} s into Parquet", flush=True)
    is_sound = check(spark.read.parquet(str(folder / "data")), rows, "what the stream wrote") and is_sound
    scan = spark.read.format("arrowmq.store").option("topic", TOPIC).load(str(store))
    return check(scan, rows, "store scan, broker running") and triggers >= 4 and is_sound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=("arrowmq", "apache"), default="arrowmq")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="arrowmq-large-"))
    settings = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.driver.memory": "3g"}
    try:
        with started(given.on, folder) as (namesrv, store):
            make_topic(namesrv)
            spark = session("large", master="local[2]", **settings)
            # Each queue is written by one task, so that its order is known.
            body, queue = "rpad(concat(id, ' '), 1024, 'x')", f"id div ceil({given.rows} / {QUEUES})"
            frame = spark.range(0, given.rows, 1, QUEUES).selectExpr(
                f"{body} as body", f"cast({queue} as int) as queueId"
            )
            began = time.monotonic()
            frame.write.format("arrowmq").option("namesrv", namesrv).option("topic", TOPIC).mode("append").save()
            print(f"{given.on}: {given.rows} rows of 1 KiB sent in {time.monotonic() - began:.1f} s", flush=True)
            is_sound = read_all(spark, namesrv, store, folder, given.rows)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if is_sound else 1)


if __name__ == "__main__":
    main()
