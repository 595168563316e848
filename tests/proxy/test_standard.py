"""gRPC's standard services: what probes and tools ask for."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from proxy_client import SERVICE, Stub

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import health_pb2, reflection_pb2
from arrowmq.server import Node
from waiting import until


async def health(client: Stub, service: str) -> int:
    method = client.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    return int((await method(health_pb2.HealthCheckRequest(service=service), timeout=10)).status)


async def reflected(client: Stub, request: reflection_pb2.ServerReflectionRequest, version: str = "v1") -> object:
    method = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    answers = [answer async for answer in method(iter([request]), timeout=10)]
    return answers[0]


async def test_a_proxy_that_serves_is_healthy(node: Node, client: Stub) -> None:
    assert health_pb2.HealthCheckResponse.SERVING == await health(client, "")
    assert health_pb2.HealthCheckResponse.SERVING == await health(client, SERVICE)
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await health(client, "no.such.Service")
    assert grpc.StatusCode.NOT_FOUND == unknown.value.code()
    assert node.proxy is not None
    node.proxy.server.health.drain()
    assert health_pb2.HealthCheckResponse.NOT_SERVING == await health(client, "")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@pytest.mark.parametrize("symbol", [SERVICE, f"{SERVICE}.SendMessage", "apache.rocketmq.v2.Message"])
async def test_tools_find_what_can_be_called(client: Stub, version: str, symbol: str) -> None:
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
    answer = await reflected(client, request, version)
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    files = [FileDescriptorProto.FromString(each) for each in answer.file_descriptor_response.file_descriptor_proto]
    assert "apache/rocketmq/v2/definition.proto" in {file.name for file in files}


async def test_what_is_not_there_is_an_answer(client: Stub) -> None:
    answer = await reflected(client, reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such"))
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    assert 5 == answer.error_response.error_code


async def test_a_stop_lets_what_runs_end(node: Node, client: Stub) -> None:
    """A poll that is open when the proxy stops is answered; a new connection is not taken."""
    await client.consumes("group", "normal")
    assert node.proxy is not None
    server = node.proxy.server
    polling = asyncio.ensure_future(client.stream(client.receive_request("group", "normal", poll_ms=1500)))
    await until(lambda: any(each.core.open_streams > 1 for each in server.connections), 10)
    stopping = asyncio.ensure_future(node.proxy.stop())
    answers = await polling
    assert v2.MESSAGE_NOT_FOUND == answers[0].status.code
    assert answers[-1].HasField("delivery_timestamp")
    await stopping
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", node.proxy.port)
