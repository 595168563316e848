"""gRPC's standard services: health, for probes and load balancers, and reflection, for tools such as grpcurl."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.descriptor import FileDescriptor

from arrowmq.proxy.grpc.call import Call
from arrowmq.proxy.grpc.methods import Method, MethodTable
from arrowmq.proxy.grpc.status import GrpcCode, GrpcError
from arrowmq.proxy.messages import health_pb2, reflection_pb2
from arrowmq.proxy.messages.pool import POOL

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


class Health:
    """SERVING until the server begins to drain. Watchers are told of the change."""

    def __init__(self, table: MethodTable) -> None:
        self._table = table
        self._watchers: set[Call] = set()
        self.is_serving = True

    def methods(self) -> list[Method]:
        return [
            Method(f"/{HEALTH}/Check", health_pb2.HealthCheckRequest, unary=self.check),
            Method(f"/{HEALTH}/Watch", health_pb2.HealthCheckRequest, duplex=lambda call: _Watch(self, call)),
        ]

    def check(self, _call: Call, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        if request.service and request.service not in self._table.services:
            raise GrpcError(GrpcCode.NOT_FOUND, f"unknown service {request.service}")
        return self._answer()

    def _answer(self) -> health_pb2.HealthCheckResponse:
        status = (
            health_pb2.HealthCheckResponse.SERVING if self.is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        return health_pb2.HealthCheckResponse(status=status)

    def watch(self, call: Call, service: str) -> None:
        if service and service not in self._table.services:
            call.send(health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN))
            return
        call.send(self._answer())
        self._watchers.add(call)
        call.on_cancel(lambda: self._watchers.discard(call))

    def drain(self) -> None:
        self.is_serving = False
        watchers, self._watchers = self._watchers, set()
        for call in watchers:
            call.send(self._answer())
            call.end()


class _Watch:
    def __init__(self, health: Health, call: Call) -> None:
        self._health, self._call = health, call

    def received(self, request: health_pb2.HealthCheckRequest) -> None:
        self._health.watch(self._call, request.service)

    def ended(self) -> None:
        """A watch has one request and goes on."""

    def cancelled(self) -> None:
        pass


class Reflection:
    def __init__(self, table: MethodTable) -> None:
        self._table = table

    def methods(self) -> list[Method]:
        request = reflection_pb2.ServerReflectionRequest
        return [
            Method(f"/{name}/ServerReflectionInfo", request, duplex=lambda call: _Reflecting(self._table, call))
            for name in REFLECTION
        ]


class _Reflecting:
    def __init__(self, table: MethodTable, call: Call) -> None:
        self._table, self._call = table, call

    def received(self, request: reflection_pb2.ServerReflectionRequest) -> None:
        answer = reflection_pb2.ServerReflectionResponse(valid_host=request.host)
        answer.original_request.CopyFrom(request)
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for name in sorted(self._table.services):
                answer.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._file(answer, lambda: POOL.FindFileByName(request.file_by_filename))
        elif kind == "file_containing_symbol":
            self._file(answer, lambda: _file_of(request.file_containing_symbol))
        else:
            answer.error_response.error_code = int(GrpcCode.UNIMPLEMENTED)
            answer.error_response.error_message = "there are no extensions here"
        self._call.send(answer)

    def _file(self, answer: reflection_pb2.ServerReflectionResponse, find: Callable[[], FileDescriptor]) -> None:
        try:
            found = find()
        except KeyError as missing:
            answer.error_response.error_code = int(GrpcCode.NOT_FOUND)
            answer.error_response.error_message = str(missing.args[0] if missing.args else missing)
            return
        seen: set[str] = set()
        for file in _with_dependencies(found, seen):
            answer.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)

    def ended(self) -> None:
        self._call.end()

    def cancelled(self) -> None:
        pass


def _file_of(symbol: str) -> FileDescriptor:
    """Raises KeyError. Of methods and fields the pool does not know the file by themselves."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        return POOL.FindFileContainingSymbol(symbol.rpartition(".")[0])


def _with_dependencies(file: FileDescriptor, seen: set[str]) -> list[FileDescriptor]:
    if file.name in seen:
        return []
    seen.add(file.name)
    files = [file]
    for dependency in file.dependencies:
        files += _with_dependencies(dependency, seen)
    return files
