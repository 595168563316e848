"""Users and rights of remoting clients, where the proxy checks them (`authenticationEnabled`).

A request goes on with the signature that its client made, so brokers with users check it whether or not the proxy does.
The proxy's own check is for what it answers by itself, and for brokers that do not check: it looks users up as for gRPC
clients. A user that is not known yet is asked for while the request waits.
"""

from __future__ import annotations

import asyncio

from arrowmq.auth.access import Access
from arrowmq.auth.errors import Denied
from arrowmq.auth.guard import source_of
from arrowmq.auth.signature import ACCESS_KEY
from arrowmq.proxy.backs.cluster_users import ClusterUsers
from arrowmq.proxy.faults import Fault
from arrowmq.remoting.handlers import Call, HandlerTable, Refused, TakenOver
from arrowmq.wire.codes import ResponseCode


class RemotingUsers:
    def __init__(self, access: Access, users: ClusterUsers, handlers: HandlerTable) -> None:
        self._access, self._users, self._handlers = access, users, handlers
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, call: Call) -> None:
        """A request hook. Raises `Refused`, or `TakenOver` for a user that must be looked up first."""
        name = call.ext.get(ACCESS_KEY, "")
        if name and call.user is None and not self._users.is_fresh(name):
            task = asyncio.ensure_future(self._learn(name, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            raise TakenOver
        source = source_of(call.connection, self._access.settings)
        try:
            self._access.check(call.command, source)
        except Denied as no:
            raise Refused(ResponseCode.NO_PERMISSION, no.text) from None

    async def _learn(self, name: str, call: Call) -> None:
        try:
            await self._users.know(name)
        except Fault as fault:
            call.refuse(ResponseCode.SYSTEM_ERROR, str(fault))
            return
        call.user = name  # looked up just now, also where it is remembered for no time at all
        self._handlers.serve(call)
