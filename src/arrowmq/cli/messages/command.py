"""`arrowmq message`: send, tail, find, show, resend and explain messages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, connected
from arrowmq.cli.completion import complete_group, complete_topic
from arrowmq.cli.examples import examples
from arrowmq.cli.messages.rows import MESSAGE_COLUMNS, find_by_id, show_message
from arrowmq.cli.screen import TIME
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.produce.outgoing import Message
from arrowmq.client.produce.producer import Producer
from arrowmq.inspect.messages.finding import message_row, offsets_at
from arrowmq.inspect.texts import body_text, counted, time_text
from arrowmq.wire import properties as prop
from arrowmq.wire.message_queue import MessageQueue

TAIL_PAUSE_S = 0.25
PULL = 32
SENDS_AT_ONCE = 64

_TOPIC = click.argument("topic", shell_complete=complete_topic)
_TOPIC_OF_ID = click.option("--topic", help="Where to look; without it, everywhere.", shell_complete=complete_topic)


@click.group("message")
def message_group() -> None:
    """Send, tail, find, show, resend and explain messages."""


# -- send


@message_group.command(
    "send",
    epilog=examples(
        "arrowmq message send orders 'hello' --tag created --key o-1",
        "cat orders.txt | arrowmq message send orders --lines",
    ),
)
@_TOPIC
@click.argument("body", required=False)
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Body from a file.")
@click.option("--lines", is_flag=True, help="Each line (of --file or standard input) is a message of its own.")
@click.option("--tag", help="Its tag.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--delay-level", type=click.IntRange(1, 18), help="RocketMQ's delay level: 1 is 1 s, 18 is 2 h.")
@click.option("--order-key", help="Messages of equal order keys go to the same queue.")
@click.option("--queue", "queue_text", metavar="BROKER:QUEUE", help="To this queue.")
@connected
async def send(
    link: Link,
    topic: str,
    body: str | None,
    file: Path | None,
    lines: bool,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay_level: int | None,
    order_key: str | None,
    queue_text: str | None,
) -> None:
    """Send a message: BODY, a file, or standard input. Waits until a broker has stored it."""
    bodies = _bodies(body, file, lines)
    pairs = {}
    for word in properties:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--property")
        pairs[name] = value
    queue = _queue(topic, queue_text)
    rows: list[dict[str, Any]] = []
    async with Producer(link.namesrv, group="arrowmq_command", **link.connect) as producer:
        with link.screen.progress("messages", len(bodies)) as bar:
            for begin in range(0, len(bodies), SENDS_AT_ONCE):
                messages = [
                    Message(topic, each, tag, keys, pairs or None, delay_level=delay_level, order_key=order_key)
                    for each in bodies[begin : begin + SENDS_AT_ONCE]
                ]
                for receipt in await asyncio.gather(*(producer.send(each, queue=queue) for each in messages)):
                    rows.append(
                        {
                            "msgId": receipt.msg_id,
                            "offsetMsgId": receipt.offset_msg_id,
                            "topic": topic,
                            "broker": receipt.broker_name,
                            "queueId": receipt.queue_id,
                            "queueOffset": receipt.queue_offset,
                            "status": receipt.status.name,
                        }
                    )
                    bar.advance(bar.task_ids[0])
    if link.screen.as_json:
        link.screen.json(rows if lines else rows[0])
    elif len(rows) == 1:
        row = rows[0]
        link.screen.say(
            f"{row['status']}: {row['msgId']} is in {topic} on {row['broker']}, queue {row['queueId']}, "
            f"offset {row['queueOffset']}"
        )
    else:
        link.screen.say(f"{len(rows)} messages are stored in {topic}, the last is {rows[-1]['msgId']}")


def _bodies(body: str | None, file: Path | None, lines: bool) -> list[bytes]:
    if body is not None and file is not None:
        raise click.UsageError("give the body as an argument or by --file, not both")
    if body is not None and body != "-":
        data = body.encode()
    elif file is not None:
        data = file.read_bytes()
    elif sys.stdin.isatty():
        raise click.UsageError("no body: give one as an argument, by --file, or on standard input")
    else:
        data = sys.stdin.buffer.read()
    if not lines:
        return [data]
    found = [line for line in data.splitlines() if line]
    if not found:
        raise Failure("there is no line to send")
    return found


def _queue(topic: str, text: str | None) -> MessageQueue | None:
    if text is None:
        return None
    broker, _, number = text.rpartition(":")
    if not broker or not number.isdigit():
        raise click.BadParameter(f"{text!r} is no queue: give it as broker-a:3", param_hint="--queue")
    return MessageQueue(topic, broker, int(number))


# -- tail


@message_group.command("tail", epilog=examples("arrowmq message tail orders --from 10m --tag created"))
@_TOPIC
@click.option("--from", "since", default="end", metavar="WHERE", help="begin, end, or a time (30m is 30 minutes ago).")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--tag", help="Only messages with this tag.")
@click.option("--follow/--no-follow", default=True, help="Wait for new ones, or end at the end.")
@connected
async def tail(link: Link, topic: str, since: str, count: int | None, tag: str | None, follow: bool) -> None:
    """Show messages as they arrive, of all groups and for none: consumes nothing. Ctrl-C ends it.

    With --json, one JSON object a line.
    """
    positions = await _positions(link, topic, since)
    shown = 0
    try:
        async for message in _arriving(link, topic, positions, follow):
            if tag is not None and message.tag != tag:
                continue
            _print_line(link, message)
            shown += 1
            if shown == count:
                return
    except asyncio.CancelledError:
        return  # Ctrl-C is how a tail ends


async def _positions(link: Link, topic: str, since: str) -> dict[MessageQueue, int]:
    stats = await link.admin.topic_stats(topic)
    if since == "begin":
        return {queue: each.min_offset for queue, each in stats.items()}
    if since == "end":
        return {queue: each.max_offset for queue, each in stats.items()}
    return await offsets_at(link.admin, topic, list(stats), TIME.convert(since, None, None))


async def _arriving(
    link: Link, topic: str, positions: dict[MessageQueue, int], follow: bool
) -> AsyncIterator[ReceivedMessage]:
    while True:
        stats = await link.admin.topic_stats(topic)
        batch: list[ReceivedMessage] = []
        for queue, limits in stats.items():
            offset = max(positions.get(queue, 0), limits.min_offset)
            if offset < limits.max_offset:
                found = await link.admin.messages_at(queue, offset, PULL)
                batch += found
                offset = found[-1].queue_offset + 1 if found else limits.max_offset
            positions[queue] = offset
        # Queues are independent; by store time is the order in which a person expects to see them.
        for message in sorted(batch, key=lambda each: (each.store_timestamp, each.physical_offset)):
            yield message
        if not batch:
            if not follow:
                return
            await asyncio.sleep(TAIL_PAUSE_S)


def _print_line(link: Link, message: ReceivedMessage) -> None:
    if link.screen.as_json:
        link.screen.json(message_row(message))
        sys.stdout.flush()
        return
    marks = " ".join(filter(None, [f"[{message.tag}]" if message.tag else "", *message.keys]))
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    click.echo(
        f"{time_text(message.store_timestamp)} {place} {marks}{' ' if marks else ''}{body_text(message.body, 500)}"
    )
    sys.stdout.flush()


# -- find and show


@message_group.command(
    "find",
    epilog=examples(
        "arrowmq message find --id 7F0000010BB81B2A…",
        "arrowmq message find orders --key o-1",
        "arrowmq message find orders --from 2h --to 1h --tag created",
    ),
)
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option("--id", "msg_id", help="By the id of the receipt, or the broker's.")
@click.option("--key", help="By a key.")
@click.option("--from", "begin", type=TIME, help="Stored at this time or later.")
@click.option("--to", "end", type=TIME, help="Stored before this time.")
@click.option("--tag", help="Only messages with this tag.")
@click.option("--limit", type=click.IntRange(1), default=64, show_default=True, help="At most so many.")
@connected
async def find(
    link: Link,
    topic: str | None,
    msg_id: str | None,
    key: str | None,
    begin: int | None,
    end: int | None,
    tag: str | None,
    limit: int,
) -> None:
    """Find messages by id, by key, or by the time they were stored. Exit code 1 if there is none."""
    if msg_id is not None:
        found = [await find_by_id(link, msg_id, topic)]
    elif topic is None:
        raise click.UsageError("a search by key or time needs a topic: arrowmq message find TOPIC --key KEY")
    elif key is not None:
        found = await link.admin.messages_by_key(topic, key, max_count=limit, begin=_moment(begin), end=_moment(end))
    elif begin is not None or end is not None:
        found = await _by_time(link, topic, begin or 0, end, tag, limit)
    else:
        raise click.UsageError("say what to look for: --id, --key, or a time by --from and --to")
    found = [message for message in found if tag is None or message.tag == tag][:limit]
    if link.screen.as_json:
        link.screen.json([message_row(message) for message in found])
    elif found:
        link.screen.table(MESSAGE_COLUMNS, [message_row(message) for message in found])
        link.screen.say(counted(len(found), "message"))
    if not found:
        raise Failure(f"no such message in {topic}")


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000)


async def _by_time(
    link: Link, topic: str, begin_ms: int, end_ms: int | None, tag: str | None, limit: int
) -> list[ReceivedMessage]:
    stats = await link.admin.topic_stats(topic)
    starts = await offsets_at(link.admin, topic, list(stats), begin_ms)
    found: list[ReceivedMessage] = []
    with link.screen.progress("messages", sum(max(0, stats[each].max_offset - starts[each]) for each in starts)) as bar:
        for queue, offset in starts.items():
            of_queue = 0
            while offset < stats[queue].max_offset and of_queue < limit:
                batch = await link.admin.messages_at(queue, max(offset, stats[queue].min_offset), PULL)
                if not batch:
                    break
                bar.advance(bar.task_ids[0], len(batch))
                fitting = [
                    each
                    for each in batch
                    if each.store_timestamp >= begin_ms and (tag is None or each.tag == tag)
                    if end_ms is None or each.store_timestamp < end_ms
                ]
                found += fitting
                of_queue += len(fitting)
                offset = batch[-1].queue_offset + 1
                if end_ms is not None and batch[-1].store_timestamp >= end_ms:
                    break
    found.sort(key=lambda each: (each.store_timestamp, each.physical_offset))
    return found[:limit]


@message_group.command("show", epilog=examples("arrowmq message show 7F0000010BB81B2A… --topic orders"))
@click.argument("msg_id", metavar="ID")
@_TOPIC_OF_ID
@connected
async def show(link: Link, msg_id: str, topic: str | None) -> None:
    """Show one message with all its properties and its body."""
    show_message(link, await find_by_id(link, msg_id, topic))


@message_group.command(
    "resend",
    epilog=examples(
        "arrowmq message resend 7F00… --topic orders",
        "arrowmq message resend 7F00… --group billing (a member consumes it on the spot)",
    ),
)
@click.argument("msg_id", metavar="ID")
@_TOPIC_OF_ID
@click.option("--to", "target", help="To another topic than its own.")
@click.option(
    "--group", help="Not to the topic: let a member of this group consume it once more.", shell_complete=complete_group
)
@click.option("--client", "client_id", help="Which member; without it, the first.")
@connected
async def resend(
    link: Link, msg_id: str, topic: str | None, target: str | None, group: str | None, client_id: str | None
) -> None:
    """Send a stored message again, as a new one with an id of its own; the old one stays where it is."""
    message = await find_by_id(link, msg_id, topic)
    if group is not None:
        if target is not None:
            raise click.UsageError("--to sends to a topic, --group hands it to a member: give one of them")
        await _consume_once_more(link, message, group, client_id)
        return
    receipt = await _sent_again(link, message, target or message.topic)
    row = {"msgId": receipt.msg_id, "topic": target or message.topic, "original": message.msg_id}
    if link.screen.as_json:
        link.screen.json(row)
    else:
        link.screen.say(f"sent again to {row['topic']} as {row['msgId']}")


async def _sent_again(link: Link, message: ReceivedMessage, topic: str) -> Any:
    own = {name: value for name, value in message.properties.items() if name not in prop.RESERVED}
    order_key = message.properties.get(prop.SHARDING_KEY)
    copy = Message(
        topic,
        message.body,
        message.tag,
        message.keys,
        own or None,
        order_key=order_key,
        flag=message.flag,
    )
    async with Producer(link.namesrv, group="arrowmq_command", **link.connect) as producer:
        return await producer.send(copy)


async def _consume_once_more(link: Link, message: ReceivedMessage, group: str, client_id: str | None) -> None:
    if client_id is None:
        members = (await link.admin.consumers(group)).connection_set
        client_id = members[0].client_id
    result = await link.admin.consume_directly(group, client_id, message.offset_msg_id)
    row = {
        "msgId": message.msg_id,
        "group": group,
        "clientId": client_id,
        "result": result.consume_result,
        "remark": result.remark,
        "tookMs": result.spent_time_mills,
    }
    if link.screen.as_json:
        link.screen.json(row)
    else:
        link.screen.say(f"{client_id} consumed {message.msg_id}: {row['result']} in {row['tookMs']} ms")
    if str(result.consume_result) not in ("CR_SUCCESS", "0"):
        raise Failure(f"the member did not succeed: {result.consume_result} {result.remark or ''}".strip())


@message_group.command("explain", epilog=examples("arrowmq message explain 7F0000010BB81B2A… --topic orders"))
@click.argument("msg_id", metavar="ID")
@_TOPIC_OF_ID
@connected
async def explain(link: Link, msg_id: str, topic: str | None) -> None:
    """Tell the life of one message: stored, flushed, delayed, filtered by whom, consumed, retried, parked, and why."""
    from arrowmq.cli.messages.explain import explain_message

    await explain_message(link, msg_id, topic)
