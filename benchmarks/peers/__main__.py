"""`python -m benchmarks.peers [--rounds N] [--peers NAME …] [--quick]`: one table, broker CPU a message and rates.

Some 40 s a peer and round. `--peers` measures some alone; ArrowMQ and the fastest of the others are what the goals are
about.
"""

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
from benchmarks.memory import touch_free_memory
from benchmarks.peers.systems import BATCH, BIG, PEERS, SMALL, WINDOW_BYTES, Missing, Peer, Span

ONE, MANY, READ = "one message at a time, 16 senders, 1 KiB", "batched, 128 B", "reading that backlog of 128 B"
# Kafka's and NATS's clients share a connection in the first row; RocketMQ's do too, Redis's do not.
SHARED = "the same, 16 senders on one connection"
MOST_READ = 2_000_000
Runs = dict[str, dict[str, list[Metrics]]]


def work(peer: Peer, span: Span) -> dict[str, Metrics]:
    """The three pieces of work on one peer, one after the other."""
    touch_free_memory(WINDOW_BYTES)
    found = {ONE: peer.send("one", BIG, 1, span)}
    shared = peer.send_shared("one", BIG, Span(1, span.window_s))
    if shared is not None:
        found[SHARED] = shared
    touch_free_memory(WINDOW_BYTES)
    found[MANY] = peer.send("many", SMALL, BATCH, span)
    # What the warm-up sent lies there too; nobody is asked for more than the window is known to have left.
    found[READ] = peer.read("many", min(int(found[MANY]["messages"]), MOST_READ))
    return found


def visit(name: str, span: Span, runs: Runs) -> None:
    peer = PEERS[name]()
    try:
        peer.start()
        try:
            for title, figures in work(peer, span).items():
                runs.setdefault(title, {}).setdefault(name, []).append(figures)
                say(f"{name:8} {title}: rate {figures['rate']:,.0f}, cpu_us {figures['cpu_us']:.2f}")
        finally:
            peer.stop()
    except Missing as missing:
        say(f"{name:8} left out: {missing}")
    finally:
        shutil.rmtree(peer.folder, ignore_errors=True)


def table(runs: Runs, names: list[str]) -> str:
    lines = ["| work | figure | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for title in (ONE, SHARED, MANY, READ):
        found = runs.get(title, {})
        for figure, unit, form in (
            ("cpu_us", "broker CPU, µs a message", "{:.2f}"),
            ("rate", "messages a second", "{:,.0f}"),
        ):
            values = ([each[figure] for each in found.get(name, [])] for name in names)
            cells = [form.format(statistics.median(each)) if each else "—" for each in values]
            lines.append(f"| {title} | {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(runs: Runs) -> list[str]:
    """The goals: first in sending, at most twice Kafka's figure in reading."""

    def cpu(title: str, name: str) -> float:
        return statistics.median(each["cpu_us"] for each in runs[title][name])

    lines = []
    for title in (ONE, MANY):
        others = [cpu(title, name) for name in runs.get(title, {}) if name != "arrowmq"]
        if others and "arrowmq" in runs[title]:
            mine, best = cpu(title, "arrowmq"), min(others)
            lines.append(
                f"{title}: {mine:.2f} µs, best of the others {best:.2f} µs, goal: first: {_said(mine <= best)}"
            )
    if {"arrowmq", "kafka"} <= set(runs.get(READ, {})):
        mine, kafka = cpu(READ, "arrowmq"), cpu(READ, "kafka")
        lines.append(f"{READ}: {mine:.2f} µs, Kafka {kafka:.2f} µs, goal: at most twice: {_said(mine <= 2 * kafka)}")
    return lines


def _said(met: bool) -> str:
    return "met" if met else "**missed**"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="ArrowMQ beside Apache RocketMQ, Kafka, NATS and Redis."
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured (the median counts)")
    parser.add_argument("--warm", type=float, default=6, help="seconds of warm-up of each piece of work")
    parser.add_argument("--window", type=float, default=5, help="seconds that are measured")
    parser.add_argument("--quick", action="store_true", help="2 s of each: only whether it runs")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    options = parser.parse_args()
    span = Span(2, 2) if options.quick else Span(options.warm, options.window)
    about = report.machine()
    runs: Runs = {}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        for name in options.peers:
            visit(name, span, runs)
    lines = ["# ArrowMQ beside other brokers", "", ", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines += [f"Medians of {options.rounds} run(s); {span.warm_s:g} s of warm-up, windows of {span.window_s:g} s.", ""]
    lines += [table(runs, [name for name in options.peers if any(name in found for found in runs.values())]), ""]
    lines += [f"- {line}" for line in verdict(runs)]
    text = "\n".join(lines) + "\n"
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    (RESULTS / f"peers-{stamp}.md").write_text(text)
    (RESULTS / f"peers-{stamp}.json").write_text(json.dumps({"machine": about, "runs": runs}, indent=1))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
