"""`python -m benchmarks.growth [--seconds S] [--systems NAME …]`: what more topics, connections and bytes cost.

ArrowMQ and the Apache broker, one after the other in fresh folders, the same raw generator, the same queues; a table
and a plot (SVG) of rate and broker CPU a message, and where ours grows steeper than Apache's. A broker serves all
points of an axis, so that it is warm when they count. Under four minutes.

Ten thousand topics have two queues each here: with Apache's eight, 80,000 files, its broker maps more files than the
kernel's default allows (vm.max_map_count 65,530), refuses messages and then stops answering. `--queues 8` has ArrowMQ
alone do that (`--systems arrowmq`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks import loads, report
from benchmarks.__main__ import RESULTS, say
from benchmarks.loads import QUEUES, Metrics, metrics
from benchmarks.memory import touch_free_memory
from benchmarks.systems import SYSTEMS, System

COLOURS = {"arrowmq": "#0b6e4f", "apache": "#c0392b"}
FIGURES = {"cpu_us": "broker CPU, µs a message", "rate": "messages a second"}
MOST_BYTES = 1500 << 20  # of one point: large messages would otherwise measure the disk
STEEP = 1.5  # a step is a cliff if it costs so many times more than the same step costs Apache
Points = dict[str, dict[int, Metrics]]


@dataclass(frozen=True)
class Point:
    """One load; `fills` sends one message to every queue before it counts."""

    topics: int = 1
    queues: int = QUEUES
    connections: int = 64
    inflight: int = 8
    size: int = 1024
    fills: bool = False

    def send(self, system: System, topic: str, *, seconds: float = 0, count: int = 0) -> Metrics:
        words = (topic, self.queues, self.connections, self.inflight, self.size, seconds, count, "binary", 1)
        said, cpu = loads.raw(system, "send", *words, LOADGEN_TOPICS=str(self.topics))
        return {**metrics(said["sent"], said["seconds"], cpu), "refused": said["failed"]}

    def measure(self, system: System, topic: str, seconds: float) -> Metrics:
        if self.fills:
            # Few at a time: thousands of files are made, and a broker that is overrun refuses.
            filling = Point(self.topics, self.queues, 16, 4, self.size)
            made = filling.send(system, topic, count=self.topics * self.queues)
            say(f"{system.name:8} {self.topics * self.queues:,} queues made at {made['cpu_us']:.0f} µs each")
        else:
            self.send(system, topic, seconds=1, count=MOST_BYTES // self.size)
        touch_free_memory(2 * MOST_BYTES)
        return self.send(system, topic, seconds=seconds, count=MOST_BYTES // self.size)


def axes(queues: int) -> dict[str, dict[int, Point]]:
    return {
        "topics": {1: Point(fills=True), 100: Point(100, fills=True), 10_000: Point(10_000, queues, fills=True)},
        "connections": {count: Point(connections=count, inflight=4) for count in (1, 64, 1_000)},
        "body bytes": {
            size: Point(connections=16, inflight=4, size=size) for size in (100, 1024, 16 * 1024, 256 * 1024)
        },
    }


def table(found: dict[str, Points], systems: list[str]) -> str:
    lines = ["| axis | | " + " | ".join(f"{name} msg/s | {name} CPU µs" for name in systems) + " |"]
    lines.append("|---|---:|" + "---:|---:|" * len(systems))
    for axis, points in found.items():
        for value in sorted({value for each in points.values() for value in each}):
            cells = []
            for name in systems:
                figures = points.get(name, {}).get(value)
                if figures is None:
                    cells.append("— | failed")
                    continue
                refused = f" ({figures['refused']:,.0f} refused)" if figures.get("refused") else ""
                cells.append(f"{figures['rate']:,.0f}{refused} | {figures['cpu_us']:.2f}")
            lines.append(f"| {axis} | {value:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cliffs(found: dict[str, Points]) -> list[str]:
    """The steps that cost ArrowMQ more, in relation, than they cost Apache."""
    said = []
    for axis, points in found.items():
        ours, theirs = points.get("arrowmq", {}), points.get("apache", {})
        values = sorted(ours)
        for low, high in itertools.pairwise(values):
            step = ours[high]["cpu_us"] / ours[low]["cpu_us"]
            if low in theirs and high in theirs:
                other = theirs[high]["cpu_us"] / theirs[low]["cpu_us"]
                if step > STEEP * max(other, 1):
                    said.append(f"{axis} from {low:,} to {high:,}: CPU x {step:.1f}, Apache's x {other:.1f}")
    return said


def panel(points: Points, figure: str, title: str, left: float, top: float) -> Iterable[str]:
    """One plot: a line a system over the axis, all values in order, from 0 to the largest."""
    width, height, pad = 320, 200, 40
    values = sorted({value for each in points.values() for value in each})
    most = max((each[figure] for each in points.values() for each in each.values()), default=1.0)
    yield f'<text x="{left + pad}" y="{top + 20}" font-weight="bold">{title}</text>'

    def across(value: int) -> float:
        return left + pad + values.index(value) * (width - 2 * pad) / max(1, len(values) - 1)

    for name, line in points.items():
        spots = []
        for value, figures in sorted(line.items()):
            x, y = across(value), top + height - pad - figures[figure] / most * (height - 2 * pad)
            spots.append(f"{x:.0f},{y:.0f}")
            yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{COLOURS[name]}"/>'
            shown = f"{figures[figure]:,.1f}" if figure == "cpu_us" else f"{figures[figure]:,.0f}"
            yield f'<text x="{x:.0f}" y="{y - 6:.0f}" font-size="9">{shown}</text>'
        yield f'<polyline points="{" ".join(spots)}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
    for value in values:
        place = f'x="{across(value):.0f}" y="{top + height - 20}"'
        yield f'<text {place} text-anchor="middle" font-size="10">{value:,}</text>'


def plot(found: dict[str, Points]) -> str:
    """CPU and rate over each axis: a column an axis, a row a figure."""
    marks: list[str] = []
    for column, (axis, points) in enumerate(found.items()):
        for row, (figure, title) in enumerate(FIGURES.items()):
            marks += panel(points, figure, f"{title}, by {axis}", column * 320, row * 210)
    marks += [
        f'<text x="{40 + 90 * number}" y="425" fill="{colour}" font-size="11">{name}</text>'
        for number, (name, colour) in enumerate(COLOURS.items())
    ]
    shape = f'width="{320 * len(found)}" height="435" font-family="sans-serif" font-size="11"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>{ground}{"".join(marks)}</svg>'


def visit(name: str, axis: str, points: dict[int, Point], seconds: float, keep: Callable[[int, Metrics], None]) -> None:
    touch_free_memory()
    with SYSTEMS[name]() as system:
        Point(connections=16, inflight=4).send(system, "Warm", seconds=4 if name == "apache" else 1)
        for value, point in points.items():
            try:
                figures = point.measure(system, f"Growth{value}", seconds)
            except (RuntimeError, OSError) as problem:
                say(f"{name:8} {axis} {value:,}: FAILED: {problem}")
                break
            keep(value, figures)
            refused = f", {figures['refused']:,.0f} refused" if figures["refused"] else ""
            say(f"{name:8} {axis} {value:,}: rate {figures['rate']:,.0f}, cpu_us {figures['cpu_us']:.2f}{refused}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--seconds", type=float, default=4, help="length of a measurement")
    parser.add_argument("--systems", nargs="+", default=["arrowmq", "apache"], choices=["arrowmq", "apache"])
    parser.add_argument("--queues", type=int, default=2, help="of each of 10,000 topics")
    parser.add_argument("--axes", nargs="+", default=list(axes(2)), choices=list(axes(2)))
    options = parser.parse_args()
    found: dict[str, Points] = {axis: {} for axis in options.axes}
    for axis in options.axes:
        for name in options.systems:
            line = found[axis].setdefault(name, {})
            visit(name, axis, axes(options.queues)[axis], options.seconds, line.__setitem__)
    about = ", ".join(f"{key} {value}" for key, value in report.machine().items())
    text = f"# Growth\n\n{about}\n\n{table(found, options.systems)}\n\n"
    text += "\n".join(f"- steeper than Apache: {line}" for line in cliffs(found)) or "No step is steeper than Apache's."
    RESULTS.mkdir(exist_ok=True)
    stem = time.strftime("growth-%Y%m%d-%H%M%S")
    (RESULTS / f"{stem}.md").write_text(text + "\n")
    (RESULTS / f"{stem}.json").write_text(json.dumps(found, indent=1))
    (RESULTS / f"{stem}.svg").write_text(plot(found))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
