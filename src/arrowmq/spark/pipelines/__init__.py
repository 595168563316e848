"""Pipelines that people need, ready to run: `arrowmq pipeline …` calls these, and so may any program.

Each takes a Spark session and plain arguments and gives back a result object; what is distributed is Spark's work.
Those that move messages are streams with a checkpoint, so that a run that was killed goes on where it stopped.

In: a Spark session, topics or store directories. Out: tables, topics and reports, and a result
that tells how much was done.
"""

from __future__ import annotations

from arrowmq.spark.pipelines.archive import archive
from arrowmq.spark.pipelines.audit import audit
from arrowmq.spark.pipelines.dead_letters import dead_letters, resend
from arrowmq.spark.pipelines.project import create_project
from arrowmq.spark.pipelines.replay import replay
from arrowmq.spark.pipelines.trace import trace

__all__ = ["archive", "audit", "create_project", "dead_letters", "replay", "resend", "trace"]
