"""A small model of pop, and a driver that plays random steps on it and on a real broker at once, on virtual time.

The model knows places: a message of a queue of the topic, or a copy in a group's retry topic. For each lane (a queue
as one group pops it) it has a cursor; a pop must give out exactly the places from there on. Each delivery has a receipt
and a time; it ends by an ack, by a changed invisible time (then it goes on under another receipt), or by its time being
over: then exactly one copy lies in the retry topic, counted once more, and none otherwise. What is checked after every
step: nothing lost, nothing given out twice or while it is invisible, nothing after its ack was answered.

A kill is a copy of the store's folder as it is at that moment, opened by a new broker.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crashing import copy_as_killed
from in_process import SMALL_FILES, LocalClient
from popping import bits

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import VirtualClock
from arrowmq.remoting.handlers import Answer, release
from arrowmq.wire import fastjson
from arrowmq.wire.bodies.clients import decode_batch_ack
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import (
    AckMessage,
    ChangeInvisibleTime,
    PopMessage,
    ResetOffset,
    SendMessage,
)
from arrowmq.wire.headers.pop import (
    ChangeInvisibleTimeResult,
    PopMessageResult,
    Receipt,
    parse_offset_info,
    parse_receipt,
)
from arrowmq.wire.records import decode_records
from waiting import until

TOPIC = "orders"
ORDERED = "ordered"
GROUPS = ("G", "H")
QUEUES = 2
START_MS = 1_794_769_200_000
# Times that are over between two steps of the clock, never at one
INVISIBLE_MS = (700, 1_200, 5_200, 20_700, 90_200)
STEPS_S = (0.0, 0.5, 0.5, 1.0, 2.0, 6.0, 30.0)
Lane = tuple[str, str, int]  # topic (or retry topic), group, queue


@dataclass
class Delivery:
    """A message in someone's hands."""

    lane: Lane
    offset: int
    body: bytes
    count: int
    receipt: Receipt
    older: list[Receipt] = field(default_factory=list)
    is_open: bool = True

    @property
    def until_ms(self) -> int:
        return self.receipt.pop_time + self.receipt.invisible_time


@dataclass
class Ordered:
    """What a queue popped in order has out."""

    committed: int = 0
    receipt_time: int = 0
    offsets: list[int] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    until_ms: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def is_blocked(self, now_ms: int) -> bool:
        return any(now_ms < self.until_ms[offset] for offset in self.offsets if offset not in self.acked)


class Driver:
    def __init__(self, root: Path, seed: int, **settings: str) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.settings = {
            **SMALL_FILES, "flushIntervalCommitLog": "10", "defaultTopicQueueNums": str(QUEUES),
            "initPopOffsetByCheckMsgInMem": "false", **settings,
        }  # fmt: skip
        self.clock = VirtualClock(START_MS)
        self.lives = 0
        self.steps: list[str] = []
        # The model
        self.sent: dict[tuple[str, int], list[bytes]] = {
            (topic, queue): [] for topic in (TOPIC, ORDERED) for queue in range(QUEUES)
        }
        self.cursors: dict[Lane, int] = {}
        self.deliveries: list[Delivery] = []
        self.done: list[Delivery] = []  # acknowledged, or their time is over
        self.copies: dict[str, list[tuple[bytes, int]]] = {group: [] for group in GROUPS}  # as they must lie there
        self.ordered: dict[int, Ordered] = {queue: Ordered() for queue in range(QUEUES)}

    # The broker

    async def start(self) -> None:
        folder = self.root / f"life-{self.lives}"
        self.broker = Broker(BrokerConfig.from_properties(self.settings), folder, self.clock)
        await self.broker.start(10911)
        self.services = self.broker.services
        self.services.pop.chance.seed(self.random.getrandbits(64))
        self.client = LocalClient(self.broker.handlers)

    async def stop(self) -> None:
        await self.broker.stop()

    async def settle(self) -> None:
        """Lets what is due be done."""
        revive = self.services.pop_revive

        def is_at_rest() -> bool:
            return not revive._waiting and revive._turn is None and not revive._tasks

        await asyncio.sleep(0)
        await until(is_at_rest)  # a record that is not in memory is read by a thread
        for _ in range(5):
            await asyncio.sleep(0)

    # Steps

    STEPS = (
        ("send", 25), ("pop", 30), ("ack", 18), ("ack_again", 3), ("ack_late", 3), ("batch_ack", 8), ("change", 8),
        ("change_stale", 2), ("advance", 22), ("pop_in_order", 8), ("ack_in_order", 8), ("change_in_order", 2),
        ("reset", 1), ("restart", 0.4), ("kill", 0.6),
    )  # fmt: skip

    async def step(self) -> None:
        names, weights = zip(*self.STEPS, strict=True)
        name = self.random.choices(names, weights)[0]
        self.steps.append(name)
        await getattr(self, name)()
        self.check()

    async def ask(self, handler: Any, request: Any, body: bytes = b"", **facts: int) -> Answer:
        return await self.client.ask(handler, request, body, **facts)

    async def send(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 10))):
            topic, queue = self.random.choice((TOPIC, TOPIC, ORDERED)), self.random.randrange(QUEUES)
            body = f"{topic}-{queue}-{len(self.sent[topic, queue])}".encode()
            header = SendMessage(producer_group="P", topic=topic, queue_id=queue, born_timestamp=1, properties="")
            answer = await self.ask(self.services.send.send, header, body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            self.sent[topic, queue].append(body)

    def pop_of(self, topic: str, group: str, **more: Any) -> PopMessage:
        return PopMessage(
            consumer_group=group, topic=topic, queue_id=self.random.choice((-1, -1, -1, 0, 1)),
            max_msg_nums=self.random.choice((1, 2, 8, 32)), invisible_time=self.random.choice(INVISIBLE_MS),
            poll_time=0, born_time=self.clock.now_ms(), **more,
        )  # fmt: skip

    async def popped(self, request: PopMessage) -> tuple[PopMessageResult | None, list[Any]]:
        answer = await self.ask(self.services.pop.pop, request)
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.TOPIC_NOT_EXIST):
            return None, []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert isinstance(answer.header, PopMessageResult)
        records = decode_records(b"".join(answer.body))
        release(answer)
        return answer.header, records

    async def pop(self) -> None:
        await self.pop_for(self.random.choice(GROUPS))

    async def pop_for(self, group: str) -> int:
        header, records = await self.popped(self.pop_of(TOPIC, group))
        if header is None:
            return 0
        starts = parse_offset_info(header.start_offset_info)
        now_ms = self.clock.now_ms()
        for record in records:
            text = record.properties.get("POP_CK")
            if text is not None:
                receipt = parse_receipt(text)
                lane: Lane = (retry_topic(group), group, receipt.queue_id)
                expected, count = self.copies[group][receipt.queue_offset]
            else:
                receipt = Receipt(
                    *(starts["0", str(record.queue_id)][0], header.pop_time, header.invisible_time, header.revive_qid),
                    *("0", "broker-a", record.queue_id, record.queue_offset),
                )
                lane = (TOPIC, group, record.queue_id)
                expected, count = self.sent[TOPIC, record.queue_id][record.queue_offset], 0
            cursor = self.cursors.get(lane, 0)
            assert cursor == receipt.queue_offset, f"{lane}: {receipt.queue_offset} was given out instead of {cursor}"
            assert (expected, count) == (record.body, record.reconsume_times)
            assert receipt.pop_time >= now_ms
            self.cursors[lane] = cursor + 1
            self.deliveries.append(Delivery(lane, receipt.queue_offset, record.body, count, receipt))
        return len(records)

    def some(self, deliveries: list[Delivery]) -> Delivery | None:
        return self.random.choice(deliveries) if deliveries else None

    def ack_of(self, delivery: Delivery, receipt: Receipt) -> AckMessage:
        topic, group, queue_id = delivery.lane
        return AckMessage(
            consumer_group=group, topic=topic, queue_id=queue_id, extra_info=receipt.encode(), offset=delivery.offset
        )

    async def ack(self) -> None:
        delivery = self.some(self.deliveries)
        if delivery is not None:
            receipt = self.random.choice([delivery.receipt, delivery.receipt, *delivery.older])
            answer = await self.ask(self.services.acks.ack, self.ack_of(delivery, receipt))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            self.end(delivery)

    def end(self, delivery: Delivery) -> None:
        self.deliveries.remove(delivery)
        self.done.append(delivery)
        del self.done[:-50]

    async def ack_again(self) -> None:
        """Of a message that was acknowledged before, or came back."""
        delivery = self.some(self.done)
        if delivery is not None:
            answer = await self.ask(self.services.acks.ack, self.ack_of(delivery, delivery.receipt))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def ack_late(self) -> None:
        delivery = self.some(self.deliveries)
        if delivery is not None:
            await self.advance_to(delivery.until_ms + 300)
            answer = await self.ask(self.services.acks.ack, self.ack_of(delivery, delivery.receipt))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def batch_ack(self) -> None:
        group = self.random.choice(GROUPS)
        mine = [each for each in self.deliveries if each.lane[1] == group]
        chosen = self.random.sample(mine, min(len(mine), self.random.choice((1, 5, 40))))
        together: dict[tuple[Any, ...], set[int]] = {}
        for each in chosen:
            key = (*each.receipt[:5], each.receipt.queue_id)
            together.setdefault(key, set()).add(each.offset - each.receipt.start_offset)
        acks = [
            {
                "b": bits(offsets), "c": group, "it": key[2], "pt": key[1], "q": key[5], "r": key[4], "rq": key[3],
                "so": key[0], "t": TOPIC,
            }
            for key, offsets in together.items()
        ]  # fmt: skip
        if acks:
            body = fastjson.dumps({"acks": acks, "brokerName": "broker-a"})
            answer = await self.ask(self.services.acks.batch_ack, decode_batch_ack(body))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            for each in chosen:
                self.end(each)

    async def change(self) -> None:
        delivery = self.some(self.deliveries)
        if delivery is not None:
            await self.change_by(delivery, self.random.choice([delivery.receipt, delivery.receipt, *delivery.older]))

    async def change_by(self, delivery: Delivery, receipt: Receipt) -> None:
        topic, group, queue_id = delivery.lane
        request = ChangeInvisibleTime(
            consumer_group=group, topic=topic, queue_id=queue_id, extra_info=receipt.encode(), offset=delivery.offset,
            invisible_time=self.random.choice(INVISIBLE_MS),
        )  # fmt: skip
        answer = await self.ask(self.services.acks.change_invisible_time, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        changed = answer.header
        assert isinstance(changed, ChangeInvisibleTimeResult)
        delivery.older.append(delivery.receipt)
        delivery.receipt = delivery.receipt._replace(
            start_offset=delivery.offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )

    async def change_stale(self) -> None:
        delivery = self.some(self.done)
        if delivery is None:
            return
        topic, group, queue_id = delivery.lane
        if any((each.lane, each.offset) == (delivery.lane, delivery.offset) for each in self.deliveries):
            return  # given out anew after a reset
        request = ChangeInvisibleTime(
            consumer_group=group, topic=topic, queue_id=queue_id, extra_info=delivery.receipt.encode(),
            offset=delivery.offset, invisible_time=60_200,
        )  # fmt: skip
        if delivery.receipt.pop_time >= self.services.pop_revive.log.known_since_ms:
            answer = await self.ask(self.services.acks.change_invisible_time, request)
            assert answer.code == ResponseCode.NO_MESSAGE, answer.remark

    # Time

    async def advance(self) -> None:
        await self.advance_to(self.clock.now_ms() + int(self.random.choice(STEPS_S) * 1000))

    async def advance_to(self, at_ms: int) -> None:
        """To the next half of a second: no invisible time ends there."""
        target = max(at_ms, self.clock.now_ms())
        target += -target % 500
        await self.clock.advance((target - self.clock.now_ms()) / 1000)
        await self.settle()
        self.expire()

    def expire(self) -> None:
        """What is over lies in the retry topic; in which order does not matter."""
        now_ms = self.clock.now_ms()
        over = [each for each in self.deliveries if each.until_ms <= now_ms]
        for group in GROUPS:
            expected = sorted((each.body, each.count + 1) for each in over if each.lane[1] == group)
            known = self.copies[group]
            found = [
                (record.body, record.reconsume_times) for record in self.records(retry_topic(group), 0, len(known))
            ]
            assert expected == sorted(found), (
                f"what came back is not what was not acknowledged in time: {expected} and not {sorted(found)}"
            )
            known += found
        for each in over:
            self.end(each)

    def records(self, topic: str, queue_id: int, offset: int) -> list[Any]:
        store = self.broker.store
        entries = store.entries(topic, queue_id, offset, 1 << 20)
        return [store.record_at(entry.physical_offset) for entry in entries]

    def check(self) -> None:
        """Nothing comes back before its time."""
        for group in GROUPS:
            assert self.broker.store.max_offset(retry_topic(group), 0) == len(self.copies[group])
        for lane, cursor in self.cursors.items():
            found = self.services.pop_revive.table.find_lane(*lane)
            ahead = None if found is None else self.services.pop_revive.merging.next_offset(found)
            committed = self.broker.offsets.get(lane[1], lane[0], lane[2]) or 0
            assert cursor == (committed if ahead is None else max(committed, ahead)), (lane, cursor, committed, ahead)

    # Administration and accidents

    async def reset(self) -> None:
        group, queue_id = self.random.choice(GROUPS), self.random.randrange(QUEUES)
        highest = len(self.sent[TOPIC, queue_id])
        if not highest or self.broker.groups.get(group) is None:
            return
        offset = self.random.randrange(max(0, highest - 10), highest + 1)
        request = ResetOffset(topic=TOPIC, group=group, timestamp=-1, is_force=True, queue_id=queue_id, offset=offset)
        answer = await self.ask(self.services.reset.reset_offset, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.cursors[TOPIC, group, queue_id] = offset
        # The reset takes effect with the group's next pop of that queue
        lane = self.services.pop_revive.table.find_lane(TOPIC, group, queue_id)
        if lane is not None:
            self.services.pop_revive.merging.forget_steps(lane)

    async def restart(self) -> None:
        await self.broker.stop()
        await self.start()
        await self.settle()
        self.expire()

    async def kill(self) -> None:
        # After a reset a message can be given out twice in one millisecond: where its pop began tells the two apart
        unwritten = {
            (
                *(check_point.lane.topic, check_point.lane.group, check_point.lane.queue_id, offset),
                *(check_point.pop_time, check_point.start_offset, check_point.revive_queue),
            )
            for check_point in self.services.pop_revive.merging.unwritten
            for offset in check_point.offsets()
        }
        before = self.root / f"life-{self.lives}"
        self.lives += 1
        copy_as_killed(before, self.root / f"life-{self.lives}")
        await self.broker.stop()
        shutil.rmtree(before, ignore_errors=True)  # a thread may still be at a table there, which nobody reads again
        await self.start()
        # What was in memory alone is given out again, from the offset that was kept back for it
        self.deliveries = [each for each in self.deliveries if self._place_of(each) not in unwritten]
        if self.settings.get("enablePopBufferMerge") == "true":
            for lane, cursor in self.cursors.items():
                kept = self.broker.offsets.get(lane[1], lane[0], lane[2]) or 0
                assert kept <= cursor
                self.cursors[lane] = kept
        self._ordered_after_a_kill()
        await self.settle()
        self.expire()

    def _place_of(self, delivery: Delivery) -> tuple[object, ...]:
        receipt = delivery.receipt
        return (
            *(*delivery.lane, delivery.offset),
            *(receipt.pop_time, receipt.start_offset, receipt.revive_queue_id),
        )

    # In order

    async def pop_in_order(self) -> None:
        header, records = await self.popped(self.pop_of(ORDERED, "G", order=True))
        now_ms = self.clock.now_ms()
        by_queue: dict[int, list[Any]] = {}
        for record in records:
            by_queue.setdefault(record.queue_id, []).append(record)
        counts = parse_offset_info(None if header is None else header.order_count_info)
        for queue_id, got in by_queue.items():
            lane = self.ordered[queue_id]
            assert not lane.is_blocked(now_ms), "a blocked queue gave something out"
            offsets = [record.queue_offset for record in got]
            assert list(range(lane.committed, lane.committed + len(got))) == offsets
            before = {offset: lane.counts.get(offset, 0) + 1 for offset in lane.offsets}
            lane.counts = {offset: before[offset] for offset in offsets if offset in before}
            for offset in offsets:
                said = counts.get(("0", f"qo{queue_id}%{offset}"), [0])[0]
                assert lane.counts.get(offset, 0) == said
            assert header is not None
            lane.offsets, lane.acked, lane.receipt_time = offsets, set(), header.pop_time
            lane.until_ms = dict.fromkeys(offsets, header.pop_time + header.invisible_time)

    def _receipt_in_order(self, queue_id: int, offset: int) -> str:
        lane = self.ordered[queue_id]
        return Receipt(lane.offsets[0], lane.receipt_time, 1000, 999, "0", "broker-a", queue_id, offset).encode()

    async def ack_in_order(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        lane = self.ordered[queue_id]
        for offset in self.random.sample(lane.offsets, self.random.randrange(len(lane.offsets) + 1)):
            request = AckMessage(
                consumer_group="G", topic=ORDERED, queue_id=queue_id, offset=offset,
                extra_info=self._receipt_in_order(queue_id, offset),
            )  # fmt: skip
            answer = await self.ask(self.services.acks.ack, request)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            if offset >= lane.committed:
                lane.acked.add(offset)
                left = [each for each in lane.offsets if each not in lane.acked]
                lane.committed = left[0] if left else lane.offsets[-1] + 1

    async def change_in_order(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        lane = self.ordered[queue_id]
        left = [offset for offset in lane.offsets if offset not in lane.acked]
        if left:
            offset, invisible_ms = self.random.choice(left), self.random.choice(INVISIBLE_MS)
            request = ChangeInvisibleTime(
                consumer_group="G", topic=ORDERED, queue_id=queue_id, offset=offset, invisible_time=invisible_ms,
                extra_info=self._receipt_in_order(queue_id, offset),
            )  # fmt: skip
            assert ResponseCode.SUCCESS == (await self.ask(self.services.acks.change_invisible_time, request)).code
            lane.until_ms[offset] = self.clock.now_ms() + invisible_ms

    def _ordered_after_a_kill(self) -> None:
        """What is out in order is written every ten seconds, as Apache's broker does: it may be older, never newer."""
        for queue_id, lane in self.ordered.items():
            committed = self.broker.offsets.get("G", ORDERED, queue_id) or 0
            assert committed <= lane.committed, f"queue {queue_id}: {committed} kept, {lane} expected"
            info = self.services.pop_order.get(ORDERED, "G", queue_id)
            lane.committed = committed
            if info is None:
                self.ordered[queue_id] = Ordered(committed)
                continue
            lane.offsets, lane.receipt_time, lane.counts = list(info.offsets), info.pop_time, dict(info.counts)
            lane.acked = {offset for index, offset in enumerate(info.offsets) if info.acked >> index & 1}
            lane.until_ms = {
                offset: info.visible_at.get(offset, info.pop_time + info.invisible_ms) for offset in info.offsets
            }

    # The end

    async def drain(self) -> None:
        """Everything that was sent is given out and acknowledged: nothing is lost."""
        for group in GROUPS:
            for _ in range(10_000):
                await self.advance_to(self.clock.now_ms() + 100_000)
                while await self.pop_for(group):
                    pass
                mine = [each for each in self.deliveries if each.lane[1] == group]
                if not mine and self._is_all_given_out(group):
                    break
                for each in mine:
                    await self.ask(self.services.acks.ack, self.ack_of(each, each.receipt))
                    self.end(each)
        assert 0 == self.services.pop_revive.table.in_flight == self.services.pop_revive.table.count
        self.check()

    def _is_all_given_out(self, group: str) -> bool:
        ends: dict[Lane, int] = {(TOPIC, group, queue): len(self.sent[TOPIC, queue]) for queue in range(QUEUES)}
        ends[retry_topic(group), group, 0] = len(self.copies[group])
        return all(self.cursors.get(lane, 0) == end for lane, end in ends.items())


def retry_topic(group: str) -> str:
    return f"%RETRY%{group}_{TOPIC}"


async def play(root: Path, seed: int, steps: int, **settings: str) -> Driver:
    """Raises AssertionError with the seed and the last steps."""
    driver = Driver(root, seed, **settings)
    await driver.start()
    for topic in (TOPIC, ORDERED):
        driver.broker.topics.create_internal(topic, QUEUES)
    await driver.broker.topics.saved()
    try:
        await driver.send()
        for _ in range(steps):
            await driver.step()
        await driver.drain()
    except AssertionError as broken:
        raise AssertionError(f"seed {seed}, step {len(driver.steps)}, last {driver.steps[-8:]}: {broken}") from broken
    finally:
        await driver.stop()
    return driver
