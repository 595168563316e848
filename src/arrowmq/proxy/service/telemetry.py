"""Telemetry, Heartbeat and NotifyClientTermination: how a client makes itself known, and until when."""

from __future__ import annotations

import asyncio
import logging

from arrowmq.clock import Clock, Timer
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import OK, Fault, status_of
from arrowmq.proxy.grpc.call import Call
from arrowmq.proxy.grpc.status import GrpcCode
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import settings as settings_of
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.clients import Client, ClientTable
from arrowmq.proxy.service.receiving import check_sql, tags_of
from arrowmq.proxy.service.renewal import Renewal
from arrowmq.proxy.service.routing import type_name

log = logging.getLogger(__name__)

CONSUMERS = (v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER)
EXPIRY_SCAN_S = 10.0
#: What a client may list; more is an attack or a mistake
MAX_TOPICS = 4096
_UNKNOWN = "cannot find client settings for this client"


class Telemetry:
    def __init__(self, config: ProxyConfig, back: Back, clients: ClientTable, renewal: Renewal, clock: Clock) -> None:
        self._config, self._back, self._clients, self._renewal, self._clock = config, back, clients, renewal, clock
        self._streams: set[Call] = set()
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._timer = self._clock.call_later(EXPIRY_SCAN_S, self._expire)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._streams):
            call.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self, caller: Caller) -> TelemetryStream:
        stream = TelemetryStream(self, caller)
        self._streams.add(caller.call)
        return stream

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def closed(self, call: Call) -> None:
        self._streams.discard(call)

    # --- settings ----------------------------------------------------------------------------------------------------

    async def settings(self, caller: Caller, given: v2.Settings) -> calls.TelemetryCommand:
        """Know the client by its settings; what it is told back."""
        self._check(given)
        caller.user = await self._back.authenticate(caller)
        subscribed = {entry.topic.name: "sub" for entry in given.subscription.subscriptions}
        published = {topic.name: "pub" for topic in given.publishing.topics}
        self._back.require(caller, topics={**subscribed, **published}, group=given.subscription.group.name)
        client = self._clients.obtain(caller.client_id)
        client.use(caller.call)
        self._heard(caller, client)
        client.settings = given
        group = None
        if given.WhichOneof("pub_sub") == "subscription":
            group = await self._back.group_config(given.subscription.group.name)
        client.merged = settings_of.merged(self._config, given, group)
        await self._register(client)
        return calls.TelemetryCommand(status=OK, settings=client.merged)

    def _check(self, given: v2.Settings) -> None:
        kind = given.WhichOneof("pub_sub")
        if kind == "publishing":
            if len(given.publishing.topics) > MAX_TOPICS:
                raise Fault(v2.BAD_REQUEST, f"more than {MAX_TOPICS} topics")
            for topic in given.publishing.topics:
                validation.check_topic(topic.name)
        elif kind == "subscription":
            validation.check_group(given.subscription.group.name)
            if given.client_type not in CONSUMERS:
                name = _type_name(given.client_type)
                raise Fault(v2.INTERNAL_SERVER_ERROR, f"Client type is not consumer, type: {name}")
            if len(given.subscription.subscriptions) > MAX_TOPICS:
                raise Fault(v2.BAD_REQUEST, f"more than {MAX_TOPICS} topics")
            for entry in given.subscription.subscriptions:
                if entry.expression.type == v2.SQL:
                    check_sql(entry.expression.expression)
                else:
                    self._check_tags(entry.expression.expression)
        else:
            raise Fault(v2.BAD_REQUEST, "there is no publishing or subscription data in settings")

    def _check_tags(self, expression: str) -> None:
        try:
            tags_of(expression)
        except Fault as fault:
            raise Fault(fault.code, "expression format is not correct") from None

    async def _register(self, client: Client) -> None:
        for topic in client.topics:
            self._clients.produces(client, topic)
            if topic not in client.transaction_topics and await self._takes_transactions(topic):
                client.transaction_topics.add(topic)
        await self._back.registered(client)

    async def _takes_transactions(self, topic: str) -> bool:
        try:
            return type_name(await self._back.topic_config(topic)) in ("TRANSACTION", "MIXED")
        except Fault:
            return False  # no route: the client will hear of it when it asks for the route

    def _heard(self, caller: Caller, client: Client) -> None:
        client.heard_at = self._clock.monotonic()
        client.language = caller.language
        client.version_text = caller.version
        client.peer = caller.peer
        client.attributes.update(caller.call.connection.attributes)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def heartbeat(self, caller: Caller, request: calls.HeartbeatRequest) -> calls.HeartbeatResponse:
        client = self._clients.get(caller.client_id)
        if client is None or client.settings is None:
            raise Fault(v2.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN)
        if client.is_consumer:
            validation.check_group(request.group.name)
            self._back.require(caller, topics={}, group=request.group.name)
        elif client.settings.client_type != v2.PRODUCER:
            raise Fault(v2.UNRECOGNIZED_CLIENT_TYPE, _type_name(client.settings.client_type))
        self._heard(caller, client)
        await self._register(client)
        return calls.HeartbeatResponse(status=OK)

    async def terminate(
        self, caller: Caller, request: calls.NotifyClientTerminationRequest
    ) -> calls.NotifyClientTerminationResponse:
        client = self._clients.get(caller.client_id)
        if client is None or client.settings is None:
            raise Fault(v2.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN)
        if client.is_consumer:
            validation.check_group(request.group.name)
        await self._gone(client, is_leaving=True)
        return calls.NotifyClientTerminationResponse(status=OK)

    async def _gone(self, client: Client, *, is_leaving: bool = False) -> None:
        await self._back.unregistered(client)
        self._renewal.client_gone(client)
        self._clients.remove(client)
        log.info("client %s id=%s", "left" if is_leaving else "expired", client.client_id)

    def _expire(self) -> None:
        self.start()
        after_s = self._config.channel_expired_timeout / 1000
        for client in self._clients.expired(self._clock.monotonic(), after_s):
            task = asyncio.get_running_loop().create_task(self._gone(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _type_name(kind: int) -> str:
    """Newer clients may be of types that have no name here."""
    return v2.ClientType.Name(kind) if kind in v2.ClientType.values() else "UNRECOGNIZED"


class TelemetryStream:
    """One stream. Commands are worked on in the order in which they came."""

    MAX_WAITING = 64

    def __init__(self, telemetry: Telemetry, caller: Caller) -> None:
        self._telemetry, self._caller = telemetry, caller
        self._waiting: list[v2.Settings] = []
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    def received(self, command: calls.TelemetryCommand) -> None:
        call = self._caller.call
        try:
            self._caller.check()
        except Fault as fault:
            call.send(calls.TelemetryCommand(status=fault.status))
            self._end()
            return
        kind = command.WhichOneof("command")
        if kind == "settings":
            self._waiting.append(command.settings)
            if len(self._waiting) > self.MAX_WAITING:
                call.send(calls.TelemetryCommand(status=status_of(v2.TOO_MANY_REQUESTS, "too many settings at once")))
                self._end()
            elif self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._work())
        elif kind in ("thread_stack_trace", "verify_message_result"):
            client = self._telemetry._clients.get(self._caller.client_id)
            if client is not None:
                answer = getattr(command, kind)
                trace = answer.thread_stack_trace if kind == "thread_stack_trace" else None
                client.answered(answer.nonce, command.status, trace)

    async def _work(self) -> None:
        call = self._caller.call
        try:
            while self._waiting and not call.is_ended:
                answer = await self._telemetry.settings(self._caller, self._waiting.pop(0))
                call.send(answer)
        except Fault as fault:
            # The stream is the one place where the protocol says no by gRPC's own status.
            is_clients = v2.BAD_REQUEST <= fault.code < v2.INTERNAL_ERROR
            said = fault.message
            if fault.code != v2.BAD_REQUEST:
                said = f"process client telemetryCommand failed. {said}"
            self._end(GrpcCode.INVALID_ARGUMENT if is_clients else GrpcCode.INTERNAL, said)
        except Exception as error:
            log.exception("Telemetry of %s failed", self._caller.client_id)
            self._end(GrpcCode.INTERNAL, f"process client telemetryCommand failed. {error}")
        finally:
            self._task = None
        if self._has_ended:
            self._end()

    def _end(self, code: GrpcCode = GrpcCode.OK, message: str = "") -> None:
        """Nobody hears of the end of a call that the proxy itself has ended: it is forgotten here."""
        self._caller.call.end(code, message)
        self._telemetry.closed(self._caller.call)

    def ended(self) -> None:
        self._has_ended = True
        if self._task is None:
            self._end()

    def cancelled(self) -> None:
        self._telemetry.closed(self._caller.call)
