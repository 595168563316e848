"""The life of one message, gathered from everything a cluster can tell about it.

Brokers keep no diary of a message, but its forms are all in the log and in the index by its id: the delayed form under
SCHEDULE_TOPIC_XXXX, the half message, each retry under `%RETRY%group`, the dead letter, trace records. With the offsets
and filters of the groups that is enough to tell the story.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.message_trace import TRACE_TOPIC
from arrowmq.inspect.broker_clock import SKEW_MS, clock_skew_ms
from arrowmq.inspect.messages.finding import find_by_id, host_text, offsets_at
from arrowmq.wire import properties as prop
from arrowmq.wire.bodies import ConsumeQueueData
from arrowmq.wire.bodies.admin import InFlight
from arrowmq.wire.message_queue import MessageQueue

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MOST_OPS = 4096
OPS_A_READ = 32
PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: All forms of the message in a topic, the oldest first
Forms = Callable[[str], Awaitable[list[ReceivedMessage]]]
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, PARKED_TOPIC)


@dataclass(slots=True)
class Waiting:
    """A form of the message that waits, or waited, for its time."""

    message: ReceivedMessage
    due_ms: int
    real_topic: str


@dataclass(slots=True)
class Trace:
    kind: str
    group: str
    at_ms: int
    took_ms: int | None
    is_ok: bool | None
    #: Names one try, in the record of its beginning and in that of its end
    request_id: str = ""
    topic: str = ""
    client: str = ""
    #: RocketMQ's ConsumeReturnType: 0 success, 1 time-out, 2 exception, 3 returned null, 4 failed
    outcome: int | None = None


@dataclass(slots=True)
class GroupLife:
    """One group and this message. `passes` is None where its filter is not known: nobody of it is online."""

    group: str
    members: int = 0
    subscription: str | None = None
    is_sql: bool = False
    passes: bool | None = None
    consumed: int | None = None
    pulled: int | None = None
    #: Who popped it and has not acknowledged it
    in_flight: InFlight | None = None
    #: Copies in the group's retry topic, each with the group's offset in that queue
    retries: list[tuple[ReceivedMessage, int | None]] = field(default_factory=list)
    letters: list[ReceivedMessage] = field(default_factory=list)


@dataclass(slots=True)
class Life:
    message: ReceivedMessage
    topic: str
    now_ms: int
    #: The form in the topic it was sent to; None as long as it is delayed or undecided
    published: ReceivedMessage | None
    is_flushed: bool | None = None
    flush_type: str = ""
    entry: ConsumeQueueData | None = None
    waits: list[Waiting] = field(default_factory=list)
    halves: list[ReceivedMessage] = field(default_factory=list)
    #: How a transaction ended: (when, commit / rollback / parked / …)
    ends: list[tuple[int, str]] = field(default_factory=list)
    groups: list[GroupLife] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)


async def gather(admin: Admin, msg_id: str, topic: str | None) -> Life:
    found = await find_by_id(admin, msg_id, topic, also=WAITING_TOPICS)
    unique_id = found.msg_id
    masters = await admin.masters()

    async def forms(in_topic: str, *, is_unique: bool = True) -> list[ReceivedMessage]:
        by_broker = await each_of(
            masters,
            lambda name: admin.indexed_at(masters[name], name, in_topic, unique_id, is_unique=is_unique),
        )
        return sorted((each for some in by_broker.values() for each in some), key=lambda each: each.store_timestamp)

    real_topic = _real_topic(found)
    published = found if found.topic == real_topic else next(iter(await forms(real_topic)), None)
    life = Life(found, real_topic, admin.session.clock.now_ms(), published)
    address = masters.get((published or found).broker_name)
    if address is not None:
        await _stored(admin, life, address, published or found)
    life.waits = [
        await _waiting(admin, masters, each) for name in (SCHEDULE_TOPIC, TIMER_TOPIC) for each in await forms(name)
    ]
    life.halves = await forms(HALF_TOPIC)
    if life.halves:
        for op in await forms(OP_TOPIC, is_unique=False):
            life.ends.append((op.store_timestamp, op.properties.get("TRAN_END", "ended")))
        life.ends += [(each.store_timestamp, "parked") for each in await forms(PARKED_TOPIC)]
        if not life.ends and (ended_ms := await _named_by_an_op(admin, life.halves[-1])) is not None:
            life.ends.append((ended_ms, "commit" if published is not None else "rollback"))
    for group in await _groups(admin, real_topic, life):
        life.groups.append(await _group_life(admin, masters, life, group, forms))
    life.traces = traces_of(await forms(TRACE_TOPIC, is_unique=False), unique_id)
    return life


def _real_topic(message: ReceivedMessage) -> str:
    properties = message.properties
    topic = message.record.topic
    if topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        return properties.get(prop.RETRY_TOPIC) or properties.get(prop.DLQ_ORIGIN_TOPIC) or topic
    if topic in WAITING_TOPICS:
        real = properties.get(prop.REAL_TOPIC) or topic
        if real.startswith(names.RETRY_PREFIX):
            return properties.get(prop.RETRY_TOPIC) or real
        return real
    return topic


async def _stored(admin: Admin, life: Life, address: str, message: ReceivedMessage) -> None:
    runtime = await admin.broker_runtime(address)
    skew_ms = clock_skew_ms(runtime, life.now_ms)
    if skew_ms is not None and abs(skew_ms) > SKEW_MS:
        life.now_ms += skew_ms  # due times are the broker's, so "now" must be as well
    life.flush_type = (await admin.broker_config(address)).get("flushDiskType", "")
    waiting = runtime.get("remainHowManyDataToFlush", "").split()
    if len(waiting) == 2 and waiting[1] == "B" and waiting[0].isdigit() and runtime.get("commitLogMaxOffset"):
        flushed = int(runtime["commitLogMaxOffset"]) - int(waiting[0])
        life.is_flushed = message.physical_offset + message.size <= flushed
    topic = message.record.topic
    body = await admin.queue_entries(address, topic, message.queue_id, message.queue_offset)
    if body is not None and body.queue_data and body.queue_data[0].physic_offset == message.physical_offset:
        life.entry = body.queue_data[0]


async def _named_by_an_op(admin: Admin, half: ReceivedMessage) -> int | None:
    """When an op record named this half message, which ends it. Apache's op records have no key, so they are read."""
    queue = MessageQueue(OP_TOPIC, half.broker_name, 0)
    try:
        offset = (await offsets_at(admin, OP_TOPIC, [queue], half.store_timestamp))[queue]
        for _ in range(MOST_OPS // OPS_A_READ):
            ops = await admin.messages_at(queue, offset, OPS_A_READ)
            if not ops:
                return None
            for op in ops:
                if str(half.queue_offset) in op.body.decode("utf-8", "replace").split(","):
                    return op.store_timestamp
            offset = ops[-1].queue_offset + 1
    except Refused:
        pass  # nothing was ever ended at this broker: it has no such topic yet
    return None


async def _waiting(admin: Admin, masters: dict[str, str], message: ReceivedMessage) -> Waiting:
    due_ms = 0
    address = masters.get(message.broker_name)
    if message.record.topic == SCHEDULE_TOPIC and address is not None:
        # A delayed message's queue entry has its due time where others have the hash of their tag.
        body = await admin.queue_entries(address, SCHEDULE_TOPIC, message.queue_id, message.queue_offset)
        due_ms = body.queue_data[0].tags_code if body is not None and body.queue_data else 0
    else:
        due_ms = int(message.properties.get(prop.TIMER_OUT_MS, "0"))
    return Waiting(message, due_ms, message.properties.get(prop.REAL_TOPIC, ""))


async def _groups(admin: Admin, topic: str, life: Life) -> list[str]:
    found = set()
    for waiting in life.waits:
        if waiting.real_topic.startswith(names.RETRY_PREFIX):
            found.add(waiting.real_topic.removeprefix(names.RETRY_PREFIX))
    if await admin.session.fetch_route(topic) is not None:
        found |= set(await admin.groups_of_topic(topic))
    return sorted(found)


async def _group_life(admin: Admin, masters: dict[str, str], life: Life, group: str, forms: Forms) -> GroupLife:
    known = GroupLife(group)
    online = {name: await admin.consumers_at(address, group) for name, address in masters.items()}
    known.members = len({each.client_id for some in online.values() if some for each in some.connection_set})
    for some in online.values():
        if some is not None and life.topic in some.subscription_table:
            subscription = some.subscription_table[life.topic]
            known.subscription = subscription.sub_string or "*"
            known.is_sql = subscription.expression_type == "SQL92"
    message = life.published
    if message is not None and message.broker_name in masters:
        queue = MessageQueue(life.topic, message.broker_name, message.queue_id)
        known.consumed = await admin.committed(group, queue)
        progress = (await admin.consume_stats(group, life.topic)).get(queue)
        known.pulled = progress.pull_offset if progress is not None else None
        popped, _ = await admin.in_flight(group, life.topic, address=masters[message.broker_name])
        place = (life.topic, message.queue_id)
        mine = (each for each in popped if (each.topic, each.queue_id) == place)
        known.in_flight = next((each for each in mine if message.queue_offset in each.offsets), None)
        body = await admin.queue_entries(
            masters[message.broker_name], life.topic, message.queue_id, message.queue_offset, group=group
        )
        if body is not None and body.queue_data and body.subscription_data is not None:
            known.passes = known.subscription == "*" or body.queue_data[0].eval
    retry_topic = names.retry_topic(group)
    for copy in await forms(retry_topic):
        queue = MessageQueue(retry_topic, copy.broker_name, copy.queue_id)
        known.retries.append((copy, await admin.committed(group, queue)))
    known.letters = await forms(names.dlq_topic(group))
    return known


def traces_of(found: list[ReceivedMessage], key: str) -> list[Trace]:
    """The records about a message in messages of a trace topic; the message by its id, or by a key of it."""
    traces: list[Trace] = []
    for message in found:
        client = host_text(message.record.born_host)
        for record in message.body.decode("utf-8", "replace").split("\x02"):
            fields = record.split("\x01")
            if not any(key in field.split(" ") for field in fields):
                continue
            try:
                trace = _trace(fields)
            except ValueError:
                continue  # a record of a form that nobody knows
            if trace is not None:
                trace.client = client
                traces.append(trace)
    return sorted(traces, key=lambda each: each.at_ms)


def _trace(fields: list[str]) -> Trace | None:
    if fields[0] == "Pub" and len(fields) >= 14:
        is_ok = fields[13] == "true"
        return Trace("sent", fields[3], int(fields[1]), int(fields[10]), is_ok, topic=fields[4])
    if fields[0] == "SubBefore" and len(fields) >= 7:
        return Trace("delivered", fields[3], int(fields[1]), None, None, request_id=fields[4])
    if fields[0] == "SubAfter" and len(fields) >= 5:
        # Clients from before 4.9 write neither the time nor the group.
        at_ms = int(fields[7]) if len(fields) > 7 else 0
        group = fields[8] if len(fields) > 8 else ""
        outcome = int(fields[6]) if len(fields) > 6 else None
        took_ms, is_ok = int(fields[3]), fields[4] == "true"
        return Trace("consumed", group, at_ms, took_ms, is_ok, request_id=fields[1], outcome=outcome)
    return None
