"""What is in flight: one check point for each queue that a pop took messages of, found by its receipt.

In: check points as pops make them, or as the log has them; acks. Out: whose receipt means which check point, how much
is in flight, and a call when the last message of a check point is settled. Knows nothing of requests or of the log.

`_table_plain` is the reference; the native form has no Python object for a number and none that the garbage collector
looks at, so that a million messages in flight cost little memory and no pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native

if TYPE_CHECKING:
    from arrowmq.broker.pop.check_points import _queues_plain as _queues
    from arrowmq.broker.pop.check_points import _table_plain as _table
else:
    _table = native.load("arrowmq.broker.pop.check_points._table")
    _queues = native.load("arrowmq.broker.pop.check_points._queues")

Chance = _queues.Chance
CheckPoint = _table.CheckPoint
CheckPoints = _table.CheckPoints
Lane = _table.Lane
OpenCheckPoints = _queues.OpenCheckPoints
QueueTurn = _queues.QueueTurn
ReviveQueue = _queues.ReviveQueue
Step = _table.Step
NOT_WRITTEN: int = _table.NOT_WRITTEN

__all__ = [
    "NOT_WRITTEN",
    "Chance",
    "CheckPoint",
    "CheckPoints",
    "Lane",
    "OpenCheckPoints",
    "QueueTurn",
    "ReviveQueue",
    "Step",
]
