"""Clients: who is connected, as producer or consumer, and what one consumer holds and does."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from arrowmq.client import names
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError
from arrowmq.console.api.consumers.groups import members_of, running_info
from arrowmq.console.api.declare import Call, ListQuery, Name, Query, Struct, endpoint, paged
from arrowmq.console.api.topics import producers_at
from arrowmq.wire.errors import WireError

KEPT_S = 10.0
GROUPS_ASKED = 500


class ClientsQuery(ListQuery, kw_only=True):
    role: Literal["", "producer", "consumer"] = ""


class ClientRow(Struct, kw_only=True):
    client_id: str
    role: str
    group: str
    address: str
    language: str | None
    version: int
    brokers: list[str]


class ClientPage(Struct, kw_only=True):
    total: int
    is_complete: bool
    rows: list[ClientRow]


@endpoint("GET", "/api/clients", tag="clients")
async def clients(call: Call, query: ClientsQuery) -> ClientPage:
    """Producers and consumers that are connected, of the first 500 groups."""
    every, is_complete = await call.kept(("clients",), KEPT_S, lambda _: _all(call))
    text = query.q.lower()
    found = [
        row
        for row in every
        if query.role in ("", row.role) and text in f"{row.client_id} {row.group} {row.address} {row.language}".lower()
    ]
    sorts = {
        "client": lambda row: row.client_id,
        "group": lambda row: (row.group.lower(), row.client_id),
        "role": lambda row: (row.role, row.group.lower(), row.client_id),
        "language": lambda row: (row.language or "", row.client_id),
        "version": lambda row: (row.version, row.client_id),
    }
    total, rows = paged(found, query, sorts, "group")
    return ClientPage(total=total, is_complete=is_complete, rows=rows)


async def _all(call: Call) -> tuple[list[ClientRow], bool]:
    snapshot = await call.console.gatherer.fresh()
    groups = sorted(name for name in snapshot.groups if not names.is_system_group(name))
    rows: dict[tuple[str, str, str], ClientRow] = {}

    def add(
        role: str, group: str, client_id: str, address: str, language: str | None, version: int, broker: str
    ) -> None:
        row = rows.setdefault(
            (role, group, client_id),
            ClientRow(
                client_id=client_id,
                role=role,
                group=group,
                address=address,
                language=language,
                version=version,
                brokers=[],
            ),
        )
        row.brokers.append(broker)

    async def consumers(group: str) -> None:
        try:
            online = await members_of(call, group)
        except (ArrowMQError, WireError):
            return
        for broker, some in online.items():
            for each in some.connection_set:
                add("consumer", group, each.client_id, each.client_addr, each.language, each.version, broker)

    async def producers(broker: str) -> None:
        try:
            table = await producers_at(call, snapshot.masters[broker])
        except (ArrowMQError, WireError):
            return
        for group, members in table.items():
            for each in members if not names.is_system_group(group) else []:
                address = each.remote_ip.lstrip("/")
                add("producer", group, each.client_id, address, each.language, each.version, broker)

    await each_of(groups[:GROUPS_ASKED], consumers)
    await each_of(snapshot.masters, producers)
    return list(rows.values()), len(groups) <= GROUPS_ASKED


# -- one


class ClientQuery(Query, kw_only=True):
    group: Name
    client_id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class HeldQueue(Struct, kw_only=True):
    topic: str
    broker: str
    queue_id: int
    how: str
    cached: int
    first: int
    last: int
    committed: int
    last_pull: int | None
    last_consume: int | None
    is_locked: bool


class TopicRate(Struct, kw_only=True):
    topic: str
    pull_ms: float
    pulls: float
    consume_ms: float
    ok: float
    failed: float
    failed_hour: int


class ClientAnswer(Struct, kw_only=True):
    group: str
    client_id: str
    properties: dict[str, str]
    subscriptions: dict[str, str]
    queues: list[HeldQueue]
    rates: list[TopicRate]


@endpoint("GET", "/api/clients/{group}/{clientId}", tag="clients")
async def client(call: Call, query: ClientQuery) -> ClientAnswer:
    """What one consumer holds and does; the broker asks it."""
    info = await running_info(call, query.group, query.client_id)
    queues = [
        HeldQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            how="pull",
            cached=each.cached_msg_count,
            first=each.cached_msg_min_offset,
            last=each.cached_msg_max_offset,
            committed=each.commit_offset,
            last_pull=each.last_pull_timestamp or None,
            last_consume=each.last_consume_timestamp or None,
            is_locked=each.locked,
        )
        for queue, each in sorted(info.mq_table.items())
        if not each.droped
    ]
    queues += [
        HeldQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            how="pop",
            cached=each.wait_ack_count,
            first=0,
            last=0,
            committed=0,
            last_pull=each.last_pop_timestamp or None,
            last_consume=None,
            is_locked=False,
        )
        for queue, each in sorted(info.mq_pop_table.items())
        if not each.droped
    ]
    return ClientAnswer(
        group=query.group,
        client_id=query.client_id,
        properties=dict(sorted(info.properties.items())),
        subscriptions={each.topic: each.sub_string or "*" for each in info.subscription_set},
        queues=queues,
        rates=[
            TopicRate(
                topic=topic,
                pull_ms=each.pull_rt,
                pulls=each.pull_tps,
                consume_ms=each.consume_rt,
                ok=each.consume_ok_tps,
                failed=each.consume_failed_tps,
                failed_hour=each.consume_failed_msgs,
            )
            for topic, each in sorted(info.status_table.items())
        ],
    )
