"""TLS by the event loop's own layer, on a connection whose first bytes have been read already."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import BaseProtocol, BufferedProtocol, Transport
from typing import cast

from arrowmq.remoting.tls.settings import HANDSHAKE_TIMEOUT_S


async def accept_tls(
    protocol: BaseProtocol, transport: Transport, context: ssl.SSLContext, received: bytes
) -> Transport:
    """Turn an accepted connection into a TLS one, although its hello has been read already.

    The loop puts its own protocol between the two; what was read is handed to that one before it reads by itself: its
    `connection_made` runs in the loop iteration after it was put there, and reading begins after that one.
    """
    loop = asyncio.get_running_loop()
    started = asyncio.ensure_future(
        loop.start_tls(transport, protocol, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S)
    )
    while transport.get_protocol() is protocol and not started.done():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    between = cast(BufferedProtocol, transport.get_protocol())
    while received and not started.done():
        buffer = memoryview(between.get_buffer(len(received)))
        piece, received = received[: len(buffer)], received[len(buffer) :]
        buffer[: len(piece)] = piece
        between.buffer_updated(len(piece))
    encrypted = await started
    if encrypted is None:
        raise ConnectionError("the peer went away")
    return encrypted
