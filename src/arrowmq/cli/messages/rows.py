"""How messages are found and shown: shared by `message`, `dead-letters` and `explain`."""

from __future__ import annotations

from arrowmq.cli.cluster_link import Link
from arrowmq.cli.screen import Column
from arrowmq.client.message import ReceivedMessage
from arrowmq.inspect.messages import finding
from arrowmq.inspect.messages.finding import message_row
from arrowmq.inspect.texts import body_text, time_text

MESSAGE_COLUMNS = [
    Column("stored", "STORED", time_text, is_whole=True),
    Column("msgId", "ID", is_whole=True),
    Column("broker", "BROKER", is_extra=True),
    Column("queueId", "QUEUE", is_number=True, is_extra=True),
    Column("queueOffset", "OFFSET", is_number=True, is_extra=True),
    Column("tag", "TAG"),
    Column("keys", "KEYS", is_extra=True),
    Column("body", "BODY", lambda body: body[:200].replace("\n", " "), is_cut=True),
]


def show_message(link: Link, message: ReceivedMessage) -> None:
    """One message with everything that is known of it."""
    row = message_row(message)
    if link.screen.as_json:
        link.screen.json(row)
        return
    link.screen.fields(
        [
            ("id", row["msgId"]),
            ("broker's id", row["offsetMsgId"]),
            ("topic", row["topic"]),
            ("place", f"{row['broker'] or '?'} queue {row['queueId']} offset {row['queueOffset']}"),
            ("in the log at", f"{row['physicalOffset']} ({row['size']} bytes)"),
            ("born", f"{time_text(row['born'])} at {row['bornHost']}"),
            ("stored", f"{time_text(row['stored'])} at {row['storeHost']}"),
            ("tag", row["tag"]),
            ("keys", row["keys"]),
            ("tries before", row["reconsumeTimes"]),
        ]
    )
    link.screen.say("")
    link.screen.fields(sorted(row["properties"].items()), title="properties")
    link.screen.say("")
    link.screen.say(f"body, {len(message.body)} bytes", "bold")
    link.screen.say(body_text(message.body, 10_000))


async def find_by_id(link: Link, msg_id: str, topic: str | None) -> ReceivedMessage:
    """The message, with a bar while many topics are searched."""
    with link.screen.progress("topics", None) as bar:

        def searched(total: int) -> None:
            bar.update(bar.task_ids[0], advance=1, total=total)

        return await finding.find_by_id(link.admin, msg_id, topic, on_searched=searched)
