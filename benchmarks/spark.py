"""`python -m benchmarks.spark [--rows N] [--rounds N]`: Spark on ArrowMQ beside Spark's Kafka connector on Kafka.

One run, one machine, the same rows (1 KiB bodies, 8 queues or partitions), the same Spark session. A Kafka broker
(KRaft, one node) and the connector come from Maven Central, fetched on first use. Measured: rows a second by the
clock, and CPU microseconds a row of everything that works for it (Spark's JVM and Python workers, and the broker).

    source       every row read, its columns decoded, and its body's length added up
    store scan   the same question to the commit log files, without a broker
    sink         rows written: ArrowMQ at least once and exactly once, Kafka's (at least once)
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from oracle.ports import free_port

# group, artifact, version
KAFKA = ("org.apache.kafka", "kafka_2.13", "4.1.1")
# Fetched one by one, because the connector's own list of what it needs does not resolve: Maven Central has its part for
# delegation tokens as 4.0.0 only. Nothing here uses such tokens, and the classes fit.
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
QUEUES = 8
TOPIC = "bench"
HERE = Path(__file__).resolve().parent.parent
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>
</dependencies></project>"""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arrowmq-bench"


def fetch_jar(part: tuple[str, str, str]) -> Path:
    """One jar from Maven Central, without what it needs."""
    group, artifact, version = part
    target = cache_folder() / "jars" / f"{artifact}-{version}.jar"
    if not target.is_file():
        copied = [f"-Dartifact={group}:{artifact}:{version}", f"-DoutputDirectory={target.parent}"]
        subprocess.run(["mvn", "-B", "-q", "dependency:copy", *copied], check=True)
    return target


def fetch(part: tuple[str, str, str]) -> Path:
    """The jars of a part and of what it needs, from Maven Central; kept in the user's cache folder."""
    cache = cache_folder()
    target = cache / f"{part[1]}-{part[2]}"
    if not target.is_dir():
        fresh = cache / f"fresh-{os.getpid()}"
        fresh.mkdir(parents=True)
        (fresh / "pom.xml").write_text(POM.format(*part))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fresh}/jars"]
        subprocess.run(["mvn", "-B", "-q", "-U", "-f", str(fresh / "pom.xml"), *goal], check=True)
        (fresh / "jars").rename(target)
        shutil.rmtree(fresh)
    return target


def cpu_s(pid: int) -> float:
    """CPU time of a process and of all below it, ended children included."""
    total = 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        times[int(entry.name)] = sum(map(int, fields[11:15])) / ticks
    waiting = [pid]
    while waiting:
        number = waiting.pop()
        total += times.get(number, 0.0)
        waiting += children.get(number, [])
    return total


class ArrowMQ:
    """Our server, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "arrowmq"
        command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "server", "--stop-with-stdin"]
        command += ["--dir", str(self.store), "--namesrv-port", "0", "--port", "0", "--log-level", "error"]
        command += ["--set", "brokerIP1=127.0.0.1", "--set", f"defaultTopicQueueNums={QUEUES}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.namesrv = self.process.stdout.readline().split("NameServer ")[1].split(",")[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class Kafka:
    """A Kafka broker of one node from Maven Central."""

    def __init__(self, folder: Path) -> None:
        jars = fetch(KAFKA)
        broker, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{broker}"
        settings = folder / "kafka.properties"
        settings.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://{self.address}\ncontroller.listener.names=CONTROLLER\n"
            f"log.dirs={folder}/kafka\nnum.partitions={QUEUES}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
        java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
        identity = uuid.uuid4()
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", identity.hex[:22], "-c", str(settings)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with (folder / "kafka.log").open("w") as log:
            self.process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", broker), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise RuntimeError(f"Kafka did not start: {(folder / 'kafka.log').read_text()[-2000:]}") from None
                time.sleep(0.2)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class Bench:
    def __init__(self, spark: Any, mine: ArrowMQ, kafka: Kafka, rows: int) -> None:
        self.spark = spark
        self.mine = mine
        self.kafka = kafka
        self.rows = rows
        self.results: dict[str, list[tuple[float, float]]] = {}

    def frame(self) -> Any:
        """The same rows for everybody; the text differs from row to row, as real ones do."""
        digest = "sha2(cast(id * 7 as string), 512)"
        text = f"rpad(concat(id, ' ', repeat({digest}, 8)), 1024, 'x')"
        return self.spark.range(0, self.rows, 1, os.cpu_count()).selectExpr(f"cast({text} as binary) as body")

    def measure(self, name: str, broker: int | None, work: Callable[[], int]) -> None:
        before = cpu_s(os.getpid()) + (cpu_s(broker) if broker else 0.0)
        began = time.monotonic()
        rows = work()
        took = time.monotonic() - began
        used = cpu_s(os.getpid()) + (cpu_s(broker) if broker else 0.0) - before
        if rows != self.rows:
            raise RuntimeError(f"{name}: {rows} rows instead of {self.rows}")
        self.results.setdefault(name, []).append((rows / took, used / rows * 1e6))
        print(f"  {name:<28} {rows / took:>12,.0f} rows/s {used / rows * 1e6:>8.1f} µs CPU/row", flush=True)

    def read(self, frame: Any, body: str) -> int:
        """Every body is looked at, so that no side gets away without delivering it."""
        (row,) = frame.selectExpr(f"length({body}) as n").selectExpr("count(*) as n", "sum(n) as bytes").collect()
        if row.bytes != 1024 * self.rows:
            raise RuntimeError(f"{row.bytes} bytes instead of {1024 * self.rows}")
        return int(row.n)

    def mine_source(self, **options: str) -> int:
        reader = self.spark.read.format("arrowmq").option("namesrv", self.mine.namesrv).option("topic", TOPIC)
        return self.read(reader.options(**options).load(), "body")

    def kafka_source(self) -> int:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.kafka.address)
        reader = reader.option("subscribe", TOPIC).option("includeHeaders", "true")
        return self.read(reader.load(), "value")

    def store_scan(self, **options: str) -> int:
        reader = self.spark.read.format("arrowmq.store").option("topic", TOPIC).options(**options)
        return self.read(reader.load(str(self.mine.store)), "body")

    def mine_sink(self, topic: str, delivery: str) -> int:
        writer = self.frame().write.format("arrowmq").option("namesrv", self.mine.namesrv).option("topic", topic)
        writer.option("delivery", delivery).mode("append").save()
        return self.rows

    def kafka_sink(self, topic: str) -> int:
        writer = self.frame().selectExpr("body as value").write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.kafka.address).save()
        return self.rows

    def run(self, rounds: int) -> None:
        self.mine_sink(TOPIC, "at-least-once")
        self.kafka_sink(TOPIC)
        ours, theirs = self.mine.process.pid, self.kafka.process.pid
        for number in range(rounds):
            print(f"round {number + 1}", flush=True)
            self.measure("source, Kafka", theirs, self.kafka_source)
            self.measure("source, ArrowMQ", ours, self.mine_source)
            self.measure("source, body only", ours, lambda: self.mine_source(columns="body"))
            self.measure("store scan", None, self.store_scan)
            self.measure("store scan, body only", None, lambda: self.store_scan(columns="body"))
            self.measure("sink, Kafka", theirs, lambda number=number: self.kafka_sink(f"out{number}"))  # type: ignore[misc]
            for delivery in ("at-least-once", "exactly-once"):
                topic = f"{delivery}-{number}"
                self.measure(f"sink, {delivery}", ours, lambda topic=topic, how=delivery: self.mine_sink(topic, how))  # type: ignore[misc]

    def summary(self) -> str:
        lines = ["| what | rows/s | µs CPU/row | against Kafka |", "|---|---|---|---|"]
        rates = {name: median(rate for rate, _ in found) for name, found in self.results.items()}
        for name, found in self.results.items():
            peer = "sink, Kafka" if name.startswith("sink") else "source, Kafka"
            cpu = median(cpu for _, cpu in found)
            lines.append(f"| {name} | {rates[name]:,.0f} | {cpu:.1f} | {rates[name] / rates[peer]:.2f} × |")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    from arrowmq.spark import session

    with tempfile.TemporaryDirectory(prefix="arrowmq-bench-") as name:
        folder = Path(name)
        kafka = Kafka(folder)
        mine = ArrowMQ(folder)
        try:
            spark = session(
                "bench",
                **{
                    "spark.jars": ",".join(str(fetch_jar(part)) for part in CONNECTOR),
                    "spark.driver.memory": "3g",
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                },
            )
            bench = Bench(spark, mine, kafka, given.rows)
            bench.run(given.rounds)
            print("\n" + bench.summary())
            spark.stop()
        finally:
            mine.stop()
            kafka.stop()


if __name__ == "__main__":
    main()
