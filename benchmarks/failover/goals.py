"""The tables: what was found, step by step, and whether it is what it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oracle.trio import ARROW, JAVA, JAVA_POLL_MS

from benchmarks.failover.rounds import COUNTED, STEPS

Found = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By part, then by system: the figures."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`is_met` gets our figure and Apache's, which is None where it was not measured."""

    part: str
    step: str
    figure: str
    wanted: str
    is_met: Callable[[float, float | None], bool]


def _at_most_theirs(share: float) -> Callable[[float, float | None], bool]:
    return lambda ours, theirs: theirs is not None and ours <= share * theirs


def _below(limit: float) -> Callable[[float, float | None], bool]:
    return lambda ours, theirs: ours < limit and (theirs is None or ours <= theirs)


GOALS = (
    Goal("killed", "elected", "median", "at most Apache's", _at_most_theirs(1)),
    Goal("killed", "Java back", "median", "at most Apache's", _at_most_theirs(1)),
    Goal("killed", "Java back", "median", "at most half of Apache's", _at_most_theirs(0.5)),
    Goal("killed", "Java back", "worst", "at most Apache's", _at_most_theirs(1)),
    Goal("killed", "Python back", "median", "at most Apache's", _at_most_theirs(1)),
    Goal("stopped", "Java back", "worst", "under 3000, at most Apache's", _below(3000)),
    Goal("stopped", "Python back", "worst", "under 3000, at most Apache's", _below(3000)),
    Goal("cut", "Java back", "worst", "under 3000, at most Apache's", _below(3000)),
    Goal("cut", "Python back", "worst", "under 3000, at most Apache's", _below(3000)),
    Goal("slow", "Java back", "worst", "at most Apache's", _at_most_theirs(1)),
    Goal("switched", "Java failed", "worst", "no failed send", lambda ours, _: ours == 0),
    Goal("switched", "Python failed", "worst", "no failed send", lambda ours, _: ours == 0),
    Goal("switched", "Java pause", "worst", "under 500", lambda ours, _: ours < 500),
    Goal("switched", "Python pause", "worst", "under 500", lambda ours, _: ours < 500),
)


def steps(part: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """One part, step by step."""
    counts = ", ".join(f"{kind} {len(figures['rounds'])} rounds" for kind, figures in found.items())
    lines = [
        f"### {part}, ms after it: median (worst); {counts}",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---:|" * len(found),
    ]
    for step in (*STEPS, *COUNTED):
        cells = [
            f"{figures[step]['median']:.0f} ({figures[step]['worst']:.0f})" if step in figures else "-"
            for figures in found.values()
        ]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    lines += [f"\n{kind}: {figures['ended']}" for kind, figures in found.items() if "ended" in figures]
    return "\n".join(lines)


def judged(found: Found) -> str:
    """Every goal whose part was measured."""
    lines = ["| | | goal | ArrowMQ | Apache | met |", "|---|---|---|---:|---:|---|"]
    for goal in GOALS:
        ours = _figure(found, goal, ARROW)
        if ours is None:
            continue
        theirs = _figure(found, goal, JAVA)
        met = "yes" if goal.is_met(ours, theirs) else "no"
        if theirs is None and "Apache" in goal.wanted and "under" not in goal.wanted:
            met = "not measured"
        shown = "-" if theirs is None else f"{theirs:.0f}"
        name = f"{goal.step}, {goal.figure}"
        lines.append(f"| {goal.part} | {name} | {goal.wanted} | {ours:.0f} | {shown} | {met} |")
    return "\n".join(lines)


def java_part(found: Found) -> str:
    """How much of its silence is the Java producer's own: it asks for routes, and gives up what is not answered."""
    sentences = []
    for part, by_system in found.items():
        for kind, figures in by_system.items():
            waits = [
                each["Java back"] - each["route changed"]
                for each in figures["rounds"]
                if each.get("Java back") and each.get("route changed") is not None
            ]
            if part != "switched" and waits:
                share = sum(waits) / len(waits)
                sentences.append(f"{part}, {kind}: {share:.0f} ms")
    return (
        f"Of the Java producer's silence, after the NameServer had the new route (it asks every {JAVA_POLL_MS} ms), "
        f"mean: {'; '.join(sentences)}."
    )


def _figure(found: Found, goal: Goal, kind: str) -> float | None:
    figures = found.get(goal.part, {}).get(kind, {})
    step = figures.get(goal.step)
    return None if step is None else float(step[goal.figure])
