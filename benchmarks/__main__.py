"""`python -m benchmarks [--quick] [--together] [--unprepared] [--rows NAME …] [--systems NAME …]`: the table.

A visit is one start of one system. Each row has a broker of its own, warmed up by the row's own work, so that no figure
depends on the rows before it; only rows that need what another left share one. With `--together` all that can share one
do: the Apache broker then gets warmer from row to row. Visits of the systems alternate, visit by visit.

Free memory is touched before each measurement (`memory.py`). With `--unprepared` the rows that write most are measured
before that as well, with memory as the machine has it: that is what a first run by hand sees. `--quick` does so too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oracle.toolchain import OracleError

from benchmarks import report
from benchmarks.loads import FULL, QUICK, Metrics, Pace
from benchmarks.rows import ROWS, UNPREPARED_ROWS, Row
from benchmarks.systems import SYSTEMS, System

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def started(kind: type[System], flush: str) -> System:
    """A running system, but for the row that measures the start. A port may be taken while a Java program begins: then
    it gets others."""
    for is_last in (False, False, True):
        system = kind() if flush in ("START", "ASYNC_FLUSH") else kind(flushDiskType=flush)
        try:
            return system if flush == "START" else system.start()
        except OracleError as problem:
            system.stop()
            if is_last or "Address already in use" not in str(problem):
                raise
            say(f"{system.name:8} starts again: its port was taken meanwhile")
    raise AssertionError("one of them was the last")


def visit(kind: type[System], rows: Sequence[type[Row]], pace: Pace, runs: report.Runs) -> None:
    """Starts a system, measures these rows on it, and stops it. A row that fails is told and left out."""
    system = started(kind, rows[0].flush)
    try:
        for row in rows:
            try:
                figures: Metrics = row().measure(system, pace)
            except (RuntimeError, OSError, ValueError) as problem:
                say(f"{system.name:8} {row.title}: FAILED: {problem}")
                continue
            runs.setdefault(row.__name__, {}).setdefault(system.name, []).append(figures)
            say(f"{system.name:8} {row.title}: " + ", ".join(f"{name} {value:,.2f}" for name, value in figures.items()))
    finally:
        system.stop()


def visits(rows: Sequence[type[Row]], *, together: bool) -> list[list[type[Row]]]:
    """Which rows share a broker, in the order of the first of each."""
    groups: dict[object, list[type[Row]]] = {}
    for row in rows:
        groups.setdefault(row.flush if together else row.shared or row, []).append(row)
    return list(groups.values())


def measure(
    rows: Sequence[type[Row]], systems: Sequence[str], pace: Pace, runs: report.Runs, *, together: bool
) -> None:
    for number in range(pace.rounds):
        say(f"round {number + 1} of {pace.rounds}")
        for group in visits(rows, together=together):
            for _ in range(1 if together else max(row.times for row in group)):
                for name in systems:
                    chosen = [row for row in group if name in row.systems]
                    if chosen:
                        visit(SYSTEMS[name], chosen, pace, runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="ArrowMQ beside the Apache broker.")
    parser.add_argument("--quick", action="store_true", help="one short round, all rows together, about five minutes")
    parser.add_argument("--together", action="store_true", help="all rows one after the other on one broker")
    parser.add_argument("--unprepared", action="store_true", help="also with memory as it is found; --quick does")
    parser.add_argument("--rows", nargs="+", default=[row.__name__ for row in ROWS], help="names of rows to measure")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="how often each row is measured (the median counts)")
    options = parser.parse_args()
    known = {row.__name__: row for row in ROWS}
    if unknown := set(options.rows) - known.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    rows = [row for row in ROWS if row.__name__ in options.rows]
    pace = QUICK if options.quick else FULL
    pace = replace(pace, rounds=options.rounds or pace.rounds)
    together = options.together or options.quick  # in a short round a broker of its own would be cold in every row
    about, runs, unprepared = report.machine(), report.Runs(), report.Runs()
    if options.unprepared or options.quick:  # first: what is touched once stays with this machine for a while
        say("with memory as it is found")
        first = [row for row in rows if row in UNPREPARED_ROWS]
        measure(first, options.systems, replace(pace, prepares_memory=False), unprepared, together=False)
    measure(rows, options.systems, pace, runs, together=together)
    about["rows"] = "together" if together else "each alone"
    path = report.write(RESULTS, rows, runs, unprepared, about, pace)
    print(path.read_text())
    missing = [
        f"{row.title} ({name})"
        for row in rows
        for name in row.systems
        if name in options.systems and not runs.get(row.__name__, {}).get(name)
    ]
    if missing:
        say(f"not measured: {'; '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
