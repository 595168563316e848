"""Who calls, and what they may, by the users of the broker in this process or by those of a cluster.

A caller is authenticated once, by the metadata of its call. Requests that follow from the call are checked for the
rights that the same request of an older client would need; calls that lead to none name what they need themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from arrowmq.auth.access import Access
from arrowmq.auth.errors import Denied
from arrowmq.auth.guard import source_of
from arrowmq.auth.needs import Need
from arrowmq.auth.resources import Action, group_resource, topic_resource
from arrowmq.auth.users import User
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header

if TYPE_CHECKING:
    from arrowmq.proxy.service.caller import Caller
    from arrowmq.remoting.channel import Channel

_ACTIONS = {"pub": (Action.PUB,), "sub": (Action.SUB,)}


@dataclass(frozen=True, slots=True)
class Known:
    """A caller whose signature was good; `user` is None where a call needs none."""

    user: User | None
    source: str
    call: str  # the full name of the request's message, as Apache's white lists have it


class Rights:
    def __init__(self, access: Access) -> None:
        self._access, self._settings = access, access.settings

    @property
    def is_on(self) -> bool:
        return self._settings.is_on

    def known(self, caller: Caller) -> Known | None:
        """Raises `Fault` where the caller does not sign as one of the users; None where nobody has to."""
        settings = self._settings
        if not settings.is_on:
            return None
        source = source_of(cast("Channel", caller.call.connection), settings)
        name = caller.call.method.request.DESCRIPTOR.full_name
        try:
            user = self._access.authenticate_grpc(caller.authorization, caller.date_time)
        except Denied as no:
            if name in settings.unauthenticated_calls:
                return Known(None, source, name)
            self._access.audit.denied(name, no.who, source, "", no.text)
            raise Fault(v2.UNAUTHORIZED, no.text) from None
        return Known(user, source, name)

    def require(self, known: object, *, topics: dict[str, str], group: str = "") -> None:
        if not isinstance(known, Known) or not self.applies(known):
            return
        needs = [
            Need(topic_resource(topic), _ACTIONS.get(how, (Action.PUB, Action.SUB))) for topic, how in topics.items()
        ]
        if group:
            needs.append(Need(group_resource(group), (Action.SUB,)))
        try:
            for need in needs:
                self._access.require(known.user, need, known.source)
        except Denied as no:
            self._access.audit.denied(known.call, no.who, known.source, no.resource, no.text)
            raise Fault(v2.UNAUTHORIZED, no.text) from None

    def check(self, known: object, code: int, header: Header, body: bytes) -> None:
        """Whether the caller may have this asked of a broker."""
        if not isinstance(known, Known) or not self.applies(known):
            return
        try:
            self._access.check_rights(known.user, Command.request(code, header, body), known.source)
        except Denied as no:
            raise Fault(v2.UNAUTHORIZED, no.text) from None

    def applies(self, known: Known) -> bool:
        """Whether this call is one that needs rights."""
        settings = self._settings
        return settings.is_authorizing and known.call not in settings.unauthorized_calls
