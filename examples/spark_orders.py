"""Orders, from end to end: a server is started, orders are produced and consumed, Spark streams them into Parquet.

    make demo                               or: .venv/bin/python examples/spark_orders.py [--orders 5000]

Everything runs on free ports of this machine and in a temporary folder, which is gone at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import arrowmq
from arrowmq.spark.stream_start import unhurried

CITIES = ("Berlin", "Lagos", "Lima", "Oslo", "Pune")
STATES = ("created", "paid", "shipped")
console = Console(highlight=False)


class Step:
    """One line for each step: what is done, and, when it is, what came of it and how long it took."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.result = ""

    def __enter__(self) -> Step:
        self.started = time.monotonic()
        if console.is_terminal:
            console.print(f"  [dim]…[/] {self.title}", end="\r")
        return self

    def __exit__(self, failed: type[BaseException] | None, *rest: object) -> None:
        took = time.monotonic() - self.started
        mark = "[red]✗[/]" if failed else "[green]✓[/]"
        console.print(f"  {mark} {self.title:<46} {self.result} [dim]({took:.1f} s)[/]")


def start_server(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """`arrowmq server`, on whatever ports are free. Ends with this program, even if this program is killed."""
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--stop-with-stdin"]
    command += ["--dir", str(folder / "server"), "--namesrv-port", "0", "--port", "0", "--log-level", "warning"]
    command += ["--name", "broker-a", "--set", "brokerIP1=127.0.0.1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = re.match(r"ready: NameServer (\S+), broker", process.stdout.readline())
    if ready is None:
        process.terminate()
        raise SystemExit("the server did not start; see above")
    return process, ready[1]


async def produce(namesrv: str, count: int) -> Counter[str]:
    """Sends orders; the tag is the order's state, the key its number."""
    chance = random.Random(7)
    sent: Counter[str] = Counter()
    async with arrowmq.Producer(namesrv) as producer:
        for first in range(0, count, 200):
            sends = []
            for number in range(first, min(first + 200, count)):
                state = chance.choice(STATES)
                order = {
                    "order": f"o-{number}",
                    "city": chance.choice(CITIES),
                    "amount": round(chance.uniform(5, 500), 2),
                    "state": state,
                }
                sent[state] += 1
                sends.append(producer.send("orders", json.dumps(order).encode(), tag=state, keys=[f"o-{number}"]))
            await asyncio.gather(*sends)
    return sent


async def consume(namesrv: str, count: int) -> int:
    """A consumer group of its own, as a billing service would have it: it wants paid orders only."""
    got = 0
    options: dict[str, Any] = {"group": "billing", "topic": "orders", "tags": "paid"}
    async with arrowmq.Consumer(namesrv, consume_from=arrowmq.ConsumeFrom.FIRST_OFFSET, **options) as consumer:
        async with asyncio.timeout(60):
            async for message in consumer:
                await message.ack()
                got += 1
                if got == count:
                    break
    return got


def stream_to_parquet(spark: Any, namesrv: str, folder: Path) -> int:
    """The pipeline: read the topic as a stream, parse the orders, write Parquet; several triggers, then it ends."""
    orders = (
        spark.readStream.format("arrowmq")
        .option("namesrv", namesrv)
        .option("topic", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .option("group", "lake")
        .load()
    )
    shape = "order string, city string, amount double, state string"
    parsed = orders.selectExpr(f"from_json(cast(body as string), '{shape}') as o", "queueId", "storeTimestamp")
    writer = (
        parsed.selectExpr("o.*", "queueId", "storeTimestamp")
        .writeStream.format("parquet")
        .option("path", str(folder / "orders"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )

    def run() -> Any:
        query = writer.start()
        query.awaitTermination()
        return query

    query = unhurried(run)
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def show(spark: Any, folder: Path) -> int:
    rows = spark.read.parquet(str(folder / "orders")).createOrReplaceTempView("orders")
    rows = spark.sql(
        "select city, count(*) as orders, count_if(state = 'paid') as paid, sum(amount) as total, avg(amount) as mean "
        "from orders group by city order by total desc"
    ).collect()
    table = Table(title="orders in Parquet, by city", title_style="bold", min_width=60)
    for name in ("city", "orders", "paid", "total", "mean"):
        table.add_column(name, justify="left" if name == "city" else "right")
    for row in rows:
        table.add_row(row.city, f"{row.orders:,}", f"{row.paid:,}", f"{row.total:,.2f}", f"{row.mean:,.2f}")
    console.print()
    console.print(table)
    return sum(row.orders for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders from a producer through a server and Spark into Parquet.")
    parser.add_argument("--orders", type=int, default=5000, help="how many orders are produced [5000]")
    count = parser.parse_args().orders
    began = time.monotonic()
    console.print(f"[bold]ArrowMQ[/]: {count:,} orders, from a producer to a Parquet table\n")
    with tempfile.TemporaryDirectory(prefix="arrowmq-demo-") as name:
        folder = Path(name)
        with Step("start a server (NameServer + broker)") as step:
            server, namesrv = start_server(folder)
            step.result = f"at {namesrv}"
        try:
            with Step("produce orders with the Python client") as step:
                sent = asyncio.run(produce(namesrv, count))
                took = time.monotonic() - step.started
                step.result = f"{count:,} sent, {count / took:,.0f}/s"
            with Step("consume the paid ones as group billing") as step:
                got = asyncio.run(consume(namesrv, sent["paid"]))
                step.result = f"{got:,} acknowledged"
            with Step("start Spark") as step:
                from arrowmq.spark import session

                spark = session("demo", is_short=True, **{"spark.sql.warehouse.dir": str(folder / "warehouse")})
                step.result = f"{spark.version}, {spark.sparkContext.master}"
            with Step("stream the topic into Parquet") as step:
                triggers = stream_to_parquet(spark, namesrv, folder)
                step.result = f"{triggers} micro-batches"
            stored = show(spark, folder)
            spark.stop()
        finally:
            server.terminate()
            server.wait(30)
    if stored != count:
        raise SystemExit(f"{count} orders were sent, but {stored} arrived in Parquet")
    console.print(f"\nEvery order arrived once. Took {time.monotonic() - began:.0f} s; server and files are gone.")
    console.print("[dim]Next: .venv/bin/arrowmq server, and docs/spark for the pipelines[/]")


if __name__ == "__main__":
    main()
