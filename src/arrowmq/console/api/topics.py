"""Topics: what there is, where, who uses it; create, change, delete."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.errors import ArrowMQError
from arrowmq.console.api.changes import changing, confirmed, found_in
from arrowmq.console.api.declare import Call, Done, ListQuery, Name, Query, Struct, endpoint, for_each, paged
from arrowmq.console.errors import bad_request
from arrowmq.console.live.snapshot import TopicState
from arrowmq.inspect.texts import perm_text
from arrowmq.wire.bodies import ProducerInfo, TopicOffset
from arrowmq.wire.errors import WireError
from arrowmq.wire.message_queue import MessageQueue

KEPT_S = 4.0
#: A list asks about fifty at once, and looks again with a survey
LIST_KEPT_S = 12.0
Kind = Literal[
    "own", "all", "normal", "fifo", "delay", "transaction", "mixed", "lite", "unspecified", "retry", "dead", "system"
]


class TopicsQuery(ListQuery, kw_only=True):
    kind: Kind = "own"


class TopicRow(Struct, kw_only=True):
    topic: str
    kind: str
    brokers: list[str]
    read_queues: int
    write_queues: int
    perm: str
    groups: int
    messages: int | None = None
    in_per_second: float | None = None
    last_stored: int | None = None


class TopicPage(Struct, kw_only=True):
    total: int
    rows: list[TopicRow]


@endpoint("GET", "/api/topics", tag="topics")
async def topics(call: Call, query: TopicsQuery) -> TopicPage:
    """Topics with their queues and rates; without RocketMQ's own unless `kind` asks for them."""
    snapshot = await call.console.gatherer.fresh()
    users: dict[str, int] = {}
    for state in snapshot.groups.values():
        for topic in {queue.topic for queue in state.progress}:
            users[topic] = users.get(topic, 0) + 1
    text = query.q.lower()
    found = [
        _row(state, users.get(state.name, 0))
        for state in snapshot.topics.values()
        if text in state.name.lower() and _fits(state, query.kind)
    ]
    sorts = {
        "topic": lambda row: row.topic.lower(),
        "kind": lambda row: (row.kind, row.topic.lower()),
        "queues": lambda row: (row.write_queues, row.topic.lower()),
        "groups": lambda row: (row.groups, row.topic.lower()),
    }
    total, rows = paged(found, query, sorts, "topic")
    # Offsets are asked for what is shown, not for a thousand topics.
    await for_each(rows, lambda row: _measure(call, row))
    return TopicPage(total=total, rows=rows)


def _fits(state: TopicState, kind: str) -> bool:
    if kind == "own":
        return state.kind not in ("system", "retry", "dead")
    return kind in ("all", state.kind)


def _row(state: TopicState, groups: int) -> TopicRow:
    configs = list(state.configs.values())
    return TopicRow(
        topic=state.name,
        kind=state.kind,
        brokers=sorted(state.configs),
        read_queues=sum(config.read_queue_nums for config in configs),
        write_queues=sum(config.write_queue_nums for config in configs),
        perm=perm_text(configs[0].perm) if configs else "",
        groups=groups,
    )


async def _measure(call: Call, row: TopicRow) -> None:
    try:
        queues = await stats_of(call, row.topic, LIST_KEPT_S)
    except (ArrowMQError, WireError):
        return
    row.messages = sum(each.max_offset - each.min_offset for each in queues.values())
    row.last_stored = max((each.last_update_timestamp for each in queues.values()), default=0) or None
    row.in_per_second = call.console.gatherer.rates.last(f"page {row.topic}")


async def state_of(call: Call, topic: str) -> TopicState:
    return await found_in(call, lambda snapshot: snapshot.topics, topic, "topic")


async def stats_of(call: Call, topic: str, kept_s: float = KEPT_S) -> dict[MessageQueue, TopicOffset]:
    """The queues of a topic on every broker that has it."""
    state = await state_of(call, topic)
    masters = call.console.gatherer.now.masters

    async def ask(admin: Admin) -> dict[MessageQueue, TopicOffset]:
        found: dict[MessageQueue, TopicOffset] = {}
        for broker in sorted(state.configs):
            if broker in masters:
                found.update(await admin.topic_stats_at(masters[broker], topic))
        # Here, where the offsets are new: a rate of what is kept for a moment would be nothing.
        end = sum(each.max_offset for each in found.values())
        now_ms = round(time.time() * 1000)
        rate = call.console.gatherer.rates.see(f"page {topic}", now_ms, end)
        if rate is not None and call.console.gatherer.rates.last(f"topic {topic}") is None:
            # No group stands in it, so no survey sees it: its chart is of the time that somebody looks.
            call.console.gatherer.history.add(f"topic:{topic}", now_ms, rate)
        return found

    return await call.kept(("topic stats", topic), kept_s, ask)


# -- one


class TopicQuery(Query, kw_only=True):
    topic: Name


class TopicQueueRow(Struct, kw_only=True):
    broker: str
    queue_id: int
    first: int
    next: int
    messages: int
    last_stored: int | None


class TopicSettings(Struct, kw_only=True):
    broker: str
    address: str | None
    read_queues: int
    write_queues: int
    perm: int
    perm_text: str
    is_ordered: bool
    attributes: dict[str, str]


class TopicUser(Struct, kw_only=True):
    group: str
    lag: int


class ProducerRow(Struct, kw_only=True):
    group: str
    client_id: str
    address: str
    language: str | None


class TopicAnswer(Struct, kw_only=True):
    topic: str
    kind: str
    settings: list[TopicSettings]
    queues: list[TopicQueueRow]
    groups: list[TopicUser]
    in_per_second: float | None
    messages: int
    problem: str | None = None


@endpoint("GET", "/api/topics/{topic}", tag="topics")
async def topic(call: Call, query: TopicQuery) -> TopicAnswer:
    """One topic: its settings on each broker, its queues with their offsets, the groups that consume it."""
    state = await state_of(call, query.topic)
    snapshot = call.console.gatherer.now
    problem = None
    queues: dict[MessageQueue, TopicOffset] = {}
    try:
        queues = await stats_of(call, query.topic)
    except (ArrowMQError, WireError) as failure:
        problem = str(failure)
    users = []
    for group in snapshot.groups.values():
        lags = [
            max(0, each.broker_offset - max(0, each.consumer_offset))
            for queue, each in group.progress.items()
            if queue.topic == query.topic
        ]
        if lags:
            users.append(TopicUser(group=group.name, lag=sum(lags)))
    return TopicAnswer(
        topic=query.topic,
        kind=state.kind,
        settings=[
            TopicSettings(
                broker=broker,
                address=snapshot.masters.get(broker),
                read_queues=config.read_queue_nums,
                write_queues=config.write_queue_nums,
                perm=config.perm,
                perm_text=perm_text(config.perm),
                is_ordered=config.order,
                attributes=config.attributes,
            )
            for broker, config in sorted(state.configs.items())
        ],
        queues=[
            TopicQueueRow(
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                first=each.min_offset,
                next=each.max_offset,
                messages=each.max_offset - each.min_offset,
                last_stored=each.last_update_timestamp or None,
            )
            for queue, each in sorted(queues.items())
        ],
        groups=sorted(users, key=lambda user: user.group),
        in_per_second=call.console.gatherer.rates.last(f"page {query.topic}"),
        messages=sum(each.max_offset - each.min_offset for each in queues.values()),
        problem=problem,
    )


# -- changes

Queues = Annotated[int, msgspec.Meta(ge=1, le=1024)]


class TopicChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """On one broker, one cluster, or (without either) every master."""

    read_queues: Queues = 8
    write_queues: Queues = 8
    perm: Annotated[int, msgspec.Meta(ge=0, le=7)] = 6
    is_ordered: bool = False
    #: Such as message.type=FIFO; an empty value removes one
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    broker: str | None = None
    cluster: str | None = None


class NewTopic(TopicChange, kw_only=True):
    topic: Name


@endpoint("POST", "/api/topics", tag="topics")
async def create_topic(call: Call, body: NewTopic) -> Done:
    """Create a topic."""
    snapshot = await call.console.gatherer.fresh()
    if body.topic in snapshot.topics and body.broker is None:
        raise bad_request(f"topic {body.topic} exists already: change it on its own page")
    await _set(call, body.topic, body)
    return Done(done=f"topic {body.topic} is created")


@endpoint("PUT", "/api/topics/{topic}", tag="topics")
async def change_topic(call: Call, query: TopicQuery, body: TopicChange) -> Done:
    """Change a topic's queues, permission or attributes."""
    await state_of(call, query.topic)
    await _set(call, query.topic, body)
    return Done(done=f"topic {query.topic} is changed")


async def _set(call: Call, name: str, wanted: TopicChange) -> None:
    async with changing(call) as admin:
        await admin.create_topic(
            name,
            read_queues=wanted.read_queues,
            write_queues=wanted.write_queues,
            perm=wanted.perm,
            order=wanted.is_ordered,
            attributes=wanted.attributes,
            broker=wanted.broker or None,
            cluster=wanted.cluster or None,
        )


class TopicDeletion(Query, kw_only=True):
    topic: Name
    #: The topic's name once more
    confirm: str = ""


@endpoint("DELETE", "/api/topics/{topic}", tag="topics")
async def delete_topic(call: Call, query: TopicDeletion) -> Done:
    """Delete a topic with all its messages; `confirm` must be its name."""
    confirmed(query.confirm, query.topic, "topic", "its messages are gone with it")
    state = await state_of(call, query.topic)
    if state.kind == "system":
        raise bad_request(f"topic {query.topic} belongs to the brokers themselves")
    async with changing(call) as admin:
        await admin.delete_topic(query.topic)
    return Done(done=f"topic {query.topic} is deleted")


class Producers(Struct, kw_only=True):
    rows: list[ProducerRow]


async def producers_at(call: Call, address: str) -> dict[str, list[ProducerInfo]]:
    """Producer group → who is connected at a broker."""
    return await call.kept(("producers", address), KEPT_S, lambda admin: admin.producers_at(address))


@endpoint("GET", "/api/topics/{topic}/producers", tag="topics")
async def topic_producers(call: Call, query: TopicQuery) -> Producers:
    """Producers that are connected to a broker of this topic; brokers do not note who of them sends to which topic."""
    state = await state_of(call, query.topic)
    snapshot = call.console.gatherer.now
    rows: dict[tuple[str, str], ProducerRow] = {}
    for broker in state.configs:
        if broker not in snapshot.masters:
            continue
        address = snapshot.masters[broker]
        table = await producers_at(call, address)
        for group, members in table.items():
            for each in members:
                if not names.is_system_group(group):
                    rows[group, each.client_id] = ProducerRow(
                        group=group,
                        client_id=each.client_id,
                        address=each.remote_ip.lstrip("/"),
                        language=each.language,
                    )
    return Producers(rows=[rows[key] for key in sorted(rows)])
