"""Crash tests of the exactly-once sink and of the source, with seeded kill points; `make spark-soak`.

    python tests/spark/soak --seeds 100 --spark-kills 6 --rows 1000000

Three parts, each against a server in a process of its own:
  commits   a process that does what Spark's driver and tasks do around the sink is killed (SIGKILL) at a numbered step:
            while sending, before and after the book is written, between any two commits, before and after Spark's own
            commit file. Every third seed kills the broker instead, every fifth one both. Started again until done.
  spark     a real Spark stream from topic to topic is killed, the whole process group, at random moments
  million   rows of 1 KiB over 8 queues, read in batch and in streams of several triggers: count, order, content
Prints one line a seed, and ends with 1 if a single message is missing, doubled, changed or out of order.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from live import Server  # noqa: E402

from arrowmq.spark.cluster import Cluster, Connection  # noqa: E402
from arrowmq.spark.pull import Subscription, read_range  # noqa: E402
from arrowmq.spark.ranges import OffsetRange  # noqa: E402
from arrowmq.wire.record import decode_records  # noqa: E402

BATCHES, ROWS = 3, 12
STEPS = BATCHES * (2 * ROWS + 8)  # about as many as a whole run has; later ones kill nothing
SETTINGS = ("transactionTimeOut=1000", "transactionCheckInterval=1000")


def visible(namesrv: str, topic: str) -> dict[int, list[str]]:
    """The bodies of each queue, in order."""
    cluster = Cluster(Connection((namesrv,), patience_s=30))
    found: dict[int, list[str]] = {}
    route = cluster.route(topic)
    for queue, end in cluster.max_offsets(route.readable if route else []).items():
        bodies = found.setdefault(queue.queue_id, [])
        for pulled in read_range(cluster, OffsetRange(queue, 0, end), Subscription()):
            bodies += [record.body.decode() for record in decode_records(pulled.records)]
    cluster.close()
    return found


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


def spark_kills(server: Server, kills: int, folder: Path, seed: int) -> str | None:
    """A real stream, killed again and again; the target must hold each row once, each queue in order."""
    chance = random.Random(seed)
    rows = 4000
    command = [sys.executable, str(HERE / "stream.py"), server.namesrv, str(folder / "spark"), str(rows)]
    subprocess.run([*command, "fill"], check=True)
    for kill in range(kills):
        process = subprocess.Popen([*command, "run"], start_new_session=True, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()  # the query is running
        if line.startswith("done"):
            process.wait(60)
            break
        pause_s = chance.uniform(0.5, 12)
        try:
            process.wait(pause_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        print(f"spark kill {kill + 1}: {pause_s:.1f} s after its start", flush=True)
    subprocess.run([*command, "run"], check=True, stdout=subprocess.DEVNULL, start_new_session=True)
    found = Counter(body for bodies in visible(server.namesrv, "SoakSparkTo").values() for body in bodies)
    expected = Counter(f"row {number}" for number in range(rows))
    if found != expected:
        return f"{sum((expected - found).values())} rows missing, {sum((found - expected).values())} too many"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to repeat one")
    parser.add_argument("--spark-kills", type=int, default=6)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large read; 0 leaves it out")
    given = parser.parse_args()
    failures = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arrowmq-soak-") as name:
        folder = Path(name)
        with Server(folder, *SETTINGS) as server:
            for seed in range(given.first, given.first + given.seeds):
                wrong = commits(server, seed, folder)
                failures += wrong is not None
                if wrong is not None or seed % 10 == 9:
                    print(f"seed {seed}: {wrong or 'each row once'}", flush=True)
            if given.spark_kills:
                wrong = spark_kills(server, given.spark_kills, folder, given.first)
                failures += wrong is not None
                print(f"spark: {wrong or 'each row once'}", flush=True)
            if given.rows:
                large = [sys.executable, str(HERE / "large.py"), server.namesrv, str(folder / "large"), str(given.rows)]
                failures += subprocess.run(large, check=False).returncode != 0
    print(f"{given.seeds} seeds, {failures} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
