"""Small HTML reports: numbers, tables and charts in one file without anything from elsewhere.

Charts are inline SVG. The page follows the reader's light or dark setting, prints well, and every bar and point says
its value when the pointer rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 240
LEFT, BOTTOM, TOP = 64, 36, 12

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --line: #d9dee6; --back: #fff; --card: #f5f7fa;
  --accent: #2f6fdb; --warm: #d9822b; --bad: #c23030; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #9aa6b5; --line: #333d49; --back: #14181d;
  --card: #1c222a; --accent: #6aa0ff; --warm: #f0a65c; --bad: #ff7373; } }
body { margin: 0 auto; max-width: 860px; padding: 32px 24px 64px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 36px 0 10px; }
.about { color: var(--soft); margin: 0 0 24px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile { background: var(--card); border-radius: 8px; padding: 12px 16px; min-width: 120px; flex: 1; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); }
.tile.bad b { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td { overflow-wrap: anywhere; } .wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11px; }
.bar { fill: var(--accent); } .bar:hover { fill: var(--warm); } .axis { stroke: var(--line); }
.curve { fill: none; stroke-width: 2; } .c0 { stroke: var(--accent); } .c1 { stroke: var(--warm); }
.c2 { stroke: var(--bad); }
.k0 { fill: var(--accent) !important; } .k1 { fill: var(--warm) !important; } .k2 { fill: var(--bad) !important; }
.none { color: var(--soft); }
"""


class Report:
    """A page that is filled from top to bottom."""

    def __init__(self, title: str, about: str) -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="about">{escape(about)}</p>']

    def numbers(self, values: Sequence[tuple[str, str, bool]]) -> None:
        """Tiles: what, how much, and whether that is bad."""
        tiles = "".join(
            f'<div class="tile{" bad" if bad else ""}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value, bad in values
        )
        self._parts.append(f'<div class="tiles">{tiles}</div>')

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def table(self, names: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
        if not rows:
            self._parts.append(f'<p class="none">{escape(empty)}</p>')
            return
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{escape(shown(value))}</td>" for value in row) + "</tr>" for row in rows)
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')

    def bars(self, values: Sequence[tuple[str, float]], unit: str) -> None:
        self._parts.append(bar_chart(values, unit))

    def curves(self, series: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> None:
        self._parts.append(line_chart(series, unit))

    def text(self) -> str:
        made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head><body>"
            + "\n".join(self._parts)
            + f'<p class="about" style="margin-top:40px">made by arrowmq pipeline, {made}</p></body></html>'
        )

    def write(self, path: str | Path) -> Path:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.text(), encoding="utf-8")
        return target


def shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)


def size_text(count: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def bar_chart(values: Sequence[tuple[str, float]], unit: str) -> str:
    if not values:
        return '<p class="none">nothing to draw</p>'
    most = max((value for _, value in values), default=0) or 1
    room = (WIDTH - LEFT - 8) / len(values)
    parts = [_frame(most, unit)]
    every = max(1, -(-len(values) // 12))
    for number, (name, value) in enumerate(values):
        height = (HEIGHT - BOTTOM - TOP) * value / most
        x, y = LEFT + number * room, HEIGHT - BOTTOM - height
        title = f"<title>{escape(name)}: {escape(shown(value))} {escape(unit)}</title>"
        parts.append(
            f'<rect class="bar" x="{x + room * 0.1:.1f}" y="{y:.1f}" width="{max(1.0, room * 0.8):.1f}" '
            f'height="{max(0.5, height):.1f}" rx="2">{title}</rect>'
        )
        if number % every == 0:
            label = name if len(name) <= 14 else name[:13] + "…"
            parts.append(f'<text x="{x + room / 2:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(label)}</text>')
    return _svg(parts)


def line_chart(series: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> str:
    points = max((len(values) for _, values in series), default=0)
    if points == 0:
        return '<p class="none">nothing to draw</p>'
    most = max((value for _, values in series for _, value in values), default=0) or 1
    parts = [_frame(most, unit)]
    step = (WIDTH - LEFT - 16) / max(1, points - 1)
    for number, (name, values) in enumerate(series):
        places = [
            (LEFT + index * step, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most)
            for index, (_, value) in enumerate(values)
        ]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="curve c{number % 3}" points="{way}"/>')
        for (x, y), (label, value) in zip(places, values, strict=True):
            title = f"<title>{escape(name)}, {escape(label)}: {escape(shown(value))} {escape(unit)}</title>"
            parts.append(f'<circle class="k{number % 3}" cx="{x:.1f}" cy="{y:.1f}" r="3">{title}</circle>')
        parts.append(f'<text class="k{number % 3}" x="{LEFT + 8 + 90 * number}" y="{TOP + 10}">{escape(name)}</text>')
    longest = max(series, key=lambda item: len(item[1]))[1]
    every = max(1, -(-points // 8))
    for index, (label, _) in enumerate(longest):
        if index % every == 0:
            x = LEFT + index * step
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(label)}</text>')
    return _svg(parts)


def _frame(most: float, unit: str) -> str:
    lines = []
    for part in range(5):
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part / 4
        lines.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(most * part / 4))}</text>')
    lines.append(f'<text x="{LEFT - 6}" y="{HEIGHT - 14}" text-anchor="end">{escape(unit)}</text>')
    return "".join(lines)


def _short(value: float) -> str:
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {letter}"
    return f"{value:.3g}"


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
