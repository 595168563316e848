"""Crash tests of the source and of the exactly-once sink at seeded points, and a million rows; `make spark-soak`.

    python tests/spark/soak --seed 1 --kills 120 --commits 60 --rows 1000000

    crashes   a real Spark stream whose driver, executors, Python workers and broker are killed (crashes.py)
    commits   a process that does what Spark's driver does around the sink's commit, killed at a numbered step: while
              sending, before and after the book is written, between any two ends; every third seed kills the broker
    random    a plain job of 40,000 rows, killed six times at any moment; its last run must end well (random_kills.py)
    standalone  source, sinks and pipelines on a Spark cluster of processes (standalone.py)
    million   rows of 1 KiB over 8 queues in batch, in streams of several triggers and from the store files, on our
              broker and on Apache's (large.py)
Ends with 1 if a single message is missing, doubled, changed or out of order.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from crash_stream import visible  # noqa: E402
from live import Server  # noqa: E402

BATCHES, ROWS = 3, 12
STEPS = BATCHES * (2 * ROWS + 8)  # about as many as a whole run has; later ones kill nothing
SETTINGS = ("transactionTimeOut=1000", "transactionCheckInterval=1000")
# The share of the kills that each stage gets.
STAGES = {"sink": 0.4, "source": 0.2, "tasks": 0.3, "cluster": 0.1}


def commits(server: Server, seed: int, folder: Path) -> str | None:
    """One seed: what went wrong, or None."""
    chance = random.Random(seed)
    topic = f"Soak{seed}"
    state = folder / f"state-{seed}"
    kills = [chance.randrange(STEPS) for _ in range(2)] if seed % 3 or seed % 5 == 0 else []
    broker_dies = seed % 3 == 0
    for attempt in range(8):
        kill_at = kills[attempt] if attempt < len(kills) else -1
        command = [sys.executable, str(HERE / "driver.py"), server.namesrv, topic, str(state), str(kill_at)]
        process = subprocess.Popen([*command, str(BATCHES), str(ROWS)])
        if broker_dies and attempt == 0:
            try:
                process.wait(chance.uniform(1.0, 2.5))
            except subprocess.TimeoutExpired:
                server.kill()
                server.start()
        if process.wait(120) == 0:
            break
    else:
        return "did not finish in 8 attempts"
    expected = Counter(f"{batch}-{row}" for batch in range(BATCHES) for row in range(ROWS))
    found = Counter(body for bodies in visible(server.namesrv, topic).values() for body in bodies)
    if found != expected:
        return f"missing {sorted((expected - found).elements())}, too many {sorted((found - expected).elements())}"
    return None


def all_commits(first: int, seeds: int) -> int:
    failures = 0
    with tempfile.TemporaryDirectory(prefix="arrowmq-soak-") as name, Server(Path(name), *SETTINGS) as server:
        for seed in range(first, first + seeds):
            wrong = commits(server, seed, Path(name))
            failures += wrong is not None
            if wrong is not None or seed % 10 == 9:
                print(f"commits, seed {seed}: {wrong or 'each row once'}", flush=True)
    return failures


def part(script: str, *arguments: str) -> int:
    return int(subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode != 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=120, help="of real streams; 0 leaves them out")
    parser.add_argument("--commits", type=int, default=60, help="seeds of commits without Spark; 0 leaves them out")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large read; 0 leaves it out")
    parser.add_argument("--random", type=int, default=3, help="rounds of a job killed at random; 0 leaves them out")
    parser.add_argument("--standalone", type=int, default=1, help="0 leaves the cluster of processes out")
    given = parser.parse_args()
    began = time.monotonic()
    failures = 0
    for stage, share in STAGES.items() if given.kills else ():
        kills = str(round(given.kills * share))
        failures += part("crashes.py", "--stage", stage, "--seed", str(given.seed), "--kills", kills)
    if given.commits:
        failures += all_commits(given.seed, given.commits)
    if given.random:
        failures += part("random_kills.py", "--seed", str(given.seed), "--rounds", str(given.random))
    if given.standalone:
        failures += part("standalone.py")
    for kind in ("arrowmq", "apache") if given.rows else ():
        failures += part("large.py", "--on", kind, "--rows", str(given.rows))
    print(f"{failures} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
