"""What the service asks of the place where messages are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from arrowmq.wire.bodies import SubscriptionGroupConfig, TopicRouteData
from arrowmq.wire.bodies.topics import TopicConfig
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header, decode_header

if TYPE_CHECKING:
    from arrowmq.proxy.backs.fast_pops import FastPops
    from arrowmq.proxy.backs.fast_sends import FastSends
    from arrowmq.proxy.config import ProxyConfig
    from arrowmq.proxy.grpc.call import Call
    from arrowmq.proxy.service.caller import Caller
    from arrowmq.proxy.service.clients import Client

HeaderType = TypeVar("HeaderType", bound=Header)

TIMEOUT_S = 3.0


class Reply:
    """A broker's answer, whatever its code."""

    __slots__ = ("_ext", "_header", "body", "code", "remark")

    def __init__(
        self,
        code: int,
        remark: str | None = None,
        body: bytes = b"",
        *,
        ext: dict[str, str] | None = None,
        header: Header | None = None,
    ) -> None:
        self.code = code
        self.remark = remark
        self.body = body
        self._ext = ext
        self._header = header

    @property
    def ext(self) -> dict[str, str]:
        """The fields of its header, where they came as such."""
        return self._ext or {}

    @property
    def is_ok(self) -> bool:
        return self.code == ResponseCode.SUCCESS

    def header(self, kind: type[HeaderType]) -> HeaderType:
        if isinstance(self._header, kind):
            return self._header
        return decode_header(kind, self._ext or {})


#: Broker, and the CHECK_TRANSACTION_STATE that it sent: somebody must say what became of a half message.
TransactionCheck = Callable[[str, Command], object]


class Back(Protocol):
    """Raises `Fault` where there is nothing to answer with: no route, no broker, no answer in time."""

    async def start(self, on_check: TransactionCheck) -> None: ...

    async def stop(self) -> None: ...

    async def route(self, topic: str) -> TopicRouteData: ...

    async def topic_config(self, topic: str) -> TopicConfig | None: ...

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None: ...

    def ask(
        self,
        broker: str,
        code: int,
        header: Header,
        body: bytes = b"",
        *,
        client: Client | None = None,
        user: object = None,
        call: Call | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Awaitable[Reply]:
        """Ask the master of this name, as this user of ours; without one it is the proxy's own request. Of a question
        that may wait, the `call` that it is asked for says when nobody waits for the answer any more."""

    def may_ask_now(self, broker: str) -> bool:
        """Whether this broker may be able to answer in this moment, and nobody has to be told apart for it."""

    def ask_now(self, code: int, header: Header, client: Client | None) -> Reply | Awaitable[Reply]:
        """Ask the broker that may be: its answer, or what to wait for."""

    def notify(self, broker: str, code: int, header: Header) -> Awaitable[None]:
        """Without an answer."""

    def fast_sends(self, config: ProxyConfig) -> FastSends | None:
        """Who serves ordinary sends from their bytes, if anybody can."""

    def fast_pops(self, config: ProxyConfig) -> FastPops | None:
        """The same for ReceiveMessage and AckMessage."""

    async def authenticate(self, caller: Caller) -> object:
        """Who calls, where users are told apart; None where they are not. Raises `Fault`."""

    def require(self, caller: Caller, *, topics: dict[str, str], group: str = "") -> None:
        """Refuse a caller that may not use these: topics to "pub", to "sub" or to either, and a group to consume in.
        For calls that lead to no request whose rights the back checks by itself."""

    def registered(self, client: Client) -> Awaitable[None]:
        """The client has told its settings, or that it is still there."""

    def unregistered(self, client: Client) -> Awaitable[None]:
        """The client has gone."""
