"""The data pipeline: messages as Spark tables and streams, in both directions.

In: brokers (ArrowMQ's and Apache's) or their store directories; DataFrames to send. Out: `format("arrowmq")` for batch
and streaming reads and writes, `format("arrowmq.store")` for scans of commit logs without a broker, and the pipelines
behind `arrowmq pipeline`. Everything distributed is Spark's: the same program runs on one machine and on a cluster.
"""

from __future__ import annotations

from arrowmq.spark.session import JavaMissing, register, session
from arrowmq.spark.stream_start import run_stream

__all__ = ["JavaMissing", "register", "run_stream", "session"]
