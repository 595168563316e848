"""Small HTML reports: numbers, tables and charts in one file without anything from elsewhere.

Charts are inline SVG. The page follows the reader's light or dark setting, prints well, and every bar and point says
its value when the pointer rests on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 260
LEFT, BOTTOM, TOP = 64, 36, 32
WIDEST_BAR = 64.0
MOST_DOTS = 150  # of a curve

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --line: #d9dee6; --back: #fff; --card: #f5f7fa;
  --accent: #2f6fdb; --warm: #c26d14; --bad: #c23030; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #9aa6b5; --line: #333d49; --back: #14181d;
  --card: #1c222a; --accent: #6aa0ff; --warm: #f0a65c; --bad: #ff7373; } }
body { margin: 0 auto; max-width: 1040px; padding: 32px 24px 64px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 36px 0 10px; }
.about { color: var(--soft); margin: 0 0 24px; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); gap: 12px; }
.tile { background: var(--card); border-radius: 8px; padding: 12px 16px; }
.tile b { display: block; font-size: 21px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); }
.tile.bad b { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } .n { text-align: right; white-space: nowrap; }
td { min-width: 5em; max-width: 28em; overflow-wrap: anywhere; } td:first-child { min-width: 10em; }
td.n { min-width: 0; } td.t { white-space: nowrap; }
.rank { display: grid; grid-template-columns: minmax(6em, max-content) 1fr max-content; gap: 6px 12px;
  align-items: center; font-size: 14px; }
.rank .name { max-width: 24em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.rank .size { text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.rank i { display: block; height: 14px; min-width: 2px; border-radius: 2px; background: var(--accent); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11px; }
.bar { fill: var(--accent); } .bar:hover { fill: var(--warm); } .axis { stroke: var(--line); }
.curve { fill: none; stroke-width: 2; } .c0 { stroke: var(--accent); } .c1 { stroke: var(--warm); }
.c2 { stroke: var(--bad); }
.k0 { fill: var(--accent) !important; } .k1 { fill: var(--warm) !important; } .k2 { fill: var(--bad) !important; }
.none { color: var(--soft); margin: 0; }
@media (max-width: 600px) { body { padding: 20px 14px 48px; }
  .tiles { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); } svg text { font-size: 19px; }
  svg text.x { display: none; } svg text.x0 { display: inline; } .rank .name { max-width: 11em; } }
@media print { body { max-width: none; padding: 0; } .wide { overflow: visible; } }
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

    def table(
        self, names: Sequence[str], rows: Sequence[Sequence[object]], *, of: int | None = None, empty: str = "nothing"
    ) -> None:
        """`of` is how many rows there are, when not all are shown."""
        if not rows:
            self._parts.append(f'<p class="none">{escape(empty)}</p>')
            return
        is_number = [all(_is_number(row[column]) for row in rows) for column in range(len(names))]
        is_time = [all(_is_time(row[column]) for row in rows) for column in range(len(names))]
        kinds = [
            ' class="n"' if number else ' class="t"' if time else ""
            for number, time in zip(is_number, is_time, strict=True)
        ]
        head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(names, kinds, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{escape(shown(value))}</td>" for value, kind in zip(row, kinds, strict=True))
            + "</tr>"
            for row in rows
        )
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
        if of is not None and of > len(rows):
            self._parts.append(f'<p class="none">the first {len(rows):,} of {of:,}</p>')

    def ranking(self, values: Sequence[tuple[str, float, str]]) -> None:
        """Lying bars for things with long names: name, size, and how the size is written."""
        if not values:
            self._parts.append('<p class="none">nothing to draw</p>')
            return
        most = max(value for _, value, _ in values) or 1
        lines = "".join(
            f'<span class="name" title="{escape(name)}">{escape(name)}</span>'
            f'<i style="width:{100 * value / most:.1f}%"></i><span class="size">{escape(text)}</span>'
            for name, value, text in values
        )
        self._parts.append(f'<div class="rank">{lines}</div>')

    def bars(self, values: Sequence[tuple[str, float]], unit: str) -> None:
        self._parts.append(bar_chart(values, unit))

    def curves(self, series: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> None:
        self._parts.append(line_chart(series, unit))

    def text(self) -> str:
        now = datetime.now().astimezone()
        made = f"made by arrowmq pipeline on {now:%Y-%m-%d at %H:%M}; times are in {now:%Z}"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head><body>"
            + "\n".join(self._parts)
            + f'<p class="about" style="margin-top:40px">{made}</p></body></html>'
        )

    def write(self, path: str | Path) -> Path:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Moved into place when it is whole: who looks meanwhile, or after a kill, sees the old page.
        draft = target.with_name(f".{target.name}.draft")
        draft.write_text(self.text(), encoding="utf-8")
        draft.replace(target)
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


def _is_number(value: object) -> bool:
    """Numbers stand on the right, so that their digits do; so do sizes with a unit, and what is not there."""
    if value is None or isinstance(value, int | float):
        return True
    return isinstance(value, str) and value.endswith((" bytes", "iB")) and value[0].isdigit()


def _is_time(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", value) is not None


def is_brief(hours: Iterable[datetime]) -> bool:
    """Whether these hours are so few that minutes tell more."""
    found = list(hours)
    return bool(found) and max(found) - min(found) < timedelta(hours=3)


def by_time(counts: dict[datetime, int]) -> list[tuple[str, float]]:
    """Counts by hour, or by minute where `is_brief`, as bars without holes; by day where there are more hours than a
    chart can show."""
    if not counts:
        return []
    first, last = min(counts), max(counts)
    if any(moment.minute for moment in counts):
        step, form = timedelta(minutes=1), "%H:%M"
    elif last - first < timedelta(hours=72):
        step, form = timedelta(hours=1), "%m-%d %Hh"
    else:
        step, form = timedelta(days=1), "%Y-%m-%d"
        first = max(first, last - timedelta(days=89)).replace(hour=0)
    counted: dict[str, float] = {}
    moment = first
    while moment <= last:
        counted[moment.strftime(form)] = 0.0
        moment += step
    for when, count in counts.items():
        if when.strftime(form) in counted:
            counted[when.strftime(form)] += count
    return list(counted.items())


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
    most = _ceiling(max(value for _, value in values))
    room = (WIDTH - LEFT - 8) / len(values)
    width = min(WIDEST_BAR, max(1.0, room * 0.8))
    parts = [_frame(most, unit)]
    every = max(1, -(-len(values) // 12))
    for number, (name, value) in enumerate(values):
        height = (HEIGHT - BOTTOM - TOP) * value / most
        x, y = LEFT + number * room, HEIGHT - BOTTOM - height
        title = f"<title>{escape(name)}: {escape(shown(value))} {escape(unit)}</title>"
        parts.append(
            f'<rect class="bar" x="{x + (room - width) / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{max(0.5, height):.1f}" rx="2">{title}</rect>'
        )
        if number % every == 0:
            label = name if len(name) <= 14 else name[:13] + "…"
            parts.append(_label(label, x + room / 2, number // every))
    return _svg(parts)


def line_chart(series: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> str:
    points = max((len(values) for _, values in series), default=0)
    if points == 0:
        return '<p class="none">nothing to draw</p>'
    most = _ceiling(max((value for _, values in series for _, value in values), default=0))
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
            if len(places) > MOST_DOTS and value < most / 2:
                continue  # dots side by side would hide the curve; those that stand out are worth a look
            title = f"<title>{escape(name)}, {escape(label)}: {escape(shown(value))} {escape(unit)}</title>"
            parts.append(f'<circle class="k{number % 3}" cx="{x:.1f}" cy="{y:.1f}" r="3">{title}</circle>')
        parts.append(f'<text class="k{number % 3}" x="{LEFT + 70 + 110 * number}" y="14">● {escape(name)}</text>')
    longest = max(series, key=lambda item: len(item[1]))[1]
    every = max(1, -(-points // 8))
    for index, (label, _) in enumerate(longest):
        if index % every == 0:
            parts.append(_label(label, LEFT + index * step, index // every))
    return _svg(parts)


def _label(text: str, x: float, number: int) -> str:
    """Below the axis; on a narrow screen only every third stays."""
    kind = "x x0" if number % 3 == 0 else "x"
    if x > WIDTH - 26:
        return ""  # it would be cut off
    return f'<text class="{kind}" x="{x:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(text)}</text>'


def _ceiling(most: float) -> float:
    """The next number above that a quarter of reads well: 1, 2, 4, 6, 8 or 10 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= most)


def _frame(most: float, unit: str) -> str:
    lines = []
    for part in range(5):
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part / 4
        lines.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(most * part / 4))}</text>')
    lines.append(f'<text x="{LEFT}" y="14">{escape(unit)}</text>')
    return "".join(lines)


def _short(value: float) -> str:
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {letter}"
    return f"{value:.3g}"


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
