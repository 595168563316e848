"""The pipelines through the real command, killed (SIGKILL, with Java and workers) at seeded points and started again.

    make pipeline-soak                      or: python tests/spark/pipeline_soak.py --seeds 8 [--scenes archive,replay]

Each seed chooses, for each scene, one or two points of its run (a batch planned, files written, the table's own commit,
Spark's commit, a piece sent, …) and a delay after it. Afterwards the command runs to its end, and everything must
be there once: in the table, in the topic, in the audit trail. Prints one line a scene; ends with 1 if one failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import pyarrow.parquet as pq  # noqa: E402
from commands import Running, pipeline  # noqa: E402
from live import Server  # noqa: E402

import arrowmq  # noqa: E402
from arrowmq.spark.cluster import Cluster, Connection  # noqa: E402
from arrowmq.spark.pipelines.project import CATALOG  # noqa: E402
from arrowmq.spark.sink.send import Outgoing, Sender  # noqa: E402
from arrowmq.spark.source.pull import Subscription, read_range  # noqa: E402
from arrowmq.spark.source.ranges import OffsetRange  # noqa: E402
from arrowmq.wire.ids import UniqueIds  # noqa: E402
from arrowmq.wire.message_queue import MessageQueue  # noqa: E402
from arrowmq.wire.records import Record, decode_records  # noqa: E402

# Half messages of a killed run are asked about soon, so that a late answer would show.
SETTINGS = ("transactionTimeOut=1000", "transactionCheckInterval=1000")


def fill(namesrv: str, topic: str, count: int, **properties: str) -> None:
    cluster = Cluster(Connection((namesrv,)))
    ids, sender = UniqueIds(), Sender(cluster, "soak", {})
    for first in range(0, count, 100):
        sender.send(
            Outgoing(
                MessageQueue(topic, "broker-a", number // 100 % 4),
                f"{topic} {number}".encode(),
                {"UNIQ_KEY": ids.next(), "KEYS": f"k{number}", "TAGS": f"t{number % 3}", **properties},
            )
            for number in range(first, min(count, first + 100))
        )
    cluster.close()


def visible(namesrv: str, topic: str) -> list[Record]:
    cluster = Cluster(Connection((namesrv,), patience_s=30))
    found: list[Record] = []
    route = cluster.route(topic)
    for queue, end in cluster.max_offsets(route.readable if route else []).items():
        for pulled in read_range(cluster, OffsetRange(queue, 0, end), Subscription()):
            found += decode_records(pulled.records)
    cluster.close()
    return found


def table_files(data: Path, table_format: str) -> Iterator[Path]:
    """The files that the table consists of, by its own log: what a killed run left behind is not among them."""
    if table_format == "parquet":
        log = data / "_spark_metadata"
        entries: dict[int, Path] = {int(path.name.partition(".")[0]): path for path in log.glob("[0-9]*")}
        whole = [int(path.name.partition(".")[0]) for path in log.glob("*.compact")]
        for number in sorted(entries):
            if number >= max(whole, default=0):
                for line in entries[number].read_text().splitlines()[1:]:
                    yield Path(json.loads(line)["path"].removeprefix("file://"))
    else:
        for path in sorted((data / "_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                added = json.loads(line).get("add")
                if added is not None:
                    yield data / added["path"].replace("%25", "%").replace("%20", " ")


def rows_of(data: Path, table_format: str, *columns: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for path in table_files(data, table_format):
        table = pq.ParquetFile(path).read(columns=list(columns))
        found += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return found


def has(folder: Path, pattern: str, count: int) -> Callable[[], bool]:
    return lambda: sum(1 for path in folder.glob(pattern) if not path.name.startswith(".")) >= count


# What is waited for, by name: a condition, or seconds after the start.
Points = list[tuple[str, Callable[[], bool] | float]]


class Soak:
    """One server, one folder; each scene uses topics and files of its own."""

    def __init__(self, server: Server, folder: Path, seed: int, most_kills: int = 2) -> None:
        self.server = server
        self.folder = folder / f"seed-{seed}"
        self.chance = random.Random(seed)
        self.seed = seed
        self.most_kills = most_kills
        self.kills = 0

    def killed(self, name: str, points: Points, *arguments: str) -> str:
        return self.killed_running(name, points, lambda: pipeline(self.folder / name, *arguments))

    def killed_running(self, name: str, points: Points, start: Callable[[], Running]) -> str:
        """Kills a command at one or two of the points, then lets it end; what it printed."""
        for _ in range(self.chance.randint(1, self.most_kills)):
            point, moment = self.chance.choice(points)
            delay_s = self.chance.choice((0.0, 0.0, self.chance.uniform(0.0, 0.6)))
            if isinstance(moment, float):
                was_running = start().kill_when(lambda: True, delay_s=moment + delay_s)
            else:
                was_running = start().kill_when(moment, delay_s=delay_s)
            self.kills += was_running
            print(f"    {name}: {'killed' if was_running else 'ended'} at {point} + {delay_s:.2f} s", flush=True)
        return start().finish()

    def archive(self, table_format: str = "parquet") -> str | None:
        topics = [f"Archive{table_format}{self.seed}x{number}" for number in range(2)]
        for topic in topics:
            fill(self.server.namesrv, topic, 1500)
        lake = self.folder / f"lake-{table_format}"
        points: Points = [
            (f"{what} {count}", has(lake, pattern, count))
            for what, pattern, most in (
                ("batch planned", "checkpoint/offsets/*", 4),
                ("file written", "data/topic=*/date=*/hour=*/*.parquet", 12),
                (
                    "table commit",
                    "data/_spark_metadata/*" if table_format == "parquet" else "data/_delta_log/*.json",
                    4,
                ),
                ("Spark commit", "checkpoint/commits/*", 4),
            )
            for count in range(1, most)
        ]
        arguments = ["archive", "-n", self.server.namesrv, "--topics", ",".join(topics), "--to", str(lake)]
        arguments += ["--max-per-batch", "600", "--format", table_format, "--report", str(self.folder / "archive.html")]
        self.killed(f"archive-{table_format}", points, *arguments)
        expected = Counter(f"{topic} {number}" for topic in topics for number in range(1500))
        found = Counter(bytes(body).decode() for (body,) in rows_of(lake / "data", table_format, "body"))
        if ">3,000<" not in (self.folder / "archive.html").read_text():
            return "the report does not say 3,000 messages"
        return differences(expected, found)

    def delta(self) -> str | None:
        """The report has read the table with Delta's own reader; its log must hold each batch of one query once."""
        wrong = self.archive("delta")
        batches = []
        for path in sorted((self.folder / "lake-delta" / "data" / "_delta_log").glob("*.json")):
            entries = [json.loads(line) for line in path.read_text().splitlines()]
            batches += [(entry["txn"]["appId"], entry["txn"]["version"]) for entry in entries if "txn" in entry]
        queries, numbers = {query for query, _ in batches}, [number for _, number in batches]
        if len(queries) != 1 or numbers != list(range(len(numbers))):
            return f"{wrong or 'the rows are right'}, but the log of the table has the batches {batches}"
        return wrong

    def replay(self) -> str | None:
        source, target = f"Replay{self.seed}", f"Replayed{self.seed}"
        fill(self.server.namesrv, source, 2000)
        work = self.folder / "replay-work"
        lake = self.folder / "replay-lake"
        if self.seed % 2:
            fill_lake = ("archive", "-n", self.server.namesrv, "--topics", source, "--to", str(lake))
            pipeline(self.folder / "replay-archive", *fill_lake).finish()
            origin = ["--archive", str(lake)]
        else:
            origin = ["--store", str(self.server.store), "--from-topic", source]
        points: Points = [
            ("staging", has(work, "staged/**/*.parquet", 1)),
            ("staged", has(work, "staged/_SUCCESS", 1)),
            ("chosen", has(work, "selection.json", 1)),
            ("first piece", has(work, "sent.json", 1)),
            *((f"{count} pieces", pieces_sent(work, count)) for count in (1, 2, 3)),
        ]
        arguments = ["replay", "-n", self.server.namesrv, *origin, "--to-topic", target, "--work", str(work)]
        self.killed("replay", points, *arguments, "--where", "tags != 't2'", "--rate", "100")
        expected = Counter(f"{source} {number}" for number in range(2000) if number % 3 != 2)
        return differences(expected, Counter(record.body.decode() for record in visible(self.server.namesrv, target)))

    def dead_letters(self) -> str | None:
        group, target = f"Dead{self.seed}", f"Resent{self.seed}"
        fill(self.server.namesrv, f"%DLQ%{group}", 900, DLQ_ORIGIN_TOPIC=target)
        fixes = self.folder / "fixes.py"
        self.folder.mkdir(parents=True, exist_ok=True)
        fixes.write_text(
            "def repair(message):\n"
            "    number = int(message['body'].split()[1])\n"
            "    return None if number % 5 == 0 else {**message, 'body': f'repaired {number}'}\n"
        )
        work = self.folder / "letters"
        points: Points = [
            ("decision planned", has(work, "decided/offsets/*", 1)),
            ("decision written", has(work, "trail/*.parquet", 1)),
            ("trail committed", has(work, "trail/_spark_metadata/*", 1)),
            ("decision committed", has(work, "decided/commits/*", 1)),
            ("sending planned", has(work, "sent/offsets/*", 1)),
            ("sent", has(work, "sent/commits/*", 1)),
        ]
        arguments = ["dead-letters", "-n", self.server.namesrv, "--group", group, "--resend"]
        self.killed("dead-letters", points, *arguments, "--repair", f"{fixes}:repair", "--work", str(work))
        trail = Counter(rows_of(work / "trail", "parquet", "msgId", "action"))
        if len(trail) != 900 or max(trail.values()) != 1:
            return f"the trail has {len(trail)} of 900 letters, one of them {max(trail.values())} times"
        expected = Counter(f"repaired {number}" for number in range(900) if number % 5)
        return differences(expected, Counter(record.body.decode() for record in visible(self.server.namesrv, target)))

    def audit(self) -> str | None:
        fill(self.server.namesrv, f"Audited{self.seed}", 500)
        page = self.folder / "audit.html"
        said = self.killed(
            "audit", self.moments(),
            "audit", str(self.server.store), "--topics", f"Audited{self.seed}", "--report", str(page), "--json",
        )  # fmt: skip
        found = json.loads(said)
        if (found["isSound"], found["messages"]) != (True, 500) or "</html>" not in page.read_text():
            return f"found {found['messages']} of 500 records, sound: {found['isSound']}"
        return None

    def trace(self) -> str | None:
        """What a producer and a consumer of ours traced; one message of ten is refused, and dies at once."""
        topic, group = f"Traced{self.seed}", f"Tracing{self.seed}"
        asyncio.run(send_and_consume(self.server.namesrv, topic, group, 300))
        page = self.folder / "trace.html"
        said = self.killed(
            "trace", self.moments(), "trace", "-n", self.server.namesrv, "--stored", "--report", str(page), "--json"
        )
        found = json.loads(said)
        sent = {row["topic"]: (row["sends"], row["failed"]) for row in found["topics"]}
        consumed = {row["consumerGroup"]: (row["deliveries"], row["failed"]) for row in found["groups"]}
        if ((300, 0), (300, 30)) != (sent.get(topic), consumed.get(group)) or topic not in found["stored"]:
            return f"sends and failures {sent.get(topic)}, deliveries and failures {consumed.get(group)}"
        return None if "</html>" in page.read_text() else "the report is not whole"

    def moments(self) -> Points:
        """For commands that leave nothing behind to wait for: while Spark starts, and while it works."""
        return [(f"{moment_s:.1f} s", moment_s) for moment_s in (self.chance.uniform(2.0, 15.0) for _ in range(2))]

    def interrupt(self) -> str | None:
        """Ctrl-C, as a terminal sends it to the whole group: an orderly end, from which the next run goes on."""
        topic, lake = f"Interrupted{self.seed}", self.folder / "interrupted"
        fill(self.server.namesrv, topic, 1000)
        arguments = [
            "archive",
            "-n",
            self.server.namesrv,
            "--topics",
            topic,
            "--to",
            str(lake),
            "--max-per-batch",
            "300",
        ]
        running = pipeline(self.folder / "interrupt", *arguments, "--follow", "1 second")
        if not running.interrupt_when(has(lake, "checkpoint/commits/*", 1)):
            return f"ended before it was interrupted: {running.err.read_text()}"
        code, said = running.process.wait(60), running.err.read_text()
        running.kill()
        if code != 130 or "the same command goes on from here" not in said or "Traceback" in said:
            return f"ended with {code}: {said}"
        pipeline(self.folder / "interrupt", *arguments).finish()
        found = Counter(bytes(body).decode() for (body,) in rows_of(lake / "data", "parquet", "body"))
        return differences(Counter(f"{topic} {number}" for number in range(1000)), found)

    def project(self) -> str | None:
        """`init`, and the project's own runs with spark-pipelines: the second goes on where the first was killed."""
        topic = f"Project{self.seed}"
        fill(self.server.namesrv, topic, 700)
        root = self.folder / "project"
        pipeline(self.folder / "init", "init", str(root), "-n", self.server.namesrv, "--topic", topic).finish()
        checkpoints = root / "storage" / "_checkpoints"
        points: Points = [
            ("batch planned", has(checkpoints, "**/offsets/*", 1)),
            ("batch committed", has(checkpoints, "**/commits/*", 1)),
        ]
        command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", *CATALOG.split()]
        command += ["--conf", "spark.ui.enabled=false"]
        self.killed_running("spark-pipelines", points, lambda: Running(self.folder / "run", *command, cwd=root))
        fill(self.server.namesrv, topic, 100)
        Running(self.folder / "run", *command, cwd=root).finish()
        table = root / "spark-warehouse" / topic.lower()
        found = Counter(bytes(body).decode() for (body,) in rows_of(table, "parquet", "body"))
        expected = Counter(f"{topic} {number}" for number in range(700))
        return differences(expected + Counter(f"{topic} {number}" for number in range(100)), found)


async def send_and_consume(namesrv: str, topic: str, group: str, count: int) -> None:
    seen: set[bytes] = set()
    is_done = asyncio.Event()

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.add(message.body)
        if len(seen) == count:
            is_done.set()
        if int(message.body) % 10 == 0:
            raise arrowmq.RetryLater(-1)

    async with arrowmq.Producer(namesrv, hooks=[arrowmq.MessageTrace(namesrv, group="soak")]) as producer:
        for number in range(count):
            await producer.send(topic, str(number).encode())
    hooks = [arrowmq.MessageTrace(namesrv, group=group)]
    async with arrowmq.PushConsumer(
        namesrv, group=group, topic=topic, handler=handle, consume_from="first", hooks=hooks
    ):
        await asyncio.wait_for(is_done.wait(), 60)


def pieces_sent(work: Path, count: int) -> Callable[[], bool]:
    def is_reached() -> bool:
        try:
            return int(json.loads((work / "sent.json").read_text())["pieces"]) >= count
        except (OSError, ValueError):
            return False

    return is_reached


def differences(expected: Counter[str], found: Counter[str]) -> str | None:
    if expected == found:
        return None
    missing, too_many = expected - found, found - expected
    return (
        f"{sum(missing.values())} missing such as {list(missing)[:3]}, "
        f"{sum(too_many.values())} too many such as {list(too_many)[:3]}"
    )


SCENES = ("archive", "delta", "replay", "dead_letters", "audit", "trace", "interrupt", "project")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to repeat one")
    parser.add_argument("--scenes", default=",".join(SCENES))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    failures = kills = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arrowmq-pipelines-") as name, Server(Path(name), *SETTINGS) as server:
        for seed in range(given.first, given.first + given.seeds):
            soak = Soak(server, Path(name), seed)
            for scene in given.scenes.split(","):
                wrong = getattr(soak, scene)()
                failures += wrong is not None
                print(f"seed {seed}, {scene}: {wrong or 'everything once'}", flush=True)
            kills += soak.kills
    print(f"{given.seeds} seeds, {kills} kills, {failures} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
