"""What every `arrowmq pipeline` command shares: a Spark session, quiet but for what matters, and an orderly end.

Spark and its Java talk much on standard error. Here their output comes through a pipe: what is known to mean nothing is
dropped, the rest is printed above the progress bar. A failure becomes one sentence; `--verbose` shows everything.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
T = TypeVar("T")

STOPPED = 130  # what a shell expects of a program that was ended by Ctrl-C
# Java's greetings, Spark's, and the account that Ivy gives of every jar it looked at.
NOISE = re.compile(
    r"WARNING: |Setting default log level|To adjust logging level|Using Spark's default|Ivy Default Cache|"
    r"The jars for the packages|io\.delta#|org\.apache\.|::|\t|\s*$|.*added as a dependency"
)


def spark_options(command: Decorated) -> Decorated:
    for option in (
        click.option("--verbose", is_flag=True, help="Show all that Spark says, and where a failure happened."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document."),
        click.option(
            "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
        ),
        click.option("--master", help="Spark's master, such as spark://host:7077 or yarn  [local[*]]."),
    ):
        command = option(command)
    return command


class SparkRun:
    """One run of one command. Checks come first: what can be refused without Spark is refused before it starts."""

    def __init__(
        self,
        master: str | None,
        settings: tuple[str, ...],
        *,
        is_verbose: bool,
        table_format: str = "parquet",
        keeps_progress: bool = True,
    ) -> None:
        self.is_verbose = is_verbose
        self.console = Console(stderr=True, highlight=False)
        self._master = master
        self._table_format = table_format
        self._after_stop = "goes on from here" if keeps_progress else "begins anew"
        self._settings: dict[str, Any] = {}
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals or not name.startswith("spark."):
                raise click.BadParameter(f"{setting!r} is not KEY=VALUE of a setting of Spark", param_hint="--conf")
            self._settings[name] = value

    def do(self, check: Callable[[], object], work: Callable[[Any, Any], T]) -> T:
        """`check` first, then `work(spark, display)`, then the end of Spark, whatever happened."""
        try:
            from arrowmq.spark.cluster import Refusal
            from arrowmq.spark.session import JavaMissing, find_java
        except ModuleNotFoundError as missing:
            raise click.ClickException(
                f"{missing}: pipelines need Spark, install it with pip install 'arrowmq[spark]'"
            ) from None
        try:
            check()
            find_java()
        except (JavaMissing, ValueError, OSError, Refusal) as wrong:
            raise self._failure(wrong) from None
        with self._quiet():
            return self._with_spark(work)

    def _with_spark(self, work: Callable[[Any, Any], T]) -> T:
        from arrowmq.spark.pipelines.progress import Display

        spark = None
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            with self.console.status("starting Spark", spinner="dots") if self.console.is_terminal else nullcontext():
                spark = self._session()
            # Spark has set a handler of its own, which tells Java first; that happens below, in order.
            signal.signal(signal.SIGINT, _interrupt)
            return work(spark, Display(self.console))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends at once
            self.console.print(f"stopped; the same command {self._after_stop}")
            if spark is not None:
                _stop_streams(spark)
            raise SystemExit(STOPPED) from None
        except (click.ClickException, SystemExit):
            raise
        except Exception as wrong:
            if self.is_verbose:
                self.console.print_exception()
            raise self._failure(wrong) from None
        finally:
            if spark is not None:
                with suppress(Exception):  # a Java that is gone cannot be ended, and what went wrong is said already
                    spark.stop()

    def _session(self) -> Any:
        from arrowmq.spark import session

        level = "error" if self.is_verbose else "off"
        return session(
            "arrowmq pipeline", master=self._master, table_format=self._table_format, log_level=level, **self._settings
        )

    def _failure(self, wrong: BaseException) -> click.ClickException:
        return click.ClickException(sentence(wrong))

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Processes that are started meanwhile (Java, and Python workers through it) speak into a pipe."""
        if self.is_verbose:
            yield
            return
        reading, writing = os.pipe()
        ours = os.dup(2)
        # The console goes on where the terminal is.
        self.console = Console(file=os.fdopen(ours, "w", buffering=1), highlight=False, stderr=False)
        thread = threading.Thread(target=self._listen, args=(reading,), name="spark-output", daemon=True)
        thread.start()
        os.dup2(writing, 2)
        os.close(writing)
        try:
            yield
        finally:
            os.dup2(ours, 2)

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, errors="replace") as lines:
            for line in lines:
                if not NOISE.match(line):
                    self.console.print(Text(line.rstrip()), style="dim", soft_wrap=True)


_FAILURE = re.compile(r":? ?((?:[\w$]+\.)*\w*(?:Error|Exception|Lost|Refusal|Missing)): (.+)")


def sentence(wrong: BaseException) -> str:
    """The one line that matters: of a failure in Python inside Spark its last, which names the option at fault; of
    one in Java its first."""
    lines = [line for line in str(wrong).splitlines() if line.strip()] or [type(wrong).__name__]
    found = [match for line in lines if (match := _FAILURE.match(line))]
    python = [match for match in found if match[1].startswith("arrowmq.") or "." not in match[1]]
    chosen = python[-1][2] if python else found[0][2] if found else lines[0]
    return re.sub(r"\s*SQLSTATE: \w+\s*$| \(option patienceMs\)", "", chosen)


def _interrupt(number: int, frame: FrameType | None) -> None:
    logging.disable(logging.CRITICAL)  # the bridge to Java logs where it was interrupted, at length
    raise KeyboardInterrupt


def _stop_streams(spark: Any) -> None:
    with suppress(Exception):  # Java may be gone already; the checkpoint is sound either way
        for query in spark.streams.active:
            query.stop()
