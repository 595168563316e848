"""The broker of this process.

Its services are asked with values (`remoting.direct_call`), in the client's own name: to the broker a gRPC client is
one of its clients, with language, version and address, and tools list it among them. Topics may live on other brokers
too: what concerns those goes to them over the network, by a `ClusterBack`, where Apache's local proxy says no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from arrowmq import native
from arrowmq.auth.users import User, UserType
from arrowmq.broker import Broker
from arrowmq.proxy.backs.back import TIMEOUT_S, Reply, TransactionCheck
from arrowmq.proxy.backs.cluster import ClusterBack
from arrowmq.proxy.backs.fast_pops import FastPops
from arrowmq.proxy.backs.fast_sends import FastSends
from arrowmq.proxy.backs.rights import Known, Rights
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.service.clients import Client
from arrowmq.remoting.direct_call import DirectCall
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, release
from arrowmq.wire.bodies import BrokerData, QueueData, SubscriptionGroupConfig, TopicRouteData
from arrowmq.wire.bodies.clients import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from arrowmq.wire.bodies.topics import TopicConfig
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header

if TYPE_CHECKING:
    from arrowmq.proxy.config import ProxyConfig
    from arrowmq.proxy.grpc.call import Call as GrpcCall
    from arrowmq.proxy.service.caller import Caller
    from arrowmq.remoting.channel import Channel

#: What the proxy does by itself, such as giving back the messages of a client that has gone
_OWN = User("arrowmq-proxy", "", UserType.SUPER)


class LocalBack:
    def __init__(self, broker: Broker, cluster: ClusterBack) -> None:
        self._broker, self._cluster = broker, cluster
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._nobody = Client("arrowmq-proxy", lambda client, command: None)
        self._nobody.peer = ("127.0.0.1", 0)
        self._rights = Rights(broker.guard.access)

    async def start(self, on_check: TransactionCheck) -> None:
        services = self._broker.services
        self._handlers = {
            int(RequestCode.SEND_MESSAGE): services.send.send,
            int(RequestCode.RECALL_MESSAGE): services.recall.recall,
            int(RequestCode.END_TRANSACTION): services.transactions.end_transaction,
            int(RequestCode.CONSUMER_SEND_MSG_BACK): services.retry.send_back,
            int(RequestCode.POP_MESSAGE): services.pop.pop,
            int(RequestCode.ACK_MESSAGE): services.acks.ack,
            int(RequestCode.CHANGE_MESSAGE_INVISIBLETIME): services.acks.change_invisible_time,
            int(RequestCode.HEART_BEAT): services.heartbeat.heartbeat,
            int(RequestCode.UNREGISTER_CLIENT): services.heartbeat.unregister,
        }
        await self._cluster.start(on_check)

    async def stop(self) -> None:
        await self._cluster.stop()

    # --- what is where -----------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRouteData:
        """The NameServer's, with this broker's own part as it is now."""
        own = self._broker.topics.get(topic)
        try:
            known = await self._cluster.route(topic)
        except Fault:
            if own is None:
                raise
            known = TopicRouteData()
        name = self._broker.config.broker_name
        if own is None:
            # The NameServer may still have told of a topic that this broker has deleted meanwhile.
            others = [each for each in known.queue_datas if each.broker_name != name]
            if not others:
                raise Fault(v2.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}")
            return TopicRouteData(queue_datas=others, broker_datas=known.broker_datas)
        mine = QueueData(
            broker_name=name,
            perm=own.perm,
            read_queue_nums=own.read_queue_nums,
            write_queue_nums=own.write_queue_nums,
            topic_sys_flag=own.topic_sys_flag,
        )
        address = BrokerData(
            broker_name=name,
            broker_addrs={0: self._broker.address.text},
            cluster=self._broker.config.broker_cluster_name,
        )
        return TopicRouteData(
            queue_datas=[mine, *(each for each in known.queue_datas if each.broker_name != name)],
            broker_datas=[address, *(each for each in known.broker_datas if each.broker_name != name)],
            order_topic_conf=known.order_topic_conf,
        )

    async def topic_config(self, topic: str) -> TopicConfig | None:
        own = self._broker.topics.get(topic)
        return own if own is not None else await self._cluster.topic_config(topic)

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None:
        return self._broker.groups.find(group)

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
        # The broker checks it, too; here a no has a code of its own, which a broker's NO_PERMISSION has not.
        self._rights.check(user, code, header, body)
        if broker != self._broker.config.broker_name:
            return await self._cluster.ask(broker, code, header, body, timeout_s=timeout_s)
        if call is None:
            return await self._ask(code, header, body, client, user)
        asking = asyncio.ensure_future(self._ask(code, header, body, _Waiting(client or self._nobody, call), user))
        call.on_cancel(asking.cancel)
        try:
            return await asking
        except asyncio.CancelledError:
            if not call.is_cancelled:
                raise
            raise Fault(v2.MESSAGE_NOT_FOUND, "the client has left") from None

    def may_ask_now(self, broker: str) -> bool:
        return broker == self._broker.config.broker_name and not self._rights.is_on

    def ask_now(self, code: int, header: Header, client: Client | None) -> Reply | Awaitable[Reply]:
        answer = self._direct_call(code, client).ask_now(self._handlers[int(code)], header)
        return _reply(answer) if isinstance(answer, Answer) else self._later(answer)

    async def _later(self, answer: Awaitable[Answer]) -> Reply:
        try:
            return _reply(await answer)
        except RemotingError as gone:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(gone)) from gone

    def _direct_call(self, code: int, client: Client | _Waiting | None, body: bytes = b"") -> DirectCall:
        asker = client if client is not None and not client.closed else self._nobody
        call = DirectCall(
            self._broker.handlers, asker, body, code=int(code), language=asker.language, version=asker.version
        )
        call.user = _OWN
        return call

    async def _ask(
        self,
        code: int,
        request: object,
        body: bytes = b"",
        client: Client | _Waiting | None = None,
        user: object = None,
    ) -> Reply:
        call = self._direct_call(code, client, body)
        if isinstance(user, Known) and user.user is not None and self._rights.applies(user):
            call.user = user.user
        try:
            answer = await call.ask(self._handlers[int(code)], request)
        except RemotingError as gone:
            raise Fault(v2.INTERNAL_SERVER_ERROR, str(gone)) from gone
        return _reply(answer)

    async def notify(self, broker: str, code: int, header: Header) -> None:
        if broker != self._broker.config.broker_name:
            await self._cluster.notify(broker, code, header)
        # "Not known yet" changes nothing at the broker: it asks again by itself.

    # --- users -------------------------------------------------------------------------------------------------------

    def fast_sends(self, config: ProxyConfig) -> FastSends | None:
        if find_spec("arrowmq.proxy.backs._send_frames_native") is None or native.WANTS_PURE_PYTHON:
            return None
        return FastSends(self._broker, config)

    def fast_pops(self, config: ProxyConfig) -> FastPops | None:
        if find_spec("arrowmq.proxy.backs._pop_frames_native") is None or native.WANTS_PURE_PYTHON:
            return None
        return FastPops(self._broker, config, self._rights, self._nobody)

    async def authenticate(self, caller: Caller) -> object:
        return self._rights.known(caller)

    def require(self, caller: Caller, *, topics: dict[str, str], group: str = "") -> None:
        self._rights.require(caller.user, topics=topics, group=group)

    # --- clients -----------------------------------------------------------------------------------------------------

    async def registered(self, client: Client) -> None:
        """A heartbeat in the client's name, as a client of the older protocol sends it."""
        if client.closed:
            return  # it has left while its settings were on their way, and must not be a member any more
        await self._ask(RequestCode.HEART_BEAT, _heartbeat_of(client), client=client)
        others = set()
        for topic in client.transaction_topics:
            route = await self.route(topic)
            if any(each.broker_name != self._broker.config.broker_name for each in route.queue_datas):
                others.add(topic)
        if others:
            await self._cluster.registered(client)

    async def unregistered(self, client: Client) -> None:
        """The broker hears of it when the client's channel is closed."""


class _Waiting:
    """A client for as long as it waits for one answer: a broker lets go of a poll whose client is gone, and must not
    hand messages to one that has hung up."""

    def __init__(self, client: Client, call: GrpcCall) -> None:
        self._client, self._call = client, call
        self.attributes: dict[str, Any] = {}
        self.peer, self.language, self.version = client.peer, client.language, client.version

    @property
    def peer_text(self) -> str:
        return self._client.peer_text

    @property
    def closed(self) -> bool:
        return self._call.is_cancelled

    def on_close(self, callback: Callable[[Channel], object]) -> None:
        self._call.on_cancel(lambda: callback(self))

    def close(self) -> None:
        self._client.close()

    def send_oneway(self, command: Command) -> None:
        self._client.send_oneway(command)

    async def request(self, command: Command, timeout_s: float) -> Command:
        return await self._client.request(command, timeout_s)


def _reply(answer: Answer) -> Reply:
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    header, ext = (None, answer.header) if isinstance(answer.header, dict) else (answer.header, None)
    release(answer)
    return Reply(answer.code, answer.remark, body, ext=ext, header=header)


def _heartbeat_of(client: Client) -> HeartbeatData:
    beat = HeartbeatData(client_id=client.client_id)
    if client.settings is None:
        return beat
    if not client.is_consumer:
        beat.producer_data_set = [ProducerData(group_name=topic) for topic in client.topics]
        return beat
    is_push = client.settings.client_type == v2.PUSH_CONSUMER
    beat.consumer_data_set = [
        ConsumerData(
            group_name=client.group,
            consume_type="CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[_subscription(entry) for entry in client.settings.subscription.subscriptions],
        )
    ]
    return beat


def _subscription(entry: v2.SubscriptionEntry) -> SubscriptionData:
    expression = entry.expression.expression.strip() or "*"
    is_sql = entry.expression.type == v2.SQL
    tags = [] if is_sql or expression == "*" else [tag.strip() for tag in expression.split("||") if tag.strip()]
    return SubscriptionData(
        topic=entry.topic.name,
        sub_string=expression,
        expression_type="SQL92" if is_sql else "TAG",
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
    )
