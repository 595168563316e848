"""The users and rights that a cluster's brokers know, for a proxy that keeps none of its own.

Whoever calls is looked up by name, user and rights together, and remembered for `userCacheRefreshSeconds`; names that
nobody has are remembered as well. Brokers tell passwords to super users alone, so the proxy signs its own requests with
`innerClientAuthenticationCredentials` of one. Where no broker answers, what was known stays good for
`userCacheExpiredSeconds`; whoever was not known, or for too long, is not let in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import MappingProxyType

from arrowmq.auth.accounts import Accounts
from arrowmq.auth.errors import AccountError
from arrowmq.auth.policies import Acl, parse_acl
from arrowmq.auth.signature import read_authorization
from arrowmq.auth.users import User, new_user, user_status, user_type
from arrowmq.client.errors import ArrowMQError
from arrowmq.clock import Clock
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo, UserInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetAcl, GetUser
from arrowmq.wire.headers.declare import Header

log = logging.getLogger(__name__)

#: Asks any broker that answers; raises ArrowMQError where none does
AskAny = Callable[[int, Header], Awaitable[Command]]


class ClusterUsers:
    """What `auth.access.Access` looks users up in."""

    def __init__(self, config: ProxyConfig, clock: Clock, ask: AskAny) -> None:
        self._clock, self._ask = clock, ask
        self._fresh_s = float(config.user_cache_refresh_seconds)
        self._stale_s = float(max(config.user_cache_expired_seconds, config.user_cache_refresh_seconds))
        self._most = config.user_cache_max_num
        self._users: dict[str, User] = {}
        self._acls: dict[str, Acl] = {}
        self._asked_at: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self.accounts = Accounts(MappingProxyType(self._users), MappingProxyType(self._acls))
        self.on_change: list[Callable[[], object]] = []

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    async def learn(self, authorization: str) -> None:
        """Know whoever this signature claims to be of, before it is checked. Raises `Fault`."""
        given = read_authorization(authorization)
        if given is not None:
            await self.know(given[0])

    def is_fresh(self, name: str) -> bool:
        """Whether what is known of this name need not be asked for again."""
        asked_at = self._asked_at.get(name)
        return asked_at is not None and self._clock.monotonic() - asked_at < self._fresh_s

    async def know(self, name: str) -> None:
        """Know whoever has this name. Raises `Fault`."""
        asked_at = self._asked_at.get(name)
        now = self._clock.monotonic()
        if asked_at is not None and now - asked_at < self._fresh_s:
            return
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._look_up(name))
            task.add_done_callback(lambda done: self._asking.pop(name, None))
        try:
            await asyncio.shield(task)
        except (ArrowMQError, WireError, AccountError) as error:
            if asked_at is not None and now - asked_at < self._stale_s:
                return
            raise Fault(v2.INTERNAL_SERVER_ERROR, f"the brokers cannot be asked who {name} is: {error}") from error

    async def _look_up(self, name: str) -> None:
        user, acl = await self._ask_user(name), None
        if user is not None and not user.is_super:
            acl = await self._ask_acl(user)
        changed = self._users.get(name) != user or self._acls.get(name) != acl
        self._forget(name)
        while len(self._asked_at) >= self._most:
            self._forget(next(iter(self._asked_at)))
        self._asked_at[name] = self._clock.monotonic()
        if user is not None:
            self._users[name] = user
        if acl is not None:
            self._acls[name] = acl
        if changed:
            for listener in self.on_change:
                listener()

    def _forget(self, name: str) -> None:
        self._asked_at.pop(name, None)
        self._users.pop(name, None)
        self._acls.pop(name, None)

    async def _ask_user(self, name: str) -> User | None:
        answer = await self._ask(RequestCode.AUTH_GET_USER, GetUser(username=name))
        if answer.code != ResponseCode.SUCCESS:
            raise AccountError(answer.remark or f"a broker says {answer.code}")
        if not answer.body:
            return None
        found = fastjson.loads(answer.body, UserInfo)
        if not found.password:
            raise AccountError(
                "brokers tell passwords to super users alone: set innerClientAuthenticationCredentials to those "
                "of one, and authenticationEnabled at the brokers"
            )
        return new_user(found.username, found.password, user_type(found.user_type), user_status(found.user_status))

    async def _ask_acl(self, user: User) -> Acl | None:
        answer = await self._ask(RequestCode.AUTH_GET_ACL, GetAcl(subject=user.subject))
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None  # no rights: whatever is not allowed is denied
        return parse_acl(fastjson.loads(answer.body, AclInfo), user.subject)
