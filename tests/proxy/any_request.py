"""Requests with whatever their fields can hold, for tests of bad input and the fuzzer."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import grpc
import grpc.aio
from proxy_client import SERVICE, Stub, message

from arrowmq.proxy.messages import definition_pb2 as v2


async def raw(client: Stub, name: str, data: bytes, metadata: Any = None, *, stream: bool = False) -> Any:
    """Bytes in, bytes out; the status if gRPC itself says no."""
    path = f"/{SERVICE}/{name}"
    given = client.metadata if metadata is None else metadata
    try:
        if stream:
            found = client.channel.unary_stream(path)(data, metadata=given, timeout=10)
            return [each async for each in found]
        return await client.channel.unary_unary(path)(data, metadata=given, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()


async def works(client: Stub) -> bool:
    return bool(v2.OK == (await client.send(message("normal"))).status.code)


def filled(chance: random.Random, made: Any, depth: int = 0) -> Any:
    """A message with whatever its fields can hold."""
    for field in made.DESCRIPTOR.fields:
        if chance.random() < 0.4 or depth > 3:
            continue
        for _ in range(chance.randrange(1, 4) if field.is_repeated else 1):
            _fill(chance, made, field, depth)
    return made


def _fill(chance: random.Random, made: Any, field: Any, depth: int) -> None:
    texts = ["", " ", "normal", "fifo", "group", "broker-a", "x" * 200, "\x00", "ü%|", "0 1 2 3 0 broker-a 0 0 0"]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(made, field.name)[chance.choice(texts)] = chance.choice(texts)
    elif field.message_type is not None:
        target = getattr(made, field.name)
        inner = target.add() if field.is_repeated else target
        inner.SetInParent()
        filled(chance, inner, depth + 1)
    else:
        number = chance.choice([0, 1, 2, -1, 7, 2**31 - 1, -(2**31)])
        value: Any = {
            9: chance.choice(texts),
            12: chance.randbytes(chance.randrange(50)),
            8: chance.random() < 0.5,
            2: 1.5,
        }.get(field.type, abs(number) % 8 if field.type == 14 else number)
        with contextlib.suppress(ValueError, TypeError):
            getattr(made, field.name).append(value) if field.is_repeated else setattr(made, field.name, value)


def torn(chance: random.Random, data: bytes) -> bytes:
    """With one byte changed, and perhaps cut."""
    if not data:
        return data
    changed = bytearray(data)
    changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed)) + 1] if chance.random() < 0.5 else changed)
