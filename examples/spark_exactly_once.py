"""A stream from topic to topic, exactly once: orders are parsed, the large ones go on.

    arrowmq server &
    python examples/spark_exactly_once.py --namesrv localhost:9876

Kill it whenever you like and start it again: topic orders-large holds each order once. docs/spark/sink.md says why.
"""

from __future__ import annotations

import argparse

from arrowmq.spark import session


def main() -> None:
    parser = argparse.ArgumentParser(description="Large orders into a topic of their own, exactly once.")
    parser.add_argument("--namesrv", default="localhost:9876")
    parser.add_argument("--checkpoint", default="orders-large-checkpoint")
    given = parser.parse_args()
    spark = session("orders-large")
    orders = (
        spark.readStream.format("arrowmq")
        .option("namesrv", given.namesrv)
        .option("topic", "orders")
        .option("startingOffsets", "earliest")
        .option("tags", "created || paid")
        .option("group", "orders-large")
        .load()
    )
    shape = "order string, city string, amount double, state string"
    large = (
        orders.selectExpr(f"from_json(cast(body as string), '{shape}') as o")
        .where("o.amount > 100")
        .selectExpr(
            "to_json(o) as body",
            "o.state as tags",
            "array(o.order) as keys",
            "o.city as shardingKey",
        )
    )
    query = (
        large.writeStream.format("arrowmq")
        .option("namesrv", given.namesrv)
        .option("topic", "orders-large")
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="5 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
