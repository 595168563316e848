"""Consumer groups: lag, members, who holds which queue; create, change, delete."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError
from arrowmq.console.api.changes import changing, confirmed, found_in
from arrowmq.console.api.declare import Call, Done, ListQuery, Name, Query, Struct, endpoint, for_each, paged
from arrowmq.console.api.topics import KEPT_S, LIST_KEPT_S
from arrowmq.console.errors import bad_request, conflict
from arrowmq.console.live.gatherer import judge_lag, lag_of
from arrowmq.console.live.snapshot import GroupState
from arrowmq.wire.bodies import ConsumerConnection, ConsumerRunningInfo
from arrowmq.wire.errors import WireError

MEMBERS_ASKED = 32


class GroupsQuery(ListQuery, kw_only=True):
    kind: Literal["own", "all"] = "own"


class GroupRow(Struct, kw_only=True):
    group: str
    topics: list[str]
    members: int | None = None
    model: str | None = None
    lag: int
    lag_ms: int | None
    retry_lag: int
    out_per_second: float | None
    letters: int


class GroupPage(Struct, kw_only=True):
    total: int
    rows: list[GroupRow]


@endpoint("GET", "/api/groups", tag="groups")
async def groups(call: Call, query: GroupsQuery) -> GroupPage:
    """Groups with their lag, in messages and in time, and their members."""
    snapshot = await call.console.gatherer.fresh()
    text = query.q.lower()
    found = [
        _row(state)
        for state in snapshot.groups.values()
        if text in state.name.lower() and (query.kind == "all" or not names.is_system_group(state.name))
    ]
    sorts = {
        "group": lambda row: row.group.lower(),
        "lag": lambda row: (row.lag, row.group.lower()),
        "delay": lambda row: (row.lag_ms or 0, row.group.lower()),
        "retries": lambda row: (row.retry_lag, row.group.lower()),
        "rate": lambda row: (row.out_per_second or 0.0, row.group.lower()),
        "letters": lambda row: (row.letters, row.group.lower()),
    }
    total, rows = paged(found, query, sorts, "group")

    async def look(row: GroupRow) -> None:
        try:
            online = await members_of(call, row.group, LIST_KEPT_S)
        except (ArrowMQError, WireError):
            return
        row.members = len({each.client_id for some in online.values() for each in some.connection_set})
        row.model = next((some.message_model for some in online.values()), None)

    await for_each(rows, look)
    return GroupPage(total=total, rows=rows)


def _row(state: GroupState) -> GroupRow:
    own = {
        queue.topic for queue in state.progress if not queue.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
    }
    return GroupRow(
        group=state.name,
        topics=sorted(own),
        lag=state.lag,
        lag_ms=state.lag_ms,
        retry_lag=state.retry_lag,
        out_per_second=state.out_per_second,
        letters=state.letters,
    )


async def state_of(call: Call, group: str) -> GroupState:
    return await found_in(call, lambda snapshot: snapshot.groups, group, "group")


async def members_of(call: Call, group: str, kept_s: float = KEPT_S) -> dict[str, ConsumerConnection]:
    """Broker name → who of the group is connected there."""
    masters = (await call.console.gatherer.fresh()).masters

    async def ask(admin: Admin) -> dict[str, ConsumerConnection]:
        found = await each_of(masters, lambda name: admin.consumers_at(masters[name], group))
        return {name: each for name, each in found.items() if each is not None}

    return await call.kept(("members", group), kept_s, ask)


# -- one


class GroupQuery(Query, kw_only=True):
    group: Name


class GroupQueueRow(Struct, kw_only=True):
    topic: str
    broker: str
    queue_id: int
    next: int
    consumed: int
    lag: int
    lag_ms: int | None
    in_flight: int
    last_consumed: int | None
    holder: str | None = None


class MemberRow(Struct, kw_only=True):
    client_id: str
    address: str
    language: str | None
    version: int
    queues: int | None = None
    cached: int | None = None
    #: Received by pop and not acknowledged yet
    pop_waiting: int | None = None
    subscriptions: dict[str, str] | None = None
    problem: str | None = None


class SubscriptionRow(Struct, kw_only=True):
    topic: str
    kind: str
    expression: str


class PoppedRow(Struct, kw_only=True):
    """What a member received by one pop and has not acknowledged."""

    topic: str
    queue_id: int
    messages: int
    first: int
    client_id: str
    popped: int
    visible: int


class GroupSettings(Struct, kw_only=True):
    broker: str
    consume_enable: bool
    broadcast_enable: bool
    is_orderly: bool
    retry_max_times: int
    retry_queues: int
    consume_timeout_minutes: int


class GroupAnswer(Struct, kw_only=True):
    group: str
    model: str | None
    lag: int
    lag_ms: int | None
    retry_lag: int
    letters: int
    settings: list[GroupSettings]
    members: list[MemberRow]
    subscriptions: list[SubscriptionRow]
    differing: list[str]
    queues: list[GroupQueueRow]
    #: The oldest of what is popped and not acknowledged, and how many messages in all; None: Apache's do not tell
    popped: list[PoppedRow]
    popped_total: int | None


@endpoint("GET", "/api/groups/{group}", tag="groups")
async def group(call: Call, query: GroupQuery) -> GroupAnswer:
    """One group: settings, members with what they hold, subscriptions that differ, lag in every queue."""
    state = await state_of(call, query.group)
    online = await members_of(call, query.group)
    progress = await call.kept(("consume stats", query.group), KEPT_S, lambda admin: admin.consume_stats(query.group))
    popped, popped_total = await call.kept(("popped", query.group), KEPT_S, lambda admin: admin.in_flight(query.group))
    now_ms = round(time.time() * 1000)
    measured = GroupState(query.group, progress=progress)
    judge_lag(measured, now_ms)
    members: dict[str, MemberRow] = {}
    subscriptions: dict[tuple[str, str, str], SubscriptionRow] = {}
    for some in online.values():
        for each in some.connection_set:
            members[each.client_id] = MemberRow(
                client_id=each.client_id, address=each.client_addr, language=each.language, version=each.version
            )
        for name, subscription in some.subscription_table.items():
            kind, expression = subscription.expression_type or "TAG", subscription.sub_string or "*"
            subscriptions[name, kind, expression] = SubscriptionRow(topic=name, kind=kind, expression=expression)
    rows = [members[client_id] for client_id in sorted(members)]
    holders = await _ask_members(call, query.group, rows)
    return GroupAnswer(
        group=query.group,
        model=next((some.message_model for some in online.values()), None),
        lag=measured.lag,
        lag_ms=measured.lag_ms,
        retry_lag=measured.retry_lag,
        letters=state.letters,
        settings=[
            GroupSettings(
                broker=broker,
                consume_enable=config.consume_enable,
                broadcast_enable=config.consume_broadcast_enable,
                is_orderly=config.consume_message_orderly,
                retry_max_times=config.retry_max_times,
                retry_queues=config.retry_queue_nums,
                consume_timeout_minutes=config.consume_timeout_minute,
            )
            for broker, config in sorted(state.configs.items())
        ],
        members=rows,
        subscriptions=[subscriptions[key] for key in sorted(subscriptions)],
        differing=_differing(rows),
        queues=[
            GroupQueueRow(
                topic=queue.topic,
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                next=each.broker_offset,
                consumed=max(0, each.consumer_offset),
                lag=lag_of(each),
                lag_ms=max(0, now_ms - each.last_timestamp) if lag_of(each) and each.last_timestamp > 0 else None,
                in_flight=max(0, each.pull_offset - max(0, each.consumer_offset)),
                last_consumed=each.last_timestamp or None,
                holder=holders.get((queue.topic, queue.broker_name, queue.queue_id)),
            )
            for queue, each in sorted(progress.items())
        ],
        popped=[
            PoppedRow(
                topic=each.topic,
                queue_id=each.queue_id,
                messages=len(each.offsets),
                first=min(each.offsets, default=0),
                client_id=each.client,
                popped=each.pop_time,
                visible=each.visible_at,
            )
            for each in popped
        ],
        popped_total=popped_total if popped_total or _tells_of_pop(call) else None,
    )


def _tells_of_pop(call: Call) -> bool:
    return any(row.product == "ArrowMQ" for row in call.console.gatherer.now.brokers)


async def _ask_members(call: Call, group: str, rows: list[MemberRow]) -> dict[tuple[str, str, int], str]:
    """Who holds which queue, from the members themselves; one that does not answer is shown as such."""
    holders: dict[tuple[str, str, int], str] = {}

    async def ask(row: MemberRow) -> None:
        try:
            info = await running_info(call, group, row.client_id)
        except (ArrowMQError, WireError) as failure:
            row.problem = str(failure)
            return
        held = {queue: each for queue, each in info.mq_table.items() if not each.droped}
        popped = {queue: each for queue, each in info.mq_pop_table.items() if not each.droped}
        for queue in [*held, *popped]:
            holders[queue.topic, queue.broker_name, queue.queue_id] = row.client_id
        row.queues = len(held) + len(popped)
        row.cached = sum(each.cached_msg_count for each in held.values())
        row.pop_waiting = sum(each.wait_ack_count for each in popped.values()) if popped else None
        row.subscriptions = {each.topic: each.sub_string or "*" for each in info.subscription_set}

    await for_each(rows[:MEMBERS_ASKED], ask)
    return holders


async def running_info(call: Call, group: str, client_id: str) -> ConsumerRunningInfo:
    return await call.kept(("running", group, client_id), KEPT_S, lambda admin: admin.running_info(group, client_id))


def _differing(rows: list[MemberRow]) -> list[str]:
    """Topics to which members subscribe differently: RocketMQ keeps one subscription for a group."""
    known = [row for row in rows if row.subscriptions is not None]
    topics = {topic for row in known for topic in row.subscriptions or {}}
    return sorted(topic for topic in topics if len({(row.subscriptions or {}).get(topic, "") for row in known}) > 1)


# -- changes


class GroupChange(Struct, kw_only=True, forbid_unknown_fields=True):
    consume_enable: bool = True
    broadcast_enable: bool = True
    is_orderly: bool = False
    retry_max_times: Annotated[int, msgspec.Meta(ge=-1, le=1000)] = 16
    retry_queues: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1


class NewGroup(GroupChange, kw_only=True):
    group: Name


@endpoint("POST", "/api/groups", tag="groups")
async def create_group(call: Call, body: NewGroup) -> Done:
    """Create a group on every master."""
    snapshot = await call.console.gatherer.fresh()
    if body.group in snapshot.groups:
        raise bad_request(f"group {body.group} exists already: change it on its own page")
    await _set(call, body.group, body)
    return Done(done=f"group {body.group} is created")


@endpoint("PUT", "/api/groups/{group}", tag="groups")
async def change_group(call: Call, query: GroupQuery, body: GroupChange) -> Done:
    """Change a group's settings on every master."""
    await state_of(call, query.group)
    await _set(call, query.group, body)
    return Done(done=f"group {query.group} is changed")


async def _set(call: Call, name: str, wanted: GroupChange) -> None:
    async with changing(call) as admin:
        await admin.create_group(
            name,
            consume_enable=wanted.consume_enable,
            consume_broadcast_enable=wanted.broadcast_enable,
            consume_message_orderly=wanted.is_orderly,
            retry_max_times=wanted.retry_max_times,
            retry_queue_nums=wanted.retry_queues,
        )


class GroupDeletion(Query, kw_only=True):
    group: Name
    confirm: str = ""
    keep_offsets: bool = False


@endpoint("DELETE", "/api/groups/{group}", tag="groups")
async def delete_group(call: Call, query: GroupDeletion) -> Done:
    """Delete a group whose members are offline; `confirm` must be its name."""
    confirmed(query.confirm, query.group, "group", "its offsets are gone with it")
    await state_of(call, query.group)
    call.console.cache.forget()
    online = await members_of(call, query.group)
    if any(some.connection_set for some in online.values()):
        raise conflict(f"group {query.group} has members online, who would make it again: stop them first")
    async with changing(call) as admin:
        await admin.delete_group(query.group, with_offsets=not query.keep_offsets)
    return Done(done=f"group {query.group} is deleted")
