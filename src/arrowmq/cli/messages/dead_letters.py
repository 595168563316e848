"""`arrowmq dead-letters`: what groups gave up, and sending it again.

A dead letter is a copy of a message in `%DLQ%group`, put there after the group's last try. Resending makes a new
message in the topic it came from; the letter stays until it is too old to be kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, confirm, connected, yes_option
from arrowmq.cli.completion import complete_group
from arrowmq.cli.examples import examples
from arrowmq.cli.messages.rows import show_message
from arrowmq.cli.screen import TIME, Column
from arrowmq.client import names
from arrowmq.client.message import ReceivedMessage
from arrowmq.inspect.messages.finding import message_row
from arrowmq.inspect.texts import counted, second_text, time_text
from arrowmq.wire import properties as prop

_GROUP = click.argument("group", shell_complete=complete_group)

LETTER_COLUMNS = [
    Column("stored", "PARKED", second_text, is_whole=True),
    Column("msgId", "ID", is_whole=True),
    Column("origin", "FROM TOPIC"),
    Column("reconsumeTimes", "TRIES", is_number=True),
    Column("tag", "TAG", is_extra=True),
    Column("keys", "KEYS", is_extra=True),
    Column("body", "BODY", lambda body: body[:200].replace("\n", " "), is_cut=True, is_extra=True),
]


@click.group("dead-letters")
def dead_letters_group() -> None:
    """List, show and resend dead letters."""


def origin_of(letter: ReceivedMessage) -> str | None:
    return letter.properties.get(prop.DLQ_ORIGIN_TOPIC) or letter.properties.get(prop.RETRY_TOPIC)


def _row(letter: ReceivedMessage) -> dict[str, Any]:
    return {**message_row(letter), "origin": origin_of(letter)}


@dead_letters_group.command(
    "list", epilog=examples("arrowmq dead-letters list", "arrowmq dead-letters list billing --limit 20")
)
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@connected
async def list_letters(link: Link, group: str | None, limit: int) -> None:
    """List the groups that have dead letters, or the letters of one GROUP."""
    if group is not None:
        await _list_of(link, group, limit)
        return
    rows = []
    for topic in await link.admin.topics(with_system=True):
        if not topic.startswith(names.DLQ_PREFIX):
            continue
        stats = (await link.admin.topic_stats(topic)).values()
        count = sum(each.max_offset - each.min_offset for each in stats)
        newest = max((each.last_update_timestamp for each in stats), default=0)
        if count:
            rows.append({"group": topic.removeprefix(names.DLQ_PREFIX), "letters": count, "newest": newest})
    if link.screen.as_json:
        link.screen.json(rows)
    elif not rows:
        link.screen.say("No group has dead letters.")
    else:
        columns = [Column("letters", "LETTERS", is_number=True), Column("newest", "NEWEST", time_text)]
        link.screen.table([Column("group", "GROUP"), *columns], rows)


async def _list_of(link: Link, group: str, limit: int) -> None:
    letters = await link.admin.dead_letters(group, max_count=limit)
    if not letters:
        await link.admin.group_config(group)
    rows = [_row(letter) for letter in letters]
    if link.screen.as_json:
        link.screen.json(rows)
    elif not rows:
        link.screen.say(f"Group {group} has no dead letters.")
    else:
        link.screen.table(LETTER_COLUMNS, rows)
        more = f" (the first {limit}; --limit shows more)" if len(rows) == limit else ""
        link.screen.say(f"{counted(len(rows), 'dead letter')}{more}")


@dead_letters_group.command("show", epilog=examples("arrowmq dead-letters show billing 7F0000010BB81B2A…"))
@_GROUP
@click.argument("msg_id", metavar="ID")
@connected
async def show(link: Link, group: str, msg_id: str) -> None:
    """Show one dead letter with all its properties and its body."""
    topic = names.dlq_topic(group)
    for broker, address in (await link.admin.masters()).items():
        found = await link.admin.indexed_at(address, broker, topic, msg_id, is_unique=True)
        if found:
            show_message(link, max(found, key=lambda each: each.store_timestamp))
            return
    async for letter in _letters(link, group):
        if msg_id in (letter.msg_id, letter.offset_msg_id):
            show_message(link, letter)
            return
    raise Failure(f"group {group} has no dead letter {msg_id}; `arrowmq dead-letters list {group}` lists them")


@dead_letters_group.command(
    "resend",
    epilog=examples(
        "arrowmq dead-letters resend billing --tag created --from 2h --dry-run",
        "arrowmq dead-letters resend billing --rate 50 --yes",
    ),
)
@_GROUP
@click.option("--id", "ids", multiple=True, help="Only this letter; may be repeated.")
@click.option("--topic", help="Only letters that came from this topic.")
@click.option("--tag", help="Only letters with this tag.")
@click.option("--key", help="Only letters with this key.")
@click.option("--from", "begin", type=TIME, help="Parked at this time or later.")
@click.option("--to", "end", type=TIME, help="Parked before this time.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="At most so many.")
@click.option("--rate", type=click.FloatRange(min=0.01), help="At most so many a second.")
@click.option("--dry-run", is_flag=True, help="Show which, and send nothing.")
@yes_option
@connected
async def resend(
    link: Link,
    group: str,
    ids: tuple[str, ...],
    topic: str | None,
    tag: str | None,
    key: str | None,
    begin: int | None,
    end: int | None,
    limit: int,
    rate: float | None,
    dry_run: bool,
    is_sure: bool,
) -> None:
    """Send dead letters of GROUP to the topics they came from, as new messages; all, or those that pass every filter.

    Every group of the topic gets them, not only this one. The letters stay where they are.
    """
    chosen: list[ReceivedMessage] = []
    async for letter in _letters(link, group):
        if (
            (not ids or letter.msg_id in ids or letter.offset_msg_id in ids)
            and (topic is None or origin_of(letter) == topic)
            and (tag is None or letter.tag == tag)
            and (key is None or key in letter.keys)
            and (begin is None or letter.store_timestamp >= begin)
            and (end is None or letter.store_timestamp < end)
        ):
            chosen.append(letter)
        if len(chosen) == limit:
            break
    if not chosen:
        raise Failure(f"group {group} has no dead letter that fits; `arrowmq dead-letters list {group}` lists them")
    if not link.screen.as_json:
        link.screen.table(LETTER_COLUMNS, [_row(letter) for letter in chosen[:20]])
        link.screen.say(
            f"{counted(len(chosen), 'dead letter')}{', the first 20 are shown' if len(chosen) > 20 else ''}"
        )
    sent: list[dict[str, Any]] = []
    if not dry_run:
        confirm(f"Send {counted(len(chosen), 'dead letter')} of {group} again?", is_sure)
        sent = await _send_all(link, chosen, rate)
    if link.screen.as_json:
        wanted = [{"msgId": letter.msg_id, "origin": origin_of(letter)} for letter in chosen]
        link.screen.json({"group": group, "isDone": not dry_run, "letters": wanted, "sent": sent})
    else:
        link.screen.say("Nothing was sent (--dry-run)." if dry_run else f"sent again: {counted(len(sent), 'message')}")
    if len(chosen) == limit:
        link.screen.warn(
            f"--limit {limit} is reached: there may be more; go on with --from {chosen[-1].store_timestamp}"
        )


async def _letters(link: Link, group: str) -> AsyncIterator[ReceivedMessage]:
    """The letters one by one, however many; none if nothing of the group ever died."""
    topic = names.dlq_topic(link.admin.namespace.wrap(group))
    if await link.admin.session.fetch_route(topic) is not None:
        async for letter in link.admin.read(topic):
            yield letter


async def _send_all(link: Link, letters: list[ReceivedMessage], rate: float | None) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    with link.screen.progress("letters", len(letters)) as bar:
        for number, letter in enumerate(letters):
            if rate is not None:
                await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            receipt = await link.admin.resend_dead_letter(letter)
            sent.append({"letter": letter.msg_id, "msgId": receipt.msg_id, "topic": receipt.topic})
            bar.advance(bar.task_ids[0])
    return sent
