"""Sends messages from Spark's worker processes: blocking, in order per queue, with requests sent ahead.

Messages that nothing forbids to be batched (no delay, no half message) travel as batches of one queue; half messages
travel alone, as RocketMQ wants it, but many of them are under way. A send whose answer got lost is sent again: at least
once, never silently dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from arrowmq.client.produce.pending_sends import frame
from arrowmq.client.produce.send_frame import FrameStarts
from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Refusal, Route
from arrowmq.spark.sink.exchange import Run
from arrowmq.wire import properties as names
from arrowmq.wire.batch import BatchItem, encode_batch
from arrowmq.wire.codes import LanguageCode, RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.properties import encode_properties

TRANSACTION_PREPARED = 0x4
WINDOW = 128  # sends under way on one connection
REFILL = 32  # of which so many leave together
BATCH_MESSAGES = 128
BATCH_BYTES = 512 * 1024
PIECE_MESSAGES = 128  # half messages that leave in one write
PIECE_BYTES = 256 * 1024
# The message is stored, only a copy or a flush was late: sending it again would make two of it.
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
Place = tuple[int, int]  # offset in the half queue, offset in the commit log
BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


@dataclass(slots=True)
class Outgoing:
    """A message on its way to a queue."""

    queue: MessageQueue
    body: bytes
    properties: dict[str, str]

    @property
    def is_single(self) -> bool:
        """Delayed and half messages cannot be parts of a batch."""
        found = self.properties
        return names.DELAY in found or names.TIMER_DELIVER_MS in found or names.TRAN_MSG in found


@dataclass
class Halves:
    """Half messages that brokers have acknowledged: for each broker the places that END_TRANSACTION asks for."""

    # broker name -> (offset in the half queue, offset in the commit log), in the order they were sent
    places: dict[str, list[Place]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return sum(map(len, self.places.values()))

    def merge(self, other: Halves) -> None:
        for broker, places in other.places.items():
            self.places.setdefault(broker, []).extend(places)
        self.topics |= other.topics


def _place_in(answer: Command) -> Place:
    return int(answer.ext["queueOffset"]), parse_offset_message_id(answer.ext["msgId"]).physical_offset


def may_leave(
    waiting: list[tuple[list[Outgoing], Command]], done: int, sent: int, *, keeps_order: bool
) -> list[Command]:
    """The requests that may leave now; to a broker that does not take them in order, one batch of a queue at a time."""
    following = waiting[sent : sent + REFILL]
    if keeps_order:
        return [command for _, command in following]
    under_way = {group[0].queue for group, _ in waiting[done:sent]}
    fresh: list[Command] = []
    for group, command in following:
        queue = group[0].queue
        if queue in under_way and not group[0].is_single:
            break
        under_way.add(queue)
        fresh.append(command)
    return fresh


class Sender:
    """Sends the messages of one task."""

    def __init__(self, cluster: Cluster, producer_group: str, routes: dict[str, Route]) -> None:
        self.halves = Halves()
        self.sent = 0
        self._cluster = cluster
        self._group = producer_group
        self._routes = routes
        self._starts = FrameStarts(producer_group)

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Sends all of them; returns when each is acknowledged."""
        by_broker: dict[str, list[Outgoing]] = {}
        for message in messages:
            by_broker.setdefault(message.queue.broker_name, []).append(message)
        # A signature is made over the fields of a command: then they have to be one.
        is_signed = self._cluster.connection.credentials is not None
        for broker, mine in by_broker.items():
            if is_signed or not all(names.TRAN_MSG in message.properties for message in mine):
                self._send_to(broker, self._grouped(mine))
            else:
                self._send_halves(broker, mine)

    def _grouped(self, messages: list[Outgoing]) -> list[list[Outgoing]]:
        """Messages of one queue together in batches, order kept; single ones alone."""
        groups: list[list[Outgoing]] = []
        open_batches: dict[MessageQueue, tuple[list[Outgoing], int]] = {}
        for message in messages:
            if message.is_single:
                groups.append([message])
                continue
            size = len(message.body) + 256
            batch, total = open_batches.get(message.queue, ([], BATCH_BYTES))
            if total + size > BATCH_BYTES or len(batch) >= BATCH_MESSAGES:
                batch, total = [], 0
                groups.append(batch)
            batch.append(message)
            open_batches[message.queue] = (batch, total + size)
        return groups

    def _send_to(self, broker: str, groups: list[list[Outgoing]]) -> None:
        waiting = [(group, self._command(group)) for group in groups]
        self._patiently(waiting, lambda: self._attempt(broker, waiting))

    def _send_halves(self, broker: str, messages: list[Outgoing]) -> None:
        """Half messages become visible in the order of their ends. So they are noted in the order of the rows, whatever
        order they were stored in: a broker that is busy, or takes requests in several threads, changes nothing."""
        waiting = list(enumerate(messages))
        stored: dict[int, Place] = {}
        try:
            self._patiently(waiting, lambda: self._attempt_halves(broker, waiting, stored))
        finally:
            self.sent += len(stored)
            self.halves.places.setdefault(broker, []).extend(stored[number] for number in sorted(stored))
            self.halves.topics.update(messages[number].queue.topic for number in stored)

    def _patiently(self, waiting: list[Any], attempt: Callable[[], Exception | None]) -> None:
        """Makes attempts until nothing waits any more; patience begins anew whenever something was stored."""
        deadline = time.monotonic() + self._cluster.connection.patience_s
        pause_s = 0.1
        while waiting:
            before = len(waiting)
            trouble = attempt()
            if trouble is None:
                return
            if len(waiting) < before:
                deadline, pause_s = time.monotonic() + self._cluster.connection.patience_s, 0.1
            if time.monotonic() + pause_s > deadline:
                raise trouble
            time.sleep(pause_s)
            pause_s = min(2.0, pause_s * 2)

    def _attempt(self, broker: str, waiting: list[tuple[list[Outgoing], Command]]) -> Exception | None:
        """Sends what waits, removes from it what was stored; gives the trouble that is worth another try."""
        try:
            address = self._cluster.address(broker)
            link = self._cluster.link(address)
        except LinkLost as lost:
            return lost
        busy: Exception | None = None
        left: list[tuple[list[Outgoing], Command]] = []
        done = sent = 0
        try:
            for group, command in waiting:
                if busy is None and sent - done <= WINDOW - REFILL:
                    # Many at a time: one write, and one wake-up of the broker for all of them.
                    fresh = may_leave(waiting, done, sent, keeps_order=link.keeps_order)
                    if fresh:
                        link.send(fresh)
                        sent += len(fresh)
                elif sent == done:
                    break  # a broker that is busy gets what is under way, and no more: order is kept
                answer = link.receive(command.opaque)
                link.keeps_order = answer.language == LanguageCode.PYTHON
                done += 1
                if answer.code in STORED:
                    self._stored(broker, group, answer)
                elif answer.code in BUSY:
                    busy = Refusal(answer.code, answer.remark, f"sending to topic {group[0].queue.topic}")
                    left.append((group, command))
                else:
                    raise Refusal(answer.code, answer.remark, f"sending to topic {group[0].queue.topic}")
        except LinkLost as lost:
            self._cluster.drop(address)
            waiting[:] = left + waiting[done:]
            return lost
        waiting[:] = left + waiting[done:]
        return busy

    def _attempt_halves(
        self, broker: str, waiting: list[tuple[int, Outgoing]], stored: dict[int, Place]
    ) -> Exception | None:
        """Sends half messages that wait, moves what was stored from them to `stored`; gives the trouble worth a try."""
        run = Run(len(waiting))
        trouble: Exception | None = None
        try:
            address = self._cluster.address(broker)
            link = self._cluster.link(address)
        except LinkLost as lost:
            return lost
        try:
            link.exchange(self._pieces(waiting, run.first_opaque), run)
        except LinkLost as lost:
            self._cluster.drop(address)
            trouble = lost
        left: list[tuple[int, Outgoing]] = []
        refused: Refusal | None = None
        for item, answer in zip(waiting, run.answers(), strict=True):
            number, message = item
            if answer is None:
                left.append(item)
            elif isinstance(answer, tuple):
                stored[number] = answer
            elif answer.code in STORED:
                stored[number] = _place_in(answer)
            else:
                refusal = Refusal(answer.code, answer.remark, f"sending to topic {message.queue.topic}")
                if answer.code in BUSY:
                    trouble = trouble or refusal
                    left.append(item)
                else:
                    refused = refused or refusal
        waiting[:] = left
        if refused is not None:
            raise refused  # after the others were noted, so that they can be rolled back
        return trouble

    def _pieces(self, messages: list[tuple[int, Outgoing]], opaque: int) -> Iterator[tuple[bytes, int]]:
        """The frames of half messages, many together: one write, and one wake-up of the broker for all of them."""
        frames: list[bytes] = []
        size = 0
        for _, message in messages:
            start = self._starts.of(message.queue.topic, message.queue)
            properties = encode_properties(message.properties)
            written = frame(
                RequestCode.SEND_MESSAGE_V2, opaque, 0, start, TRANSACTION_PREPARED, 0, time.time_ns() // 1_000_000,
                properties, message.body,
            )  # fmt: skip
            opaque += 1
            frames.append(written)
            size += len(written)
            if len(frames) == PIECE_MESSAGES or size > PIECE_BYTES:
                yield b"".join(frames), len(frames)
                frames, size = [], 0
        if frames:
            yield b"".join(frames), len(frames)

    def _stored(self, broker: str, group: list[Outgoing], answer: Command) -> None:
        self.sent += len(group)
        if names.TRAN_MSG in group[0].properties:
            self.halves.places.setdefault(broker, []).append(_place_in(answer))
            self.halves.topics.add(group[0].queue.topic)

    def _command(self, group: list[Outgoing]) -> Command:
        first = group[0]
        is_batch = not first.is_single
        if is_batch:
            body = encode_batch(BatchItem(0, item.body, encode_properties(item.properties)) for item in group)
            properties = ""
        else:
            body = first.body
            properties = encode_properties(first.properties).decode()
        sys_flag = TRANSACTION_PREPARED if names.TRAN_MSG in first.properties else 0
        return Command.request(
            RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
            {
                "a": self._group,
                "b": first.queue.topic,
                "c": "TBW102",
                "d": "4",
                "e": str(first.queue.queue_id),
                "f": str(sys_flag),
                "g": str(time.time_ns() // 1_000_000),
                "h": "0",
                "i": properties,
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": first.queue.broker_name,
            },
            body,
        )
