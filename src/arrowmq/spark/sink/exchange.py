"""A run of requests to one broker and its answers: how the exactly-once sink sends and ends many half messages.

The requests of a run have consecutive opaques. Answers that simply say success are read natively into a list, at the
place that the opaque says, whatever order they come in; any other answer stands there as the command that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.spark.sink._exchange_plain import Place, place_of
from arrowmq.wire.frames import Command

if TYPE_CHECKING:
    from arrowmq.spark.sink import _exchange_plain as _exchange
else:
    _exchange = native.load("arrowmq.spark.sink._exchange")

DONE: Place = _exchange.DONE
end_frames = _exchange.end_frames
read_answers = _exchange.read_answers

# Above what single requests count up to. A connection has one run at a time, so runs need not differ from each other.
FIRST_OPAQUE = 0x40000000
LONGEST_RUN = 0x3FFFFFFF


class Run:
    def __init__(self, count: int) -> None:
        if count > LONGEST_RUN:
            raise ValueError(f"{count} requests are more than a run can number")
        self.first_opaque = FIRST_OPAQUE
        self.answered = 0
        self._found: list[Place | None] = [None] * count
        self._unusual: dict[int, Command] = {}

    def read(self, view: memoryview) -> int:
        """Takes in plain answers; how many bytes of `view` they had."""
        consumed, taken = read_answers(view, self.first_opaque, self._found, len(self._found))
        self.answered += taken
        return consumed

    def give(self, answer: Command) -> bool:
        """Takes in an answer that was read by itself; False if it belongs to something else."""
        number = answer.opaque - self.first_opaque
        if not 0 <= number < len(self._found) or self._found[number] is not None or number in self._unusual:
            return False
        place = self._found[number] = place_of(answer)
        if place is None:
            self._unusual[number] = answer
        self.answered += 1
        return True

    def answers(self) -> list[Place | Command | None]:
        """For each request: where its half message lies (or `DONE`), the answer that is not plain, or None."""
        return [self._unusual.get(number, place) for number, place in enumerate(self._found)]

    def unusual(self) -> list[Command]:
        return [self._unusual[number] for number in sorted(self._unusual)]
