"""All users and their policies, as a value. A change gives a new one; nobody sees half of it.

Rules and words are Apache's: an existing user is not created again, rights belong to an existing user and go with it,
and giving rights for a resource replaces those there were for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from arrowmq.auth.errors import AccountError
from arrowmq.auth.policies import Acl, PolicyType, parse_acl
from arrowmq.auth.resources import Resource
from arrowmq.auth.users import User, UserStatus, UserType, new_user, subject_of, user_status, user_type
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo, UserInfo

MAX_USERS = 100_000
VERSION = 1  # of the file's layout


@dataclass(frozen=True, slots=True)
class Accounts:
    users: Mapping[str, User] = field(default_factory=dict, repr=False)
    acls: Mapping[str, Acl] = field(default_factory=dict, repr=False)  # by the user's name

    # Users

    def user(self, name: str) -> User:
        found = self.users.get(name)
        if found is None:
            raise AccountError("The user is not exist")
        return found

    def with_new_user(self, user: User) -> Accounts:
        if user.name in self.users:
            raise AccountError("The user is existed")
        if len(self.users) >= MAX_USERS:
            raise AccountError(f"there are {MAX_USERS} users already, and no more are kept")
        return Accounts(MappingProxyType({**self.users, user.name: user}), self.acls)

    def with_user_changed(
        self, name: str, password: str | None, type: UserType | None, status: UserStatus | None
    ) -> Accounts:
        changed = self.user(name).changed(password, type, status)
        new_user(changed.name, changed.password, changed.type, changed.status)  # for its checks
        return Accounts(MappingProxyType({**self.users, name: changed}), self.acls)

    def without_user(self, name: str) -> Accounts:
        """The same if there is no such user."""
        if name not in self.users:
            return self
        users = {known: user for known, user in self.users.items() if known != name}
        return Accounts(MappingProxyType(users), self._acls_without(name))

    def users_like(self, part: str | None) -> list[User]:
        """Those whose name contains `part`, by name."""
        return [self.users[name] for name in sorted(self.users) if not part or part in name]

    # Policies

    def acl(self, name: str) -> Acl | None:
        """Raises `AccountError` if there is no such user."""
        if name not in self.users:
            raise AccountError("The subject is not exist.")
        return self.acls.get(name)

    def with_acl(self, acl: Acl) -> Accounts:
        """The rights are added to those the user has."""
        if acl.user not in self.users:
            raise AccountError(f"The subject of {subject_of(acl.user)} is not exist.")
        known = self.acls.get(acl.user)
        merged = acl if known is None else known.merged(acl)
        return Accounts(self.users, MappingProxyType({**self.acls, acl.user: merged}))

    def without_acl(self, name: str, type: PolicyType, resource: Resource | None) -> Accounts:
        """Without the rights for one resource, or, if none is named, without any."""
        known = self.acl(name)
        if known is None:
            raise AccountError("The acl is not exist.")
        left = None if resource is None else known.without(type, resource)
        if left is None or not left.policies:
            return Accounts(self.users, self._acls_without(name))
        return Accounts(self.users, MappingProxyType({**self.acls, name: left}))

    def _acls_without(self, name: str) -> Mapping[str, Acl]:
        return MappingProxyType({known: acl for known, acl in self.acls.items() if known != name})

    def acls_like(self, subject_part: str | None, resource_part: str | None) -> list[AclInfo]:
        """Those whose subject contains the one part and, unless it does the same, some resource the other."""
        found = []
        for name in sorted(self.acls):
            subject = subject_of(name)
            if subject_part and subject_part not in subject:
                continue
            wanted = None if resource_part and resource_part in subject else resource_part
            info = self.acls[name].info(wanted)
            if info.policies:
                found.append(info)
        return found


class AccountsBody(msgspec.Struct, kw_only=True, rename="camel"):
    """The file's layout: users and policies in the form in which mqadmin gets them."""

    version: int = 0
    users: list[UserInfo] = []
    acls: list[AclInfo] = []


def user_info(user: User, *, with_password: bool) -> UserInfo:
    return UserInfo(
        username=user.name,
        password=user.password if with_password else None,
        user_type=user.type.value,
        user_status=user.status.value,
    )


def encode_accounts(accounts: Accounts) -> bytes:
    body = AccountsBody(
        version=VERSION,
        users=[user_info(user, with_password=True) for user in accounts.users_like(None)],
        acls=accounts.acls_like(None, None),
    )
    return msgspec.json.format(fastjson.dumps(body), indent=1) + b"\n"


def decode_accounts(data: bytes) -> Accounts:
    """Raises `AccountError` where a user or policy is not valid, and WireError where it is no such file."""
    body = fastjson.loads(data, type=AccountsBody)
    if body.version != VERSION:
        raise AccountError(f"it has layout {body.version}, and this program knows {VERSION}")
    return make_accounts(body.users, body.acls)


def make_accounts(users: Iterable[UserInfo], acls: Iterable[AclInfo]) -> Accounts:
    """Also what a slave makes of its master's answers. Rights of who is not a user are left out."""
    known: dict[str, User] = {}
    for info in users:
        user = new_user(info.username, info.password, user_type(info.user_type), user_status(info.user_status))
        if user.name in known:
            raise AccountError(f"{user.subject} is there twice")
        known[user.name] = user
    rights: dict[str, Acl] = {}
    for acl in map(parse_acl, acls):
        if acl.user in known:
            rights[acl.user] = acl
    return Accounts(MappingProxyType(known), MappingProxyType(rights))
