"""Which broker is where, and which brokers have a topic, as the NameServers tell.

Routes are asked for whenever a client asks: it should see what it would see without a proxy. What a NameServer said
last stays in force while none answers. The masters of all brokers are looked at every
`topicRouteServiceCacheRefreshSeconds`, with every route that passes, and when a broker cannot be reached; whoever is
connected to one that moved is notified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from arrowmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from arrowmq.client.errors import ArrowMQError, NamesrvUnreachable
from arrowmq.client.errors import Refused as NamesrvRefused
from arrowmq.client.session import Session
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import Refused
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ClusterInfo, TopicRouteData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError

log = logging.getLogger(__name__)

REMEMBERED = 20_000


class Directory:
    """`on_move` is called with a broker's name and its new address."""

    def __init__(self, session: Session, clock: Clock, refresh_s: float) -> None:
        self._session, self._clock, self._refresh_s = session, clock, refresh_s
        self._masters: dict[str, str] = {}
        #: Every name that there ever was: one that is down now still has queues of its own.
        self.names: set[str] = set()
        #: By topic, when it was asked for and what came; None: there is no such topic
        self._routes: dict[str, tuple[float, TopicRouteData | None]] = {}
        self.on_move: list[Callable[[str, str], object]] = []

    async def start(self) -> None:
        await self._look()
        self._session.spawn(self._keep_looking(), "masters for remoting clients")

    async def _keep_looking(self) -> None:
        while True:
            await self._clock.sleep(self._refresh_s)
            await self._look()

    # --- brokers -----------------------------------------------------------------------------------------------------

    @property
    def only_broker(self) -> str | None:
        """The one broker there is, if there never was another."""
        return next(iter(self.names)) if len(self.names) == 1 else None

    async def address(self, broker: str, *, is_fresh: bool = False) -> str:
        """Where a broker's master is. Raises `Refused`."""
        if is_fresh or broker not in self._masters:
            await self._look()
        address = self._masters.get(broker)
        if address is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"cannot find broker {broker}: no NameServer knows one of that name"
            )
        return address

    async def _look(self) -> None:
        """Ask for all brokers; what cannot be asked for stays what it was."""
        try:
            answer = await self._session.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
            table = fastjson.loads(answer.body, ClusterInfo).broker_addr_table
        except (ArrowMQError, WireError) as error:
            log.warning("brokers cannot be looked up: %s", error)
            return
        for name, broker in table.items():
            self._know(name, broker.broker_addrs)

    def _know(self, name: str, addresses: dict[int, str]) -> None:
        if not addresses:
            return
        self.names.add(name)
        # Without a master the one with the lowest id is read from, and answers the rest if it acts as one.
        address = addresses.get(0) or addresses[min(addresses)]
        before = self._masters.get(name)
        self._masters[name] = address
        if before is not None and before != address:
            log.info("broker moved name=%s from=%s to=%s", name, before, address)
            for listener in self.on_move:
                listener(name, address)

    # --- topics ------------------------------------------------------------------------------------------------------

    async def route(self, topic: str, ext: dict[str, str]) -> TopicRouteData:
        """The route of a topic for who asks with these fields. Raises `Refused`."""
        try:
            found = await self._ask(topic, ext)
        except NamesrvUnreachable as error:
            known = self._routes.get(topic)
            if known is None or known[1] is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
            found = known[1]
        except NamesrvRefused as no:
            raise Refused(no.code, no.remark or str(no)) from no
        if found is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
        return found

    async def brokers_of(self, topic: str) -> list[str]:
        """The names of the brokers that have this topic, in order; none if it does not exist, or nobody can tell."""
        known = self._routes.get(topic)
        if known is None or self._clock.monotonic() - known[0] >= self._refresh_s:
            try:
                await self._ask(topic, {"topic": topic})
            except ArrowMQError as error:
                log.warning("%s", error)
            known = self._routes.get(topic)
        if known is None or known[1] is None:
            return []
        return sorted({broker.broker_name for broker in known[1].broker_datas})

    async def _ask(self, topic: str, ext: dict[str, str]) -> TopicRouteData | None:
        if self._session.credentials is not None:
            # The proxy signs by itself; without credentials the client's own signature goes on.
            ext = {key: value for key, value in ext.items() if key not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)}
        answer = await self._session.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, accept=(ResponseCode.TOPIC_NOT_EXIST,)
        )
        route = None if answer.code else fastjson.loads(answer.body, TopicRouteData)
        if route is not None:
            for broker in route.broker_datas:
                self._know(broker.broker_name, broker.broker_addrs)
        self._routes.pop(topic, None)
        self._routes[topic] = self._clock.monotonic(), route
        if len(self._routes) > REMEMBERED:
            del self._routes[next(iter(self._routes))]
        return route
