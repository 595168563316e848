"""`arrowmq group`: consumer groups, their members, settings and lag."""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, broker_option, cluster_option, confirm, connected, yes_option
from arrowmq.cli.completion import complete_group
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column
from arrowmq.client import names
from arrowmq.client.admin.inspect import each_of
from arrowmq.inspect.texts import counted, time_text
from arrowmq.wire.bodies import ConsumerConnection, OffsetWrapper, SubscriptionGroupConfig
from arrowmq.wire.bodies.admin import InFlight
from arrowmq.wire.message_queue import MessageQueue

_GROUP = click.argument("group", shell_complete=complete_group)

QUEUE_COLUMNS = [
    Column("topic", "TOPIC"),
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", is_number=True),
    Column("maxOffset", "NEXT", is_number=True),
    Column("consumed", "CONSUMED", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("inFlight", "IN FLIGHT", is_number=True),
    Column("lastConsumed", "LAST CONSUMED WAS STORED", time_text, is_whole=True, is_extra=True),
]


@click.group("group")
def group_group() -> None:
    """Consumer groups: list, show with lag, create, delete."""


def lag_of(each: OffsetWrapper) -> int:
    return max(0, each.broker_offset - max(0, each.consumer_offset))


def queue_rows(stats: dict[MessageQueue, OffsetWrapper]) -> list[dict[str, Any]]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "maxOffset": each.broker_offset,
            "consumed": max(0, each.consumer_offset),
            "lag": lag_of(each),
            "inFlight": max(0, each.pull_offset - max(0, each.consumer_offset)),
            "lastConsumed": each.last_timestamp,
        }
        for queue, each in sorted(stats.items())
    ]


def member_rows(found: dict[str, ConsumerConnection | None]) -> list[dict[str, Any]]:
    """Members of a group as one or more brokers know them; a client is listed once."""
    members: dict[str, dict[str, Any]] = {}
    for connections in found.values():
        for each in connections.connection_set if connections is not None else []:
            members.setdefault(
                each.client_id,
                {
                    "clientId": each.client_id,
                    "address": each.client_addr,
                    "language": each.language,
                    "version": each.version,
                },
            )
    return [members[client_id] for client_id in sorted(members)]


def subscription_rows(found: dict[str, ConsumerConnection | None]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for connections in found.values():
        for topic, each in connections.subscription_table.items() if connections is not None else ():
            kind, expression = each.expression_type or "TAG", each.sub_string or "*"
            rows[topic, kind, expression] = {"topic": topic, "type": kind, "expression": expression}
    return [rows[key] for key in sorted(rows)]


async def members_everywhere(link: Link, group: str) -> dict[str, ConsumerConnection | None]:
    masters = await link.admin.masters()
    return await each_of(masters, lambda name: link.admin.consumers_at(masters[name], group))


@group_group.command("list", epilog=examples("arrowmq group list"))
@connected
async def list_groups(link: Link) -> None:
    """List groups with their members online and how far they lag."""
    masters = await link.admin.masters()
    groups = await link.admin.groups()
    progress: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
    for by_group in (await each_of(masters, lambda name: link.admin.progress_of_groups(masters[name]))).values():
        for group, queues in by_group.items():
            progress.setdefault(group, {}).update(queues)
    rows = []
    with link.screen.progress("groups", len(groups)) as bar:

        async def look(group: str) -> dict[str, Any]:
            found = {name: await link.admin.consumers_at(address, group) for name, address in masters.items()}
            queues = progress.get(group, {})
            bar.advance(bar.task_ids[0])
            online = next((each for each in found.values() if each is not None), None)
            own = {queue for queue in queues if not queue.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))}
            return {
                "group": group,
                "members": len(member_rows(found)),
                "model": online.message_model if online is not None else None,
                "topics": sorted({queue.topic for queue in own}),
                "lag": sum(lag_of(queues[queue]) for queue in own),
                "retryLag": sum(lag_of(each) for queue, each in queues.items() if queue not in own),
            }

        rows = list((await each_of(groups, look)).values())
    if link.screen.as_json:
        link.screen.json(rows)
        return
    if not rows:
        link.screen.say("There is no consumer group yet: a group comes to be when its first consumer connects.")
        return
    link.screen.table(
        [
            Column("group", "GROUP"),
            Column("members", "MEMBERS", is_number=True),
            Column("model", "MODEL"),
            Column("lag", "LAG", is_number=True),
            Column("retryLag", "RETRIES", is_number=True),
            Column("topics", "TOPICS"),
        ],
        rows,
    )


@group_group.command("show", epilog=examples("arrowmq group show billing --topic orders"))
@_GROUP
@click.option("--topic", help="Only this topic.")
@connected
async def show(link: Link, group: str, topic: str | None) -> None:
    """Show a group: settings, members, subscriptions, and its lag in every queue."""
    configs = await link.admin.group_config(group)
    online = await members_everywhere(link, group)
    stats = await link.admin.consume_stats(group, topic)
    in_flight, total_in_flight = await link.admin.in_flight(group, topic)
    members, subscriptions, queues = member_rows(online), subscription_rows(online), queue_rows(stats)
    total = sum(row["lag"] for row in queues)
    if link.screen.as_json:
        link.screen.json(
            {
                "group": group,
                "settings": {name: _settings(config) for name, config in configs.items()},
                "members": members,
                "subscriptions": subscriptions,
                "queues": queues,
                "lag": total,
                "inFlight": in_flight_rows(in_flight),
                "inFlightTotal": total_in_flight,
            }
        )
        return
    for name, config in sorted(configs.items()):
        link.screen.fields(_settings(config).items(), title=f"{group} on {name}")
    link.screen.say("")
    if members:
        columns = [("clientId", "MEMBER"), ("address", "ADDRESS"), ("language", "LANGUAGE"), ("version", "VERSION")]
        link.screen.table([Column(key, title) for key, title in columns], members)
        link.screen.say("")
        columns = [("topic", "SUBSCRIBED TOPIC"), ("type", "TYPE"), ("expression", "EXPRESSION")]
        link.screen.table([Column(key, title) for key, title in columns], subscriptions)
    else:
        link.screen.say("Nobody of this group is online.")
    if queues:
        link.screen.say("")
        link.screen.table(QUEUE_COLUMNS, queues)
    link.screen.say(f"lag: {counted(total, 'message')} in {counted(len(queues), 'queue')}")
    if in_flight:
        link.screen.say("")
        columns = [("topic", "POPPED FROM"), ("queueId", "QUEUE"), ("offsets", "OFFSETS"), ("client", "BY")]
        times = [("poppedAt", "SINCE"), ("visibleAt", "COMES BACK")]
        link.screen.table([Column(key, title) for key, title in columns + times], in_flight_rows(in_flight))
        link.screen.say(f"in flight: {counted(total_in_flight, 'message')} popped and not acknowledged")


def in_flight_rows(in_flight: list[InFlight]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.topic,
            "queueId": each.queue_id,
            "offsets": _ranges(each.offsets),
            "client": each.client or "unknown",
            "poppedAt": time_text(each.pop_time),
            "visibleAt": time_text(each.visible_at),
        }
        for each in in_flight
    ]


def _ranges(offsets: list[int]) -> str:
    """`3-7, 9`: neighbours together."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][-1] == offset - 1:
            runs[-1][1:] = [offset]
        else:
            runs.append([offset])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _settings(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return {
        "consumeEnable": config.consume_enable,
        "broadcastEnable": config.consume_broadcast_enable,
        "orderly": config.consume_message_orderly,
        "retryMaxTimes": config.retry_max_times,
        "retryQueues": config.retry_queue_nums,
        "consumeTimeoutMinutes": config.consume_timeout_minute,
    }


@group_group.command("create", epilog=examples("arrowmq group create billing --retries 3"))
@_GROUP
@click.option("--retries", type=click.IntRange(0), help="Tries before a message becomes a dead letter [16].")
@click.option("--retry-queues", type=click.IntRange(0), help="Queues of its retry topic; 0: no retries [1].")
@click.option("--consume/--no-consume", default=None, help="Whether the group may consume at all.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether it may consume by broadcasting.")
@click.option("--orderly/--concurrently", default=None, help="Whether it consumes in order.")
@cluster_option
@broker_option
@connected
async def create(
    link: Link,
    group: str,
    retries: int | None,
    retry_queues: int | None,
    consume: bool | None,
    broadcast: bool | None,
    orderly: bool | None,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create a group, or set it anew if it exists: what is not named gets its default."""
    names.check_group(group)
    given: dict[str, bool | int | None] = {
        "retry_max_times": retries,
        "retry_queue_nums": retry_queues,
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": orderly,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    config = await link.admin.create_group(group, cluster=cluster, broker=broker, **settings)
    if link.screen.as_json:
        link.screen.json({"group": group, **_settings(config)})
    else:
        link.screen.say(f"group {group} is created: a message is a dead letter after {config.retry_max_times} tries")


@group_group.command("delete", epilog=examples("arrowmq group delete billing --yes"))
@_GROUP
@click.option("--keep-offsets", is_flag=True, help="A group of this name created later goes on where it stopped.")
@cluster_option
@yes_option
@connected
async def delete(link: Link, group: str, keep_offsets: bool, cluster: str | None, is_sure: bool) -> None:
    """Delete a group, and its offsets unless told to keep them."""
    await link.admin.group_config(group)
    members = member_rows(await members_everywhere(link, group))
    if members:
        raise Failure(
            f"group {group} has {len(members)} members online ({members[0]['clientId']}…), who would make it again: "
            "stop them first"
        )
    kept = "its offsets are kept" if keep_offsets else "its offsets are lost"
    confirm(f"Delete group {group}? {kept.capitalize()}.", is_sure)
    await link.admin.delete_group(group, with_offsets=not keep_offsets, cluster=cluster)
    if link.screen.as_json:
        link.screen.json({"group": group, "keptOffsets": keep_offsets})
    else:
        link.screen.say(f"group {group} is deleted, {kept}")
