"""Starts streams where Spark would not: on machines that are busy, and on what a killed first batch left.

Spark gives the Python process of a stream ten seconds to start, a number that cannot be set. A slow or loaded machine
may need longer; the query then ends before it has begun, with nothing read and nothing written, and may simply be
started again.

Spark writes a file of its log under another name and renames it. Killed in between at the very first batch, it leaves a
checkpoint that it refuses from then on: "the checkpoint location …/offsets should be empty on batch 0". What lies there
is no more than that unfinished file, and goes before the stream is started again. If anything else lies there, the
refusal stands: a checkpoint that lost its offsets must not begin anew.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("arrowmq.spark.stream_start")
T = TypeVar("T")
TRIES = 6
LATE_WORKER = "failed to connect back"
NOT_EMPTY = re.compile(r"The checkpoint location (.+)/(?:offsets|state|commits) should be empty on batch 0")
UNFINISHED = re.compile(r"\.\d+\.[0-9a-f-]{36}\.tmp")


def unhurried(action: Callable[[], T]) -> T:
    """Does `action`, which starts a query and waits for it; again where that is all that it needs."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except Exception as wrong:
            refused = NOT_EMPTY.search(str(wrong))
            if LATE_WORKER in str(wrong):
                log.warning("this machine is busy: Spark's Python process took more than ten seconds; starting again")
            elif refused is not None and _remove_unfinished(refused[1]):
                log.warning(
                    "the first batch at %s was killed while Spark wrote its offsets; starting again", refused[1]
                )
            else:
                raise
    return action()


def _remove_unfinished(checkpoint: str) -> bool:
    """Deletes the unfinished files of a checkpoint's log; False, with nothing deleted, if there is anything else."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()  # the one that just ran the query
    if not hasattr(spark, "_jsc"):
        return False  # Spark Connect: its files are on another machine
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    root = hadoop.Path(checkpoint)
    files = root.getFileSystem(spark._jsc.hadoopConfiguration())
    folders = [hadoop.Path(root, name) for name in ("offsets", "state", "commits")]
    found = [status.getPath() for folder in folders if files.exists(folder) for status in files.listStatus(folder)]
    if not all(UNFINISHED.fullmatch(path.getName()) for path in found):
        return False
    for path in found:
        files.delete(path, False)  # on a local disk its checksum goes with it
    return True


def run_stream(writer: DataStreamWriter) -> None:
    """Starts a stream that ends by itself (`trigger(availableNow=True)`), and waits for its end; what goes wrong in it
    is raised. The same as `writer.start().awaitTermination()`, but started again where Spark gave it up for a reason
    that needs no more than that."""
    unhurried(lambda: writer.start().awaitTermination())
