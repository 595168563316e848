"""The same random operations against Apache's broker and ours, and what both then hold, queue by queue.

The operations speak the protocol directly, so that both brokers get the same bytes in the same order: sends with tags,
keys and properties, batches, delays, transactions, messages sent back, committed offsets. Then the queues are read,
whole and by random pulls with tag and SQL92 filters, and everything that a consumer could see is compared.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle.target import CONFIG, Target

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frame import Command
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.properties import encode_properties, properties_text
from arrowmq.wire.record import decode_records

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SEED = int(os.environ.get("ARROWMQ_SEED", "20260731"))
WRITES, READS = 1500, 500
QUEUES = 3
PLAIN = ["plain-0", "plain-1", "plain-2"]
DELAYED, DECIDED = "delayed", "decided"
TOPICS = [*PLAIN, DELAYED, DECIDED]
GROUPS = ["group-0", "group-1"]
EXPRESSIONS = [
    "n > 5",
    "n BETWEEN 2 AND 7 AND city IS NOT NULL",
    "city IN ('Zürich', 'Bern')",
    "NOT (n = 1)",
    "n >= 7.5",
]
# These name the broker itself or the moment.
OF_THE_BROKER = {"ORIGIN_MESSAGE_ID"}


class Player:
    """Plays the operations of a seed against one broker and notes what it answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.chance = random.Random(SEED)
        self.client = RemotingClient()
        self.places: list[int] = []
        self.answers: list[Any] = []
        self.due: Counter[str] = Counter()  # how many messages each topic must have in the end

    async def ask(self, code: int, header: dict[str, Any], body: bytes = b"") -> Command:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in header.items()}
        return await self.client.invoke(self.address, Command.request(code, texts, body), 60)

    async def play(self) -> None:
        for topic in TOPICS:
            header = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
            }  # fmt: skip
            assert (await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
        deeds = [self.send, self.send, self.send, self.batch, self.delay, self.transact, self.send_back, self.commit]
        for number in range(WRITES):
            await self.chance.choice(deeds)(number)

    # Writing

    def message(self, number: int, **more: str) -> dict[str, str]:
        chance = self.chance
        properties = {"UNIQ_KEY": f"{SEED:024X}{number:08X}", "n": str(chance.choice([1, 2, 5, 7, "7.5", "x"]))}
        if chance.random() < 0.7:
            properties["TAGS"] = chance.choice(["TagA", "TagB", "Aa", "BB"])  # the last two have one hash
        if chance.random() < 0.5:
            properties["KEYS"] = f"key-{number} order-{number % 10}"
        if chance.random() < 0.5:
            properties["city"] = chance.choice(["Zürich", "Bern", "北京"])
        return {**properties, **more}

    async def put(self, topic: str, body: bytes, properties: dict[str, str], **more: Any) -> Command:
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": self.chance.randrange(QUEUES), "sysFlag": 0, "bornTimestamp": 1_700_000_000_000,
            "flag": self.chance.randrange(9), "properties": properties_text(properties), "reconsumeTimes": 0,
            "unitMode": False, "batch": False, **more,
        }  # fmt: skip
        code = RequestCode.SEND_BATCH_MESSAGE if more.get("batch") else RequestCode.SEND_MESSAGE
        if more.get("batch"):
            letters = {
                "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
                "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j",
                "unitMode": "k", "batch": "m",
            }  # fmt: skip
            header = {letters[name]: value for name, value in header.items()}
        answer = await self.ask(code, header, body)
        self.answers.append((answer.code, answer.ext.get("queueId"), answer.ext.get("queueOffset")))
        return answer

    async def send(self, number: int) -> None:
        topic = self.chance.choice(PLAIN)
        answer = await self.put(topic, b"message %d" % number, self.message(number))
        self.due[topic] += 1
        self.places.append(parse_offset_message_id(answer.ext["msgId"]).physical_offset)

    async def batch(self, number: int) -> None:
        items = [
            (index, b"batch %d %d" % (number, index), encode_properties(self.message(number * 100 + index)))
            for index in range(self.chance.randint(1, 5))
        ]
        topic = self.chance.choice(PLAIN)
        await self.put(topic, encode_batch(items), {}, batch=True)
        self.due[topic] += len(items)

    async def delay(self, number: int) -> None:
        level = self.chance.choice(["1", "1", "2", "18", "99"])
        properties = self.message(number, DELAY=level)
        answer = await self.put(DELAYED, b"delayed %d" % number, properties)
        assert answer.code == 0
        self.due[DELAYED] += level in "12"
        self.answers.pop()  # the place in the schedule depends on how many retries wait before it
        self.answers.append((answer.code, answer.ext["queueId"]))

    async def transact(self, number: int) -> None:
        properties = self.message(number, TRAN_MSG="true", PGROUP="P")
        answer = await self.put(DECIDED, b"decided %d" % number, properties, sysFlag=4)
        header = {
            "producerGroup": "P", "tranStateTableOffset": answer.ext["queueOffset"],
            "commitLogOffset": parse_offset_message_id(answer.ext["msgId"]).physical_offset,
            "commitOrRollback": self.chance.choice([8, 12]), "fromTransactionCheck": False,
            "msgId": properties["UNIQ_KEY"], "transactionId": properties["UNIQ_KEY"],
        }  # fmt: skip
        self.due[DECIDED] += header["commitOrRollback"] == 8
        self.answers.append((await self.ask(RequestCode.END_TRANSACTION, header)).code)

    async def send_back(self, number: int) -> None:
        if not self.places:
            return
        header = {
            "offset": self.chance.choice(self.places), "group": self.chance.choice(GROUPS),
            "delayLevel": self.chance.choice([-1, 1, 2, 18]), "originTopic": "", "unitMode": False,
        }  # fmt: skip
        answer = await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == 0, answer.remark
        if header["delayLevel"] != 18:
            self.due[("%DLQ%" if header["delayLevel"] < 0 else "%RETRY%") + header["group"]] += 1

    async def commit(self, number: int) -> None:
        header = {
            "consumerGroup": self.chance.choice(GROUPS), "topic": self.chance.choice(PLAIN),
            "queueId": self.chance.randrange(QUEUES), "commitOffset": number,
        }  # fmt: skip
        # A group that nobody has used yet is unknown to both.
        self.answers.append((await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code)

    # Reading

    async def maximum(self, topic: str, queue_id: int) -> int:
        return int((await self.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})).ext["offset"])

    async def pull(self, topic: str, queue_id: int, offset: int, subscription: str, kind: str = "TAG") -> Command:
        header = {
            "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
            "subscription": subscription, "expressionType": kind,
        }  # fmt: skip
        return await self.ask(RequestCode.PULL_MESSAGE, header)

    async def contents(self, topic: str, queues: int) -> list[list[Any]]:
        found = []
        for queue_id in range(queues):
            seen: list[Any] = []
            while True:
                answer = await self.pull(topic, queue_id, len(seen), "*")
                if answer.code != 0:
                    break
                for record in decode_records(answer.body):
                    properties = {k: v for k, v in record.properties.items() if k not in OF_THE_BROKER}
                    facts = (record.body, record.flag, record.sys_flag, record.reconsume_times, record.born_timestamp)
                    seen.append((*facts, tuple(sorted(properties.items()))))
            found.append(seen)
        return found

    async def settle(self) -> None:
        """Waits until as many messages are in each topic as must come; the test's time-out ends it otherwise."""
        for topic, count in self.due.items():
            queues = QUEUES if topic in TOPICS else 1
            while sum([await self.maximum(topic, queue_id) for queue_id in range(queues)]) < count:
                pass  # every question is a way to the broker and back

    async def observe(self) -> dict[str, Any]:
        observed: dict[str, Any] = {"answers": self.answers}
        for topic in [*PLAIN, DECIDED]:
            observed[topic] = await self.contents(topic, QUEUES)
        for group in GROUPS:
            observed[f"dead letters of {group}"] = await self.contents(f"%DLQ%{group}", 1)
        # What waited comes in the order of the clock, which is each broker's own.
        observed["delayed"] = [Counter(queue) for queue in await self.contents(DELAYED, QUEUES)]
        for group in GROUPS:
            observed[f"retries of {group}"] = Counter((await self.contents(f"%RETRY%{group}", 1))[0])
        observed["schedule"] = [await self.maximum("SCHEDULE_TOPIC_XXXX", level) for level in range(18)]
        observed["offsets"] = [await self.offset(group, topic) for group in GROUPS for topic in PLAIN]
        observed["pulls"] = [await self.some_pull() for _ in range(READS)]
        return observed

    async def offset(self, group: str, topic: str) -> list[Any]:
        answers = []
        for queue_id in range(QUEUES):
            header = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False}
            answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
            answers.append((answer.code, answer.ext.get("offset")))
        return answers

    async def some_pull(self) -> Any:
        topic, queue_id, offset = (
            self.chance.choice(PLAIN),
            self.chance.randrange(QUEUES + 1),
            self.chance.randrange(160),
        )
        if self.chance.random() < 0.5:
            how = (self.chance.choice(["*", "TagA", "TagA || TagB", "Aa", "none"]), "TAG")
        else:
            how = (self.chance.choice(EXPRESSIONS), "SQL92")
        answer = await self.pull(topic, queue_id, offset, *how)
        bodies = [record.body for record in decode_records(answer.body)] if answer.code == 0 else []
        limits = {name: answer.ext.get(name) for name in ("nextBeginOffset", "minOffset", "maxOffset")}
        return (topic, queue_id, offset, how, answer.code, limits, bodies)


async def played(address: str) -> dict[str, Any]:
    player = Player(address)
    try:
        await player.play()
        await player.settle()
        return await player.observe()
    finally:
        await player.client.close()


def test_both_brokers_hold_the_same_after_the_same_operations(tmp_path: Path) -> None:
    settings = {**CONFIG, "transactionCheckInterval": 3_600_000}
    with Target("apache", tmp_path / "apache", **settings) as apache:
        expected = asyncio.run(played(apache.broker))
    with Target("arrowmq", tmp_path / "arrowmq", **settings) as ours:
        actual = asyncio.run(played(ours.broker))
    assert sum(len(queue) for topic in PLAIN for queue in expected[topic]) > WRITES // 4
    for what, held in expected.items():
        assert actual[what] == held, f"{what} differ (seed {SEED})"
