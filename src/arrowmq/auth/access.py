"""The question that servers ask for every request: who is it, and may they?

    user = access.check(command, source)        raises Denied
    access.require(user, need, source)          for what only the request's outcome tells, as a message's own topic

Both are decisions on values. `check` runs before a request is acted upon, for one-way requests too, each by itself: a
connection is never trusted because an earlier request of it was good. What was found of a user is remembered and
dropped as a whole when users or policies change.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Protocol

from arrowmq.auth.accounts import Accounts
from arrowmq.auth.audit import Audit
from arrowmq.auth.errors import Denied
from arrowmq.auth.needs import Need, needs_of
from arrowmq.auth.policies import Decision, Match
from arrowmq.auth.resources import Action
from arrowmq.auth.settings import AuthSettings
from arrowmq.auth.signature import ACCESS_KEY, is_grpc_signed_with, is_signed_with, read_authorization
from arrowmq.auth.users import User, subject_of
from arrowmq.wire.codes import request_name
from arrowmq.wire.command import Command
from arrowmq.wire.errors import WireError

MAX_REMEMBERED = 100_000

UNSIGNED = "username cannot be null."
WRONG_SIGNATURE = "check signature failed."


class Book(Protocol):
    """Where users and policies are found: a server's own file, or what a proxy has asked its brokers for."""

    on_change: list[Callable[[], object]]

    @property
    def accounts(self) -> Accounts: ...

    def user(self, name: str) -> User | None: ...


class Access:
    def __init__(self, settings: AuthSettings, book: Book, cluster: str, audit: Audit) -> None:
        self.settings = settings
        self.book = book
        self.cluster = cluster
        self.audit = audit
        self._passwords: dict[str, bytes] = {}
        self._allowed: set[tuple[str, str, tuple[Action, ...], str]] = set()
        self.on_change: list[Callable[[], object]] = []
        book.on_change.append(self._forget)

    def _forget(self) -> None:
        self._passwords.clear()
        self._allowed.clear()
        for listener in self.on_change:
            listener()

    def check(self, command: Command, source: str) -> User | None:
        """The user who asks, if the request may be served; None where nobody has to say who they are."""
        if not self.settings.is_authenticating:
            return None
        try:
            user = self._authenticated(command)
        except Denied as no:
            self.audit.denied(command.code, no.who or command.ext.get(ACCESS_KEY, ""), source, "", no.text)
            raise
        self.check_rights(user, command, source)
        return user

    def check_rights(self, user: User | None, command: Command, source: str) -> None:
        """The second half of `check`, for a user who was told apart in another way."""
        if not self.settings.is_authorizing or command.code in self.settings.unauthorized_codes:
            return
        try:
            self._authorize(user, command, source)
        except Denied as no:
            self.audit.denied(command.code, no.who, source, no.resource, no.text)
            raise

    # Who it is

    def _authenticated(self, command: Command) -> User | None:
        if command.code not in self.settings.unauthenticated_codes:
            return self.authenticate(command)
        try:
            # Not asked for a signature; who gives a good one is somebody, who claims a name without one is nobody.
            return self.authenticate(command)
        except Denied:
            return None

    def authenticate(self, command: Command) -> User:
        """Who signed this request. Raises `Denied`."""
        user = self._known(command.ext.get(ACCESS_KEY, ""))
        if not is_signed_with(self._password(user), command):
            raise Denied(WRONG_SIGNATURE, who=user.name)
        return user

    def authenticate_grpc(self, authorization: str, date_time: str) -> User:
        """Who signed this gRPC call, by its metadata. Raises `Denied`."""
        if not authorization.strip():
            raise Denied(UNSIGNED)
        if not date_time:
            raise Denied("datetime is null.")
        given = read_authorization(authorization)
        if given is None:
            raise Denied("authentication header is incorrect.")
        access_key, signature = given
        user = self._known(access_key)
        if not is_grpc_signed_with(self._password(user), signature, date_time):
            raise Denied(WRONG_SIGNATURE, who=user.name)
        return user

    def authenticate_password(self, name: str, password: str) -> User:
        """Who gives a name and a password, as people do at a page. Raises `Denied`, the same for either being wrong."""
        user = self.book.user(name)
        expected = "" if user is None else user.password
        if not compare_digest(expected.encode(), password.encode()) or user is None or not user.is_enabled:
            raise Denied("user or password is wrong", who=name)
        return user

    def _known(self, access_key: str) -> User:
        if not access_key:
            raise Denied(UNSIGNED)
        user = self.book.user(access_key)
        if user is None:
            raise Denied(f"User:{access_key} is not found.", who=access_key)
        if not user.is_enabled:
            raise Denied(f"User:{access_key} is disabled.", who=access_key)
        return user

    def _password(self, user: User) -> bytes:
        known = self._passwords.get(user.name)
        if known is None:
            known = self._passwords[user.name] = user.password.encode("utf-8", "replace")
        return known

    # What they may

    def _authorize(self, user: User | None, command: Command, source: str) -> None:
        if user is not None and user.is_super:
            return
        name = request_name(command.code)
        if user is None:
            raise Denied(f"{name} needs a right, and this request is not signed: no user has none", resource=name)
        try:
            needs = needs_of(command, self.cluster)
        except WireError as fault:
            raise Denied(f"parse authorization context error. {fault}", who=user.name, resource=name) from fault
        if needs is None:
            raise Denied(f"{user.subject} has no permission: {name} is for super users only", who=user.name)
        for need in needs:
            self.require(user, need, source)

    def require(self, user: User | None, need: Need, source: str) -> None:
        """Raises `Denied`, in Apache's words, unless the user may. Servers that do not authorize let everybody."""
        if not self.settings.is_authorizing:
            return
        if user is None:
            raise Denied(
                f"{need.resource.key} needs a user, and this request is not signed", resource=need.resource.key
            )
        if user.is_super:
            return
        key = (user.name, need.resource.key, need.actions, source)
        if key in self._allowed:
            return
        match = self.decide(user.name, need, source)
        if match is None or match.entry.decision is Decision.DENY:
            why = "no matched policies." if match is None else "the decision is deny."
            raise Denied(
                f"{subject_of(user.name)} has no permission to access {need.resource.key} from {source}, {why}",
                who=user.name,
                resource=need.resource.key,
            )
        if len(self._allowed) >= MAX_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(key)

    def decide(self, user: str, need: Need, source: str) -> Match | None:
        """The entry that decides, if any matches."""
        acl = self.book.accounts.acls.get(user)
        return None if acl is None else acl.best_match(need.resource, need.actions, source)

    def has_right(self, user: str, need: Need, source: str) -> bool:
        """By the policies alone, whether or not requests are checked."""
        match = self.decide(user, need, source)
        return match is not None and match.entry.decision is Decision.ALLOW

    def may(self, user: User | None, need: Need, source: str) -> bool:
        try:
            self.require(user, need, source)
        except Denied:
            return False
        return True
