"""What clients ask of a proxy that stands for their NameServer and for all of their brokers.

Most requests name their broker, and go to it unchanged. Heartbeats go to all brokers that should know the client; what
is about a group or a topic as a whole goes to one broker that knows it; routes are answered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from arrowmq.proxy.remoting.broker_names import SHORT_NAMED, named_broker
from arrowmq.proxy.remoting.directory import Directory
from arrowmq.proxy.remoting.link import LINK, ClientLink, answer_of, passed_on
from arrowmq.proxy.remoting.message_types import MessageTypes
from arrowmq.proxy.remoting.told_address import ToldAddress
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import LATER, Answer, Call, Outcome, Refused, handles
from arrowmq.wire import fastjson, sysflag
from arrowmq.wire.bodies.clients import CheckClientConfig, QueryAssignment
from arrowmq.wire.codes import RequestCode as Code
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetRouteInfo
from arrowmq.wire.properties import REPLY_TO_CLIENT

#: A client gives up before this by itself; a broker that does not answer must not be waited for without an end.
TIMEOUT_S = 15.0
INTRODUCE_WAIT_S = 2.0  # a broker that cannot be reached must not make a client believe that none was
POLL_GRACE_S = 10.0
LONGEST_POLL_S = 120.0

NO_NAME = (
    "Request doesn't have field bname: clients before 5.0 do not say which broker they mean, and there are several; "
    "give each a port of its own at the proxy with remotingBrokerPorts"
)


class ClientRequests:
    """`types` is None where messages of all kinds go to all topics."""

    def __init__(self, directory: Directory, told: ToldAddress, types: MessageTypes | None) -> None:
        self._directory, self._told, self._types = directory, told, types
        self.port = 0  # that the proxy listens on
        self._tasks: set[asyncio.Future[Any]] = set()

    # --- to the broker that is named ---------------------------------------------------------------------------------

    @handles(
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.RECALL_MESSAGE,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.QUERY_CONSUMER_OFFSET,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.ACK_MESSAGE,
        Code.BATCH_ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    )
    def forward(self, call: Call) -> Outcome:
        return self._to(call, self._broker(call), TIMEOUT_S)

    @handles(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
    def pull(self, call: Call) -> Outcome:
        waits = _number(call.ext, "sysFlag") & sysflag.PULL_SUSPEND
        wait_s = _number(call.ext, "suspendTimeoutMillis") / 1000 if waits else 0.0
        return self._poll(call, wait_s)

    @handles(Code.POP_MESSAGE)
    def pop(self, call: Call) -> Outcome:
        return self._poll(call, _number(call.ext, "pollTime") / 1000)

    def _poll(self, call: Call, wait_s: float) -> Outcome:
        broker = self._broker(call)
        if wait_s > 0:
            call.suspend()
        return self._to(call, broker, min(max(wait_s, 0.0), LONGEST_POLL_S) + POLL_GRACE_S)

    @handles(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)
    def send(self, call: Call) -> Outcome:
        is_short = call.command.code in SHORT_NAMED
        topic = call.ext.get("b" if is_short else "topic", "")
        properties = call.ext.get("i" if is_short else "properties", "")
        broker, link = self._broker(call), link_of(call)
        is_new = link.heartbeats.sends_to(topic)
        is_checked = self._types is not None and not topic.startswith("%")
        if is_checked and self._types is not None and not self._types.is_known(topic):
            return self._send_checked(call, broker, topic, properties)
        if is_checked and self._types is not None:
            self._types.check(topic, properties)
        if is_new and REPLY_TO_CLIENT in properties:
            return self._send_request(call, broker)
        return self._to(call, broker, TIMEOUT_S)

    async def _send_checked(self, call: Call, broker: str, topic: str, properties: str) -> Answer:
        assert self._types is not None
        await self._types.learn(topic)
        self._types.check(topic, properties)
        return (
            await self._send_request(call, broker) if REPLY_TO_CLIENT in properties else await self._ask(call, broker)
        )

    async def _send_request(self, call: Call, broker: str) -> Answer:
        """Whoever answers it may do so at any broker of the topic: each must know the client before."""
        await self._introduce_everywhere(link_of(call))
        return await self._ask(call, broker)

    def _broker(self, call: Call) -> str:
        """Raises `Refused` where nobody can know it."""
        name = named_broker(call.command) or link_of(call).port_broker or self._directory.only_broker
        if not name:
            raise Refused(ResponseCode.VERSION_NOT_SUPPORTED, NO_NAME)
        return name

    def _to(self, call: Call, broker: str, timeout_s: float) -> Outcome:
        link = link_of(call)
        upstream = link.open_now(broker)
        if upstream is None:
            self._keep(asyncio.ensure_future(self._open_and_pass_on(call, broker, timeout_s)))
        else:
            link.pass_on(call, upstream, timeout_s)
        return LATER

    async def _open_and_pass_on(self, call: Call, broker: str, timeout_s: float) -> None:
        link = link_of(call)
        try:
            upstream = await link.open(broker)
        except RemotingError as error:
            call.refuse(ResponseCode.SYSTEM_ERROR, str(error))
        except Refused as no:
            call.refuse(no.code, no.remark)
        else:
            link.pass_on(call, upstream, timeout_s)

    def _keep(self, task: asyncio.Future[Any]) -> None:
        """The loop itself holds tasks weakly only."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, call: Call, broker: str) -> Answer:
        link = link_of(call)
        request = passed_on(call.command)
        try:
            upstream = await link.open(broker)
            if request.is_oneway:
                upstream.connection.send_oneway(request)
                return Answer()
            return answer_of(await upstream.connection.request(request, TIMEOUT_S))
        except RemotingError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error

    # --- to one that knows -------------------------------------------------------------------------------------------

    @handles(Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_CONSUMER_CONNECTION_LIST)
    async def ask_of_group(self, call: Call) -> Answer:
        named = named_broker(call.command)
        brokers = await link_of(call).heartbeats.brokers_of_group(call.ext.get("consumerGroup", ""))
        return await self._ask_one(call, [named] if named else brokers)

    @handles(Code.QUERY_ASSIGNMENT)
    async def query_assignment(self, call: Call) -> Answer:
        topic = fastjson.loads(call.body, QueryAssignment).topic
        return await self._ask_one(call, await self._brokers_of(call, topic))

    @handles(Code.CHECK_CLIENT_CONFIG)
    async def check_client_config(self, call: Call) -> Answer:
        """Asked before a client's first heartbeat: whether a broker can read its filter."""
        wanted = fastjson.loads(call.body, CheckClientConfig).subscription_data
        brokers = [] if wanted is None else await self._brokers_of(call, wanted.topic)
        return await self._ask_one(call, brokers) if brokers else Answer()

    async def _brokers_of(self, call: Call, topic: str) -> list[str]:
        brokers = await self._directory.brokers_of(topic)
        return sorted(link_of(call).heartbeats.here(brokers)) or brokers

    async def _ask_one(self, call: Call, brokers: Sequence[str]) -> Answer:
        """The first good answer, else the last one."""
        answer = Answer(ResponseCode.SYSTEM_ERROR, remark="no broker that could be asked is known")
        for broker in brokers:
            try:
                answer = await self._ask(call, broker)
            except Refused as no:
                answer = Answer(no.code, remark=no.remark)
            if answer.code == ResponseCode.SUCCESS:
                break
        return answer

    # --- to all that should know -------------------------------------------------------------------------------------

    @handles(Code.HEART_BEAT)
    async def heartbeat(self, call: Call) -> Answer:
        """Good as soon as one broker took it: what the others lack they get with the next one, in half a minute. The
        fields of the answer stay here: they offer a short form that leaves out what must be told to a new broker."""
        link = link_of(call)
        link.heartbeats.take(call.command)
        answers = await self._introduce_everywhere(link, call.command)
        if not answers or any(answer.code == ResponseCode.SUCCESS for answer in answers):
            return Answer()
        return Answer(answers[0].code, remark=answers[0].remark)

    async def _introduce_everywhere(self, link: ClientLink, heartbeat: Command | None = None) -> list[Command]:
        """What the brokers said to one heartbeat, or to all that are known of this link."""
        brokers = await link.heartbeats.brokers() | {upstream.broker for upstream in link.upstreams}
        beats = link.heartbeats.last if heartbeat is None else [heartbeat]
        if not brokers or not beats:
            return []
        tasks = {asyncio.ensure_future(_introduce(link, broker, beats)) for broker in brokers}
        for task in tasks:
            self._keep(task)
        done, _ = await asyncio.wait(tasks, timeout=INTRODUCE_WAIT_S)
        if not done:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [answer for task in done for answer in task.result()]

    @handles(Code.UNREGISTER_CLIENT)
    async def unregister(self, call: Call) -> Answer:
        link = link_of(call)
        link.heartbeats.forget(call.ext.get("clientID", ""))
        upstreams = link.upstreams
        for upstream in upstreams:
            upstream.introductions.forget()
        asked = (upstream.connection.request(passed_on(call.command), TIMEOUT_S) for upstream in upstreams)
        # A broker that is gone has forgotten the client anyway.
        answers = [each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, Command)]
        refusals = [answer_of(answer) for answer in answers if answer.code != ResponseCode.SUCCESS]
        return refusals[0] if refusals else Answer()

    # --- answered here -----------------------------------------------------------------------------------------------

    @handles(Code.GET_ROUTEINFO_BY_TOPIC)
    async def route(self, request: GetRouteInfo, call: Call) -> Answer:
        try:
            found = await self._directory.route(request.topic, call.ext)
        except WireError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the NameServer's answer cannot be read: {error}") from error
        told = self._told.rewrite(found, cast(Connection, call.connection), self.port)
        return Answer(body=fastjson.dumps(told, ascii_only=True))


async def _introduce(link: ClientLink, broker: str, beats: list[Command]) -> list[Command]:
    try:
        upstream = await link.open(broker)
        return [await link.introduce(upstream, beat) for beat in beats]
    except RemotingError as error:
        return [Command(ResponseCode.SYSTEM_ERROR, remark=str(error))]
    except Refused as no:
        return [Command(no.code, remark=no.remark)]
    except asyncio.CancelledError:
        return []  # the client has gone


def link_of(call: Call) -> ClientLink:
    return cast(ClientLink, call.connection.attributes[LINK])


def _number(ext: dict[str, str], name: str) -> int:
    text = ext.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
