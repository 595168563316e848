"""A cluster with something of everything: what the console's pages are tried on.

`await furnish(namesrv)` leaves topics of each type, groups that consume, lag and differ, dead letters of three reasons,
delayed and timer messages, an open transaction, what is popped and not acknowledged, traces, and hostile content.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from arrowmq import Admin, Producer, PushConsumer, SimpleConsumer, TransactionState
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.message_trace import MessageTrace
from arrowmq.wire.codes import RequestCode
from waiting import until

#: Everything that a message can carry to harm or deceive whoever looks at it.
HOSTILE = (
    "<script>window.harmed = 1</script>",
    '"><img src=x onerror="window.harmed = 1">',
    "{{ 7 * 7 }}${7*7}",
    "javascript:window.harmed=1",
    "\u202egnp.exe\u202c and \u2066isolated\u2069",
    "bell\x07 null\x00 escape\x1b[31mred carriage\rreturn",
    "a\u200bb\ufeffc",
    '=HYPERLINK("http://evil.example")',
    "'; drop table jobs; --",
    "</textarea></dialog><svg onload=window.harmed=1>",
)


@dataclass
class Furnished:
    orders: str = "orders"
    payments: str = "payments"
    group: str = "billing"
    lagging: str = "reports"
    dying: str = "shipping"
    popping: str = "couriers"
    order_id: str = ""
    traced_id: str = ""
    timer_id: str = ""
    half_id: str = ""
    popped_id: str = ""
    hostile_ids: list[str] = field(default_factory=list)


@asynccontextmanager
async def consuming(namesrv: str, group: str, topic: str, expression: str = "*") -> AsyncIterator[PushConsumer]:
    async def consume(message: ReceivedMessage) -> None:
        del message

    async with PushConsumer(namesrv, group=group, topic=topic, tags=expression, handler=consume) as consumer:
        yield consumer


async def bury(
    admin: Admin, group: str, topic: str, bodies: list[bytes], *, reason: str = "", tries: int = 17, tag: str = "dead"
) -> None:
    """Makes dead letters the way that consumers do whose broker is away: the last try is sent by themselves."""
    (address,) = (await admin.masters()).values()
    gate = asyncio.Semaphore(64)

    async def one(number: int, body: bytes) -> None:
        properties = {
            "KEYS": f"{group}-{number}",
            "TAGS": tag,
            "RETRY_TOPIC": topic,
            "UNIQ_KEY": admin.session.new_msg_id(),
            "WAIT": "true",
        }
        if reason:
            properties["DLQ_REASON"] = reason
        ext = {
            "producerGroup": group,
            "topic": f"%RETRY%{group}",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(admin.session.clock.now_ms()),
            "flag": "0",
            "properties": "".join(f"{key}\x01{value}\x02" for key, value in properties.items()),
            "reconsumeTimes": str(tries),
            "maxReconsumeTimes": str(tries - 1),
            "unitMode": "false",
            "batch": "false",
        }
        async with gate:
            await admin.call(address, RequestCode.SEND_MESSAGE, ext, body)

    await asyncio.gather(*(one(number, body) for number, body in enumerate(bodies)))


async def furnish(namesrv: str, *, letters: int = 12, is_large: bool = False) -> Furnished:
    found = Furnished()
    async with Admin(namesrv) as admin:
        await admin.create_topic(found.orders, queues=4)
        await admin.create_topic(found.payments, queues=2)
        await admin.create_topic("invoices", queues=1, attributes={"message.type": "FIFO"})
        await admin.create_topic("reminders", queues=1, attributes={"message.type": "DELAY"})
        await admin.create_topic("bookings", queues=1, attributes={"message.type": "TRANSACTION"})
        for group in (found.group, found.lagging, found.dying, found.popping):
            await admin.create_group(group)
        await _send(namesrv, found, is_large=is_large)
        await _pop(namesrv, found)
        await bury_three_kinds(admin, found, found.dying, letters)
        await bury(admin, found.dying, found.orders, [HOSTILE[0].encode()], reason=HOSTILE[1], tag="hostile")
    return found


async def bury_three_kinds(admin: Admin, found: Furnished, group: str, letters: int) -> None:
    """So many that used up their retries, half as many that were rejected at once, a third with a reason."""
    await bury(admin, group, found.orders, [b'{"order": %d}' % each for each in range(letters)])
    await bury(admin, group, found.payments, [b"payment %d" % each for each in range(letters // 2)], tries=1)
    poison = [b"poison %d" % each for each in range(letters // 3)]
    await bury(admin, group, found.orders, poison, reason="schema mismatch", tag="poison")


async def another_dying_group(namesrv: str, found: Furnished, letters: int) -> str:
    """A group with dead letters, for a test that sends them again: its next try finds them as the first did."""
    async with Admin(namesrv) as admin:
        group = f"dying_{len(await admin.groups())}"
        await admin.create_group(group)
        await bury_three_kinds(admin, found, group, letters)
    return group


async def _send(namesrv: str, found: Furnished, *, is_large: bool) -> None:
    trace = MessageTrace(namesrv, group="shop")
    async with Producer(namesrv, group="shop", hooks=[trace]) as producer:
        receipt = await producer.send(
            found.orders, b'{"order": 1, "item": "arrow", "price": 12.5}', tag="created", keys=["o-1"]
        )
        found.order_id = found.traced_id = receipt.msg_id
        for number in range(2, 40):
            body = b'{"order": %d, "item": "arrow"}' % number
            await producer.send(found.orders, body, tag=("created", "paid")[number % 2], keys=[f"o-{number}"])
            await producer.send(found.payments, b"payment %d" % number, keys=[f"p-{number}"])
        for text in HOSTILE:
            # A key has no blanks; what a property or a tag may not carry, the body still can.
            word = "".join(each for each in text if each not in " \x00\x01\x02")
            sent = await producer.send(
                found.payments, text.encode("utf-8", "replace"), tag=word, keys=[word], properties={"note": word}
            )
            found.hostile_ids.append(sent.msg_id)
        if is_large:
            large = await producer.send(found.payments, b"<b>" + b"x" * (4 * 1024 * 1024 - 1024), keys=["large"])
            found.hostile_ids.append(large.msg_id)
        for number in range(6):
            text = b"reminder %d" % number
            sent = await producer.send("reminders", text, delay=600 * (number + 1), keys=[f"r-{number}"])
            found.timer_id = sent.msg_id
        await producer.send("reminders", b"by level", delay_level=18)
    await trace.close()
    async with Producer(
        namesrv, group="booker", transaction_checker=lambda message: TransactionState.UNKNOWN
    ) as producer:
        half = producer.transaction("bookings", b'{"booking": 7}', keys=["b-7"])
        entered = await half.__aenter__()
        found.half_id = entered.receipt.msg_id


async def _pop(namesrv: str, found: Furnished) -> None:
    """Some messages in the hands of a consumer that is gone: they come back in an hour."""
    async with SimpleConsumer(namesrv, group=found.popping, topic=found.payments, wait_s=5) as consumer:
        popped = await consumer.receive(5, invisible_s=3600)
        found.popped_id = popped[0].msg_id


async def consume_all(namesrv: str, group: str, topic: str, count: int) -> None:
    """A group that has consumed everything, traced, and is gone."""
    seen: list[str] = []

    async def consume(message: ReceivedMessage) -> None:
        seen.append(message.msg_id)

    trace = MessageTrace(namesrv, group=group)
    async with PushConsumer(namesrv, group=group, topic=topic, handler=consume, consume_from="first", hooks=[trace]):
        await until(lambda: len(seen) >= count, 30)
    await trace.close()
