"""Random operations of a seed, played against one broker in the protocol itself, with everything it answers noted.

Both brokers get the same requests in the same order: the player decides by its seed alone, never by what it is told.
Before it reads, it waits until the broker has dispatched what it has stored, so that reading is not a matter of luck.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.properties import encode_properties, properties_text
from arrowmq.wire.records import Record, decode_records
from oracle.raw import Asking

QUEUES = 3
PLAIN = ["plain-0", "plain-1", "plain-2"]
CHANGING = ["changing-0", "changing-1", "changing-2"]
ORDERED, DELAYED, DECIDED = "ordered", "delayed", "decided"
FIXED = [*PLAIN, ORDERED, DELAYED, DECIDED]
GROUPS = ["group-0", "group-1", "group-2"]
TAGS = ["TagA", "TagB", "Aa", "BB"]  # the last two have one hash
SUBSCRIPTIONS = [("*", "TAG"), ("TagA", "TAG"), ("TagA || TagB", "TAG"), ("Aa", "TAG"), ("none", "TAG")]
EXPRESSIONS = [
    "n > 5",
    "n BETWEEN 2 AND 7 AND city IS NOT NULL",
    "city IN ('Zürich', 'Bern')",
    "NOT (n = 1)",
    "n >= 7.5",
    "TAGS = 'TagA' OR n = 'x'",
]
# How often each deed is done, out of all of them.
WEIGHTS = {
    "send": 24, "batch": 8, "ordered": 10, "delay": 8, "timer": 3, "transact": 10, "send_back": 8, "commit": 6,
    "reset": 4, "consume": 10, "pull": 6, "query": 5, "topic": 4, "delete_topic": 2, "to_changing": 5, "group": 2,
    "refused": 3,
}  # fmt: skip
LETTERS = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
# These name the broker itself or the moment.
OF_THE_BROKER = {"ORIGIN_MESSAGE_ID", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_OUT_MS", "DLQ_ORIGIN_MESSAGE_ID"}
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def facts(record: Record) -> tuple[Any, ...]:
    """What a consumer can see of a message that is not a matter of place and time."""
    properties = {name: value for name, value in record.properties.items() if name not in OF_THE_BROKER}
    seen = (record.body, record.flag, record.sys_flag, record.reconsume_times, record.born_timestamp)
    return (*seen, tuple(sorted(properties.items())))


class Player:
    def __init__(self, address: str, seed: int) -> None:
        self.seed = seed
        self.asking = Asking(address)
        self.ask = self.asking.ask
        self.chance = random.Random(seed)
        self.places: list[int] = []
        self.notes: list[Any] = []
        self.saw: dict[str, list[Any]] = {}  # by group, topic and queue
        self.due: Counter[str] = Counter()  # how many messages each topic must have in the end
        self.done: Counter[str] = Counter()
        self.ends: dict[tuple[str, int], int] = {}  # of queues, as far as not yet seen

    async def play(self, operations: int) -> None:
        for topic in FIXED:
            assert (await self._make(topic, QUEUES)).code == 0
        for group in GROUPS:
            assert (await self._make_group(group)).code == 0
        deeds = random.Random(self.seed).choices(list(WEIGHTS), list(WEIGHTS.values()), k=operations)
        for number, deed in enumerate(deeds):
            self.done[deed] += 1
            self.notes.append((number, deed, await getattr(self, f"_{deed}")(number)))

    # Messages

    def _message(self, number: int, **more: str) -> dict[str, str]:
        chance = self.chance
        properties = {"UNIQ_KEY": f"{self.seed:024X}{number:08X}", "n": str(chance.choice([1, 2, 5, 7, "7.5", "x"]))}
        if chance.random() < 0.7:
            properties["TAGS"] = chance.choice(TAGS)
        if chance.random() < 0.5:
            properties["KEYS"] = f"key-{number} order-{number % 10}"
        if chance.random() < 0.5:
            properties["city"] = chance.choice(["Zürich", "Bern", "北京"])
        return {**properties, **more}

    async def _put(self, topic: str, body: bytes, properties: dict[str, str], **more: Any) -> Command:
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": self.chance.randrange(QUEUES), "sysFlag": 0, "bornTimestamp": 1_700_000_000_000,
            "flag": self.chance.randrange(9), "properties": properties_text(properties), "reconsumeTimes": 0,
            "unitMode": False, "batch": False, **more,
        }  # fmt: skip
        code = RequestCode.SEND_MESSAGE
        if header["batch"] or self.chance.random() < 0.5:
            code = RequestCode.SEND_BATCH_MESSAGE if header["batch"] else RequestCode.SEND_MESSAGE_V2
            header = {LETTERS[name]: value for name, value in header.items()}
        answer = await self.ask(code, header, body)
        if answer.code == 0 and topic not in (DELAYED, DECIDED):
            count = answer.ext["msgId"].count(",") + 1
            self.ends[topic, int(answer.ext["queueId"])] = int(answer.ext["queueOffset"]) + count
        return answer

    @staticmethod
    def _place(answer: Command) -> Any:
        return answer.code, answer.ext.get("queueId"), answer.ext.get("queueOffset")

    async def _send(self, number: int) -> Any:
        topic = self.chance.choice(PLAIN)
        answer = await self._put(topic, b"message %d" % number, self._message(number))
        self.due[topic] += 1
        self.places.append(parse_offset_message_id(answer.ext["msgId"]).physical_offset)
        return self._place(answer)

    async def _batch(self, number: int) -> Any:
        items = [
            (index, b"batch %d %d" % (number, index), encode_properties(self._message(number * 100 + index)))
            for index in range(self.chance.randint(1, 5))
        ]
        topic = self.chance.choice(PLAIN)
        self.due[topic] += len(items)
        return self._place(await self._put(topic, encode_batch(items), {}, batch=True))

    async def _ordered(self, number: int) -> Any:
        key = self.chance.randrange(7)
        properties = self._message(number, __SHARDINGKEY=str(key))
        self.due[ORDERED] += 1
        return self._place(await self._put(ORDERED, b"ordered %d %d" % (key, number), properties, queueId=key % QUEUES))

    async def _delay(self, number: int) -> Any:
        level = self.chance.choice(["1", "1", "2", "18", "99"])
        answer = await self._put(DELAYED, b"delayed %d" % number, self._message(number, DELAY=level))
        self.due[DELAYED] += level in "12"
        return self._place(answer)

    async def _timer(self, number: int) -> Any:
        seconds = self.chance.choice(["2", "3", "3600", "99999999"])
        answer = await self._put(DELAYED, b"timer %d" % number, self._message(number, TIMER_DELAY_SEC=seconds))
        self.due[DELAYED] += seconds in "23"
        return answer.code, answer.ext.get("queueId")

    async def _transact(self, number: int) -> Any:
        properties = self._message(number, TRAN_MSG="true", PGROUP="P")
        answer = await self._put(DECIDED, b"decided %d" % number, properties, sysFlag=4)
        how = self.chance.choice([COMMIT, COMMIT, ROLLBACK, UNKNOWN])
        header = {
            "producerGroup": "P", "tranStateTableOffset": answer.ext["queueOffset"],
            "commitLogOffset": parse_offset_message_id(answer.ext["msgId"]).physical_offset,
            "commitOrRollback": how, "fromTransactionCheck": False,
            "msgId": properties["UNIQ_KEY"], "transactionId": properties["UNIQ_KEY"],
        }  # fmt: skip
        self.due[DECIDED] += how == COMMIT
        if how == UNKNOWN:
            return self._place(answer)
        return self._place(answer), (await self.ask(RequestCode.END_TRANSACTION, header)).code

    async def _send_back(self, number: int) -> Any:
        if not self.places:
            return None
        header = {
            "offset": self.chance.choice(self.places), "group": self.chance.choice(GROUPS),
            "delayLevel": self.chance.choice([-1, 0, 1, 2, 18]), "originTopic": "", "unitMode": False,
            "maxReconsumeTimes": self.chance.choice([16, 16, 0]),
        }  # fmt: skip
        answer = await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        if answer.code == 0:
            is_dead = header["delayLevel"] < 0 or header["maxReconsumeTimes"] == 0
            if is_dead or header["delayLevel"] != 18:
                self.due[("%DLQ%" if is_dead else "%RETRY%") + header["group"]] += 1
        return answer.code

    async def _refused(self, number: int) -> Any:
        """What both must refuse, with the same code, and store nothing of.

        Two answers differ and are not played: an empty body (1, where we say MESSAGE_ILLEGAL) and a pull with an
        expression that is none (which Apache's broker answers as if nothing matched, where we say what is wrong).
        """
        properties = self._message(number)
        case = self.chance.randrange(4)
        if case == 0:
            answer = await self._put("SCHEDULE_TOPIC_XXXX", b"x", properties)
        elif case == 1:
            answer = await self._put(PLAIN[0], b"x", properties, queueId=99)
        elif case == 2:
            answer = await self._put("no such ! topic", b"x", properties)
        else:
            answer = await self._put(PLAIN[0], b"x" * (5 << 20), properties)
        return case, answer.code

    # Offsets and groups

    async def _commit(self, number: int) -> Any:
        header = {
            "consumerGroup": self.chance.choice([*GROUPS, "unknown"]), "topic": self.chance.choice([*PLAIN, "missing"]),
            "queueId": self.chance.randrange(QUEUES), "commitOffset": self.chance.randrange(40),
        }  # fmt: skip
        return (await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code

    async def _reset(self, number: int) -> Any:
        await self._dispatched()
        header = {
            "topic": self.chance.choice(PLAIN), "group": self.chance.choice(GROUPS),
            "timestamp": self.chance.choice([-1, 0]), "isForce": self.chance.random() < 0.5, "queueId": -1,
            "offset": -1,
        }  # fmt: skip
        answer = await self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return answer.code

    async def _make_group(self, group: str, **more: Any) -> Command:
        body = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1, **more}
        return await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(body).encode())

    async def _group(self, number: int) -> Any:
        group = self.chance.choice(["group-x", "group-y"])
        if self.chance.random() < 0.6:
            more = {"retryMaxTimes": self.chance.randrange(20), "consumeBroadcastEnable": self.chance.random() < 0.5}
            return (await self._make_group(group, **more)).code
        # Apache 5.5.0 makes a group anew, with default settings, in the request that deletes it without its offsets.
        header = {"groupName": group, "cleanOffset": True}
        return (await self.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code

    # Topics

    async def _make(self, topic: str, queues: int, perm: int = 6, **more: Any) -> Command:
        header = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, **more,
        }  # fmt: skip
        return await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def _topic(self, number: int) -> Any:
        topic, queues = self.chance.choice(CHANGING), self.chance.randint(1, 4)
        more: dict[str, Any] = {"order": self.chance.random() < 0.3}
        if self.chance.random() < 0.3:
            more["attributes"] = self.chance.choice(["+message.type=FIFO", "+message.type=NORMAL", "+nonsense=1"])
        return (await self._make(topic, queues, self.chance.choice([6, 6, 4, 2]), **more)).code

    async def _delete_topic(self, number: int) -> Any:
        await self._dispatched()
        topic = self.chance.choice(CHANGING)
        return (await self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code

    async def _to_changing(self, number: int) -> Any:
        """To a topic that may not be there, may be too narrow, or may not take messages."""
        answer = await self._put(self.chance.choice(CHANGING), b"changing %d" % number, self._message(number))
        return self._place(answer)

    # Reading

    async def _dispatched(self) -> None:
        """Waits until every queue is as long as the answers to our sends say."""
        while self.ends:
            (topic, queue_id), end = next(iter(self.ends.items()))
            if await self.asking.maximum(topic, queue_id) >= end:
                del self.ends[topic, queue_id]

    def _how(self) -> tuple[str, str]:
        if self.chance.random() < 0.5:
            return self.chance.choice(SUBSCRIPTIONS)
        return self.chance.choice(EXPRESSIONS), "SQL92"

    async def _pull(self, number: int) -> Any:
        await self._dispatched()
        topic, queue_id = self.chance.choice([*PLAIN, ORDERED, "missing"]), self.chance.randrange(QUEUES + 1)
        offset = self.chance.choice([self.chance.randrange(160), 10_000, -1])
        how = self._how()
        answer = await self.asking.pull(topic, queue_id, offset, *how)
        bodies = [record.body for record in decode_records(answer.body)] if answer.code == 0 else []
        limits = {name: answer.ext.get(name) for name in ("nextBeginOffset", "minOffset", "maxOffset")}
        return topic, queue_id, offset, how, answer.code, limits, bodies

    async def _consume(self, number: int) -> Any:
        """A group goes on in a queue where it stopped, sees some messages and commits."""
        await self._dispatched()
        group, topic, queue_id = self.chance.choice(GROUPS), self.chance.choice([*PLAIN, ORDERED]), number % QUEUES
        header = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False}
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        offset = int(answer.ext.get("offset", 0)) if answer.code == 0 else 0
        how = (
            self.chance.choice(SUBSCRIPTIONS)
            if self.chance.random() < 0.5
            else (self.chance.choice(EXPRESSIONS), "SQL92")
        )
        header = {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": self.chance.choice([1, 8, 32]), "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subVersion": 0, "subscription": how[0], "expressionType": how[1],
        }  # fmt: skip
        pulled = await self.ask(RequestCode.PULL_MESSAGE, header)
        records = decode_records(pulled.body) if pulled.code == 0 else []
        self.saw.setdefault(f"{group} {topic} {queue_id}", []).extend(facts(record) for record in records)
        following = pulled.ext.get("nextBeginOffset")
        if following is not None:
            done = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": following}
            await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, done)
        return answer.code, offset, how, pulled.code, following, len(records)

    async def _query(self, number: int) -> Any:
        await self._dispatched()
        about = self.chance.randrange(max(1, number))
        key = self.chance.choice([f"key-{about}", f"order-{about % 10}", f"{self.seed:024X}{about:08X}", "no such key"])
        header = {
            "topic": self.chance.choice([*PLAIN, ORDERED]), "key": key, "maxNum": self.chance.choice([2, 32]),
            "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1,
        }  # fmt: skip
        if key.startswith("0"):
            header["_UNIQUE_KEY_QUERY"] = True
        answer = await self.ask(RequestCode.QUERY_MESSAGE, header)
        bodies = [record.body for record in decode_records(answer.body)] if answer.code == 0 else []
        return key, answer.code, bodies

    # In the end

    async def settle(self) -> None:
        """Waits until as many messages are in each topic as must come; the test's time-out ends it otherwise."""
        for topic, count in self.due.items():
            queues = QUEUES if topic in FIXED else 1
            while sum([await self.asking.maximum(topic, queue_id) for queue_id in range(queues)]) < count:
                pass  # every question is a way to the broker and back

    async def observe(self) -> dict[str, Any]:
        held: dict[str, Any] = {f"{group}": seen for group, seen in self.saw.items()}
        for number, deed, note in self.notes:
            held[f"operation {number}, {deed}"] = note
        for topic in [*PLAIN, ORDERED, DECIDED, *CHANGING]:
            for queue_id in range(QUEUES + 1):
                held[f"{topic} {queue_id}"] = list(map(facts, await self.asking.contents(topic, queue_id)))
        for group in GROUPS:
            held[f"dead letters of {group}"] = list(map(facts, await self.asking.contents(f"%DLQ%{group}", 0)))
            # What waited comes in the order of the clock, which is each broker's own.
            held[f"retries of {group}"] = Counter(map(facts, await self.asking.contents(f"%RETRY%{group}", 0)))
        for queue_id in range(QUEUES):
            held[f"delayed {queue_id}"] = Counter(map(facts, await self.asking.contents(DELAYED, queue_id)))
        for level in range(18):
            waiting = await self.asking.contents("SCHEDULE_TOPIC_XXXX", level)
            held[f"schedule {level}"] = list(map(facts, waiting))
        held["half messages"] = list(map(facts, await self.asking.contents("RMQ_SYS_TRANS_HALF_TOPIC", 0)))
        return held

    async def close(self) -> None:
        await self.asking.client.close()
