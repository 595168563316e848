"""Starts streams on machines that are busy.

Spark gives the Python process of a stream ten seconds to start, a number that cannot be set. A slow or loaded machine
may need longer; the query then ends before it has begun, with nothing read and nothing written, and may simply be
started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("arrowmq.spark.stream_start")
T = TypeVar("T")
TRIES = 6
LATE_WORKER = "failed to connect back"


def unhurried(action: Callable[[], T]) -> T:
    """Does `action`, which starts a query and waits for it; again if Spark's Python process came too late."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except Exception as wrong:
            if LATE_WORKER not in str(wrong):
                raise
            log.warning("this machine is busy: Spark's Python process took more than ten seconds; starting it again")
    return action()


def run_stream(writer: DataStreamWriter) -> None:
    """Starts a stream that ends by itself (`trigger(availableNow=True)`), and waits for its end; what goes wrong in it
    is raised. The same as `writer.start().awaitTermination()`, but for a machine so busy that Spark gives its Python
    process up: then the stream is started again."""
    unhurried(lambda: writer.start().awaitTermination())
