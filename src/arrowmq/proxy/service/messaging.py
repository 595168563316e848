"""The table of calls: who answers which, and what a failure becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault, status_of
from arrowmq.proxy.grpc.call import Call
from arrowmq.proxy.grpc.methods import Method, Raw, Unary
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.receiving import Receiving, Unusual
from arrowmq.proxy.service.routing import Routing
from arrowmq.proxy.service.sending import Sending
from arrowmq.proxy.service.settling import Settling
from arrowmq.proxy.service.telemetry import Telemetry
from arrowmq.proxy.service.transactions import Transactions
from arrowmq.remoting.failures import FailureLog

if TYPE_CHECKING:
    from arrowmq.proxy.http2.connection import Http2Connection

SERVICE = "apache.rocketmq.v2.MessagingService"
#: No official client calls them, and Apache's proxy does not serve them either
UNSERVED = ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")
_failures = FailureLog()
_OK = int(v2.OK)

Handler = Callable[[Caller, Any], Awaitable[Any]]


class MessagingService:
    """The service of one proxy, on one back."""

    def __init__(self, config: ProxyConfig, back: Back, clock: Clock) -> None:
        self.config, self.back, self.clock = config, back, clock
        self.transactions = Transactions(back, clock)
        self.clients = self.transactions.clients
        self.routing = Routing(config, back, clock)
        self.settling = Settling(config, back, self.clients, clock)
        self.sending = Sending(config, back, self.routing, self.clients, clock)
        self.receiving = Receiving(config, back, self.routing, self.settling, self.clients, clock)
        self.telemetry = Telemetry(config, back, self.clients, self.settling.renewal, clock)
        self.answered: dict[tuple[str, int], int] = {}
        self.receiving.on_answered = self._count
        self._receive_method = Method(
            f"/{SERVICE}/ReceiveMessage",
            calls.ReceiveMessageRequest,
            streaming=self._receive,
            raw=self._raw("ReceiveMessage"),
        )

    async def start(self) -> None:
        await self.back.start(self.transactions.check)
        self.settling.renewal.start()
        self.telemetry.start()

    async def drain(self) -> None:
        """End what clients hold open; they come again, here or elsewhere."""
        await self.telemetry.stop()

    async def stop(self) -> None:
        await self.settling.renewal.stop()
        await self.back.stop()

    def methods(self) -> list[Method]:
        unary: list[tuple[str, type[Message], type[Message], Handler]] = [
            ("QueryRoute", calls.QueryRouteRequest, calls.QueryRouteResponse, self.routing.query_route),
            ("Heartbeat", calls.HeartbeatRequest, calls.HeartbeatResponse, self.telemetry.heartbeat),
            ("SendMessage", calls.SendMessageRequest, calls.SendMessageResponse, self.sending.send_message),
            (
                "QueryAssignment",
                calls.QueryAssignmentRequest,
                calls.QueryAssignmentResponse,
                self.routing.query_assignment,
            ),
            ("AckMessage", calls.AckMessageRequest, calls.AckMessageResponse, self.settling.ack_message),
            (
                "ForwardMessageToDeadLetterQueue",
                calls.ForwardMessageToDeadLetterQueueRequest,
                calls.ForwardMessageToDeadLetterQueueResponse,
                self.settling.forward,
            ),
            (
                "EndTransaction",
                calls.EndTransactionRequest,
                calls.EndTransactionResponse,
                self.transactions.end_transaction,
            ),
            (
                "NotifyClientTermination",
                calls.NotifyClientTerminationRequest,
                calls.NotifyClientTerminationResponse,
                self.telemetry.terminate,
            ),
            (
                "ChangeInvisibleDuration",
                calls.ChangeInvisibleDurationRequest,
                calls.ChangeInvisibleDurationResponse,
                self.settling.change_invisible_duration,
            ),
            (
                "SyncLiteSubscription",
                calls.SyncLiteSubscriptionRequest,
                calls.SyncLiteSubscriptionResponse,
                self.routing.sync_lite_subscription,
            ),
            ("RecallMessage", calls.RecallMessageRequest, calls.RecallMessageResponse, self.sending.recall_message),
        ]
        methods = []
        for name, request, answer, handler in unary:
            serve = self._unary(name, handler, answer)
            if name == "AckMessage":
                serve = self._ack(serve)
            methods.append(Method(f"/{SERVICE}/{name}", request, unary=serve, raw=self._raw(name)))
        methods.append(self._receive_method)
        methods.append(Method(f"/{SERVICE}/Telemetry", calls.TelemetryCommand, duplex=self._telemetry))
        return methods

    def _raw(self, name: str) -> Raw | None:
        """Who is shown such requests in bytes."""
        if name == "SendMessage" and self.sending.fast is not None:
            return self._fast_send
        if self.settling.fast is None:
            return None
        return {"AckMessage": self._fast_ack, "ReceiveMessage": self._fast_receive}.get(name)

    def _ack(self, general: Unary) -> Unary:
        """Most acknowledgements are answered at once, without a task of their own."""

        def serve(call: Call, request: calls.AckMessageRequest) -> Message | Awaitable[Message]:
            client_id = call.metadata.get(b"x-mq-client-id", b"")
            client = self.clients.get(client_id.decode("utf-8", "replace"))
            answer = self.settling.ack_now(client, request) if client_id.strip() else None
            if answer is None:
                return general(call, request)
            self.settling.learn_ack(call, request)
            self._count("AckMessage", answer.status.code if isinstance(answer, calls.AckMessageResponse) else v2.OK)
            return answer

        return serve

    def _count(self, name: str, code: int) -> None:
        self.answered[name, code] = self.answered.get((name, code), 0) + 1

    def _unary(self, name: str, handler: Handler, answer: type[Any]) -> Unary:
        async def serve(call: Call, request: Any) -> Message:
            try:
                caller = await self._caller(call)
                response: Message = await handler(caller, request)
            except Fault as fault:
                response = answer(status=fault.status)
            except Exception as error:
                _failures.report(name, call.connection.peer_text, error)
                response = answer(status=status_of(v2.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"))
            self._count(name, response.status.code)  # type: ignore[attr-defined]
            return response

        return serve

    async def _receive(self, call: Call, request: calls.ReceiveMessageRequest) -> None:
        try:
            await self.receiving.receive_message(await self._caller(call), request)
        except Fault as fault:
            self.receiving.finish(call, fault.status)
        except Exception as error:
            _failures.report("ReceiveMessage", call.connection.peer_text, error)
            said = f"{type(error).__name__}: {error}"
            self._count("ReceiveMessage", v2.INTERNAL_SERVER_ERROR)
            call.send(calls.ReceiveMessageResponse(status=status_of(v2.INTERNAL_SERVER_ERROR, said)))

    def _fast_send(
        self, connection: Http2Connection, stream: int, metadata: dict[bytes, bytes], request: bytes
    ) -> bytes | None:
        assert self.sending.fast is not None
        answer = self.sending.fast.serve(connection, stream, metadata, request)
        if answer is not None:
            self._count("SendMessage", _OK)
        return answer

    def _fast_receive(
        self, connection: Http2Connection, stream: int, metadata: dict[bytes, bytes], request: bytes
    ) -> bytes | None:
        if not connection.core.is_open(stream):  # cancelled by what came with it: nobody would get the messages
            return None
        popped = self.receiving.receive_now(connection, metadata, request)
        if isinstance(popped, Unusual):
            call = Call(connection, stream, self._receive_method, metadata)
            self.receiving.deliver_unusual(call, popped)
            return b""
        return popped

    def _fast_ack(
        self, connection: Http2Connection, stream: int, metadata: dict[bytes, bytes], request: bytes
    ) -> bytes | Awaitable[Message] | None:
        client_id = metadata.get(b"x-mq-client-id", b"")
        if not client_id.strip():
            return None
        client = self.clients.get(client_id.decode("utf-8", "replace"))
        answer = self.settling.ack_fast(connection, client, request)
        if answer is not None:
            self._count("AckMessage", _OK)
        return answer

    def _telemetry(self, call: Call) -> Any:
        return self.telemetry.open(Caller(call))

    async def _caller(self, call: Call) -> Caller:
        caller = Caller(call)
        caller.check()
        caller.user = await self.back.authenticate(caller)
        return caller
