"""`arrowmq offset`: where a group stands in each queue, and setting it back or on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import click

from arrowmq.cli.cluster_link import Link, confirm, connected, yes_option
from arrowmq.cli.completion import complete_group, complete_topic
from arrowmq.cli.examples import examples
from arrowmq.cli.group import QUEUE_COLUMNS, queue_rows
from arrowmq.cli.screen import TIME, Column
from arrowmq.client.admin.offsets import PlannedReset
from arrowmq.inspect.texts import counted
from arrowmq.wire.message_queue import MessageQueue


@click.group("offset")
def offset_group() -> None:
    """Show and reset the offsets of a group."""


@offset_group.command("show", epilog=examples("arrowmq offset show billing --topic orders"))
@click.argument("group", shell_complete=complete_group)
@click.option("--topic", help="Only this topic.", shell_complete=complete_topic)
@connected
async def show(link: Link, group: str, topic: str | None) -> None:
    """Show where a group stands in each queue."""
    await link.admin.group_config(group)
    if topic is not None:
        await link.admin.route(topic)
    rows = queue_rows(await link.admin.consume_stats(group, topic))
    if link.screen.as_json:
        link.screen.json(rows)
    elif not rows:
        link.screen.say(f"Group {group} has no offsets yet: it has never committed one.")
    else:
        link.screen.table(QUEUE_COLUMNS, rows)
        link.screen.say(f"lag: {counted(sum(row['lag'] for row in rows), 'message')} in {counted(len(rows), 'queue')}")


@offset_group.command(
    "reset",
    epilog=examples(
        "arrowmq offset reset billing orders --to-time 2026-01-31T12:00 --dry-run",
        "arrowmq offset reset billing orders --to-time 30m",
        "arrowmq offset reset billing orders --to-offset 120 --queue broker-a:3 --yes",
    ),
)
@click.argument("group", shell_complete=complete_group)
@click.argument("topic", shell_complete=complete_topic)
@click.option("--to-time", type=TIME, help="The first message stored at or after: ISO 8601, ms, or 30m/2h/3d ago.")
@click.option("--to-end", is_flag=True, help="Skip everything that is stored now.")
@click.option("--to-begin", is_flag=True, help="Consume everything that is stored again.")
@click.option("--to-offset", type=click.IntRange(0), help="This offset.")
@click.option("--queue", "queues", multiple=True, metavar="BROKER:QUEUE", help="Only this queue; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@connected
async def reset(
    link: Link,
    group: str,
    topic: str,
    to_time: int | None,
    to_end: bool,
    to_begin: bool,
    to_offset: int | None,
    queues: tuple[str, ...],
    dry_run: bool,
    is_sure: bool,
) -> None:
    """Set a group back or on: to a time, an offset, or either end of a topic's queues.

    The plan is shown first. Members that run go on from the new offsets with their next pull.
    """
    to = _target(to_time, to_end, to_begin, to_offset)
    await link.admin.group_config(group)
    plan = await link.admin.plan_reset(group, topic, to, queues=_queues(topic, queues))
    rows = [_row(step) for step in plan]
    again = sum(max(0, -row["moves"]) for row in rows)
    skipped = sum(max(0, row["moves"]) for row in rows)
    if not link.screen.as_json:
        link.screen.table(
            [
                Column("broker", "BROKER"),
                Column("queueId", "QUEUE", is_number=True),
                Column("minOffset", "FIRST", is_number=True),
                Column("maxOffset", "NEXT", is_number=True),
                Column("current", "NOW AT", is_number=True),
                Column("target", "RESET TO", is_number=True),
                Column("moves", "MOVES", lambda moves: f"{moves:+d}", is_number=True),
            ],
            rows,
        )
        link.screen.say(f"{counted(again, 'message')} would be consumed again, {skipped} skipped.")
    if not dry_run:
        confirm(f"Reset group {group} in {counted(len(rows), 'queue')} of {topic}?", is_sure)
        await link.admin.apply_reset(group, plan)
    if link.screen.as_json:
        link.screen.json({"group": group, "topic": topic, "isDone": not dry_run, "queues": rows})
    else:
        link.screen.say("Nothing was changed (--dry-run)." if dry_run else f"group {group} is reset")


def _target(
    to_time: int | None, to_end: bool, to_begin: bool, to_offset: int | None
) -> datetime | int | Literal["first", "last"]:
    if sum((to_time is not None, to_end, to_begin, to_offset is not None)) != 1:
        raise click.UsageError("say where to: exactly one of --to-time, --to-offset, --to-begin, --to-end")
    if to_time is not None:
        return datetime.fromtimestamp(to_time / 1000)
    if to_offset is not None:
        return to_offset
    return "last" if to_end else "first"


def _queues(topic: str, given: tuple[str, ...]) -> list[MessageQueue] | None:
    found = []
    for word in given:
        broker, _, number = word.rpartition(":")
        if not broker or not number.isdigit():
            raise click.BadParameter(f"{word!r} is no queue: give it as broker-a:3", param_hint="--queue")
        found.append(MessageQueue(topic, broker, int(number)))
    return found or None


def _row(step: PlannedReset) -> dict[str, Any]:
    return {
        "broker": step.queue.broker_name,
        "queueId": step.queue.queue_id,
        "minOffset": step.first,
        "maxOffset": step.last,
        "current": step.current,
        "target": step.target,
        "moves": step.target - (step.current if step.current is not None else step.first),
    }
