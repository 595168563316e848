"""The brokers that a NameServer knows.

One connection a broker, of the client's session layer. Routes and settings of topics and groups are remembered for as
long as Apache's proxy does it (20 s) and asked for again after that; a NameServer that does not answer leaves what was
known in force. Brokers learn of transaction producers by heartbeats in the proxy's own name, as Apache's proxy sends
them, and ask the proxy what became of their half messages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from arrowmq.auth.access import Access
from arrowmq.auth.audit import Audit
from arrowmq.auth.settings import AuthSettings
from arrowmq.client.errors import ArrowMQError, NamesrvUnreachable, Refused, TimedOut, Unreachable
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.routes import Route
from arrowmq.client.session import Session
from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import TIMEOUT_S, Reply, TransactionCheck
from arrowmq.proxy.backs.cluster_users import ClusterUsers
from arrowmq.proxy.backs.rights import Rights
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.remoting.handlers import LATER, Call, Outcome
from arrowmq.remoting.tls.settings import OutgoingTls
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ClusterInfo, SubscriptionGroupConfig, TopicRouteData
from arrowmq.wire.bodies.topics import TopicConfig, TopicConfigAndQueueMapping
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetSubscriptionGroupConfig, GetTopicConfig
from arrowmq.wire.headers.declare import Header

if TYPE_CHECKING:
    from arrowmq.proxy.backs.fast_pops import FastPops
    from arrowmq.proxy.backs.fast_sends import FastSends
    from arrowmq.proxy.grpc.call import Call as GrpcCall
    from arrowmq.proxy.service.caller import Caller
    from arrowmq.proxy.service.clients import Client

log = logging.getLogger(__name__)

REMEMBERED = 20_000

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """Answers that stay good for some seconds. What cannot be asked again stays what it was."""

    def __init__(self, clock: Clock, seconds: float, ask: Callable[[str], Awaitable[Value]]) -> None:
        self._clock, self._seconds, self._ask = clock, seconds, ask
        self._known: dict[str, tuple[float, Value]] = {}

    async def get(self, key: str) -> Value:
        known = self._known.get(key)
        now = self._clock.monotonic()
        if known is not None and now - known[0] < self._seconds:
            return known[1]
        try:
            value = await self._ask(key)
        except (NamesrvUnreachable, Unreachable, TimedOut):
            if known is None:
                raise
            value = known[1]
        self._known.pop(key, None)
        self._known[key] = (now, value)
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return value

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


class ClusterBack:
    """`auth` is about the proxy's own clients, who are users of the brokers; without it nobody is asked. `tls` is for
    its connections to NameServers and brokers."""

    def __init__(
        self, config: ProxyConfig, clock: Clock, auth: AuthSettings | None = None, tls: OutgoingTls | None = None
    ) -> None:
        self._clock = clock
        options: ConnectOptions = {
            "clock": clock,
            "credentials": config.credentials,
            "tls": tls,
            "heartbeat_interval_s": float(config.transaction_heartbeat_period_second),
            "instance_name": f"proxy-{config.proxy_name}" if config.proxy_name else "",
        }
        self.session = Session(Options.of(config.namesrv_addr, options))
        self._routes = Remembered(clock, config.topic_route_service_cache_refresh_seconds, self._ask_route)
        self._topics = Remembered(clock, config.topic_config_cache_refresh_seconds, self._ask_topic)
        self._groups = Remembered(clock, config.subscription_group_config_cache_refresh_seconds, self._ask_group)
        #: broker name → address of its master
        self._masters: dict[str, str] = {}
        self._on_check: TransactionCheck = lambda broker, command: None
        settings = auth or AuthSettings()
        self.users = ClusterUsers(config, clock, self._ask_any)
        self.access = Access(settings, self.users, config.rocket_mq_cluster_name, Audit("proxy", clock))
        self._rights = Rights(self.access)

    async def start(self, on_check: TransactionCheck) -> None:
        self._on_check = on_check
        self.session.remoting.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._check)
        await self.session.start()

    async def stop(self) -> None:
        await self.session.close()

    # --- what is where -----------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRouteData:
        try:
            route = await self._routes.get(topic)
        except NamesrvUnreachable as error:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error
        if route is None:
            raise Fault(v2.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}")
        return route

    async def _ask_route(self, topic: str) -> TopicRouteData | None:
        answer = await self.session.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
            accept=(ResponseCode.TOPIC_NOT_EXIST,),
        )
        if answer.code:
            return None
        route = fastjson.loads(answer.body, TopicRouteData)
        for broker in route.broker_datas:
            self._know(broker.broker_name, broker.broker_addrs)
        self.session.routes[topic] = Route.from_data(topic, route)  # its masters get the heartbeats
        return route

    def _know(self, name: str, addresses: dict[int, str]) -> None:
        # Without a master the one with the lowest id answers, if it acts as one.
        master = addresses.get(0) or (addresses[min(addresses)] if addresses else "")
        if master:
            self._masters[name] = master

    async def _ask_brokers(self) -> None:
        """Every broker there is, also those that serve no topic that was asked for."""
        answer = await self.session.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        for name, broker in fastjson.loads(answer.body, ClusterInfo).broker_addr_table.items():
            self._know(name, broker.broker_addrs)

    async def _address(self, broker: str) -> str:
        address = self._masters.get(broker)
        if address is None:
            try:
                await self._ask_brokers()
            except ArrowMQError as error:
                raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error
            address = self._masters.get(broker)
        if address is None:
            # Names come from handles, and from routes, whose brokers are known.
            raise Fault(v2.INVALID_RECEIPT_HANDLE, f"cannot find broker {broker}")
        return address

    async def topic_config(self, topic: str) -> TopicConfig | None:
        try:
            return await self._topics.get(topic)
        except ArrowMQError as error:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error

    async def _ask_topic(self, topic: str) -> TopicConfig | None:
        route = await self.route(topic)
        for queues in route.queue_datas:
            address = await self._address(queues.broker_name)
            answer = await self._request(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic=topic))
            if answer.code == ResponseCode.SUCCESS:
                return fastjson.loads(answer.body, TopicConfigAndQueueMapping)
        return None

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None:
        try:
            return await self._groups.get(group)
        except ArrowMQError as error:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error

    async def _ask_group(self, group: str) -> SubscriptionGroupConfig | None:
        answer = await self._ask_any(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfig(group=group))
        if answer.code != ResponseCode.SUCCESS:
            return None
        return fastjson.loads(answer.body, SubscriptionGroupConfig)

    async def _ask_any(self, code: int, header: Header) -> Command:
        """The answer of the first broker that has one: of what all of them should know."""
        if not self._masters:
            await self._ask_brokers()
        failure = ArrowMQError("the NameServer knows no broker")
        for address in list(self._masters.values()):
            try:
                return await self._request(address, code, header)
            except (Unreachable, TimedOut) as error:
                failure = error
        raise failure

    # --- requests ----------------------------------------------------------------------------------------------------

    async def ask(
        self,
        broker: str,
        code: int,
        header: Header,
        body: bytes = b"",
        *,
        client: Client | None = None,
        user: object = None,
        call: GrpcCall | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Reply:
        del client, call  # a broker elsewhere cannot be told that nobody waits any more
        self._rights.check(user, code, header, body)
        address = await self._address(broker)
        try:
            answer = await self._request(address, code, header, body, timeout_s)
        except TimedOut as late:
            raise Fault(v2.PROXY_TIMEOUT, str(late)) from late
        except ArrowMQError as error:
            self._masters.pop(broker, None)  # it may live at another address by now
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error
        return Reply(answer.code, answer.remark, answer.body, ext=answer.ext)

    async def _request(
        self, address: str, code: int, header: Header, body: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> Command:
        request = Command.request(code, header, body)
        try:
            return await self.session.ask(address, request, "a request of a gRPC client", timeout_s)
        except Refused as refused:
            return Command(refused.code, remark=refused.remark)

    def may_ask_now(self, broker: str) -> bool:
        return False

    def ask_now(self, code: int, header: Header, client: Client | None) -> Reply:
        raise NotImplementedError("a broker elsewhere answers later")

    async def notify(self, broker: str, code: int, header: Header) -> None:
        address = await self._address(broker)
        request = Command.request(code, header, oneway=True)
        try:
            await self.session.send_oneway(address, request, "a notice of a gRPC client")
        except ArrowMQError as error:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(error)) from error

    # --- users -------------------------------------------------------------------------------------------------------

    def fast_sends(self, config: ProxyConfig) -> FastSends | None:
        return None

    def fast_pops(self, config: ProxyConfig) -> FastPops | None:
        return None

    async def authenticate(self, caller: Caller) -> object:
        """Brokers know the proxy, not its clients: it signs with credentials of its own, and tells clients apart by
        the users that it asks brokers for."""
        if not self._rights.is_on:
            return None
        await self.users.learn(caller.authorization)
        return self._rights.known(caller)

    def require(self, caller: Caller, *, topics: dict[str, str], group: str = "") -> None:
        self._rights.require(caller.user, topics=topics, group=group)

    # --- clients -----------------------------------------------------------------------------------------------------

    async def registered(self, client: Client) -> None:
        """Brokers have to know who may be asked about half messages: the proxy, for the topics of its producers."""
        fresh = client.transaction_topics - self.session.producer_groups
        if fresh:
            self.session.producer_groups |= fresh
            for topic in fresh:
                await self._routes.get(topic)
            await self.session.heartbeat()

    async def unregistered(self, client: Client) -> None:
        """Another producer may still be there; a check that finds none is asked again later."""

    def _check(self, call: Call) -> Outcome:
        command = call.command
        broker = command.ext.get("bname") or next(
            (name for name, address in self._masters.items() if address == call.connection.peer_text), ""
        )
        self._on_check(broker, command)
        return LATER  # the answer is a request of its own, END_TRANSACTION
