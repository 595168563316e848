"""`arrowmq user`: create, change, list and delete users."""

from __future__ import annotations

import secrets
from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, broker_option, cluster_option, confirm, connected, yes_option
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column

COLUMNS = [
    Column("username", "USER"),
    Column("type", "TYPE"),
    Column("status", "STATUS"),
    Column("brokers", "BROKERS", ", ".join),
]

_TYPE = click.Choice(["Normal", "Super"], case_sensitive=False)
password_option = click.option(
    "--password",
    envvar="ARROWMQ_USER_PASSWORD",
    help="Better in ARROWMQ_USER_PASSWORD: others on this machine see command lines.",
)


@click.group("user")
def user_group() -> None:
    """Users of a cluster whose brokers check them (authenticationEnabled)."""


@user_group.command("create", epilog=examples("arrowmq user create billing", "arrowmq user create root2 --type Super"))
@click.argument("name")
@password_option
@click.option("--type", "type_", type=_TYPE, default="Normal", show_default=True)
@cluster_option
@broker_option
@connected
async def create(
    link: Link, name: str, password: str | None, type_: str, cluster: str | None, broker: str | None
) -> None:
    """Create a user. Without --password one is made up and shown, once."""
    chosen = password or secrets.token_urlsafe(24)
    targets = await link.admin.targets(cluster, broker)
    for address in targets.values():
        await link.admin.create_user(address, name, chosen, type_)
    made_up = {} if password else {"password": chosen}
    if link.screen.as_json:
        link.screen.json({"username": name, "type": type_, "brokers": sorted(targets), **made_up})
        return
    link.screen.say(
        f"user {name} created at {', '.join(sorted(targets))}; it has no rights yet (`arrowmq acl allow`)"
        if type_ == "Normal"
        else f"super user {name} created at {', '.join(sorted(targets))}"
    )
    if made_up:
        link.screen.say(f"its password is {chosen}")


@user_group.command("update", epilog=examples("arrowmq user update billing --disable"))
@click.argument("name")
@password_option
@click.option("--type", "type_", type=_TYPE)
@click.option("--enable/--disable", "is_enabled", default=None, help="Let it in, or keep it out.")
@cluster_option
@broker_option
@connected
async def update(
    link: Link,
    name: str,
    password: str | None,
    type_: str | None,
    is_enabled: bool | None,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Change a user's password, type or status; the next request is judged by it."""
    if password is None and type_ is None and is_enabled is None:
        raise click.UsageError("nothing to change: give --password, --type, --enable or --disable")
    status = None if is_enabled is None else "enable" if is_enabled else "disable"
    targets = await link.admin.targets(cluster, broker)
    for address in targets.values():
        await link.admin.update_user(address, name, password=password, type=type_, status=status)
    if link.screen.as_json:
        link.screen.json({"username": name, "brokers": sorted(targets)})
    link.screen.say(f"user {name} changed at {', '.join(sorted(targets))}")


@user_group.command("delete", epilog=examples("arrowmq user delete billing --yes"))
@click.argument("name")
@yes_option
@cluster_option
@broker_option
@connected
async def delete(link: Link, name: str, is_sure: bool, cluster: str | None, broker: str | None) -> None:
    """Delete a user with all its rights."""
    targets = await link.admin.targets(cluster, broker)
    found = {where: await link.admin.user(address, name) for where, address in targets.items()}
    if not any(found.values()):
        raise Failure(f"there is no user {name}")
    confirm(f"Delete user {name} and its rights?", is_sure)
    for address in targets.values():
        await link.admin.delete_user(address, name)
    if link.screen.as_json:
        link.screen.json({"username": name, "brokers": sorted(targets)})
    link.screen.say(f"user {name} deleted at {', '.join(sorted(targets))}")


@user_group.command("list", epilog=examples("arrowmq user list"))
@click.argument("part", default="")
@cluster_option
@broker_option
@connected
async def list_(link: Link, part: str, cluster: str | None, broker: str | None) -> None:
    """List users, or those whose name contains PART. Passwords are not shown."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for where, address in (await link.admin.targets(cluster, broker)).items():
        for user in await link.admin.users(address, part):
            key = (user.username or "", user.user_type or "", user.user_status or "")
            row = rows.setdefault(key, {"username": key[0], "type": key[1], "status": key[2], "brokers": []})
            row["brokers"].append(where)
    shown = [rows[key] for key in sorted(rows)]
    if link.screen.as_json:
        link.screen.json(shown)
        return
    link.screen.table(COLUMNS, shown)
    if not shown:
        link.screen.say("There are no such users." if part else "There are no users.")
