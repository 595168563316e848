"""The model's random steps over the wire, in real time, on our broker and on Apache's: what does each of them break?

    make pop-steps              or: python tests/interop/pop_steps.py --on apache --seeds 2 --steps 400

`tests/broker/pop_model.py` knows our broker from inside and plays on virtual time. Here the same steps with the same
weights are asked by a client that sees answers alone, so the judgement is the client's: what a receipt and its time
promise. Broken promises are counted by kind and listed with their first example; it ends with 1 if ours breaks one.

Both brokers run on this machine, by one clock, so that the pop time in an answer says to the millisecond until when a
message is invisible. What may differ after a kill -9 is counted apart, and two of it are not held against ours: which
message of an ordered queue is out is written every few seconds; and a broker that was killed does not remember check
points that were closed, so a client may still change the time of what it had acknowledged (at Apache's it always may).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "broker")]

from oracle.target import BROKERS, Target  # noqa: E402
from pop_model import GROUPS, ORDERED, QUEUES, TOPIC, Driver  # noqa: E402
from popping import Popped, Popping  # noqa: E402

from arrowmq.remoting.client import RemotingClient  # noqa: E402
from arrowmq.wire.codes import RequestCode, ResponseCode  # noqa: E402
from arrowmq.wire.frames import Command  # noqa: E402

INVISIBLE_MS = (1_000, 1_500, 3_000, 6_000, 12_000)
WAITS_S = (0.05, 0.2, 0.5, 1.5)
ATTEMPT_S = 20.0
GRANTED = "a change after the ack is granted"
# An ack counts if its answer came so long before the message was to come back
CLOSE_MS = 300
# At the end it is asked until nothing has come for so long; Apache's broker takes back after one to five seconds
QUIET_S = 15.0
LONGEST_DRAIN_S = 120.0


class Wire:
    """What `Popping` asks: a connection to a broker in another process, made again after a kill."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remoting = RemotingClient()
        self.clock = self

    def connect(self) -> Wire:
        return self

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Command:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        deadline = time.monotonic() + ATTEMPT_S
        while True:
            try:
                return await self.remoting.invoke(self.address, Command.request(code, texts, body), 10)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)


class Hand:
    """A message that a group was given, until it is acknowledged or its time is over."""

    def __init__(self, popped: Popped, life: int) -> None:
        self.popped = popped
        self.older: list[Any] = []
        self.life = life

    @property
    def body(self) -> bytes:
        return self.popped.body

    @property
    def until_ms(self) -> int:
        return self.popped.receipt.pop_time + self.popped.receipt.invisible_time


class Ordered:
    """One queue popped in order."""

    def __init__(self) -> None:
        self.next = 0  # the first offset that is not acknowledged
        self.out: dict[int, Hand] = {}
        self.acked: set[int] = set()


class WireDriver:
    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.random = random.Random(seed)
        self.wire = Wire(target.broker)
        self.clients = {group: Popping(self.wire, TOPIC, group) for group in GROUPS}
        self.in_order = Popping(self.wire, ORDERED, "G")
        self.sent: dict[tuple[str, int], list[bytes]] = {
            (topic, queue): [] for topic in (TOPIC, ORDERED) for queue in range(QUEUES)
        }
        self.open: dict[str, dict[bytes, Hand]] = {group: {} for group in GROUPS}
        self.over: dict[str, dict[bytes, Hand]] = {group: {} for group in GROUPS}  # their time is over: may come back
        self.acked: dict[str, dict[bytes, Hand]] = {group: {} for group in GROUPS}
        self.doubtful: dict[str, set[bytes]] = {
            group: set() for group in GROUPS
        }  # acknowledged about when they were over
        # Given out anew by a reset, while copies of them may still come back: such a message is in several hands
        self.doubled: dict[str, set[bytes]] = {group: set() for group in GROUPS}
        self.reached: dict[tuple[str, int], int] = {}  # group and queue: the offset behind the last one given
        self.ordered = [Ordered() for _ in range(QUEUES)]
        self.life = 0
        self.asked = 0
        self.given = 0
        self.latest_ms = 0  # of what came back while it was asked for all the time
        self.is_draining = False
        self.draining_since_ms = 0
        self.broken: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def breaks(self, promise: str, example: str, life: int | None = None) -> None:
        if life is not None and life != self.life:
            promise += ", after a kill"
        self.broken[promise] += 1
        self.examples.setdefault(promise, f"step {self.asked}: {example}")

    async def step(self) -> None:
        names, weights = zip(*Driver.STEPS, strict=True)
        await getattr(self, self.random.choices(names, weights)[0])()
        self.asked += 1
        self.expire()

    def expire(self) -> None:
        now_ms = self.wire.now_ms()
        for group in GROUPS:
            for body, hand in list(self.open[group].items()):
                if hand.until_ms <= now_ms:
                    self.over[group][body] = self.open[group].pop(body)

    # Sending and popping

    async def create(self) -> None:
        for topic in (TOPIC, ORDERED):
            fields = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
            }  # fmt: skip
            answer = await self.wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def send(self) -> None:
        for _ in range(self.random.choice((1, 1, 3, 10))):
            topic, queue = self.random.choice((TOPIC, TOPIC, ORDERED)), self.random.randrange(QUEUES)
            body = f"{topic}-{queue}-{len(self.sent[topic, queue])}".encode()
            fields = {
                "a": "P", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0, "g": self.wire.now_ms(), "h": 0,
                "i": "", "j": 0, "k": False, "m": False,
            }  # fmt: skip
            answer = await self.wire.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            self.sent[topic, queue].append(body)

    async def pop(self) -> None:
        await self.pop_for(self.random.choice(GROUPS), self.random.choice((-1, -1, -1, 0, 1)))

    async def pop_for(self, group: str, queue_id: int, *, count: int = 0, invisible_ms: int = 0) -> int:
        self.expire()
        popped = await self.clients[group].pop(
            count or self.random.choice((1, 2, 8, 32)),
            queueId=queue_id,
            invisibleTime=invisible_ms or self.random.choice(INVISIBLE_MS),
        )
        for message in popped.messages:
            self.judge(group, message)
        self.given += len(popped.messages)
        return len(popped.messages)

    def judge(self, group: str, message: Popped) -> None:
        body, at_ms, receipt = message.body, message.receipt.pop_time, message.receipt
        what = f"{body.decode()} to {group}"
        if body in self.doubled[group]:
            self.reach(group, message, what)
            self.open[group][body] = Hand(message, self.life)
            return
        before = self.open[group].pop(body, None)
        if before is not None and before.until_ms <= at_ms:
            self.over[group][body] = before
        elif before is not None:
            early = f"{before.until_ms - at_ms} ms before its time is over"
            self.breaks("given out while it is invisible", f"{what} {early}", before.life)
        done = self.acked[group].get(body)
        if done is not None:
            since = f"acknowledged with the receipt {done.popped.receipt.encode()}"
            self.breaks("given out after its ack was answered", f"{what}, {since}", done.life)
        self.doubtful[group].discard(body)
        back = self.over[group].pop(body, None)
        expected = 0 if receipt.retry_flag == "0" else None if back is None else back.popped.count + 1
        if expected is not None and message.count != expected:
            self.breaks("counted wrongly", f"{what}: {message.count} and not {expected}", back.life if back else None)
        if back is not None and self.is_draining:
            self.latest_ms = max(self.latest_ms, at_ms - max(back.until_ms, self.draining_since_ms))
        self.reach(group, message, what)
        self.open[group][body] = Hand(message, self.life)

    def reach(self, group: str, message: Popped, what: str) -> None:
        """What a queue gives out first follows what it gave out before."""
        receipt = message.receipt
        if receipt.retry_flag == "0":
            place = (group, receipt.queue_id)
            reached = self.reached.get(place, 0)
            if receipt.queue_offset > reached:
                self.breaks("passed over", f"{what} after {reached - 1}")
            self.reached[place] = receipt.queue_offset + 1

    # Acknowledging and changing

    def some(self, hands: dict[bytes, Hand]) -> Hand | None:
        return self.random.choice(list(hands.values())) if hands else None

    async def ack(self) -> None:
        group = self.random.choice(GROUPS)
        hand = self.some(self.open[group])
        if hand is not None:
            current = hand.popped.receipt
            hand.popped.receipt = self.random.choice([current, current, *hand.older])
            answer = await self.clients[group].ack(hand.popped)
            hand.popped.receipt = current
            self.was_acked(group, [hand], answer)

    def was_acked(self, group: str, hands: list[Hand], answer: Command) -> None:
        now_ms = self.wire.now_ms()
        for hand in hands:
            if answer.code != ResponseCode.SUCCESS:
                if now_ms < hand.until_ms - CLOSE_MS:
                    self.breaks("an ack in time is refused", f"{hand.body.decode()}: {answer.code} {answer.remark}")
                continue
            del self.open[group][hand.body]
            if now_ms < hand.until_ms - CLOSE_MS:
                self.acked[group][hand.body] = hand
            else:
                self.over[group][hand.body] = hand
                self.doubtful[group].add(hand.body)

    async def ack_again(self) -> None:
        group = self.random.choice(GROUPS)
        hand = self.some(self.acked[group])
        if hand is not None:
            answer = await self.clients[group].ack(hand.popped)
            if answer.code != ResponseCode.SUCCESS:
                self.breaks("a second ack is refused", f"{hand.body.decode()}: {answer.code} {answer.remark}")

    async def ack_late(self) -> None:
        group = self.random.choice(GROUPS)
        hand = self.some(self.over[group])
        if hand is not None:
            await self.clients[group].ack(hand.popped)
            self.doubtful[group].add(hand.body)

    async def batch_ack(self) -> None:
        group = self.random.choice(GROUPS)
        mine = list(self.open[group].values())
        chosen = self.random.sample(mine, min(len(mine), self.random.choice((1, 5, 40))))
        if chosen:
            answer = await self.clients[group].ack_all([hand.popped for hand in chosen])
            self.was_acked(group, chosen, answer)

    async def change(self) -> None:
        group = self.random.choice(GROUPS)
        hand = self.some(self.open[group])
        if hand is None:
            return
        current = hand.popped.receipt
        answer = await self.clients[group].change(hand.popped, self.random.choice(INVISIBLE_MS))
        is_in_time = self.wire.now_ms() < current.pop_time + current.invisible_time - CLOSE_MS
        if answer.code == ResponseCode.SUCCESS:
            hand.older.append(current)
        elif is_in_time:
            self.breaks("a change in time is refused", f"{hand.body.decode()}: {answer.code} {answer.remark}")

    async def change_stale(self) -> None:
        group = self.random.choice(GROUPS)
        hand = self.some(self.acked[group])
        if hand is not None:
            receipt = hand.popped.receipt
            answer = await self.clients[group].change(hand.popped, self.random.choice(INVISIBLE_MS))
            hand.popped.receipt = receipt
            if answer.code == ResponseCode.SUCCESS:
                self.breaks(GRANTED, hand.body.decode(), hand.life)
                del self.acked[group][hand.body]  # so it comes again, by the client's own wish
                self.doubtful[group].add(hand.body)

    async def advance(self) -> None:
        await asyncio.sleep(self.random.choice(WAITS_S))

    # In order

    async def pop_in_order(self) -> None:
        popped = await self.in_order.pop(
            self.random.choice((1, 2, 8)),
            queueId=self.random.choice((-1, 0, 1)),
            invisibleTime=self.random.choice(INVISIBLE_MS),
            order=True,
        )
        self.given += len(popped.messages)
        by_queue: dict[int, list[Popped]] = {}
        for message in popped.messages:
            by_queue.setdefault(message.receipt.queue_id, []).append(message)
        for queue_id, messages in by_queue.items():
            self.judge_order(queue_id, messages)

    def judge_order(self, queue_id: int, messages: list[Popped]) -> None:
        lane, at_ms = self.ordered[queue_id], messages[0].receipt.pop_time
        offsets = [message.receipt.queue_offset for message in messages]
        what = f"queue {queue_id}: {offsets}"
        blocking = [
            hand for offset, hand in lane.out.items() if offset not in lane.acked and hand.until_ms > at_ms + CLOSE_MS
        ]
        if blocking:
            early = max(hand.until_ms for hand in blocking) - at_ms
            self.breaks("in order: a blocked queue gave something out", f"{what}, {early} ms early", blocking[0].life)
        life = next(iter(lane.out.values())).life if lane.out else None
        if offsets[0] != lane.next:
            kind = "again after its ack" if offsets[0] < lane.next else "passed over"
            self.breaks(f"in order: {kind}", f"{what} and not from {lane.next}", life)
        if offsets != sorted(offsets):
            self.breaks("in order: not in order", what)
        lane.next = offsets[0]
        lane.out = {message.receipt.queue_offset: Hand(message, self.life) for message in messages}
        lane.acked = set()

    async def ack_in_order(self) -> None:
        lane = self.random.choice(self.ordered)
        for offset in self.random.sample(sorted(lane.out), self.random.randrange(len(lane.out) + 1)):
            hand = lane.out[offset]
            if self.wire.now_ms() >= hand.until_ms - CLOSE_MS:
                continue
            answer = await self.in_order.ack(hand.popped)
            if answer.code != ResponseCode.SUCCESS:
                self.breaks("in order: an ack in time is refused", f"{answer.code} {answer.remark}", hand.life)
                continue
            lane.acked.add(offset)
            left = [each for each in sorted(lane.out) if each not in lane.acked]
            lane.next = left[0] if left else max(lane.out) + 1

    async def change_in_order(self) -> None:
        lane = self.random.choice(self.ordered)
        left = [offset for offset in lane.out if offset not in lane.acked]
        if left:
            hand = lane.out[self.random.choice(left)]
            if self.wire.now_ms() < hand.until_ms - CLOSE_MS:
                receipt = hand.popped.receipt
                answer = await self.in_order.change(hand.popped, self.random.choice(INVISIBLE_MS))
                if answer.code != ResponseCode.SUCCESS:
                    self.breaks("in order: a change in time is refused", f"{answer.code} {answer.remark}", hand.life)
                # The receipt of a queue in order stays what it was; its time is another
                changed = hand.popped.receipt
                hand.popped.receipt = receipt._replace(
                    invisible_time=changed.pop_time + changed.invisible_time - receipt.pop_time
                )

    # Administration and accidents

    async def reset(self) -> None:
        """Back by a few messages: they may come again, whatever was done with them."""
        group, queue_id = self.random.choice(GROUPS), self.random.randrange(QUEUES)
        reached = self.reached.get((group, queue_id), 0)
        if not reached:
            return
        offset = self.random.randrange(max(0, reached - 10), reached)
        fields = {
            "topic": TOPIC, "group": group, "queueId": queue_id, "offset": offset, "timestamp": -1, "isForce": True,
        }  # fmt: skip
        answer = await self.wire.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        if answer.code != ResponseCode.SUCCESS:
            self.breaks("a reset is refused", f"{answer.code} {answer.remark}")
            return
        self.reached[group, queue_id] = offset
        for body in self.sent[TOPIC, queue_id][offset:]:
            for table in (self.open, self.over, self.acked):
                table[group].pop(body, None)
            self.doubtful[group].discard(body)
            self.doubled[group].add(body)

    async def restart(self) -> None:
        await asyncio.to_thread(self.target.restart)

    async def kill(self) -> None:
        await asyncio.to_thread(self.target.crash)
        self.life += 1

    # The end

    async def drain(self) -> None:
        """Everything that was sent must have been given out and acknowledged, to each group."""
        self.is_draining = True
        self.draining_since_ms = self.wire.now_ms()
        quiet_since = began = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S and time.monotonic() - began < LONGEST_DRAIN_S:
            for group in GROUPS:
                if await self.pop_for(group, -1, count=32, invisible_ms=30_000):
                    quiet_since = time.monotonic()
                for hand in [hand for hand in self.open[group].values() if hand.life == self.life]:
                    self.was_acked(group, [hand], await self.clients[group].ack(hand.popped))
            self.expire()
            if any(self.open.values()):
                quiet_since = time.monotonic()
            await asyncio.sleep(0.05)
        for group in GROUPS:
            for (topic, _), bodies in self.sent.items():
                for body in bodies if topic == TOPIC else ():
                    if body not in self.acked[group] and body not in self.doubtful[group]:
                        self.breaks("lost", f"{body.decode()} for {group}")


async def play(kind: str, seed: int, steps: int, folder: Path) -> WireDriver:
    with Target(kind, folder) as target:
        driver = WireDriver(target, seed)
        try:
            await driver.create()
            await driver.send()
            for _ in range(steps):
                await driver.step()
            await driver.drain()
        finally:
            await driver.wire.remoting.close()
        return driver


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=BROKERS, action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    is_ours_right = True
    for kind in options.on or BROKERS:
        broken: Counter[str] = Counter()
        examples: dict[str, str] = {}
        steps = given = latest_ms = kills = 0
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                driver = asyncio.run(play(kind, seed, options.steps, Path(folder)))
            broken += driver.broken
            for promise, example in driver.examples.items():
                examples.setdefault(promise, f"seed {seed}, {example}")
            steps, given, kills = steps + driver.asked, given + driver.given, kills + driver.life
            latest_ms = max(latest_ms, driver.latest_ms)
        print(f"{kind}: {steps} steps, {kills} kills, {given} messages given out, the latest {latest_ms} ms late")
        for promise, count in sorted(broken.items()):
            print(f"  {count:4} x {promise}; the first: {examples[promise]}", flush=True)
        if kind == "arrowmq":
            is_ours_right = all(
                name.startswith(("in order", GRANTED)) and name.endswith("after a kill") for name in broken
            )
    return 0 if is_ours_right else 1


if __name__ == "__main__":
    sys.exit(main())
