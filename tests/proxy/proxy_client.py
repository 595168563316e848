"""Calls of the MessagingService by gRPC's own Python library, with our message classes."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import grpc
import grpc.aio

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls

SERVICE = "apache.rocketmq.v2.MessagingService"
_numbers = itertools.count(1)
#: Of a node for tests: quick where Apache's defaults take their time
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "brokerName": "broker-a",
    "autoCreateTopicEnable": "false",
    "enableMixedMessageType": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "mappedFileSizeCommitLog": str(16 << 20),
    "renewSchedulePeriodMillis": "100",
    "minInvisibleTimeMillsForRecv": "100",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "50",
}


def message(topic: str, body: bytes = b"hello", kind: int = v2.NORMAL, **system: Any) -> v2.Message:
    made = v2.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_id = f"01{next(_numbers):032X}"
    made.system_properties.message_type = kind  # type: ignore[assignment]
    made.system_properties.born_timestamp.FromMilliseconds(int(time.time() * 1000))
    made.system_properties.body_encoding = v2.IDENTITY
    delivery_ms = system.pop("delivery_ms", None)
    if delivery_ms is not None:
        made.system_properties.delivery_timestamp.FromMilliseconds(delivery_ms)
    keys = system.pop("keys", ())
    made.system_properties.keys.extend(keys)
    made.user_properties.update(system.pop("properties", {}))
    for name, value in system.items():
        setattr(made.system_properties, name, value)
    return made


class Telemetry:
    """An open stream: what the server sent on it, in order."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.commands: asyncio.Queue[calls.TelemetryCommand | BaseException] = asyncio.Queue()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async for command in self.call:
                self.commands.put_nowait(command)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as ended:
            self.commands.put_nowait(ended)

    async def next(self, timeout_s: float = 10.0) -> calls.TelemetryCommand:
        async with asyncio.timeout(timeout_s):
            found = await self.commands.get()
        if isinstance(found, BaseException):
            raise found
        return found

    async def send(self, command: calls.TelemetryCommand) -> None:
        await self.call.write(command)


class Stub:
    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.metadata = [
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-protocol", "GRPC_V2"),
        ]

    async def unary(self, name: str, request: Any, metadata: Any = None, timeout: float = 10) -> Any:
        answer = getattr(calls, type(request).__name__.replace("Request", "Response"))
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await method(request, metadata=self.metadata if metadata is None else metadata, timeout=timeout)

    async def send(self, *messages: v2.Message) -> calls.SendMessageResponse:
        found: calls.SendMessageResponse = await self.unary("SendMessage", calls.SendMessageRequest(messages=messages))
        return found

    async def route(self, topic: str) -> calls.QueryRouteResponse:
        request = calls.QueryRouteRequest()
        request.topic.name = topic
        request.endpoints.scheme = v2.DOMAIN_NAME
        request.endpoints.addresses.add(host="outside.example", port=31000)
        found: calls.QueryRouteResponse = await self.unary("QueryRoute", request)
        return found

    async def telemetry(self, settings: v2.Settings | None) -> Telemetry:
        method = self.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=calls.TelemetryCommand.FromString,
        )
        stream = Telemetry(method(metadata=self.metadata))
        if settings is not None:
            await stream.send(calls.TelemetryCommand(settings=settings))
        return stream

    async def produces(self, *topics: str) -> Telemetry:
        settings = v2.Settings(client_type=v2.PRODUCER)
        for topic in topics:
            settings.publishing.topics.add(name=topic)
        stream = await self.telemetry(settings)
        await stream.next()
        return stream

    async def consumes(self, group: str, topic: str, kind: int = v2.SIMPLE_CONSUMER) -> Telemetry:
        settings = v2.Settings(client_type=kind)  # type: ignore[arg-type]
        settings.subscription.group.name = group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type = v2.TAG
        entry.expression.expression = "*"
        stream = await self.telemetry(settings)
        await stream.next()
        return stream

    def receive_request(
        self, group: str, topic: str, *, number: int = 32, invisible_ms: int = 30_000, expression: str = "*",
        sql: bool = False, poll_ms: int = 100, auto_renew: bool = False,
    ) -> calls.ReceiveMessageRequest:  # fmt: skip
        request = calls.ReceiveMessageRequest(batch_size=number, auto_renew=auto_renew)
        request.group.name = group
        request.message_queue.topic.name = topic
        request.message_queue.broker.name = "broker-a"
        request.filter_expression.type = v2.SQL if sql else v2.TAG
        request.filter_expression.expression = expression
        request.invisible_duration.FromMilliseconds(invisible_ms)
        request.long_polling_timeout.FromMilliseconds(poll_ms)
        return request

    async def stream(self, request: calls.ReceiveMessageRequest, timeout: float = 20) -> list[Any]:
        method = self.channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=calls.ReceiveMessageResponse.FromString,
        )
        return [answer async for answer in method(request, metadata=self.metadata, timeout=timeout)]

    async def receive(self, group: str, topic: str, **options: Any) -> list[v2.Message]:
        answers = await self.stream(self.receive_request(group, topic, **options))
        return [answer.message for answer in answers if answer.HasField("message")]

    async def receive_all(self, group: str, topic: str, number: int, **options: Any) -> list[v2.Message]:
        """Until so many have come: a pop may begin at any queue."""
        found: list[v2.Message] = []
        async with asyncio.timeout(20):
            while len(found) < number:
                found += await self.receive(group, topic, **options)
        return found

    async def ack(self, group: str, topic: str, *messages: v2.Message) -> calls.AckMessageResponse:
        request = calls.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for each in messages:
            system = each.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        found: calls.AckMessageResponse = await self.unary("AckMessage", request)
        return found

    async def change(
        self, group: str, topic: str, each: v2.Message, invisible_ms: int
    ) -> calls.ChangeInvisibleDurationResponse:
        request = calls.ChangeInvisibleDurationRequest()
        request.group.name, request.topic.name = group, topic
        request.receipt_handle = each.system_properties.receipt_handle
        request.message_id = each.system_properties.message_id
        request.invisible_duration.FromMilliseconds(invisible_ms)
        found: calls.ChangeInvisibleDurationResponse = await self.unary("ChangeInvisibleDuration", request)
        return found


class Clients:
    def __init__(self, address: str) -> None:
        self.address = address
        self._channels: list[grpc.aio.Channel] = []

    def new(self) -> Stub:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 20)]
        channel = grpc.aio.insecure_channel(self.address, options=options)
        self._channels.append(channel)
        return Stub(channel, f"host@{next(_numbers)}@0@test")

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
