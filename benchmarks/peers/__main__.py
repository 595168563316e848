"""`python -m benchmarks.peers [--count N] [--rounds N] [--peers NAME …]`: one table, broker CPU a message and rates."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time

from benchmarks import report
from benchmarks.__main__ import RESULTS, say
from benchmarks.loads import Metrics
from benchmarks.peers.systems import BIG, PEERS, SMALL

#: mode, title, size of a body, how many times `count`
WORK = (
    ("one", "one message at a time, 16 senders, 1 KiB", BIG, 1),
    ("batch", "batches of 32, 128 B", SMALL, 4),
    ("read", "reading the backlog of 128 B messages", SMALL, 4),
)
Runs = dict[str, dict[str, list[Metrics]]]


def visit(name: str, count: int, runs: Runs) -> None:
    peer = PEERS[name]()
    try:
        peer.start()
        for mode, title, size, times in WORK:
            topic = "one" if mode == "one" else "many"
            peer.measure(mode, topic, max(count // 20, 640), size) if mode != "read" else None  # warm
            figures = peer.measure(mode, topic, count * times, size)
            runs.setdefault(mode, {}).setdefault(name, []).append(figures)
            say(f"{name:8} {title}: rate {figures['rate']:,.0f}, cpu_us {figures['cpu_us']:.2f}")
        peer.stop()
    finally:
        shutil.rmtree(peer.folder, ignore_errors=True)


def table(runs: Runs, names: list[str]) -> str:
    lines = ["| work | figure | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for mode, title, _, _ in WORK:
        for figure, form in (("cpu_us", "{:.2f}"), ("rate", "{:,.0f}")):
            cells = []
            for name in names:
                found = [each[figure] for each in runs.get(mode, {}).get(name, [])]
                cells.append(form.format(statistics.median(found)) if found else "—")
            lines.append(
                f"| {title} | {'broker CPU, µs a message' if figure == 'cpu_us' else 'messages a second'} | "
                + " | ".join(cells)
                + " |"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="ArrowMQ beside Kafka, NATS and Redis."
    )
    parser.add_argument("--count", type=int, default=100_000, help="messages of one measurement, before its factor")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (the median counts)")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    options = parser.parse_args()
    about = report.machine()
    runs: Runs = {}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        for name in options.peers:
            visit(name, options.count, runs)
    text = f"# ArrowMQ beside other brokers\n\n{', '.join(f'{key} {value}' for key, value in about.items())}\n\n"
    text += f"Medians of {options.rounds} run(s), {options.count:,} messages.\n\n{table(runs, options.peers)}\n"
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    (RESULTS / f"peers-{stamp}.md").write_text(text)
    (RESULTS / f"peers-{stamp}.json").write_text(json.dumps({"machine": about, "runs": runs}, indent=1))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
