"""One round of all that a broker counts, played by the Python client, and the page that the broker then shows.

`apache-5.5.json` is what the Apache broker 5.5.0 shows after it; `tests/interop/test_metrics_page.py` holds it to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import arrowmq

HOST = "127.0.0.1"
TOPIC, GROUP = "Metered", "metered"
RECORDED = Path(__file__).with_name("apache-5.5.json")
# Type and labels of each metric, and of a histogram the bounds of its buckets
Shape = dict[str, dict[str, Any]]
PLACE = ("cluster", "node_id", "node_type")  # labels that every metric has
EXPORTER = "otel_scope_name"  # a label that Apache's exporter adds to all; it always says the same


def recorded() -> Shape:
    shape: Shape = json.loads(RECORDED.read_text())
    return shape


def settings(port: int) -> dict[str, Any]:
    # Nobody is to be asked about a transaction while the scene is played.
    where = {"metricsPromExporterPort": port, "metricsPromExporterHost": HOST}
    return {"metricsExporterType": "PROM", **where, "transactionTimeOut": 60_000}


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as page:
        return str(page.read().decode())


def shape(text: str) -> Shape:
    found: Shape = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("rocketmq_") or not family.samples:
            continue
        labels = {label for sample in family.samples for label in sample.labels} - {"le", EXPORTER, *PLACE}
        found[family.name] = {"type": family.type, "labels": sorted(labels)}
        if bounds := {sample.labels["le"] for sample in family.samples if "le" in sample.labels}:
            found[family.name]["buckets"] = sorted(bounds, key=float)
    return dict(sorted(found.items()))


async def play(namesrv: str, port: int) -> str:
    """Messages of every kind, two transactions, a dead letter, a new topic and group; and the page after it, while the
    clients are still connected."""
    async with arrowmq.Admin(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=2)
        await admin.create_group(GROUP)
    async with arrowmq.Producer(namesrv, group="metering") as producer:
        await producer.send(TOPIC, b"plain")
        await producer.send(TOPIC, random.Random(1).randbytes(5000))
        await producer.send(TOPIC, b"in order", order_key="o-1")
        await producer.send(TOPIC, b"by level", delay_level=1)
        await producer.send(TOPIC, b"by time", delay=2)
        async with producer.transaction(TOPIC, b"committed"):
            pass
        with contextlib.suppress(ValueError):
            async with producer.transaction(TOPIC, b"rolled back"):
                raise ValueError("the work failed")
        async with arrowmq.Consumer(namesrv, group=GROUP, topic=TOPIC, consume_from="first") as consumer:
            seen = 0
            while seen < 6:
                some = await consumer.receive(timeout_s=60)
                assert some, f"{seen} of 6 messages came"
                for message in some:
                    seen += 1
                    await (message.nack(delay_level=-1) if message.body == b"plain" else message.ack())
            return await asyncio.to_thread(scrape, port)
