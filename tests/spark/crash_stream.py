"""The stream that the crash soak kills: from a topic to a topic (`sink`) or to files (`source`).

It goes on in batches of a few rows while the plan has kills left, and is started again whenever it failed; then it
takes the rest in one batch. Whoever kills Java ends this process too: it is started again by the soak.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from failpoints import CrashingSource, Plan

from arrowmq.spark import session
from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.source.pull import Subscription, read_range
from arrowmq.spark.source.ranges import OffsetRange
from arrowmq.wire.ids import UniqueIds
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import decode_records

BATCH_ROWS = 20


def fill(namesrv: str, topic: str, rows: int) -> None:
    cluster = Cluster(Connection((namesrv,)))
    ids = UniqueIds()
    messages = (
        Outgoing(MessageQueue(topic, "broker-a", row % 4), f"{row}".encode(), {"UNIQ_KEY": ids.next()})
        for row in range(rows)
    )
    Sender(cluster, "soak", {}).send(messages)
    cluster.close()


def visible(namesrv: str, topic: str) -> dict[int, list[str]]:
    """The bodies of each queue, in order."""
    cluster = Cluster(Connection((namesrv,), patience_s=30))
    found: dict[int, list[str]] = {}
    route = cluster.route(topic)
    for queue, end in cluster.max_offsets(route.readable if route else []).items():
        bodies = found.setdefault(queue.queue_id, [])
        for pulled in read_range(cluster, OffsetRange(queue, 0, end), Subscription()):
            bodies += [record.body.decode() for record in decode_records(pulled.records)]
    cluster.close()
    return found


def writer_of(spark: Any, namesrv: str, folder: Path, stage: str, *, is_last: bool) -> Any:
    plan = str(folder / "plan")
    stream = spark.readStream.format("arrowmq.crashing").option("namesrv", namesrv).option("plan", plan)
    stream = stream.option("topic", f"{stage}-from").option("startingOffsets", "earliest")
    if not is_last:
        stream = stream.option("maxOffsetsPerTrigger", BATCH_ROWS)
    rows = stream.option("group", f"{stage}-group").load().select("body", "queueId")
    if stage == "source":
        writer = rows.writeStream.format("parquet").option("path", str(folder / "data"))
    else:
        writer = rows.writeStream.format("arrowmq.crashing").option("plan", plan)
        writer = writer.option("namesrv", namesrv).option("topic", f"{stage}-to")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True) if is_last else writer


def run(spark: Any, namesrv: str, folder: Path, stage: str) -> None:
    plan = Plan(folder / "plan")
    while True:
        left = plan.left()
        query = None
        try:
            query = writer_of(spark, namesrv, folder, stage, is_last=not left).start()
            while not query.awaitTermination(0.05):
                if left and not plan.left():
                    query.stop()
                    break
            else:
                if not left:
                    return
        except Exception as wrong:
            if spark.sparkContext._jsc is None or "Py4JNetworkError" in repr(wrong) or "refused" in str(wrong):
                raise  # Java is gone
            print(f"{time.strftime('%X')} again: {str(wrong).strip().splitlines()[0][:100]}", flush=True)


def main() -> None:
    namesrv, folder, stage, master = sys.argv[1:5]
    settings = {"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "1g"}
    spark = session("crashes", master=master, is_short=True, **settings)
    spark.dataSource.register(CrashingSource)
    print(f"{time.strftime('%X')} started", flush=True)
    run(spark, namesrv, Path(folder), stage)
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
