"""Users, what they may do, and why something is denied; of clusters whose brokers check that."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from arrowmq.auth.errors import AccountError
from arrowmq.auth.policies import Decision, parse_acl
from arrowmq.auth.resources import Action, parse_resource
from arrowmq.auth.sources import parse_sources
from arrowmq.client.errors import Refused
from arrowmq.console.api.changes import confirmed
from arrowmq.console.api.cluster.pairs import reason
from arrowmq.console.api.declare import Call, Done, Name, Query, Struct, endpoint
from arrowmq.console.errors import bad_request, not_found
from arrowmq.wire.bodies import AclInfo
from arrowmq.wire.codes import ResponseCode

ActionName = Literal["All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]


class UserRow(Struct, kw_only=True):
    username: str
    kind: str
    is_enabled: bool
    policies: int


class EntryRow(Struct, kw_only=True):
    subject: str
    policy: str
    resource: str
    actions: list[str]
    source_ips: list[str]
    decision: str


class UsersAnswer(Struct, kw_only=True):
    is_authenticated: bool
    is_authorized: bool
    #: Why there is nothing to show, if so
    lacks: str | None
    users: list[UserRow]
    rows: list[EntryRow]


@endpoint("GET", "/api/users", tag="users")
async def users(call: Call) -> UsersAnswer:
    """Users and what they may do, as the first master tells; what a cluster without them lacks is said."""
    snapshot = await call.console.gatherer.fresh()
    admin = await call.admin()
    answer = UsersAnswer(is_authenticated=False, is_authorized=False, lacks=None, users=[], rows=[])
    address = next(iter(snapshot.masters.values()), None)
    if address is None:
        answer.lacks = "no master answers"
        return answer
    config = await admin.broker_config(address)
    answer.is_authenticated = config.get("authenticationEnabled") == "true"
    answer.is_authorized = config.get("authorizationEnabled") == "true"
    try:
        found = await admin.users(address)
        acls = await admin.all_rights(address)
    except Refused as refused:
        if refused.code == ResponseCode.NO_PERMISSION:
            raise
        answer.lacks = reason(refused)
        return answer
    answer.rows = [row for acl in acls for row in _entries(acl)]
    counts: dict[str, int] = {}
    for row in answer.rows:
        counts[row.subject] = counts.get(row.subject, 0) + 1
    answer.users = sorted(
        (
            UserRow(
                username=each.username or "",
                kind=each.user_type or "Normal",
                is_enabled=(each.user_status or "enable").lower() == "enable",
                policies=counts.get(f"User:{each.username}", 0),
            )
            for each in found
        ),
        key=lambda row: row.username,
    )
    return answer


def _entries(acl: AclInfo) -> list[EntryRow]:
    return [
        EntryRow(
            subject=acl.subject or "?",
            policy=policy.policy_type or "Custom",
            resource=entry.resource or "?",
            actions=entry.actions,
            source_ips=entry.source_ips or [],
            decision=entry.decision or "?",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]


# -- changes

Username = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[\w.@-]+$")]


class NewUser(Struct, kw_only=True, forbid_unknown_fields=True):
    username: Username
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    is_super: bool = False


class UserChange(Struct, kw_only=True, forbid_unknown_fields=True):
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    is_super: bool | None = None
    is_enabled: bool | None = None


class UserQuery(Query, kw_only=True):
    username: Username


class UserDeletion(UserQuery, kw_only=True):
    confirm: str = ""


@endpoint("POST", "/api/users", tag="users")
async def create_user(call: Call, body: NewUser) -> Done:
    """Create a user on every master."""
    admin = await call.admin()
    for address in (await admin.masters()).values():
        await admin.create_user(address, body.username, body.password, "Super" if body.is_super else "Normal")
    return Done(done=f"user {body.username} is created")


@endpoint("PUT", "/api/users/{username}", tag="users")
async def change_user(call: Call, query: UserQuery, body: UserChange) -> Done:
    """Change a user's password, kind or state."""
    admin = await call.admin()
    kind = None if body.is_super is None else ("Super" if body.is_super else "Normal")
    status = None if body.is_enabled is None else ("enable" if body.is_enabled else "disable")
    for address in (await admin.masters()).values():
        await admin.update_user(address, query.username, password=body.password, type=kind, status=status)
    return Done(done=f"user {query.username} is changed")


@endpoint("DELETE", "/api/users/{username}", tag="users")
async def delete_user(call: Call, query: UserDeletion) -> Done:
    """Delete a user; `confirm` must be the name."""
    confirmed(query.confirm, query.username, "user", "its rights are gone with it")
    admin = await call.admin()
    for address in (await admin.masters()).values():
        await admin.delete_user(address, query.username)
    return Done(done=f"user {query.username} is deleted")


class NewPolicy(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a user may do with a resource: `Topic:orders`, `Topic:ord*`, `Group:*`, `Cluster:*`."""

    username: Username
    resource: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    actions: Annotated[list[ActionName], msgspec.Meta(min_length=1, max_length=8)]
    source_ips: Annotated[list[str], msgspec.Meta(max_length=50)] = msgspec.field(default_factory=list)
    decision: Literal["Allow", "Deny"] = "Allow"


@endpoint("POST", "/api/policies", tag="users")
async def create_policy(call: Call, body: NewPolicy) -> Done:
    """Add what a user may, or may not, do with a resource."""
    try:
        parse_resource(body.resource)
        parse_sources(body.source_ips)
    except AccountError as wrong:
        raise bad_request(str(wrong)) from wrong
    admin = await call.admin()
    for address in (await admin.masters()).values():
        await admin.give_rights(
            address,
            body.username,
            [body.resource],
            body.actions,
            sources=body.source_ips,
            decision=body.decision,
        )
    return Done(done=f"{body.username}: {body.decision} {', '.join(body.actions)} on {body.resource}")


class PolicyDeletion(Query, kw_only=True):
    subject: Name
    resource: Name
    policy: str = "Custom"


@endpoint("DELETE", "/api/policies", tag="users")
async def delete_policy(call: Call, query: PolicyDeletion) -> Done:
    """Take back what a subject may do with a resource."""
    admin = await call.admin()
    user = query.subject.removeprefix("User:")
    for address in (await admin.masters()).values():
        await admin.take_rights(address, user, query.resource, query.policy)
    return Done(done=f"{query.subject} has no policy for {query.resource} any more")


# -- why


class WhyQuery(Query, kw_only=True):
    username: Username
    resource: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    action: ActionName
    address: Annotated[str, msgspec.Meta(max_length=60)] = ""


class WhyAnswer(Struct, kw_only=True):
    is_allowed: bool
    #: Names of sentences, in the order in which it was decided
    why: str
    entry: str | None


@endpoint("GET", "/api/users/why", tag="users")
async def why_denied(call: Call, query: WhyQuery) -> WhyAnswer:
    """Whether a user may do something, and which policy decides it, as the brokers decide it."""
    try:
        resource = parse_resource(query.resource)
    except AccountError as wrong:
        raise bad_request(str(wrong)) from wrong
    answer = await users(call)
    if answer.lacks is not None:
        raise not_found(f"this cluster has no users: {answer.lacks}")
    user = next((each for each in answer.users if each.username == query.username), None)
    if user is None:
        return WhyAnswer(is_allowed=False, why="nouser", entry=None)
    if not user.is_enabled:
        return WhyAnswer(is_allowed=False, why="disabled", entry=None)
    if user.kind.lower() == "super":
        return WhyAnswer(is_allowed=True, why="super", entry=None)
    if not answer.is_authorized:
        return WhyAnswer(is_allowed=True, why="unchecked", entry=None)
    snapshot = await call.console.gatherer.fresh()
    admin = await call.admin()
    acl = await admin.rights(next(iter(snapshot.masters.values())), query.username)
    match = None
    if acl is not None and acl.policies:
        try:
            match = parse_acl(acl).best_match(resource, [Action(query.action)], query.address)
        except AccountError as wrong:
            raise bad_request(f"the policies of {query.username} cannot be read: {wrong}") from wrong
    if match is None:
        return WhyAnswer(is_allowed=False, why="nopolicy", entry=None)
    return WhyAnswer(
        is_allowed=match.entry.decision is Decision.ALLOW,
        why="policy",
        entry=f"{match.policy.value}: {match.entry.text}",
    )
