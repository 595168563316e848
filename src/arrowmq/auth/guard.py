"""The guard of a server: its users, and the request hooks that let them in.

Where it is on, every request of every port is checked before its handler sees it, one-way requests too. A
request from inside the process (`DirectCall`) comes with its user in `call.user`, or is nobody's and refused.

A few requests tell only when they are under way whose message they touch; their handlers ask `guard.require_topic`.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from arrowmq.auth.access import Access
from arrowmq.auth.account_book import AccountBook
from arrowmq.auth.accounts import Accounts
from arrowmq.auth.audit import Audit
from arrowmq.auth.errors import AccountError, Denied
from arrowmq.auth.needs import CHANGES, Need, needs_of
from arrowmq.auth.plain_acl import read_plain_acl, taken_over
from arrowmq.auth.resources import Action, group_resource, is_retry_topic, topic_resource
from arrowmq.auth.settings import AuthSettings
from arrowmq.auth.signature import ACCESS_KEY, sign
from arrowmq.auth.users import User, UserType
from arrowmq.clock import Clock
from arrowmq.config import ConfigError
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.greeting import ADDRESS
from arrowmq.remoting.handlers import Call, Hook, Refused
from arrowmq.store.disk import Disk
from arrowmq.touches import Steps, Touches
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command

log = logging.getLogger(__name__)

MOST_UNBELIEVED = 100
PLAIN_ACL = Path("conf") / "plain_acl.yml"

# Their services write audit lines that say more.
_TELL_THEMSELVES = frozenset(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))


class Guard:
    """`name` is the server's in audit lines, `folder` where its users are kept."""

    def __init__(
        self, settings: AuthSettings, name: str, cluster: str, folder: Path, clock: Clock, disk: Disk | None = None
    ) -> None:
        self.settings = settings
        self.book = AccountBook(folder, disk)
        self.audit = Audit(name, clock)
        self.access = Access(settings, self.book, cluster, self.audit)
        self._unbelieved: set[str] = set()  # who sent a PROXY header in vain, and was logged

    @property
    def is_on(self) -> bool:
        return self.settings.is_on

    # Before a server serves

    def load(self) -> None:
        """Reads the users, and adds those that the settings name and that are not there. Raises `ConfigError`."""
        self.book.load()
        settings = self.settings
        inner = settings.inner_credentials
        wanted = [settings.init_user]
        if inner is not None:
            wanted.append(User(inner.access_key, inner.secret_key, UserType.SUPER))
        for user in wanted:
            if user is not None and self.book.user(user.name) is None:
                self.book.change_now(partial(_with_new_user, user))
                log.info("super user %s made, as the settings ask", user.name)
        if settings.migrates_from_v1:
            self._migrate(Path(settings.acl_file) if settings.acl_file else PLAIN_ACL)
        if settings.is_on and not self.book.accounts.users:
            log.warning(
                "authenticationEnabled=true and there are no users, so nobody may do anything: "
                "set initAuthenticationUser to begin with one"
            )

    def _migrate(self, path: Path) -> None:
        if not path.exists():
            log.warning("migrateAuthFromV1Enabled=true and there is no %s: no accounts are taken over", path)
            return
        try:
            plain = read_plain_acl(path)
            self.book.change_now(lambda accounts: taken_over(accounts, plain))
        except AccountError as fault:
            raise ConfigError(f"migrateAuthFromV1Enabled: {fault}") from None
        log.info("accounts of %s taken over where they were not users yet: %d", path, len(plain.accounts))
        for sentence in plain.left_out:
            log.warning("not taken over from %s: %s", path, sentence)

    # Requests

    def watch(self, hooks: Steps[Hook]) -> None:
        """Put this guard before the handlers."""
        if self.is_on:
            hooks.add(self.check)  # declares nothing: it touches every request
            hooks.add(self.write_down, Touches(codes=CHANGES - _TELL_THEMSELVES))

    def check(self, call: Call) -> None:
        """Refuses a call that its sender may not make; remembers who that is."""
        source = self.source_of(call.connection)
        try:
            if call.user is None:
                call.user = self.access.check(call.command, source)
            else:
                self.access.check_rights(call.user, call.command, source)
        except Denied as no:
            raise Refused(ResponseCode.NO_PERMISSION, no.text) from None

    def write_down(self, call: Call) -> None:
        """The audit line of an administrator's request that was let through."""
        command = call.command
        who = call.user.name if call.user is not None else ""
        try:
            needs = needs_of(command, self.access.cluster) or ()
        except WireError:
            needs = ()
        self.audit.asked(command.code, who, call.connection.peer_text, " ".join(need.resource.key for need in needs))

    def require_topic(self, call: Call, topic: str, *actions: Action) -> None:
        """For a message whose topic only the store tells; a message of a retry topic is its group's."""
        if not self.is_on:
            return
        resource = group_resource(topic) if is_retry_topic(topic) else topic_resource(topic)
        try:
            self.access.require(call.user, Need(resource, actions), self.source_of(call.connection))
        except Denied as no:
            self.audit.denied(call.command.code, no.who, call.connection.peer_text, no.resource, no.text)
            raise Refused(ResponseCode.NO_PERMISSION, no.text) from None

    def source_of(self, client: Channel) -> str:
        """The address that rules about sources see: the socket's, or what a proxy tells, if that one is believed."""
        found = source_of(client, self.settings)
        has_header = client.attributes.get(ADDRESS) is not None
        if has_header and not is_believed(client, self.settings):
            address = client.peer[0]
            if self.is_on and address not in self._unbelieved and len(self._unbelieved) < MOST_UNBELIEVED:
                self._unbelieved.add(address)
                log.warning(
                    "a PROXY header from %s is not believed, so rules about sources see that address: "
                    "if it is a proxy of yours, name it in trustedProxies",
                    address,
                )
        return found

    # The server's own requests

    def sign(self, request: Command) -> None:
        """Signs what this server asks others."""
        inner = self.settings.inner_credentials
        if inner is not None and ACCESS_KEY not in request.ext:
            sign(request.ext, request.body, inner.access_key, inner.secret_key.encode(), inner.security_token)


def source_of(client: Channel, settings: AuthSettings) -> str:
    told = client.attributes.get(ADDRESS)
    return str(told) if told is not None and is_believed(client, settings) else client.peer[0]


def is_believed(client: Channel, settings: AuthSettings) -> bool:
    """Whether a PROXY header of this peer counts."""
    trusted = settings.trusted_proxies
    return trusted is None or any(proxy.includes(client.peer[0]) for proxy in trusted)


def _with_new_user(user: User, accounts: Accounts) -> Accounts:
    return accounts.with_new_user(user)
