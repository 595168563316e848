"""The results: JSON with every run, and a Markdown table of medians and ratios."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.loads import CLIENT_JVM, Metrics, Pace
from benchmarks.rows import Goal, Row
from benchmarks.systems import APACHE_JVM

UNPREPARED = (
    "Measured before that, with free memory as the machine had it: where the host hands pages out at their first touch,"
    " the broker pays for those it writes to. Each row has brokers of its own, as in a first run by hand."
)
_MET = {True: "yes", False: "**no**", None: "—"}
Runs = dict[str, dict[str, list[Metrics]]]  # row -> system -> one set of figures a round


def machine() -> dict[str, Any]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().splitlines()[0].split()[1]
    return {
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / (1 << 20), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_before": os.getloadavg()[0],
    }


def median(runs: list[Metrics], metric: str) -> float:
    return statistics.median(run[metric] for run in runs)


def judged(row: type[Row], runs: dict[str, list[Metrics]], goal: Goal) -> tuple[float, bool | None] | None:
    """The ratio of ArrowMQ to the goal's peer, and whether that is enough; None where one of them did not run."""
    if not runs.get("arrowmq") or not runs.get(goal.peer):
        return None
    peer = median(runs[goal.peer], goal.metric)
    ratio = median(runs["arrowmq"], goal.metric) / peer if peer else float("inf")
    return ratio, goal.met(ratio)


def span(runs: dict[str, list[Metrics]], goal: Goal) -> str:
    """The smallest and the largest ratio of two measurements that followed each other."""
    pairs = zip(runs.get("arrowmq", ()), runs.get(goal.peer, ()), strict=False)
    ratios = [own[goal.metric] / peer[goal.metric] for own, peer in pairs if peer[goal.metric]]
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if len(ratios) > 1 else "—"


def table(rows: list[type[Row]], runs: Runs, *, has_goals: bool = True) -> list[str]:
    lines = [
        "| work | figure | ArrowMQ | Apache 5.5.0 | ratio | single ratios | goal | met |",
        "|---|---|---:|---:|---:|---|---|---|",
    ]
    for row in rows:
        done = runs.get(row.__name__, {})
        for goal in row.goals:
            result = judged(row, done, goal)
            cells = [
                f"{median(done[system], goal.metric):,.2f}" if done.get(system) else "—"
                for system in ("arrowmq", goal.peer)
            ]
            ratio, met = result or (None, None)
            verdict = ("—" if ratio is None else f"{ratio:.3f}", _MET[met])
            peer = "" if goal.peer == "apache" else f" ({goal.peer})"
            figures = f"{goal.metric} | {cells[0]} | {cells[1]}{peer}"
            ratios = f"{verdict[0]} | {span(done, goal)}"
            aim = f"{goal} | {verdict[1]}" if has_goals else "— | —"  # they are those of a prepared machine
            lines.append(f"| {row.title} | {figures} | {ratios} | {aim} |")
    return lines


def markdown(rows: list[type[Row]], runs: Runs, unprepared: Runs, about: dict[str, Any], pace: Pace) -> str:
    settings = (
        f"Medians of {pace.rounds} rounds, systems alternating; warm-up {pace.warm_s:g} s, window {pace.window_s:g} s, "
        f"backlog {pace.backlog:,} messages. Broker CPU by the process's own clock of processor time (user, system); "
        f"`cpu_us`: microseconds a message. Apache's JVM: `{' '.join(APACHE_JVM)}`; clients': `{' '.join(CLIENT_JVM)}`."
    )
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    lines = ["# ArrowMQ beside the Apache broker", "", facts, "", settings, "", *table(rows, runs)]
    if unprepared:
        measured = [row for row in rows if row.__name__ in unprepared]
        lines += ["", UNPREPARED, "", *table(measured, unprepared, has_goals=False)]
    return "\n".join([*lines, ""])


def write(folder: Path, rows: list[type[Row]], runs: Runs, unprepared: Runs, about: dict[str, Any], pace: Pace) -> Path:
    folder.mkdir(exist_ok=True)
    stem = time.strftime("%Y%m%d-%H%M%S")
    text = markdown(rows, runs, unprepared, about, pace)
    everything = {
        "machine": about,
        "pace": vars(pace),
        "apache_jvm": APACHE_JVM,
        "runs": runs,
        "unprepared": unprepared,
    }
    (folder / f"{stem}.json").write_text(json.dumps(everything, indent=1))
    (folder / f"{stem}.md").write_text(text)
    (folder / "latest.md").write_text(text)
    return folder / f"{stem}.md"
