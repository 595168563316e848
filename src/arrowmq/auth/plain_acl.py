"""ACL 1.0's `plain_acl.yml`, turned into users and policies as Apache 5's own migration does.

    accounts:                          each one a user; `admin: true` a super user
    - accessKey, secretKey
      topicPerms, groupPerms           name=PERM: the Custom policy; PERM is DENY, PUB, SUB, PUB|SUB or SUB|PUB
      defaultTopicPerm, …GroupPerm     the Default policy, for all topics and all groups

White lists of addresses have no counterpart and are not taken over: who relies on one must get a user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrowmq.auth.accounts import Accounts
from arrowmq.auth.errors import AccountError
from arrowmq.auth.policies import Acl, Decision, Entry, PolicyType
from arrowmq.auth.resources import Action, Pattern, Resource, ResourceType, group_resource, topic_resource
from arrowmq.auth.users import User, UserType, new_user

_ACTIONS = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
    "DENY": (Action.ALL,),
}
WHITE_LISTS = ("globalWhiteRemoteAddresses", "whiteRemoteAddress")
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Account:
    user: User
    acl: Acl | None


@dataclass(frozen=True, slots=True)
class PlainAcl:
    accounts: tuple[Account, ...]
    #: What the file says and is not taken over, a sentence each
    left_out: tuple[str, ...]


def read_plain_acl(path: Path) -> PlainAcl:
    """Raises `AccountError`, whose text shows no secret."""
    try:
        import yaml
    except ImportError:
        raise AccountError("reading plain_acl.yml needs PyYAML: pip install 'arrowmq[acl]'") from None
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AccountError(f"{path} is longer than {MAX_BYTES} bytes")
        content = yaml.safe_load(path.read_bytes())
    except OSError as problem:
        raise AccountError(f"{path} cannot be read: {problem.strerror}") from problem
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        mark = getattr(fault, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}"
        raise AccountError(f"{path}{place}: this is no YAML") from None
    return convert(content)


def convert(content: Any) -> PlainAcl:
    """The accounts of a parsed file; of two with the same key the first counts."""
    if content is None:
        return PlainAcl((), ())
    if not isinstance(content, dict):
        raise AccountError("a plain_acl.yml begins with `accounts:`")
    left_out = []
    if content.get(WHITE_LISTS[0]):
        left_out.append("globalWhiteRemoteAddresses: addresses that need no signature do not exist here")
    accounts: dict[str, Account] = {}
    for number, account in enumerate(_list(content, "accounts"), 1):
        if not isinstance(account, dict):
            raise AccountError(f"account {number} is no list of keys")
        made = _account(account, number)
        if made.user.name in accounts:
            left_out.append(f"account {number}: {made.user.name} is there already")
            continue
        if account.get(WHITE_LISTS[1]):
            left_out.append(f"{made.user.name}: whiteRemoteAddress, it has to sign like everybody")
        accounts[made.user.name] = made
    return PlainAcl(tuple(accounts.values()), tuple(left_out))


def _account(account: dict[Any, Any], number: int) -> Account:
    type = UserType.SUPER if account.get("admin") is True else UserType.NORMAL
    try:
        user = new_user(_text(account.get("accessKey")), _text(account.get("secretKey")), type, None)
    except AccountError as fault:
        raise AccountError(f"account {number}: {fault}") from None
    custom = [
        *_entries(account, "topicPerms", topic_resource, user),
        *_entries(account, "groupPerms", group_resource, user),
    ]
    default = [
        _entry(Resource(kind, None, Pattern.ANY), perm)
        for kind, key in ((ResourceType.TOPIC, "defaultTopicPerm"), (ResourceType.GROUP, "defaultGroupPerm"))
        if (perm := _text(account.get(key)))
    ]
    policies = [(PolicyType.CUSTOM, tuple(custom)), (PolicyType.DEFAULT, tuple(default))]
    kept = tuple((kind, entries) for kind, entries in policies if entries)
    return Account(user, Acl(user.name, kept) if kept else None)


def _entries(account: dict[Any, Any], key: str, resource: Any, user: User) -> Iterable[Entry]:
    for item in _list(account, key):
        name, equals, perm = str(item).partition("=")
        if not equals or not name.strip() or "=" in perm:
            raise AccountError(f"{user.name}: {key} holds {str(item)[:80]!r}; write NAME=PUB|SUB")
        yield _entry(resource(name.strip()), perm.strip())


def _entry(resource: Resource, perm: str) -> Entry:
    actions = _ACTIONS.get(perm.upper())
    if actions is None:
        raise AccountError(f"{resource.key}={perm[:40]!r}: a permission is DENY, PUB, SUB or PUB|SUB")
    return Entry(resource, actions, (), Decision.DENY if perm.upper() == "DENY" else Decision.ALLOW)


def _list(content: dict[Any, Any], key: str) -> list[Any]:
    found = content.get(key) or []
    if not isinstance(found, list):
        raise AccountError(f"{key} is a list")
    return found


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def taken_over(accounts: Accounts, plain: PlainAcl) -> Accounts:
    """With those who are not users yet; an existing user keeps password and rights."""
    for account in plain.accounts:
        if account.user.name in accounts.users:
            continue
        accounts = accounts.with_new_user(account.user)
        if account.acl is not None:
            accounts = accounts.with_acl(account.acl)
    return accounts
