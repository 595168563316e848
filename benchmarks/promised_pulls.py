"""`python -m benchmarks.promised_pulls`: what a pull costs where readers may see only what is promised.

Under SYNC_FLUSH a reader sees no further than the disk has it; with slaveReadEnable an answer says whether a slave
should be asked. Both are read natively as ordinary pulls are, and may cost at most `LIMIT` times their CPU. Ends with 1
if they cost more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import closing

from benchmarks.loads import QUEUES, raw_pull, raw_send
from benchmarks.memory import touch_free_memory
from benchmarks.systems import ArrowMQ

LIMIT = 1.3
TOPIC = "Promised"
KINDS: dict[str, dict[str, str]] = {
    "ordinary": {},
    "SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "slaveReadEnable": {"slaveReadEnable": "true"},
}


def cpu_us(settings: dict[str, str], backlog: int) -> float:
    """Microseconds of broker CPU a message, pulling a backlog of 1 KiB messages."""
    with ArrowMQ(**settings) as system:
        with closing(system.asker()) as asker:
            asker.create_topic(TOPIC, QUEUES)
            raw_send(system, TOPIC, count=backlog)
            stored = min(asker.stored_in(TOPIC, queue) for queue in range(QUEUES)) * QUEUES
        touch_free_memory()
        raw_pull(system, TOPIC, stored // 10)
        return raw_pull(system, TOPIC, stored)["cpu_us"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=400_000)
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(given.rounds):
        for name, settings in KINDS.items():
            found[name].append(cpu_us(settings, given.backlog))
    medians = {name: statistics.median(figures) for name, figures in found.items()}
    ratios = {name: figure / medians["ordinary"] for name, figure in medians.items()}
    for name in KINDS:
        shown = ", ".join(f"{figure:.2f}" for figure in found[name])
        print(f"{name:16} {medians[name]:.2f} µs a message ({shown}), {ratios[name]:.2f} times an ordinary pull")
    return 0 if max(ratios.values()) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
