"""A million messages of 1 KiB over 8 queues: read in batch, in a stream of several triggers, and from the store."""

from __future__ import annotations

import sys
import time
from typing import Any

from arrowmq.spark import session
from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frame import Command

namesrv, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
TOPIC, QUEUES = "SoakLarge", 8


def make_topic() -> None:
    cluster = Cluster(Connection((namesrv,)))
    ext = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    for broker in cluster.brokers():
        cluster.ask_broker(broker, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), "making a topic")
    deadline = time.monotonic() + 30
    while (route := cluster.route(TOPIC)) is None or len(route.writable) < QUEUES:
        assert time.monotonic() < deadline, "the topic did not get its queues"
    cluster.close()


def check(frame: Any, what: str) -> None:
    """Each number once, its body unchanged, and growing with the offset within each queue."""
    spark = frame.sparkSession
    number = "substring_index(cast(body as string), ' ', 1)"
    same = f"body = cast(rpad(concat({number}, ' '), 1024, 'x') as binary) as same"
    frame.selectExpr("queueId", "queueOffset", f"cast({number} as bigint) as n", same).createOrReplaceTempView("rows")
    began = time.monotonic()
    (found,) = spark.sql(
        "select count(*) as n, count(distinct n) as distinct_n, count_if(same) as same, min(n) as first, "
        "max(n) as last from rows"
    ).collect()
    (order,) = spark.sql(
        "select count_if(n < before) as backwards, count_if(queueOffset != place) as holes from (select n, "
        "queueOffset, lag(n) over (partition by queueId order by queueOffset) as before, "
        "row_number() over (partition by queueId order by queueOffset) - 1 as place from rows)"
    ).collect()
    sound = (found.n, found.distinct_n, found.same, found.first, found.last) == (rows, rows, rows, 0, rows - 1)
    sound = sound and (order.backwards, order.holes) == (0, 0)
    print(f"{what}: {found}, {order}, {time.monotonic() - began:.1f} s", flush=True)
    if not sound:
        sys.exit(1)


spark = session(
    "large", master="local[2]", **{"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "3g"}
)
make_topic()
# Each queue is written by one task, so that its order is known.
frame = spark.range(0, rows, 1, QUEUES).selectExpr(
    "rpad(concat(id, ' '), 1024, 'x') as body", f"cast(id div ceil({rows} / {QUEUES}) as int) as queueId"
)
frame.write.format("arrowmq").option("namesrv", namesrv).option("topic", TOPIC).mode("append").save()
check(spark.read.format("arrowmq").option("namesrv", namesrv).option("topic", TOPIC).load(), "batch")
stream = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("topic", TOPIC)
stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows // 4 + 1).load()
writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
query = writer.trigger(availableNow=True).start(f"{folder}/data")
query.awaitTermination()
print(f"stream: {sum(progress['numInputRows'] > 0 for progress in query.recentProgress)} triggers", flush=True)
check(spark.read.parquet(f"{folder}/data"), "stream")
spark.stop()
