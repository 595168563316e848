"""What is fuzzed of the proxy: HTTP/2 connections, messages in their streams, and what clients put into them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import ModuleType

from google.protobuf.message import DecodeError, Message
from target import Target

from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.grpc.framing import ENCODINGS, MessageReader, framed
from arrowmq.proxy.grpc.status import GrpcError
from arrowmq.proxy.http2.events import DATA, END, HEADERS, Limits
from arrowmq.proxy.messages import definition_pb2, service_pb2
from arrowmq.proxy.service.handles import parse_handle
from arrowmq.proxy.service.message_form import properties_of, sys_flag_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST_INFLATED = 1 << 20
NOW_MS = 1_760_000_000_000
LIMITS = Limits()


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _cores() -> Iterator[ModuleType]:
    for form in ("plain", "native"):
        with suppress(ModuleNotFoundError):
            yield importlib.import_module(f"arrowmq.proxy.http2._core_{form}")


CORES = list(_cores())  # with the others, or a fuzzer does not see what an input reaches in them


def run_http2(data: bytes) -> None:
    """The first byte says into how many pieces the rest is cut; each core answers every request that it sees."""
    if not data:
        return
    step = max(1, len(data) // (1 + data[0] % 16))
    for module in CORES:
        core = module.Http2Core(LIMITS)
        for start in range(1, len(data), step):
            for kind, stream, _ in core.receive(data[start : start + step]):
                if kind == HEADERS:
                    core.send_headers(stream, [(b":status", b"200")])
                elif kind == DATA:
                    core.send_data(stream, b"x" * 100)
                elif kind == END:
                    core.send_trailers(stream, [(b"grpc-status", b"0")])
            assert len(core.take()) < 10 * (len(data) + 1000), "answers that are much longer than what was asked"
        core.relax()


def http2_corpus() -> list[bytes]:
    request = bytes.fromhex("838644") + b"\x01/" + bytes.fromhex("5f") + b"\x10application/grpc"
    settings, headers = _frame(4, 0, 0), _frame(1, 4, 1, request)
    body = _frame(0, 1, 1, framed(_send().SerializeToString()))
    others = [
        _frame(6, 0, 0, bytes(8)), _frame(8, 0, 0, (1000).to_bytes(4, "big")), _frame(3, 0, 1, bytes(4)),
        _frame(7, 0, 0, bytes(8)), _frame(2, 0, 1, bytes(5)), _frame(9, 4, 1, b"\x82"), _frame(4, 1, 0),
        _frame(4, 0, 0, b"\x00\x04\x00\x00\x00\x01"), _frame(4, 0, 0, b"\x00\x01\x00\x00\x00\x00"),
    ]  # fmt: skip
    begun = PREFACE + settings
    return [b"\x00" + begun + headers + body, *(b"\x03" + begun + headers + other + body for other in others)]


@cache
def _kinds() -> list[type[Message]]:
    return [
        kind
        for module in (service_pb2, definition_pb2)
        for name, kind in sorted(vars(module).items())
        if isinstance(kind, type) and issubclass(kind, Message) and name.endswith(("Request", "Command", "Message"))
    ]


def run_grpc(data: bytes) -> None:
    """The first byte chooses the message, the second how it is compressed."""
    if len(data) < 2:
        return
    kinds = _kinds()
    encoding = ([b"", *ENCODINGS])[data[1] % (1 + len(ENCODINGS))]
    try:
        messages = MessageReader(encoding, MOST_INFLATED).feed(data[2:])
    except GrpcError:
        return
    for text in messages:
        assert len(text) <= MOST_INFLATED
        for kind in (kinds[data[0] % len(kinds)], service_pb2.SendMessageRequest):
            try:
                found = kind.FromString(text)
            except DecodeError:
                continue
            found.SerializeToString()
            if isinstance(found, service_pb2.SendMessageRequest):
                for message in found.messages:
                    _look_at(message)
    try:
        parse_handle(data[2:].decode("utf-8", "replace"))
    except Fault:
        return


def _look_at(message: definition_pb2.Message) -> None:
    try:
        properties_of(_config(), message, "192.0.2.7:1", NOW_MS)
        sys_flag_of(message)
    except Fault:
        return


@cache
def _config() -> ProxyConfig:
    return ProxyConfig()


def _send() -> service_pb2.SendMessageRequest:
    request = service_pb2.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = "orders"
    message.body = b"body"
    message.user_properties["a"] = "b"
    system = message.system_properties
    system.message_id, system.tag, system.message_group = "01A2", "t", "g"
    system.keys.extend(["k1", "k2"])
    system.delivery_timestamp.seconds = 1_760_000_100
    return request


def grpc_corpus() -> list[bytes]:
    found = [bytes([number, 0]) + framed(kind().SerializeToString()) for number, kind in enumerate(_kinds())]
    return [bytes([0, 0]) + framed(_send().SerializeToString()), *found]


TARGETS = {
    "HTTP2": Target(http2_corpus, run_http2),
    "gRPC messages": Target(grpc_corpus, run_grpc),
}
