"""The stream that the soak kills: from a topic to a topic, exactly once."""

from __future__ import annotations

import sys
from typing import Any

from arrowmq.spark import session

namesrv, folder, rows, what = sys.argv[1:5]


def run(spark: Any) -> None:
    stream = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("topic", "SoakSparkFrom")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500).load()
    writer = stream.select("body").writeStream.format("arrowmq").option("namesrv", namesrv)
    writer = writer.option("topic", "SoakSparkTo").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    print("running", flush=True)
    query.awaitTermination()


spark = session("soak", master="local[2]", is_short=True, **{"spark.sql.warehouse.dir": f"{folder}/warehouse"})
if what == "fill":
    frame = spark.range(int(rows)).selectExpr("concat('row ', id) as body")
    frame.write.format("arrowmq").option("namesrv", namesrv).option("topic", "SoakSparkFrom").mode("append").save()
else:
    run(spark)
spark.stop()
