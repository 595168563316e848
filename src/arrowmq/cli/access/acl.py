"""`arrowmq acl`: rights of users; which of them decides; and accounts of ACL 1.0 taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from arrowmq.auth.errors import AccountError
from arrowmq.auth.plain_acl import Account, read_plain_acl
from arrowmq.auth.policies import Acl, Decision, PolicyType, parse_acl, parse_actions
from arrowmq.auth.resources import Pattern, Resource, parse_resource
from arrowmq.cli.cluster_link import Failure, Link, broker_option, cluster_option, confirm, connected, yes_option
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column
from arrowmq.wire.bodies import AclInfo

COLUMNS = [
    Column("user", "USER"),
    Column("policy", "POLICY"),
    Column("decision", "DECISION"),
    Column("actions", "ACTIONS", ",".join),
    Column("resource", "RESOURCE"),
    Column("sources", "FROM", lambda found: ",".join(found) or "anywhere"),
    Column("broker", "BROKER", is_extra=True),
]

_RESOURCES = click.argument("resources", nargs=-1, required=True, metavar="RESOURCE…")
_source_option = click.option("--from", "sources", multiple=True, metavar="IP", help="Only from here (IP or network).")
_default_option = click.option(
    "--default", "is_default", is_flag=True, help="In the Default policy: after all Custom ones."
)


@click.group("acl")
def acl_group() -> None:
    """Rights of users: Topic:NAME, Group:NAME, Cluster:NAME, with * for all or at the end of a name."""


def _given(actions: str, resources: tuple[str, ...]) -> list[str]:
    """The names of the actions; says no before anything is asked of a broker."""
    try:
        found = [action.value for action in parse_actions(actions.split(","))]
        for resource in resources:
            parse_resource(resource)
    except AccountError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    return found


@acl_group.command(
    "allow",
    epilog=examples(
        "arrowmq acl allow billing Pub Topic:invoices",
        "arrowmq acl allow billing Sub Topic:orders Group:billing --from 10.0.0.0/8",
    ),
)
@click.argument("user")
@click.argument("actions", metavar="ACTION[,…]")
@_RESOURCES
@_source_option
@_default_option
@cluster_option
@broker_option
@connected
async def allow(link: Link, **given: Any) -> None:
    """Allow USER actions (Pub, Sub, Create, Update, Delete, Get, List, All) on resources."""
    await _give(link, Decision.ALLOW, **given)


@acl_group.command("deny", epilog=examples("arrowmq acl deny billing All Topic:salaries"))
@click.argument("user")
@click.argument("actions", metavar="ACTION[,…]")
@_RESOURCES
@_source_option
@_default_option
@cluster_option
@broker_option
@connected
async def deny(link: Link, **given: Any) -> None:
    """Deny USER actions on resources that a wider rule would allow."""
    await _give(link, Decision.DENY, **given)


async def _give(
    link: Link,
    decision: Decision,
    user: str,
    actions: str,
    resources: tuple[str, ...],
    sources: tuple[str, ...],
    is_default: bool,
    cluster: str | None,
    broker: str | None,
) -> None:
    names = _given(actions, resources)
    policy = PolicyType.DEFAULT if is_default else PolicyType.CUSTOM
    targets = await link.admin.targets(cluster, broker)
    for address in targets.values():
        await link.admin.give_rights(
            address, user, resources, names, sources=sources, decision=decision.value, policy=policy.value
        )
    if link.screen.as_json:
        link.screen.json({"user": user, "decision": decision.value, "actions": names, "resources": list(resources)})
    said = f"{decision.value.lower()} {','.join(names)} on {', '.join(resources)}"
    link.screen.say(f"{user}: {said}, at {', '.join(sorted(targets))}")


@acl_group.command(
    "delete", epilog=examples("arrowmq acl delete billing Topic:orders", "arrowmq acl delete billing --yes")
)
@click.argument("user")
@click.argument("resource", required=False)
@_default_option
@yes_option
@cluster_option
@broker_option
@connected
async def delete(
    link: Link,
    user: str,
    resource: str | None,
    is_default: bool,
    is_sure: bool,
    cluster: str | None,
    broker: str | None,
) -> None:
    """Take the rights on RESOURCE from a user; without one, all rights."""
    if resource is None:
        confirm(f"Take all rights from {user}?", is_sure)
    else:
        _given("All", (resource,))
    policy = PolicyType.DEFAULT if is_default else PolicyType.CUSTOM
    targets = await link.admin.targets(cluster, broker)
    for address in targets.values():
        await link.admin.take_rights(address, user, resource, policy.value)
    if link.screen.as_json:
        link.screen.json({"user": user, "resource": resource, "brokers": sorted(targets)})
    link.screen.say(f"{user} has lost {resource or 'all rights'} at {', '.join(sorted(targets))}")


@acl_group.command("list", epilog=examples("arrowmq acl list", "arrowmq acl list billing --resource Topic:orders"))
@click.argument("user", default="")
@click.option("--resource", "resource_part", default="", help="Only rights on resources that contain this.")
@cluster_option
@broker_option
@connected
async def list_(link: Link, user: str, resource_part: str, cluster: str | None, broker: str | None) -> None:
    """List rights, of all users or of those whose name contains USER."""
    rows: list[dict[str, Any]] = []
    for where, address in (await link.admin.targets(cluster, broker)).items():
        for acl in await link.admin.all_rights(address, user, resource_part):
            rows += _rows(acl, where)
    if link.screen.as_json:
        link.screen.json(rows)
        return
    link.screen.table(COLUMNS, rows)
    if not rows:
        link.screen.say("Nobody has such rights.")


def _rows(acl: AclInfo, where: str) -> list[dict[str, Any]]:
    return [
        {
            "user": (acl.subject or "").removeprefix("User:"),
            "policy": policy.policy_type,
            "decision": entry.decision,
            "actions": entry.actions,
            "resource": entry.resource,
            "sources": entry.source_ips or [],
            "broker": where,
        }
        for policy in acl.policies
        for entry in policy.entries
    ]


@acl_group.command("test", epilog=examples("arrowmq acl test billing Pub Topic:invoices --from 10.0.0.7"))
@click.argument("user")
@click.argument("action")
@click.argument("resource")
@click.option("--from", "source", default="127.0.0.1", show_default=True, metavar="IP", help="Where it asks from.")
@cluster_option
@broker_option
@connected
async def test(
    link: Link, user: str, action: str, resource: str, source: str, cluster: str | None, broker: str | None
) -> None:
    """May USER do ACTION on RESOURCE? Says which rule decides. The exit code is 0 if so, 1 if not."""
    try:
        (wanted,) = parse_actions([action])
        asked = parse_resource(resource)
    except AccountError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if asked.pattern is not Pattern.LITERAL:
        raise click.UsageError("ask about one resource: Topic:NAME, Group:NAME or Cluster:NAME")
    found = []
    for where, address in (await link.admin.targets(cluster, broker)).items():
        known = await link.admin.user(address, user)
        acl = await link.admin.rights(address, user) if known is not None else None
        may, why = _judge(known, None if acl is None else parse_acl(acl), asked, wanted, source)
        found.append({"broker": where, "allowed": may, "why": why})
    if link.screen.as_json:
        link.screen.json(found)
    for each in found:
        link.screen.say(f"{each['broker']}: {'yes' if each['allowed'] else 'no'}, {each['why']}")
    if not all(each["allowed"] for each in found):
        raise Failure(f"{user} may not {wanted.value} on {resource} from {source}")


def _judge(user: Any, acl: Acl | None, asked: Resource, wanted: Any, source: str) -> tuple[bool, str]:
    if user is None:
        return False, "there is no such user"
    if (user.user_status or "").lower() == "disable":
        return False, "the user is disabled"
    if (user.user_type or "").lower() == "super":
        return True, "it is a super user, who may everything"
    match = None if acl is None else acl.best_match(asked, (wanted,), source)
    if match is None:
        count = 0 if acl is None else sum(len(entries) for _, entries in acl.policies)
        return False, f"none of its {count} rules matches"
    return match.entry.decision is Decision.ALLOW, f"by the {match.policy.value} rule: {match.entry.text}"


@acl_group.command("import", epilog=examples("arrowmq acl import conf/plain_acl.yml"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@cluster_option
@broker_option
@connected
async def import_(link: Link, file: Path, cluster: str | None, broker: str | None) -> None:
    """Take over the accounts of ACL 1.0's plain_acl.yml. Users who are there keep password and rights."""
    try:
        plain = read_plain_acl(file)
    except AccountError as wrong:
        raise Failure(str(wrong)) from wrong
    made: dict[str, list[str]] = {}
    for where, address in (await link.admin.targets(cluster, broker)).items():
        known = {user.username for user in await link.admin.users(address)}
        made[where] = [account.user.name for account in plain.accounts if account.user.name not in known]
        for account in plain.accounts:
            if account.user.name in made[where]:
                await _make(link, address, account)
    for sentence in plain.left_out:
        link.screen.warn(f"not taken over: {sentence}")
    if link.screen.as_json:
        link.screen.json(made)
    for where, names in made.items():
        link.screen.say(
            f"{where}: {len(names)} of {len(plain.accounts)} accounts taken over"
            + (f" ({', '.join(names)})" if names else "")
        )


async def _make(link: Link, address: str, account: Account) -> None:
    user = account.user
    await link.admin.create_user(address, user.name, user.password, user.type.value)
    if account.acl is not None:
        await link.admin.give_acl(address, account.acl.info())
