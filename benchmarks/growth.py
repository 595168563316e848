"""`python -m benchmarks.growth`: how the cost of a message grows with topics, connections and sizes.

ArrowMQ and the Apache broker, one after the other, the same raw generator; a table and a plot (SVG) of rate and broker
CPU a message.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from benchmarks import report
from benchmarks.__main__ import RESULTS, say
from benchmarks.loads import QUEUES, Metrics, raw_send
from benchmarks.systems import SYSTEMS, System

TOPICS, CONNECTIONS, SIZES = (1, 100, 10_000), (1, 64, 1_000), (100, 1024, 16 * 1024, 256 * 1024)
COLOURS = {"arrowmq": "#0b6e4f", "apache": "#c0392b"}
Points = dict[str, dict[int, Metrics]]


def by_topics(system: System, count: int, seconds: float) -> Metrics:
    # The first messages make the topics and their queues' files; only then it counts.
    raw_send(system, "Growth", topics=count, count=count * QUEUES)
    return raw_send(system, "Growth", topics=count, seconds=seconds)


def by_connections(system: System, count: int, seconds: float) -> Metrics:
    raw_send(system, "Connections", connections=count, inflight=4, seconds=1)
    return raw_send(system, "Connections", connections=count, inflight=4, seconds=seconds)


def by_size(system: System, size: int, seconds: float) -> Metrics:
    raw_send(system, "Sizes", connections=16, inflight=4, size=size, seconds=1)
    return raw_send(system, "Sizes", connections=16, inflight=4, size=size, seconds=seconds)


AXES: dict[str, tuple[Callable[[System, int, float], Metrics], tuple[int, ...]]] = {
    "topics": (by_topics, TOPICS),
    "connections": (by_connections, CONNECTIONS),
    "body bytes": (by_size, SIZES),
}


def table(found: dict[str, Points]) -> str:
    lines = ["| axis | | " + " | ".join(f"{name} msg/s | {name} CPU µs" for name in SYSTEMS if name != "bare") + " |"]
    lines.append("|---|---:|" + "---:|" * (len(lines[0].split("|")) - 4))
    for axis, (_, values) in AXES.items():
        for value in values:
            cells = []
            for points in (found[axis].get(name, {}) for name in SYSTEMS if name != "bare"):
                figures = points.get(value)
                cells.append(f"{figures['rate']:,.0f} | {figures['cpu_us']:.2f}" if figures else "— | —")
            lines.append(f"| {axis} | {value:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(found: dict[str, Points]) -> str:
    """CPU a message over each axis, one panel an axis."""
    width, height, pad = 300, 200, 40
    panels = []
    for column, (axis, (_, values)) in enumerate(AXES.items()):
        most = max((each["cpu_us"] for points in found[axis].values() for each in points.values()), default=1.0)
        left = column * width
        marks = [f'<text x="{left + pad}" y="20" font-weight="bold">CPU µs a message by {axis}</text>']
        for name, points in found[axis].items():
            spots = []
            for number, value in enumerate(values):
                if value in points:
                    x = left + pad + number * (width - 2 * pad) / max(1, len(values) - 1)
                    y = height - pad - points[value]["cpu_us"] / most * (height - 2 * pad)
                    spots.append(f"{x:.0f},{y:.0f}")
                    marks.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{COLOURS[name]}"/>')
                    marks.append(
                        f'<text x="{x:.0f}" y="{y - 6:.0f}" font-size="9">{points[value]["cpu_us"]:.1f}</text>'
                    )
            line = " ".join(spots)
            marks.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        for number, value in enumerate(values):
            x = left + pad + number * (width - 2 * pad) / max(1, len(values) - 1)
            marks.append(f'<text x="{x:.0f}" y="{height - 20}" text-anchor="middle" font-size="10">{value:,}</text>')
        panels.append("".join(marks))
    names = "".join(
        f'<text x="{40 + 90 * number}" y="{height - 2}" fill="{colour}" font-size="11">{name}</text>'
        for number, (name, colour) in enumerate(COLOURS.items())
    )
    shape = f'width="{width * len(AXES)}" height="{height}" font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>{"".join(panels)}{names}</svg>'


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--seconds", type=float, default=8, help="length of a measurement")
    parser.add_argument("--systems", nargs="+", default=["arrowmq", "apache"], choices=["arrowmq", "apache"])
    parser.add_argument("--most-topics", type=int, default=10_000)
    options = parser.parse_args()
    found: dict[str, Points] = {axis: {} for axis in AXES}
    for axis, (measure, values) in AXES.items():
        for name in options.systems:
            for value in values:
                if axis == "topics" and value > options.most_topics:
                    continue
                with SYSTEMS[name]() as system:
                    try:
                        figures = measure(system, value, options.seconds)
                    except (RuntimeError, OSError) as problem:
                        say(f"{name:8} {axis} {value:,}: FAILED: {problem}")
                        continue
                found[axis].setdefault(name, {})[value] = figures
                say(f"{name:8} {axis} {value:,}: rate {figures['rate']:,.0f}, cpu_us {figures['cpu_us']:.2f}")
    RESULTS.mkdir(exist_ok=True)
    about = ", ".join(f"{key} {value}" for key, value in report.machine().items())
    text = f"# Growth\n\n{about}\n\n{table(found)}\n"
    stem = time.strftime("growth-%Y%m%d-%H%M%S")
    (RESULTS / f"{stem}.md").write_text(text)
    (RESULTS / f"{stem}.json").write_text(json.dumps(found, indent=1))
    (RESULTS / f"{stem}.svg").write_text(plot(found))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
