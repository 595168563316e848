"""Kills the driver, executors, Python workers and the broker of a real Spark stream at seeded points.

    python tests/spark/soak/crashes.py --seed 1 --kills 30 --stage sink

Stages:
    sink      topic to topic, exactly once: the target must hold each row of the source topic once, queues in order
    source    topic to Parquet: the files must hold each row once
    tasks     the sink's stage with kills that Spark survives by itself: workers of tasks, and the broker anywhere
    cluster   the sink's stage on a Spark cluster of two workers, where the Java process of a task is its executor
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from crash_stream import BATCH_ROWS, fill, visible  # noqa: E402
from failpoints import (  # noqa: E402
    BROKER,
    COMMIT_LOG,
    COMMIT_POINTS,
    JAVA,
    ON_EXECUTORS,
    SOURCE_POINTS,
    TASK_POINTS,
    WORKER,
    Pair,
    Plan,
    pairs_of,
    seeded_kills,
)
from live import Kept, Server  # noqa: E402
from standalone import cluster  # noqa: E402

# Brokers ask about half messages soon, but not so often that they lose patience while Spark starts again.
SETTINGS = ("transactionTimeOut=5000", "transactionCheckInterval=5000")
ALL_POINTS = SOURCE_POINTS + TASK_POINTS + COMMIT_POINTS
# Spark's master (none: a cluster of its own), the pairs of point and victim, and those that make Java start again.
STAGES: dict[str, tuple[str, list[Pair], list[Pair]]] = {
    "sink": (
        "local[2,2]",
        pairs_of(ALL_POINTS, WORKER, BROKER),
        pairs_of(ALL_POINTS, JAVA) + 4 * [("commit.end", COMMIT_LOG)],
    ),
    "source": (
        "local[2,2]",
        pairs_of(SOURCE_POINTS, WORKER, BROKER),
        pairs_of(SOURCE_POINTS, JAVA) + 4 * [("source.plan", COMMIT_LOG)],
    ),
    "tasks": ("local[2,8]", pairs_of(ON_EXECUTORS, WORKER) + pairs_of(ALL_POINTS, BROKER), []),
    "cluster": ("", [], pairs_of(ON_EXECUTORS, JAVA)),
}


def files(folder: Path) -> dict[int, list[str]]:
    """What the files hold that Spark's own list of them names."""
    import json

    import pyarrow.parquet as parquet

    named: set[str] = set()
    for entry in (folder / "data" / "_spark_metadata").iterdir():
        if entry.suffix != ".crc":
            lines = entry.read_text().splitlines()[1:]
            named |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
    found: dict[int, list[str]] = {}
    for name in sorted(named):
        for row in parquet.read_table(folder / "data" / name).to_pylist():
            found.setdefault(row["queueId"], []).append(row["body"].decode())
    return {queue: sorted(bodies, key=int) for queue, bodies in found.items()}


def drive(server: Server, folder: Path, plan: Plan, stage: str, master: str, seconds: float) -> int:
    """Runs the stream until it is done; how often Java had to be started. Kills that had no turn in time are left."""
    command = [sys.executable, str(HERE.parent / "crash_stream.py"), server.namesrv, str(folder), stage]
    began = time.monotonic()
    starts = 0
    while True:
        starts += 1
        with (folder / "driver.log").open("a") as log:
            process = subprocess.Popen(
                [*command, master],
                start_new_session=True,
                stderr=log,
                stdout=log,
            )
        while (ended := _wait(process)) is None:
            if time.monotonic() - began > seconds:
                plan.drop()
            if time.monotonic() - began > 3 * seconds + 300:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers that outlived their driver
        process.wait(30)
        if ended == 0:
            return starts
        if ended is None:
            raise TimeoutError(f"not done in time; log:\n{(folder / 'driver.log').read_text()[-3000:]}")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(0.5)
    except subprocess.TimeoutExpired:
        return None


def crash(folder: Path, stage: str, seed: int, count: int, seconds: float) -> str | None:
    """One stage with one seed: what went wrong, or None."""
    master, quick, slow = STAGES[stage]
    plan = Plan(folder / "plan")
    kills = seeded_kills(seed, count, quick, slow, BATCH_ROWS)
    plan.write(kills, folder / "checkpoint")
    rows = BATCH_ROWS * (3 * count + 10)
    began = time.monotonic()
    with Server(folder, *SETTINGS) as server, nullcontext(master) if master else cluster(folder) as address:
        fill(server.namesrv, f"{stage}-from", rows)
        with Kept(server, plan.broker_is) as kept:
            starts = drive(server, folder, plan, stage, address, seconds)
        expected = visible(server.namesrv, f"{stage}-from")
        found = files(folder) if stage == "source" else visible(server.namesrv, f"{stage}-to")
    done = kills[: plan.done()]
    print(
        f"{stage}, seed {seed}: {len(done)} kills {dict(Counter(kill.victim for kill in done))}, {rows} rows, ", end=""
    )
    print(f"Java started {starts} times, broker {kept.starts + 1} times, {time.monotonic() - began:.0f} s", flush=True)
    if rows != sum(map(len, expected.values())):
        return "the source topic does not hold what was sent"
    for queue, bodies in expected.items():
        have = found.get(queue, [])
        if Counter(have) != Counter(bodies):
            lost, more = Counter(bodies) - Counter(have), Counter(have) - Counter(bodies)
            return f"queue {queue}: missing {sorted(lost.elements())}, too many {sorted(more.elements())}"
        if have != bodies:
            return f"queue {queue}: the rows are not in order"
    return None if len(done) == count else f"each row once, but only {len(done)} of {count} kills had their turn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--stage", choices=sorted(STAGES), default="sink")
    parser.add_argument("--seconds", type=float, default=1200, help="then the kills that are left are given up")
    parser.add_argument("--verbose", action="store_true", help="what the stream said")
    parser.add_argument("--keep", help="keep the folder of a run that failed here")
    given = parser.parse_args()
    # Workers on the cluster must find failpoints.py as well.
    os.environ["PYTHONPATH"] = f"{HERE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = Path(tempfile.mkdtemp(prefix="arrowmq-crash-"))
    wrong: str | None = "did not end"
    try:
        wrong = crash(folder, given.stage, given.seed, given.kills, given.seconds)
    finally:
        if wrong is not None and given.keep:
            shutil.copytree(folder, given.keep, dirs_exist_ok=True)
        log = (folder / "driver.log").read_text() if (folder / "driver.log").exists() else ""
        shutil.rmtree(folder)
    if given.verbose:
        print(log)
    print(wrong or "each row once, queues in order")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
