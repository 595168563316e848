"""A job with the exactly-once sink, killed at random moments; its last run, which nobody disturbs, must end well.

    python tests/spark/soak/random_kills.py --seed 1 --rounds 5

40,000 rows go from topic to topic in batches of 3,000 with `availableNow`. Six times the job is killed: by its process
group, as a service manager does it, or only the Python program, so that its Java finds out by itself and may still be
at work when the next run begins. Then it runs to its end: exit code 0, each row once, queues in order.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from crash_stream import fill, visible  # noqa: E402
from live import Server  # noqa: E402

ROWS, BATCH_ROWS, KILLS = 40_000, 3_000, 6
LONGEST_RUN_S = 300
STARTED = "started"
# Kills come within this time after Spark is there; a job needs about three times as long for everything.
KILL_WITHIN_S = 5.0


def job(namesrv: str, source: str, target: str, checkpoint: str) -> None:
    """What a user would write."""
    from arrowmq.spark import run_stream, session

    spark = session("random kills", master="local[2]", is_short=True)
    print(STARTED, flush=True)
    rows = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("topic", source)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", BATCH_ROWS).load()
    writer = rows.select("body", "queueId").writeStream.format("arrowmq").option("namesrv", namesrv)
    writer = writer.option("topic", target).option("checkpointLocation", checkpoint)
    run_stream(writer.trigger(availableNow=True))
    spark.stop()


class Running:
    def __init__(self, arguments: list[str], log: Path) -> None:
        self._log = log.open("a")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--job", *arguments],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.is_started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._log.write(line)
            if line.strip() == STARTED:
                self.is_started.set()
        self.is_started.set()  # it ended

    def kill(self, *, only_python: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if only_python:
                os.kill(self.process.pid, signal.SIGKILL)
            else:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def clean_up(self) -> None:
        """Ends a Java that outlived its Python, if it has not done so itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def _killed_and_run(
    runs: list[Running], arguments: list[str], log: Path, chance: random.Random, kills: int, done: Counter[str]
) -> str | None:
    for number in range(kills):
        running = Running(arguments, log)
        runs.append(running)
        running.is_started.wait(LONGEST_RUN_S)
        ended = running.wait(chance.uniform(0, KILL_WITHIN_S))
        if ended is not None and ended != 0:
            return f"run {number + 1} failed by itself, with exit code {ended}"
        only_python = chance.random() < 0.5
        running.kill(only_python=only_python)
        done["had ended" if ended == 0 else "Python only" if only_python else "everything"] += 1
    last = Running(arguments, log)
    runs.append(last)
    ended = last.wait(LONGEST_RUN_S)
    if ended is None:
        return "the last run did not end"
    return None if ended == 0 else f"the last run ended with exit code {ended}"


def one_round(server: Server, folder: Path, seed: int, kills: int) -> str | None:
    """What went wrong, or None."""
    chance = random.Random(seed)
    source, target = f"random-from-{seed}", f"random-to-{seed}"
    fill(server.namesrv, source, ROWS)
    log = folder / f"job-{seed}.log"
    arguments = [server.namesrv, source, target, str(folder / f"checkpoint-{seed}")]
    done: Counter[str] = Counter()
    runs: list[Running] = []
    try:
        wrong = _killed_and_run(runs, arguments, log, chance, kills, done)
    finally:
        for run in runs:
            run.clean_up()
    if wrong is not None:
        return f"{wrong}:\n{log.read_text()[-6000:]}"
    expected, found = visible(server.namesrv, source), visible(server.namesrv, target)
    for queue, bodies in expected.items():
        have = found.get(queue, [])
        lost, more = Counter(bodies) - Counter(have), Counter(have) - Counter(bodies)
        if lost or more:
            return f"queue {queue}: {lost.total()} rows are missing, {more.total()} too many"
        if have != bodies:
            return f"queue {queue}: the rows are not in order"
    print(f"random kills, seed {seed}: {dict(done)}, exit code 0, {ROWS} rows once", flush=True)
    return None


def main() -> None:
    if sys.argv[1:2] == ["--job"]:
        job(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=KILLS)
    given = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    failures = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arrowmq-random-kills-") as name, Server(Path(name)) as server:
        for seed in range(given.seed, given.seed + given.rounds):
            wrong = one_round(server, Path(name), seed, given.kills)
            if wrong is not None:
                failures += 1
                print(f"random kills, seed {seed}: {wrong}", flush=True)
    print(f"random kills: {failures} of {given.rounds} rounds failed, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
