"""Shows how far a pipeline is: messages and backlog of a stream, steps of a loop, tasks of a batch job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from arrowmq.spark.stream_start import unhurried

T = TypeVar("T")
POLL_S = 0.5
COUNTED = "counted"


class Display:
    """Where progress goes. Without a terminal (a log, a test) nothing is drawn, and only results are printed."""

    def __init__(self, console: Console | None = None, *, is_quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.is_quiet = is_quiet or not self.console.is_terminal

    def _progress(self) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30 if self.console.width >= 100 else 16),
            TextColumn("{task.fields[count]}", justify="right"),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
            console=self.console,
            disable=self.is_quiet,
            transient=True,
        )

    def stream(self, start: Callable[[], Any], title: str) -> int:
        """Starts a stream that ends by itself and waits for it; gives back how many rows this run processed."""
        return unhurried(lambda: self._follow(start, title))

    def _follow(self, start: Callable[[], Any], title: str) -> int:
        with self._progress() as progress:
            task = progress.add_task(title, total=None, count="", note="asking what there is")
            query = start()
            tally = _Tally(query)
            while not query.awaitTermination(POLL_S):
                tally.look()
                if tally.rows or tally.behind:
                    progress.update(
                        task,
                        completed=tally.rows,
                        total=tally.rows + tally.behind,
                        count=f"{tally.rows:,} of {tally.rows + tally.behind:,}",
                        note=f"{tally.rate:,.0f}/s" if tally.rate else "",
                    )
        failure = query.exception()
        if failure is not None:
            raise failure
        tally.look()
        return tally.rows

    @contextmanager
    def steps(self, title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """For a loop that does its work piece by piece: call what this gives with how much is done in all."""
        with self._progress() as progress:
            task = progress.add_task(title, total=total, count=f"0 of {total:,} {unit}", note="")
            began = time.monotonic()
            already: list[int] = []  # what earlier runs did, which the first call tells

            def done(count: int) -> None:
                already.append(count)
                mine = count - already[0]
                rate = f"{mine / (time.monotonic() - began):,.0f}/s" if mine else ""
                progress.update(task, completed=count, count=f"{count:,} of {total:,} {unit}", note=rate)
                del already[1:]

            yield done

    def job(self, spark: Any, title: str, work: Callable[[], T]) -> T:
        """Runs Spark jobs in another thread and shows the tasks of the stages that run."""
        outcome: list[T] = []
        failure: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append(work())
            except BaseException as wrong:
                failure.append(wrong)
            finally:
                done.set()

        tracker = spark.sparkContext.statusTracker()
        with self._progress() as progress:
            task = progress.add_task(title, total=None, count="", note="")
            threading.Thread(target=run, name="pipeline-job", daemon=True).start()
            while not done.wait(POLL_S):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                finished = sum(stage.numCompletedTasks for stage in stages if stage)
                count = f"{finished:,} of {total:,} tasks" if total else ""
                progress.update(task, completed=finished, total=total or None, count=count)
        if failure:
            raise failure[0]
        return outcome[0]


class _Tally:
    """What a stream has done, added up batch by batch: Spark itself remembers the last hundred batches only."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._next_batch = -1
        self.rows = 0
        self.behind = 0
        self.rate = 0.0

    def look(self) -> None:
        for progress in self._query.recentProgress:
            if progress["batchId"] < self._next_batch or not progress["numInputRows"]:
                continue
            self._next_batch = progress["batchId"] + 1
            self.rows += _rows(progress)
            self.rate = float(progress.get("processedRowsPerSecond") or 0.0)
            self.behind = sum(
                max(0, _sum(source.get("latestOffset")) - _sum(source.get("endOffset")))
                for source in progress["sources"]
            )


def counted(frame: Any) -> Any:
    """The same rows, counted as they pass: a stream that filters reads more than it writes."""
    from pyspark.sql import functions

    return frame.observe(COUNTED, functions.count(functions.lit(1)).alias("rows"))


def _rows(progress: Any) -> int:
    passed = (progress["observedMetrics"] or {}).get(COUNTED)
    return int(progress["numInputRows"] if passed is None else passed["rows"])


def _sum(offsets: Any) -> int:
    """All offsets of a source together; what is not ours counts nothing."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return 0
    if isinstance(offsets, dict):
        return sum(_sum(value) for value in offsets.values())
    return offsets if isinstance(offsets, int) else 0
