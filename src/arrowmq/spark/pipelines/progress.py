"""Shows how far a pipeline is: rows and backlog of a stream, tasks of a batch job."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from arrowmq.spark.starting import unhurried

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
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=self.is_quiet,
            transient=True,
        )

    def stream(self, start: Callable[[], Any], title: str) -> int:
        """Starts a stream that ends by itself and waits for it; gives back how many rows this run processed."""
        return unhurried(lambda: self._follow(start(), title))

    def _follow(self, query: Any, title: str) -> int:
        with self._progress() as progress:
            task = progress.add_task(title, total=None, note="")
            while not query.awaitTermination(POLL_S):
                rows, behind, rate = _standing(query)
                progress.update(task, completed=rows, total=rows + behind, note=f"{rate:,.0f} rows/s")
        failure = query.exception()
        if failure is not None:
            raise failure
        return _standing(query)[0]

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
            task = progress.add_task(title, total=None, note="")
            threading.Thread(target=run, name="pipeline-job", daemon=True).start()
            finished = 0
            while not done.wait(POLL_S):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                finished = sum(stage.numCompletedTasks for stage in stages if stage)
                progress.update(task, completed=finished, total=total or None, note="tasks")
        if failure:
            raise failure[0]
        return outcome[0]


def counted(frame: Any) -> Any:
    """The same rows, counted as they pass: a stream that filters reads more than it writes."""
    from pyspark.sql import functions

    return frame.observe(COUNTED, functions.count(functions.lit(1)).alias("rows"))


def _standing(query: Any) -> tuple[int, int, float]:
    """Rows of this run, messages still to come, and the rate of the last batch."""
    seen = list(query.recentProgress)
    rows = sum(_rows(progress) for progress in seen)
    if not seen:
        return 0, 0, 0.0
    last = seen[-1]
    behind = 0
    for source in last["sources"]:
        behind += max(0, _sum(source.get("latestOffset")) - _sum(source.get("endOffset")))
    return rows, behind, float(last.get("processedRowsPerSecond") or 0.0)


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
