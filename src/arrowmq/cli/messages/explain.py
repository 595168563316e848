"""`arrowmq message explain`: the life of a message as sentences, in the order of time, each with its reason."""

from __future__ import annotations

from arrowmq.cli.cluster_link import Link
from arrowmq.cli.screen import Column
from arrowmq.inspect.messages.events import events_of
from arrowmq.inspect.messages.finding import message_row
from arrowmq.inspect.messages.history import gather
from arrowmq.inspect.texts import time_text


async def explain_message(link: Link, msg_id: str, topic: str | None) -> None:
    life = await gather(link.admin, msg_id, topic)
    events = events_of(life)
    if link.screen.as_json:
        rows = [{"at": event.at_ms or None, "what": event.what, "text": event.text} for event in events]
        link.screen.json({"message": message_row(life.message), "topic": life.topic, "events": rows})
        return
    message = life.message
    tags = f", tag {message.tag}" if message.tag else ""
    keys = f", keys {', '.join(message.keys)}" if message.keys else ""
    link.screen.say(f"{message.msg_id} of topic {life.topic}, {len(message.body)} bytes{tags}{keys}", "bold")
    link.screen.table(
        [Column("at", "TIME", time_text, is_whole=True), Column("what", "WHAT", is_whole=True), Column("text", "WHY")],
        [{"at": event.at_ms, "what": event.what, "text": event.text} for event in events],
    )
