"""`arrowmq client list`: who is connected, with which subscription."""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.cluster_link import Link, connected
from arrowmq.cli.completion import complete_group
from arrowmq.cli.examples import examples
from arrowmq.cli.group import member_rows, members_everywhere, subscription_rows
from arrowmq.cli.screen import Column
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.names import RETRY_PREFIX


@click.group("client")
def client_group() -> None:
    """Who is connected, with which subscription."""


@client_group.command("list", epilog=examples("arrowmq client list --group billing"))
@click.option("--group", help="Only this group.", shell_complete=complete_group)
@click.option("--role", type=click.Choice(["producer", "consumer"]), help="Only these.")
@connected
async def list_clients(link: Link, group: str | None, role: str | None) -> None:
    """List producers and consumers that are online, with their groups and subscriptions."""
    rows: list[dict[str, Any]] = []
    if role != "producer":
        rows += await _consumers(link, group)
    if role != "consumer":
        rows += await _producers(link, group)
    if link.screen.as_json:
        link.screen.json(rows)
        return
    if not rows:
        link.screen.say("Nobody is connected." if group is None else f"Nobody of group {group} is connected.")
        return
    link.screen.table(
        [
            Column("role", "ROLE"),
            Column("group", "GROUP"),
            Column("clientId", "CLIENT"),
            Column("address", "ADDRESS", is_extra=True),
            Column("language", "LANGUAGE", is_extra=True),
            Column("version", "VERSION", is_number=True, is_extra=True),
            Column("subscriptions", "SUBSCRIPTIONS", _subscription_text),
        ],
        rows,
    )


def _subscription_text(found: list[dict[str, str]]) -> str:
    own = (each for each in found if not each["topic"].startswith(RETRY_PREFIX))  # everybody has that one
    return "\n".join(f"{each['topic']}: {each['expression']}" for each in own)


async def _consumers(link: Link, group: str | None) -> list[dict[str, Any]]:
    groups = [group] if group is not None else await link.admin.groups()
    rows = []
    with link.screen.progress("groups", len(groups)) as bar:
        for name in groups:
            online = await members_everywhere(link, name)
            subscriptions = subscription_rows(online)
            rows += [
                {"role": "consumer", "group": name, **member, "subscriptions": subscriptions}
                for member in member_rows(online)
            ]
            bar.advance(bar.task_ids[0])
    return rows


async def _producers(link: Link, group: str | None) -> list[dict[str, Any]]:
    masters = await link.admin.masters()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for table in (await each_of(masters, lambda name: link.admin.producers_at(masters[name]))).values():
        for name, members in table.items():
            for member in members if group in (None, name) else []:
                found[name, member.client_id] = {
                    "role": "producer",
                    "group": name,
                    "clientId": member.client_id,
                    "address": member.remote_ip.lstrip("/"),
                    "language": member.language,
                    "version": member.version,
                    "subscriptions": None,
                }
    return [found[key] for key in sorted(found)]
