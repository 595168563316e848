"""Does what Spark does around the sink, without Spark, and kills itself at a numbered step.

For each batch: a file in offsets/ before it, half messages, the commit, a file in commits/ after it. Started again it
repeats the batch that has no file in commits/, as Spark does.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from arrowmq.spark.cluster import Cluster, Connection
from arrowmq.spark.sink.batch_decisions import BatchDecisions, Entry
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.sink.transactions import BATCH_PROPERTY, QUERY_PROPERTY, Committer
from arrowmq.wire.ids import UniqueIds
from arrowmq.wire.message_queue import MessageQueue

GROUP = "soak"


class Steps:
    """Counts; dies at the chosen one."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.taken = 0

    def step(self) -> None:
        if self.taken == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.taken += 1


def main() -> None:
    namesrv, topic, state, kill_at, batches, rows = sys.argv[1:7]
    folder = Path(state)
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    steps = Steps(int(kill_at))
    put_steps_into_the_commit(steps)
    cluster = Cluster(Connection((namesrv,), patience_s=60))
    committer = Committer(cluster, GROUP)
    ids = UniqueIds()
    for batch in range(int(batches)):
        done = folder / "commits" / str(batch)
        if done.exists():
            continue
        sender = Sender(cluster, GROUP, {})
        marks = {"TRAN_MSG": "true", "PGROUP": GROUP, QUERY_PROPERTY: f"q-{topic}", BATCH_PROPERTY: str(batch)}
        for row in range(int(rows)):
            steps.step()
            queue = MessageQueue(topic, "broker-a", row % 4)
            sender.send([Outgoing(queue, f"{batch}-{row}".encode(), {**marks, "UNIQ_KEY": ids.next()})])
        committer.end_batch(f"q-{topic}", batch, sender.halves, accepts_lost_record=False)
        steps.step()
        done.touch()
        steps.step()


def put_steps_into_the_commit(steps: Steps) -> None:
    """A step before and after each write into the decisions topic, and between any two half messages that are ended."""
    whole_write, whole_end = BatchDecisions.write, Committer._end

    def write(self: BatchDecisions, entry: Entry) -> None:
        steps.step()
        whole_write(self, entry)
        steps.step()

    def end(self: Committer, broker: str, places: list[Any], decision: int) -> None:
        for place in places:
            steps.step()
            whole_end(self, broker, [place], decision)

    BatchDecisions.write = write  # type: ignore[method-assign]
    Committer._end = end  # type: ignore[method-assign]


main()
