"""`format("arrowmq.crashing")`: the source and the sink, killed at chosen points.

The product's own readers and writers run; around their steps stand numbered points. A plan in a folder says which
point kills whom next: the Python process that reached it, the Java process above it (the driver; on a cluster, of a
task, its executor), the broker, or Java in the middle of its own commit log. Points are counted over all processes.

    source.latest source.plan source.commit     deciding about a micro-batch: before and after
    source.pull source.batch                    an answer of the broker arrived; an Arrow batch was built
    sink.begin sink.half sink.end               a task: before it sends, an answer arrived, after all of them
    commit.begin book.before book.after         the commit of a batch; the two records of the book
    commit.half commit.end                      an answer to the end of a half message; after everything
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource import WriterCommitMessage as Message
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from arrowmq.spark.blocking_link import Link
from arrowmq.spark.sink.batch_decisions import BatchDecisions, Entry
from arrowmq.spark.sink.exchange import Run, read_answers
from arrowmq.spark.sink.writer import SinkOptions, StreamWriter
from arrowmq.spark.source.data_source import ArrowmqSource
from arrowmq.spark.source.options import SourceOptions
from arrowmq.spark.source.stream import StreamReader
from arrowmq.wire.frames import Command

WORKER, JAVA, BROKER, COMMIT_LOG = "worker", "java", "broker", "commit-log"
SOURCE_POINTS = ("source.latest", "source.plan", "source.commit", "source.pull", "source.batch")
TASK_POINTS = ("sink.begin", "sink.half", "sink.end")
COMMIT_POINTS = ("commit.begin", "book.before", "book.after", "commit.half", "commit.end")
ON_EXECUTORS = ("source.pull", "source.batch", *TASK_POINTS)
ONCE_A_BATCH = ("source.latest", "source.plan", "source.commit", "commit.begin", "commit.end")


@dataclass(frozen=True)
class Kill:
    """At the point, after it was passed `after` times, the victim is killed."""

    point: str
    after: int
    victim: str

    def __str__(self) -> str:
        return f"{self.victim} at {self.point} + {self.after}"


Pair = tuple[str, str]  # point and victim


def seeded_kills(seed: int, count: int, quick: list[Pair], slow: list[Pair], rows: int) -> list[Kill]:
    """Every pair in turn, in an order and with counts that the seed decides.

    Java takes its time to start, so a round has a third of the slow pairs only, and the next round others."""
    chance = Random(seed)
    slow = chance.sample(slow, len(slow))
    a_third = -(-len(slow) // 3) if quick else len(slow)
    kills: list[Kill] = []
    while len(kills) < count:
        pairs, slow = quick + slow[:a_third], slow[a_third:] + slow[:a_third]
        chance.shuffle(pairs)
        for point, victim in pairs[: count - len(kills)]:
            most = 2 if point in ONCE_A_BATCH else 4 if point.startswith(("book", "source", "sink.b")) else rows
            kills.append(Kill(point, chance.randrange(most), victim))
    return kills


def pairs_of(points: tuple[str, ...], *victims: str) -> list[Pair]:
    return [(point, victim) for point in points for victim in victims]


class Plan:
    """The kills that are still to come, in a folder that all processes share."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def write(self, kills: list[Kill], checkpoint: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "checkpoint").write_text(str(checkpoint))
        (self.folder / "lock").touch()
        self._save([asdict(kill) for kill in kills])
        (self.folder / "done").write_text("0")

    def drop(self) -> None:
        """No more kills."""
        with self._locked():
            self._save([])

    def done(self) -> int:
        """How many kills there were."""
        return int((self.folder / "done").read_text())

    def broker_is(self, pid: int) -> None:
        (self.folder / "broker").write_text(str(pid))

    def left(self) -> list[Kill]:
        with self._locked():
            return [Kill(**kill) for kill in self._load()]

    def reached(self, point: str) -> None:
        """Passes a point. Whoever is the next victim does not come back from it."""
        with self._locked():
            kills = self._load()
            if not kills or kills[0]["point"] != point:
                return
            if kills[0]["after"] > 0:
                kills[0]["after"] -= 1
                self._save(kills)
                return
            self._save(kills[1:])
            (self.folder / "done").write_text(str(self.done() + 1))
        self._kill(kills[0]["victim"])

    def _kill(self, victim: str) -> None:
        if victim == BROKER:
            os.kill(int((self.folder / "broker").read_text()), signal.SIGKILL)
        elif victim == JAVA:
            os.kill(java_above(os.getpid()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        elif victim == COMMIT_LOG:
            # Of a process group of its own: it must outlive whoever reached the point.
            commits = Path((self.folder / "checkpoint").read_text()) / "commits"
            command = [sys.executable, __file__, str(commits), str(java_above(os.getpid()))]
            watcher = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
            assert watcher.stdout is not None
            watcher.stdout.readline()  # it watches now
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _load(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "kills").read_text())
        return found

    def _save(self, kills: list[dict[str, Any]]) -> None:
        fresh = self.folder / "kills.fresh"
        fresh.write_text(json.dumps(kills))
        fresh.rename(self.folder / "kills")


def java_above(pid: int) -> int:
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def kill_in_commit_log(commits: Path, java: int) -> None:
    """Waits for Java to begin a file of its commit log, and kills it then: the file may be half written, or whole."""
    before = set(os.listdir(commits)) if commits.is_dir() else set()
    print("watching", flush=True)
    while True:
        try:
            os.kill(java, 0)
            if set(os.listdir(commits)) - before:
                os.kill(java, signal.SIGKILL)
                return
        except FileNotFoundError:
            continue  # the folder comes with the first batch
        except ProcessLookupError:
            return


class CrashingSource(ArrowmqSource):
    """Knows one option more: the folder of the plan."""

    @classmethod
    def name(cls) -> str:
        return "arrowmq.crashing"

    def _options(self) -> tuple[dict[str, str], str]:
        options = {name.lower(): value for name, value in dict(self.options).items()}
        return options, options.pop("plan")

    def schema(self) -> StructType:
        from arrowmq.spark.schema import MESSAGE_SCHEMA

        return MESSAGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options, plan = self._options()
        return CrashingReader(SourceOptions.parse(options, is_stream=True), schema, plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options, plan = self._options()
        return CrashingWriter(SinkOptions.parse(options, schema, is_stream=True), plan)


class CrashingReader(StreamReader):
    def __init__(self, options: SourceOptions, schema: StructType, plan: str) -> None:
        super().__init__(options, schema)
        self.plan = plan

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._around("source.latest", lambda: StreamReader.latestOffset(self, start, limit))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._around("source.plan", lambda: StreamReader.partitions(self, start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self._around("source.commit", lambda: StreamReader.commit(self, end))

    def _around(self, point: str, step: Callable[[], Any]) -> Any:
        plan = Plan(self.plan)
        plan.reached(point)
        found = step()
        plan.reached(point)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        plan = Plan(self.plan)
        batches = StreamReader.read(self, partition)
        while True:
            with points_in_answers(plan, "source.pull"):
                batch = next(batches, None)
            if batch is None:
                return
            plan.reached("source.batch")
            yield batch


class CrashingWriter(StreamWriter):
    def __init__(self, options: SinkOptions, plan: str) -> None:
        super().__init__(options)
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        plan = Plan(self.plan)
        plan.reached("sink.begin")
        with points_in_answers(plan, "sink.half"):
            sent = StreamWriter.write(self, iterator)
        plan.reached("sink.end")
        return sent

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        plan = Plan(self.plan)
        plan.reached("commit.begin")
        with points_in_answers(plan, "commit.half"), points_in_book(plan):
            StreamWriter.commit(self, messages, batchId)
        plan.reached("commit.end")


@contextmanager
def points_in_answers(plan: Plan, point: str) -> Iterator[None]:
    """Each answer of a broker is a point; requests behind it are under way."""
    whole, whole_read, whole_give = Link.receive, Run.read, Run.give

    def receive(self: Link, opaque: int) -> Command:
        answer = whole(self, opaque)
        plan.reached(point)
        return answer

    def read(self: Run, view: memoryview) -> int:
        position, taken = read_answers(view, self.first_opaque, self._found, 1)
        self.answered += taken
        if taken:
            plan.reached(point)
        return position

    def give(self: Run, answer: Command) -> bool:
        plan.reached(point)
        return whole_give(self, answer)

    Link.receive, Run.read, Run.give = receive, read, give  # type: ignore[method-assign]
    try:
        yield
    finally:
        Link.receive, Run.read, Run.give = whole, whole_read, whole_give  # type: ignore[method-assign]


@contextmanager
def points_in_book(plan: Plan) -> Iterator[None]:
    whole = BatchDecisions.write

    def write(self: BatchDecisions, entry: Entry) -> None:
        plan.reached("book.before")
        whole(self, entry)
        plan.reached("book.after")

    BatchDecisions.write = write  # type: ignore[method-assign]
    try:
        yield
    finally:
        BatchDecisions.write = whole  # type: ignore[method-assign]


if __name__ == "__main__":
    kill_in_commit_log(Path(sys.argv[1]), int(sys.argv[2]))
