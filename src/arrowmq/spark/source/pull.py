"""Reads a range of one queue from its broker, by pulls that are sent ahead of their answers.

A broker gives few messages to a pull (32 from memory, unless it is configured otherwise). So, without a filter, pulls
for the following stretches are under way while one is being decoded. Answers are used in order of offset, and what a
short answer left out is asked for again: the result is every message of the range once, in order, or an error.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Refusal
from arrowmq.spark.source.ranges import OffsetRange, queue_key
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import record_bounds

log = logging.getLogger("arrowmq.spark.source.pull")

SUBSCRIPTION_IN_REQUEST = 4
DEFAULT_GROUP = "TOOLS_CONSUMER"  # every broker has it, even one that creates no groups by itself
AHEAD = 8  # pulls under way
_QUEUE_OFFSET = struct.Struct(">q")


class DataLost(RuntimeError):
    """Messages that were to be read are not there any more."""


@dataclass(frozen=True)
class Subscription:
    """Which messages of a range are wanted, as the broker is told."""

    expression: str = "*"
    kind: str = "TAG"
    group: str = DEFAULT_GROUP
    batch_size: int = 1024
    fail_on_data_loss: bool = True

    @property
    def is_everything(self) -> bool:
        return self.kind == "TAG" and self.expression.strip() == "*"


@dataclass(frozen=True)
class Pulled:
    """The wanted records of an answer, one after another."""

    records: memoryview
    count: int


NOTHING = Pulled(memoryview(b""), 0)


def read_range(cluster: Cluster, wanted: OffsetRange, subscription: Subscription) -> Iterator[Pulled]:
    """The messages of `wanted`, again after a lost connection, from where it broke."""
    cursor = wanted.start
    deadline = time.monotonic() + cluster.connection.patience_s
    pause_s = 0.1
    while cursor < wanted.end:
        reader = _RangeReader(cluster, wanted, subscription, cursor)
        try:
            for pulled in reader.read():
                cursor = reader.cursor
                deadline = time.monotonic() + cluster.connection.patience_s
                pause_s = 0.1
                yield pulled
            return
        except LinkLost as lost:
            cursor = reader.cursor
            cluster.drop(reader.address)
            if time.monotonic() + pause_s > deadline:
                raise LinkLost(
                    f"reading queue {queue_key(wanted.queue)} of topic {wanted.queue.topic} at offset {cursor} failed "
                    f"for {cluster.connection.patience_s:g} s (option patienceMs): {lost}"
                ) from None
            log.warning("reading %s at %d: %s; trying again", queue_key(wanted.queue), cursor, lost)
            time.sleep(pause_s)
            pause_s = min(2.0, pause_s * 2)


class _RangeReader:
    """One attempt at a range over one connection."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, subscription: Subscription, start: int) -> None:
        self.cursor = start
        self.address = ""
        self._cluster = cluster
        self._wanted = wanted
        self._subscription = subscription
        # How many messages the broker gives to one pull: learnt from the first answer, and less after a short one.
        self._stride = 0
        self._most = 0
        self._full_answers = 0

    def read(self) -> Iterator[Pulled]:
        self.address = self._cluster.address(self._wanted.queue.broker_name)
        link = self._cluster.link(self.address)
        under_way: deque[tuple[int, int, int]] = deque()  # offset and count asked for, opaque
        next_ask = self.cursor
        while self.cursor < self._wanted.end:
            ahead = AHEAD if self._stride and self._subscription.is_everything else 1
            commands = []
            while len(under_way) < ahead and next_ask < self._wanted.end:
                count = min(self._stride or self._subscription.batch_size, self._wanted.end - next_ask)
                command = self._request(next_ask, count)
                commands.append(command)
                under_way.append((next_ask, count, command.opaque))
                next_ask += count
            if commands:
                link.send(commands)
            asked, count, opaque = under_way.popleft()
            answer = link.receive(opaque)
            if asked == self.cursor:
                pulled = self._take(answer)
                if pulled.count:
                    yield pulled
                self._learn(asked, count)
            if self.cursor != (under_way[0][0] if under_way else next_ask):
                # The answer was shorter or longer than its stretch: what was sent ahead does not fit any more.
                for _, _, stale in under_way:
                    link.receive(stale)
                under_way.clear()
                next_ask = self.cursor

    def _learn(self, asked: int, count: int) -> None:
        got = self.cursor - asked
        if not self._subscription.is_everything or got <= 0:
            return
        if not self._stride:
            self._stride = self._most = got
        elif got < count:
            self._stride, self._full_answers = got, 0
        else:
            self._full_answers += 1
            if self._full_answers >= 2 * AHEAD:
                self._stride, self._full_answers = min(self._most, self._stride * 2), 0

    def _request(self, offset: int, count: int) -> Command:
        return Command.request(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": self._subscription.group,
                "topic": self._wanted.queue.topic,
                "queueId": str(self._wanted.queue.queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": str(count),
                "sysFlag": str(SUBSCRIPTION_IN_REQUEST),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": self._subscription.expression,
                "expressionType": self._subscription.kind,
                "subVersion": "0",
            },
        )

    def _take(self, answer: Command) -> Pulled:
        """Moves the cursor by what one answer says, and gives its records."""
        if answer.code == ResponseCode.SUCCESS:
            return self._found(answer)
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            # Nothing in this stretch matched, or its records are being deleted.
            following = int(answer.ext["nextBeginOffset"])
            if self._subscription.is_everything:
                self._lose(self.cursor, following)
            self.cursor = max(self.cursor + 1, following)
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            first = int(answer.ext["minOffset"])
            if first <= self.cursor:
                self._lose(self.cursor, self._wanted.end)
                self.cursor = self._wanted.end
            else:
                self._lose(self.cursor, min(first, self._wanted.end))
                self.cursor = first
        elif answer.code == ResponseCode.PULL_NOT_FOUND:
            following = int(answer.ext["nextBeginOffset"])
            end = following if following > self.cursor else self._wanted.end
            self._lose(self.cursor, end)
            self.cursor = end
        else:
            raise Refusal(answer.code, answer.remark, f"pulling from topic {self._wanted.queue.topic}")
        return NOTHING

    def _found(self, answer: Command) -> Pulled:
        buffer = memoryview(answer.body)
        bounds = record_bounds(buffer)
        if not bounds or sum(bounds[-1]) != len(buffer):
            raise LinkLost(f"an answer of {self.address} holds a record that cannot be read")
        following = int(answer.ext["nextBeginOffset"])
        first, last = _offset_at(buffer, bounds[0]), _offset_at(buffer, bounds[-1])
        if first == self.cursor and last == first + len(bounds) - 1 < self._wanted.end:
            # Nearly always: the records that were asked for, without a hole.
            self.cursor = max(last + 1, 0 if self._subscription.is_everything else following)
            return Pulled(buffer, len(bounds))
        return self._picked(buffer, bounds, following)

    def _picked(self, buffer: memoryview, bounds: list[tuple[int, int]], following: int) -> Pulled:
        """The records of the range among those of an answer that has holes (a filter's, or lost messages)."""
        is_everything = self._subscription.is_everything
        picked = []
        for bound in bounds:
            offset = _offset_at(buffer, bound)
            if offset < self.cursor:
                continue
            if offset >= self._wanted.end:
                break
            if is_everything and offset > self.cursor:
                self._lose(self.cursor, offset)
            picked.append(bound)
            self.cursor = offset + 1
        if not is_everything:
            self.cursor = max(self.cursor, following)
        elif not picked:
            self._lose(self.cursor, following)
            self.cursor = max(self.cursor + 1, following)
        if not picked:
            return NOTHING
        return Pulled(buffer[picked[0][0] : sum(picked[-1])], len(picked))

    def _lose(self, start: int, end: int) -> None:
        queue = self._wanted.queue
        said = (
            f"offsets {start} to {end} of queue {queue_key(queue)} of topic {queue.topic} are not there any more "
            "(deleted after their retention time, or by an administrator)"
        )
        if self._subscription.fail_on_data_loss:
            raise DataLost(f"option failOnDataLoss: {said}; with failOnDataLoss=false the gap is logged and skipped")
        log.warning("%s: gap skipped", said)


def _offset_at(buffer: memoryview, bound: tuple[int, int]) -> int:
    offset: int = _QUEUE_OFFSET.unpack_from(buffer, bound[0] + 20)[0]
    return offset
