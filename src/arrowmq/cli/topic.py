"""`arrowmq topic`: create, list, show, change and delete topics."""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, broker_option, cluster_option, confirm, connected, yes_option
from arrowmq.cli.completion import complete_topic
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column
from arrowmq.client import names
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import Refused
from arrowmq.inspect.texts import counted, perm_text, time_text
from arrowmq.wire.bodies import TopicConfig
from arrowmq.wire.codes import RequestCode, ResponseCode

MESSAGE_TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED"]
PERMISSIONS = {"r": 4, "w": 2, "rw": 6, "wr": 6, "none": 0}

_TOPIC = click.argument("topic", shell_complete=complete_topic)


class Permission(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on
    """r, w, rw or none; RocketMQ's numbers 0, 2, 4, 6 as well."""

    name = "perm"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        text = str(value).lower()
        if text in PERMISSIONS:
            return PERMISSIONS[text]
        if text not in ("0", "2", "4", "6"):
            self.fail(f"{value!r} is no permission: give r (read), w (write), rw or none", param, context)
        return int(text)


@click.group("topic")
def topic_group() -> None:
    """Create, list, show, change and delete topics."""


def _row(topic: str, broker: str, config: TopicConfig) -> dict[str, Any]:
    return {
        "topic": topic,
        "broker": broker,
        "readQueues": config.read_queue_nums,
        "writeQueues": config.write_queue_nums,
        "perm": config.perm,
        "order": config.order,
        "type": config.attributes.get("message.type", "NORMAL"),
        "attributes": config.attributes,
    }


@topic_group.command("list", epilog=examples("arrowmq topic list --system --json"))
@click.option("--system", "with_system", is_flag=True, help="With the brokers' own, retry and dead-letter topics.")
@connected
async def list_topics(link: Link, with_system: bool) -> None:
    """List topics, with their queues and permissions on each broker."""
    masters = await link.admin.masters()
    wanted = set(await link.admin.topics(with_system=with_system))
    found = await each_of(masters, lambda name: link.admin.topic_configs(masters[name]))
    rows = [
        _row(topic, broker, config)
        for broker, configs in found.items()
        for topic, config in configs.items()
        if topic in wanted
    ]
    rows.sort(key=lambda row: (row["topic"], row["broker"]))
    if link.screen.as_json:
        link.screen.json(rows)
        return
    if not rows:
        link.screen.say("There is no topic yet: `arrowmq topic create NAME` makes one.")
        return
    link.screen.table(
        [
            Column("topic", "TOPIC"),
            Column("broker", "BROKER"),
            Column("writeQueues", "WRITE", is_number=True),
            Column("readQueues", "READ", is_number=True),
            Column("perm", "PERM", perm_text),
            Column("type", "TYPE"),
        ],
        rows,
    )
    topics = counted(len({row["topic"] for row in rows}), "topic")
    link.screen.say(f"{topics} (WRITE and READ are queues)")


@topic_group.command("create", epilog=examples("arrowmq topic create orders --queues 8 --type FIFO"))
@_TOPIC
@click.option("--queues", type=click.IntRange(1, 65536), default=8, show_default=True, help="Queues on each broker.")
@click.option("--read-queues", type=click.IntRange(0, 65536), help="If it differs from --queues.")
@click.option("--write-queues", type=click.IntRange(0, 65536), help="If it differs from --queues.")
@click.option("--perm", type=Permission(), default="rw", show_default=True, help="r, w, rw or none.")
@click.option("--type", "message_type", type=click.Choice(MESSAGE_TYPES, case_sensitive=False), help="Message type.")
@click.option("--order", is_flag=True, help="Mark it as a topic of strict order.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="Any attribute; may be repeated.")
@cluster_option
@broker_option
@connected
async def create(
    link: Link,
    topic: str,
    queues: int,
    read_queues: int | None,
    write_queues: int | None,
    perm: int,
    message_type: str | None,
    order: bool,
    attributes: tuple[str, ...],
    cluster: str | None,
    broker: str | None,
) -> None:
    """Create a topic on every broker, or on those of --cluster or --broker."""
    names.check_topic(topic)
    changes = _attributes(attributes, message_type)
    masters = await link.admin.targets(cluster, broker)
    existing = await each_of(masters, lambda name: _config_at(link, masters[name], topic))
    if all(config is not None for config in existing.values()):
        raise Failure(f"topic {topic} exists already: `arrowmq topic update {topic}` changes it")
    await link.admin.create_topic(
        topic,
        queues=queues,
        read_queues=read_queues,
        write_queues=write_queues,
        perm=perm,
        order=order,
        attributes=changes,
        cluster=cluster,
        broker=broker,
    )
    if link.screen.as_json:
        link.screen.json({"topic": topic, "brokers": sorted(masters), "queues": queues})
    else:
        link.screen.say(f"topic {topic} is created: {counted(queues, 'queue')} on each of {', '.join(sorted(masters))}")


def _attributes(given: tuple[str, ...], message_type: str | None) -> dict[str, str]:
    changes: dict[str, str] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="--attribute")
        changes[key] = value
    if message_type is not None:
        changes["message.type"] = message_type.upper()
    return changes


async def _config_at(link: Link, address: str, topic: str) -> TopicConfig | None:
    from arrowmq.wire import fastjson
    from arrowmq.wire.bodies import TopicConfigAndQueueMapping

    answer = await link.admin.call(
        address,
        RequestCode.GET_TOPIC_CONFIG,
        {"topic": topic, "lo": "true"},
        accept=(ResponseCode.TOPIC_NOT_EXIST,),
    )
    return None if answer.code else fastjson.loads(answer.body, TopicConfigAndQueueMapping)


@topic_group.command("show", epilog=examples("arrowmq topic show orders"))
@_TOPIC
@connected
async def show(link: Link, topic: str) -> None:
    """Show a topic: its settings, its queues with their offsets, and the groups that consume it."""
    configs = await link.admin.topic_config(topic)
    stats = await link.admin.topic_stats(topic)
    groups = await link.admin.groups_of_topic(topic)
    settings = [_row(topic, broker, config) for broker, config in sorted(configs.items())]
    queues: list[dict[str, Any]] = [
        {
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": each.min_offset,
            "maxOffset": each.max_offset,
            "messages": each.max_offset - each.min_offset,
            "lastStored": each.last_update_timestamp,
        }
        for queue, each in stats.items()
    ]
    if link.screen.as_json:
        link.screen.json({"topic": topic, "brokers": settings, "queues": queues, "groups": groups})
        return
    for row in settings:
        kind = f"{row['type']}{', ordered' if row['order'] else ''}"
        link.screen.say(
            f"{topic} on {row['broker']}: {row['writeQueues']} write and {row['readQueues']} read queues, "
            f"{perm_text(row['perm'])}, {kind}"
        )
    link.screen.table(
        [
            Column("broker", "BROKER"),
            Column("queueId", "QUEUE", is_number=True),
            Column("minOffset", "FIRST", is_number=True),
            Column("maxOffset", "NEXT", is_number=True),
            Column("messages", "MESSAGES", is_number=True),
            Column("lastStored", "LAST STORED", time_text),
        ],
        queues,
    )
    total = sum(row["messages"] for row in queues)
    link.screen.say(f"{counted(total, 'message')}; consumed by {', '.join(groups) or 'no group'}")


@topic_group.command("update", epilog=examples("arrowmq topic update orders --perm r --queues 16"))
@_TOPIC
@click.option("--perm", type=Permission(), help="r, w, rw or none.")
@click.option("--queues", type=click.IntRange(1, 65536), help="Read and write queues on each broker.")
@click.option("--read-queues", type=click.IntRange(0, 65536))
@click.option("--write-queues", type=click.IntRange(0, 65536))
@click.option("--type", "message_type", type=click.Choice(MESSAGE_TYPES, case_sensitive=False), help="Message type.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="KEY= removes it.")
@broker_option
@connected
async def update(
    link: Link,
    topic: str,
    perm: int | None,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    message_type: str | None,
    attributes: tuple[str, ...],
    broker: str | None,
) -> None:
    """Change a topic's permission, queues or attributes; what is not named stays as it is.

    To have fewer queues without losing messages, lower --write-queues first and --read-queues when they are empty.
    """
    changes = _attributes(attributes, message_type)
    if perm is None and queues is None and read_queues is None and write_queues is None and not changes:
        raise click.UsageError("nothing to change: give --perm, --queues, --type or --attribute")
    changed = []
    for name, config in sorted((await link.admin.topic_config(topic, broker=broker)).items()):
        write = write_queues if write_queues is not None else queues or config.write_queue_nums
        read = read_queues if read_queues is not None else queues or config.read_queue_nums
        await link.admin.create_topic(
            topic,
            queues=max(write, read, 1),
            read_queues=read,
            write_queues=write,
            perm=config.perm if perm is None else perm,
            order=config.order,
            attributes=changes,
            broker=name,
        )
        after = (await link.admin.topic_config(topic, broker=name))[name]
        changed.append(_row(topic, name, after))
    if link.screen.as_json:
        link.screen.json(changed)
        return
    for row in changed:
        link.screen.say(
            f"{topic} on {row['broker']} now has {row['writeQueues']} write and {row['readQueues']} read queues, "
            f"{perm_text(row['perm'])}, {row['type']}"
        )


@topic_group.command("delete", epilog=examples("arrowmq topic delete orders --yes"))
@_TOPIC
@cluster_option
@yes_option
@connected
async def delete(link: Link, topic: str, cluster: str | None, is_sure: bool) -> None:
    """Delete a topic with all its messages and all groups' offsets in it. Cannot be undone."""
    await link.admin.topic_config(topic)
    try:
        stats = await link.admin.topic_stats(topic)
    except Refused:
        stats = {}
    total = sum(each.max_offset - each.min_offset for each in stats.values())
    confirm(f"Delete topic {topic} with its {counted(total, 'message')}?", is_sure)
    await link.admin.delete_topic(topic, cluster=cluster)
    if link.screen.as_json:
        link.screen.json({"topic": topic, "messages": total})
    else:
        link.screen.say(f"topic {topic} is deleted with its {counted(total, 'message')}")


@topic_group.command("routes", epilog=examples("arrowmq topic routes orders"))
@_TOPIC
@connected
async def routes(link: Link, topic: str) -> None:
    """Show what the NameServer tells clients about a topic: brokers, addresses, queues, permissions."""
    data = await link.admin.route_data(topic)
    brokers = {broker.broker_name: broker for broker in data.broker_datas}
    rows = []
    for queue in sorted(data.queue_datas, key=lambda each: each.broker_name):
        broker = brokers.get(queue.broker_name)
        addresses = {} if broker is None else {str(key): value for key, value in sorted(broker.broker_addrs.items())}
        rows.append(
            {
                "broker": queue.broker_name,
                "cluster": broker.cluster if broker is not None else None,
                "addresses": addresses,
                "writeQueues": queue.write_queue_nums,
                "readQueues": queue.read_queue_nums,
                "perm": queue.perm,
            }
        )
    if link.screen.as_json:
        link.screen.json({"topic": topic, "orderConf": data.order_topic_conf, "routes": rows})
        return
    link.screen.table(
        [
            Column("broker", "BROKER"),
            Column("cluster", "CLUSTER"),
            Column("addresses", "ADDRESSES", lambda found: ", ".join(f"{key}: {each}" for key, each in found.items())),
            Column("writeQueues", "WRITE", is_number=True),
            Column("readQueues", "READ", is_number=True),
            Column("perm", "PERM", perm_text),
        ],
        rows,
    )
