"""What commands print: tables and sentences for people, one JSON document for programs.

A row is a dict with the names that JSON shows; a table picks its columns from it. So both say the same, and a column is
declared once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

#: Where nobody looks (a pipe, a file), lines are not folded at 80 columns: grep and awk want them whole.
WIDTH_OF_A_PIPE = 240
#: Below this many columns, tables show what matters most.
NARROW = 120

Row = Mapping[str, Any]


class Column(NamedTuple):
    """`key` is the name in the row and in JSON, `title` what stands above the column."""

    key: str
    title: str
    form: Callable[[Any], str] | None = None
    is_number: bool = False
    #: Never folded: what somebody copies, or compares from line to line.
    is_whole: bool = False
    #: On one line, cut where there is no room for more.
    is_cut: bool = False
    #: Left out where the screen is narrow.
    is_extra: bool = False


class Screen:
    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        is_free = sys.stdout.isatty() or "COLUMNS" in os.environ
        self.console = Console(width=None if is_free else WIDTH_OF_A_PIPE, highlight=False)
        self.errors = Console(stderr=True, highlight=False)

    # -- for programs

    def json(self, value: Any) -> None:
        """The one document of a command with --json (`tail`: one a line)."""
        click.echo(json.dumps(value, ensure_ascii=False, default=str))

    # -- for people

    def say(self, sentence: str, style: str | None = None) -> None:
        if not self.as_json:
            self.console.print(Text(sentence, style=style or ""), soft_wrap=False)

    def warn(self, sentence: str) -> None:
        """For people and programs alike, beside the result: on standard error."""
        self.errors.print(Text(sentence), soft_wrap=True)

    def point(self, mark: str, sentence: str, style: str | None = None) -> None:
        """A sentence behind a mark; its further lines are indented as far as the first."""
        if not self.as_json:
            grid = Table.grid(padding=(0, 1))
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
            grid.add_row(Text(mark, style=style or ""), Text(sentence))
            self.console.print(grid)

    def table(self, columns: Sequence[Column], rows: Iterable[Row], title: str | None = None) -> None:
        if self.as_json:
            return
        if self.console.width < NARROW:
            columns = [column for column in columns if not column.is_extra]
        table = Table(
            box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False, show_edge=False
        )
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                overflow="ellipsis" if column.is_cut else "fold",
                no_wrap=column.is_number or column.is_whole,
            )
        for row in rows:
            table.add_row(*(_cell(column, row) for column in columns))
        self._print(table)

    def fields(self, pairs: Iterable[tuple[str, Any]], title: str | None = None) -> None:
        """Names and values, one a line."""
        if self.as_json:
            return
        if title is not None:
            self.console.print(Text(title, style="bold"))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in pairs:
            grid.add_row(f"  {name}", Text(shown(value, None)))
        self._print(grid)

    def _print(self, table: Table) -> None:
        """In a pipe without the blanks that fill the lines up: on a narrow screen they would wrap."""
        if self.console.is_terminal:
            self.console.print(table)
            return
        with self.console.capture() as captured:
            self.console.print(table)
        for line in captured.get().splitlines():
            self.console.print(line.rstrip(), markup=False, emoji=False, soft_wrap=True)

    def progress(self, what: str, total: int | None) -> Progress:
        """A bar on standard error while long work runs; nothing where nobody looks."""
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.errors,
            transient=True,
            disable=self.as_json or not self.errors.is_terminal,
        )
        bar.add_task(what, total=total)
        return bar


def _cell(column: Column, row: Row) -> Text:
    text = shown(row.get(column.key), column.form)
    # A column of `no_wrap` would claim its whole width; a cell of it takes what the others leave.
    return Text(text, no_wrap=True, overflow="ellipsis") if column.is_cut else Text(text)


def shown(value: Any, form: Callable[[Any], str] | None) -> str:
    if value is None:
        return "-"
    if form is not None:
        return form(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set):
        return ", ".join(str(each) for each in value) or "-"
    return str(value)


_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class TimeOfDay(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on
    """A moment: ISO 8601 (local unless it names a zone), milliseconds since 1970, `now`, or `30m` / `2h` / `3d` ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        now_ms = round(datetime.now().timestamp() * 1000)
        if text == "now":
            return now_ms
        number, unit = text[:-1], text[-1:]
        if unit in _UNITS_MS and number.replace(".", "", 1).isdigit():
            return now_ms - round(float(number) * _UNITS_MS[unit])
        if text.isdigit() and len(text) >= 11:
            return int(text)
        try:
            return round(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{text!r} is no time: give 2026-01-31T12:00, milliseconds since 1970, now, or 30m for 30 minutes ago",
                param,
                context,
            )


TIME = TimeOfDay()
