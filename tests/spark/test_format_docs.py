"""The examples of the pages on source, sink and store scan run as they stand, but for addresses, names and folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from live import Server
from test_source import fill, source

PAGES = Path(__file__).parents[2] / "docs" / "spark"
COUNT = 12


def examples(page: str, replaced: dict[str, str]) -> list[str]:
    text = (PAGES / page).read_text()
    for word, other in replaced.items():
        text = text.replace(word, other)
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def end_streams(spark: Any) -> None:
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def test_the_examples_of_source_sink_and_store_run(spark: Any, server: Server, tmp_path: Path) -> None:
    fill(server, "PageOrders", COUNT)
    replaced = {
        "localhost:9876": server.namesrv,
        '"orders"': '"PageOrders"',
        "orders-clean": "PageClean",
        "/data/broker-a/store,/data/broker-b/store": str(server.store),
        "/backup/store": str(server.store),
    }
    names: dict[str, Any] = {"spark": spark}
    (read,) = examples("source.md", replaced)
    exec(read, names)
    assert (COUNT, True) == (names["batch"].count(), names["stream"].isStreaming)

    stored = spark.readStream.format("arrowmq").option("namesrv", server.namesrv).option("topic", "PageOrders")
    names["orders"] = (
        stored.option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(body as string) as order", "tags as state", "keys[0] as customer")
    )
    for number, write in enumerate(examples("sink.md", replaced), 1):
        exec(write.replace("/data/checkpoints", str(tmp_path / str(number))), names)
        end_streams(spark)
        sent = [json.loads(bytes(row.body)) for row in source(spark, server, topic="PageClean").collect()]
        assert number * COUNT == len(sent)
        assert {f"message {each}" for each in range(COUNT)} == {each["order"] for each in sent}

    (scan,) = examples("store.md", replaced)
    exec(scan, names)
    assert COUNT == names["orders"].count()
    assert names["records"].count() >= 3 * COUNT
