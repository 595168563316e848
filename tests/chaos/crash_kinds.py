"""What the crash machine's lanes do, kind by kind, and what the auditor finds of each kind afterwards.

A lane waits for each answer; without an answer a deed is in doubt, and counts neither as done nor as not done. What a
lane does next comes from its own chance alone, so a seed gives every lane the same deeds again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

from auditor import Auditor
from crash_calls import QUEUES, Calls
from popping import Popped, received

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.ids import parse_offset_message_id

BROKER = "broker-a"
COMMIT, ROLLBACK = 8, 12
INVISIBLE_MS = 10_000
PATIENCE_S = 90


class Kind:
    """`lanes` run until the calls are over; `judge` gives counts, of which those in `promised` are 0."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    lanes = 1
    promised: tuple[str, ...] = ()

    def __init__(self, calls: Calls, seed: int) -> None:
        self.calls, self.seed = calls, seed

    async def run(self, lane: int) -> None:
        chance = random.Random(f"{self.seed} {type(self).__name__} {lane}")
        client = RemotingClient()
        number = 0
        while not self.calls.is_over:
            number += 1
            await self.deed(client, chance, lane, number)
        await client.close()

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        raise NotImplementedError

    async def judge(self) -> dict[str, Any]:
        raise NotImplementedError


def named(chance: random.Random, lane: int, number: int) -> bytes:
    return b"%d-%d:" % (lane, number) + b"x" * chance.choice((0, 100, 2000))


class Orders(Kind):
    """One message after the other into one queue; a history of it goes to a checker."""

    topics = ("orders",)
    lanes = 6
    promised = ("lost", "lost at a replica")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.audit = Auditor()
        self.history: list[dict[str, Any]] = []
        self.replicas: list[str] = []  # who must have everything at the end, too
        self.fault = ""

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        body, queue_id, began_s = named(chance, lane, number), lane % QUEUES, time.monotonic()
        self.audit.sent.add(body)
        answer = await self.calls.send(client, "orders", queue_id, body)
        call = {"process": lane, "queue": queue_id, "value": _name(body), "call": began_s}
        if answer is not None:
            offset = int(answer.ext["queueOffset"])
            self.audit.acknowledge(str(lane), body, (BROKER, queue_id), offset)
            call |= {"return": time.monotonic(), "offset": offset}
        self.history.append(call)

    def ends(self) -> dict[int, int]:
        """Behind the last acknowledged message of each queue."""
        found: dict[int, int] = {}
        for (_, queue_id), offset in self.audit.acknowledged.values():
            found[queue_id] = max(found.get(queue_id, 0), offset + 1)
        return found

    async def found(self, at: str | None = None) -> dict[tuple[str, int], list[bytes]]:
        return {
            (BROKER, queue_id): [record.body for record in await self.calls.read("orders", queue_id, at)]
            for queue_id in range(QUEUES)
        }

    def _lost(self, found: dict[tuple[str, int], list[bytes]]) -> int:
        acknowledged = self.audit.acknowledged.items()
        return sum(1 for body, (queue, at) in acknowledged if found[queue][at : at + 1] != [body])

    async def judge(self) -> dict[str, Any]:
        found = await self.found()
        self._resolve(found)
        try:
            self.audit.check_stored(found)
        except AssertionError as failure:
            self.fault = str(failure)[:200]
        return {
            "acknowledged": len(self.audit.acknowledged),
            "lost": self._lost(found),
            "lost at a replica": sum([self._lost(await self.found(at)) for at in self.replicas]),
        }

    def _resolve(self, found: dict[tuple[str, int], list[bytes]]) -> None:
        """Of calls without an answer, those count that are found, with an answer at the end; and the reads of all."""
        end_s = time.monotonic()
        places = {(queue, _name(body)): at for (_, queue), bodies in found.items() for at, body in enumerate(bodies)}
        for call in self.history:
            if "return" not in call and (at := places.get((call["queue"], call["value"]))) is not None:
                call |= {"return": end_s, "offset": at}
        self.history = [call for call in self.history if "return" in call]
        for (queue, name), at in places.items():
            read = {"kind": "read", "process": self.lanes, "queue": queue, "value": name, "offset": at}
            self.history.append({**read, "call": end_s, "return": end_s + 1})


class Readers(Kind):
    """A group that reads the orders from its stored offsets on, stores how far it got, and asks what is stored."""

    groups = ("readers",)
    promised = ("unread", "offset past")
    lanes = QUEUES

    def __init__(self, calls: Calls, seed: int, orders: Orders) -> None:
        super().__init__(calls, seed)
        self.orders = orders
        self.delivered: Counter[bytes] = Counter()
        self.consumed = [0] * QUEUES  # behind what was handled, queue by queue
        self.past = 0

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        await self._read(client, lane)
        await asyncio.sleep(chance.uniform(0, 0.05))

    async def _read(self, client: RemotingClient, queue_id: int) -> None:
        place = {"consumerGroup": "readers", "topic": "orders", "queueId": queue_id}
        stored = await self.calls.ask(client, RequestCode.QUERY_CONSUMER_OFFSET, place)
        if stored is None or stored.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return
        offset = int(stored.ext["offset"]) if stored.code == ResponseCode.SUCCESS else 0
        self.past += offset > self.consumed[queue_id]
        for _ in range(20):
            records = await self.calls.pull(client, "orders", queue_id, offset)
            if not records:
                return
            self.delivered.update(record.body for record in records)
            offset += len(records)
            self.consumed[queue_id] = max(self.consumed[queue_id], offset)
            await self.calls.done(client, RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": offset})

    async def judge(self) -> dict[str, Any]:
        client, deadline = RemotingClient(), time.monotonic() + PATIENCE_S
        wanted = set(self.orders.audit.acknowledged)
        while not wanted <= set(self.delivered) and time.monotonic() < deadline:
            for queue_id in range(QUEUES):
                await self._read(client, queue_id)
        await client.close()
        return {
            "unread": len(wanted - set(self.delivered)),
            "offset past": self.past,
            "read again": sum(count - 1 for count in self.delivered.values()),
        }


class Delays(Kind):
    topics = ("later",)
    promised = ("delayed lost", "delayed twice")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.delayed: set[bytes] = set()

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        body = named(chance, lane, number)
        if await self.calls.send(client, "later", 0, body, properties=f"DELAY\x01{chance.choice((1, 2, 3))}\x02"):
            self.delayed.add(body)
        await asyncio.sleep(0.01)

    async def judge(self) -> dict[str, Any]:
        found = await settled(self.calls, "later", self.delayed)
        return {
            "delayed": len(self.delayed),
            "delayed lost": len(self.delayed - set(found)),
            "delayed twice": sum(1 for count in found.values() if count > 1),
        }


class Deals(Kind):
    """Transactions, decided by their sender."""

    topics = ("deals",)
    promised = ("committed lost", "committed twice", "rolled back there")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.fates: dict[bytes, int] = {}  # whose end was answered

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        body, how = named(chance, lane, number), chance.choice((COMMIT, ROLLBACK))
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01deal-{lane}-{number}\x02"
        half = await self.calls.send(client, "deals", 0, body, sysFlag=4, properties=properties)
        if half is None:
            return
        header = {
            "producerGroup": "P", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": how,
            "commitLogOffset": parse_offset_message_id(half.ext["msgId"]).physical_offset, "msgId": "",
            "fromTransactionCheck": "false", "transactionId": half.ext.get("transactionId", ""),
        }  # fmt: skip
        if await self.calls.done(client, RequestCode.END_TRANSACTION, header):
            self.fates[body] = how

    async def judge(self) -> dict[str, Any]:
        committed = {body for body, how in self.fates.items() if how == COMMIT}
        found = await settled(self.calls, "deals", committed)
        return {
            "decided": len(self.fates),
            "committed lost": len(committed - set(found)),
            "committed twice": sum(1 for count in found.values() if count > 1),
            "rolled back there": sum(1 for body, how in self.fates.items() if how == ROLLBACK and found[body]),
        }


class Timers(Kind):
    """Messages for a moment, some of which are taken back."""

    topics = ("timed",)
    promised = ("timers lost", "timers twice", "timers early", "recalled there")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.due_ms: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.in_doubt: set[bytes] = set()

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        body, is_recalled = named(chance, lane, number), chance.random() < 0.3
        due_ms = int(time.time() * 1000) + chance.randrange(3000, 8000)
        properties = f"TIMER_DELIVER_MS\x01{due_ms}\x02UNIQ_KEY\x01timer{lane:04x}{number:022x}\x02"
        answer = await self.calls.send(client, "timed", 0, body, properties=properties)
        if answer is not None:
            self.due_ms[body] = due_ms
            handle = answer.ext.get("recallHandle")
            if is_recalled and handle is not None:
                header = {"producerGroup": "P", "topic": "timed", "recallHandle": handle}
                taken_back = await self.calls.done(client, RequestCode.RECALL_MESSAGE, header)
                (self.in_doubt if taken_back is None else self.recalled).add(body)
        await asyncio.sleep(chance.uniform(0, 0.04))

    async def judge(self) -> dict[str, Any]:
        wanted = set(self.due_ms) - self.recalled - self.in_doubt
        await asyncio.sleep(max(0.0, max(self.due_ms.values(), default=0) / 1000 + 2 - time.time()))
        found = await settled(self.calls, "timed", wanted)
        records = await self.calls.read("timed")
        early = [record for record in records if record.store_timestamp < self.due_ms.get(record.body, 0) - 1000]
        return {
            "timers": len(self.due_ms),
            "timers lost": len(wanted - set(found)),
            "timers twice": sum(1 for count in found.values() if count > 1),
            "timers early": len(early),
            "recalled": len(self.recalled),
            "recalled there": sum(1 for body in self.recalled if found[body]),
        }


class Pops(Kind):
    """Messages that are popped and acknowledged; lane 0 sends, the others pop."""

    topics = ("popped",)
    groups = ("poppers",)
    lanes = 3
    promised = ("never popped", "popped after ack")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.sent: set[bytes] = set()
        self.popped: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.again = 0

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        if lane == 0:
            body = named(chance, lane, number)
            if await self.calls.send(client, "popped", number % QUEUES, body):
                self.sent.add(body)
            await asyncio.sleep(0.01)
        else:
            await self._pop(client, 0.8, chance)
            await asyncio.sleep(chance.uniform(0, 0.05))

    async def _pop(self, client: RemotingClient, share: float, chance: random.Random) -> None:
        header = {
            "consumerGroup": "poppers", "topic": "popped", "queueId": -1, "maxMsgNums": 16, "pollTime": 0,
            "invisibleTime": INVISIBLE_MS, "bornTime": int(time.time() * 1000), "initMode": 0, "order": "false",
            "expType": "TAG", "exp": "*",
        }  # fmt: skip
        began_s = time.monotonic()
        acked_before = set(self.acked)  # of others: an ack may be answered while this pop is under way
        answer = await self.calls.ask(client, RequestCode.POP_MESSAGE, header)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.05)
            return
        try:
            messages = received(answer, "popped", "poppers").messages
        except (AssertionError, KeyError):  # offsets that do not belong to the records
            self.calls.counts["pops that contradict themselves"] += 1
            return
        for message in messages:
            self.again += message.body in acked_before
            self.popped.add(message.body)
            if chance.random() < share and await self.calls.done(client, RequestCode.ACK_MESSAGE, ack_of(message)):
                # An ack that came late does not count: the message may have been given to another by then.
                in_time = time.monotonic() < began_s + INVISIBLE_MS / 1000 - 3
                self.acked |= {message.body} if in_time else set()

    async def judge(self) -> dict[str, Any]:
        client, chance = RemotingClient(), random.Random(0)
        began_s = time.monotonic()
        while time.monotonic() < began_s + PATIENCE_S:
            await self._pop(client, 1.0, chance)
            # Longer than anything is invisible, so that what was acknowledged would have come again by then.
            if self.sent <= self.popped and time.monotonic() > began_s + INVISIBLE_MS / 1000 + 4:
                break
        await client.close()
        return {
            "popped": len(self.popped),
            "never popped": len(self.sent - self.popped),
            "acked": len(self.acked),
            "popped after ack": self.again,
        }


def ack_of(message: Popped) -> dict[str, Any]:
    receipt = message.receipt
    prefix = {"0": "", "1": f"%RETRY%{message.group}_", "2": f"%RETRY%{message.group}+"}[receipt.retry_flag]
    return {
        "consumerGroup": message.group, "topic": prefix + message.topic, "queueId": receipt.queue_id,
        "offset": receipt.queue_offset, "extraInfo": receipt.encode(),
    }  # fmt: skip


class Resets(Kind):
    """The offset of a group that nobody runs, set again and again; what was answered is what is found."""

    groups = ("resetters",)
    promised = ("resets lost",)

    def __init__(self, calls: Calls, seed: int, orders: Orders) -> None:
        super().__init__(calls, seed)
        self.orders = orders
        self.done = self.lost = 0
        self._may_be: set[int] | None = None  # after an answer one offset; in doubt, the one before as well

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        await self._look(client)
        end = self.orders.ends().get(0, 0)
        if end:
            offset = chance.randrange(end)
            header = {
                "topic": "orders", "group": "resetters", "queueId": 0, "offset": offset, "timestamp": -1,
                "isForce": "true",
            }  # fmt: skip
            before = self._may_be or {-1}
            self._may_be = before | {offset}
            if await self.calls.done(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header):
                self._may_be = {offset}
                self.done += 1
        await asyncio.sleep(chance.uniform(0.05, 0.2))

    async def _look(self, client: RemotingClient) -> None:
        place = {"consumerGroup": "resetters", "topic": "orders", "queueId": 0}
        answer = await self.calls.ask(client, RequestCode.QUERY_CONSUMER_OFFSET, place)
        if answer is None or self._may_be is None:
            return
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return
        # A group without an offset is answered with 0 while the queue begins there.
        found = int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else -1
        if found not in self._may_be and not (found == 0 and -1 in self._may_be):
            self.lost += 1
            self._may_be = {found}

    async def judge(self) -> dict[str, Any]:
        client = RemotingClient()
        await self._look(client)
        await client.close()
        return {"resets": self.done, "resets lost": self.lost}


class Topics(Kind):
    """Topics that are made, used and deleted: a deleted one stays away, the others keep what they were sent."""

    promised = ("deleted there", "made lost", "of made ones lost")

    def __init__(self, calls: Calls, seed: int) -> None:
        super().__init__(calls, seed)
        self.made: dict[str, set[bytes]] = {}
        self.deleted: set[str] = set()

    async def deed(self, client: RemotingClient, chance: random.Random, lane: int, number: int) -> None:
        topic, ends = f"short-lived-{number}", chance.random() < 0.7
        if await self.calls.make_topic(client, topic, 1):
            self.made[topic] = set()
            for each in range(chance.randrange(1, 6)):
                body = named(chance, number, each)
                if await self.calls.send(client, topic, 0, body):
                    self.made[topic].add(body)
            if ends:
                del self.made[topic]  # in doubt until the answer
                if await self.calls.done(client, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}):
                    self.deleted.add(topic)
        await asyncio.sleep(chance.uniform(0.1, 0.4))

    async def _exists(self, client: RemotingClient, topic: str) -> bool:
        for _ in range(20):
            answer = await self.calls.ask(client, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
            if answer is not None:
                return answer.code == ResponseCode.SUCCESS
        raise AssertionError("the broker does not answer")

    async def judge(self) -> dict[str, Any]:
        client = RemotingClient()
        there = [topic for topic in sorted(self.deleted) if await self._exists(client, topic)]
        missing = [topic for topic in sorted(self.made) if not await self._exists(client, topic)]
        await client.close()
        lost = 0
        for topic, bodies in self.made.items():
            lost += (
                len(bodies - {record.body for record in await self.calls.read(topic)}) if topic not in missing else 0
            )
        return {
            "topics made": len(self.made),
            "made lost": len(missing),
            "of made ones lost": lost,
            "topics deleted": len(self.deleted),
            "deleted there": len(there),
        }


async def settled(calls: Calls, topic: str, wanted: set[bytes]) -> Counter[bytes]:
    """The bodies of a topic once all that are wanted are there, or after some patience."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = Counter(record.body for record in await calls.read(topic))
        if wanted <= set(found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def _name(body: bytes) -> str:
    return body.partition(b":")[0].decode()
