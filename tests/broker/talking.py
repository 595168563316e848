"""What the tests of both fast paths need: a raw client, streams cut anywhere, and the files that a broker left."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from pathlib import Path

from arrowmq import native
from arrowmq.broker import Broker
from arrowmq.wire.frames import FrameSplitter, encode_frame


class Talk:
    """A client with a fixed address and port, so that both runs write the same born host."""

    def __init__(self, address: str, local_port: int) -> None:
        self.address = address
        self.local_port = local_port

    async def __aenter__(self) -> Talk:
        return self

    async def connect(self, port: int) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME_WAIT
        sock.bind((self.address, self.local_port))
        self.local_port = sock.getsockname()[1]
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        self.reader, self.writer = await asyncio.open_connection(sock=sock)

    async def answers(self, chunks: list[bytes]) -> dict[int, bytes]:
        """Send the chunks; the frames that answer them by opaque, when all who wait for one have it."""
        asked = FrameSplitter().feed(b"".join(chunks))
        expected = {command.opaque for command in asked if not command.is_oneway}

        async def send() -> None:
            for chunk in chunks:
                self.writer.write(chunk)
                await self.writer.drain()

        sending = asyncio.ensure_future(send())
        answers: dict[int, bytes] = {}
        splitter = FrameSplitter()
        while answers.keys() != expected:
            data = await self.reader.read(1 << 16)
            assert data, "the broker closed the connection"
            for command in splitter.feed(data):
                answers[command.opaque] = encode_frame(command)
        await sending
        return answers

    async def __aexit__(self, *error: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


def cut(data: bytes, dice: random.Random) -> list[bytes]:
    """The stream in pieces that end anywhere."""
    pieces, at = [], 0
    while at < len(data):
        size = dice.choice((1, 7, 300, 5000, 60000))
        pieces.append(data[at : at + size])
        at += size
    return pieces


def files_of(root: Path) -> dict[str, bytes]:
    """The log, queues and index of a store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in ("commitlog", "consumequeue", "index")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def taken_by_fast_path(broker: Broker) -> dict[str, int]:
    """How many messages, half messages and ends of transactions the fast path took, and how many messages it read."""
    if broker.fast_path is None:
        return {"sent": 0, "pulled": 0, "halves": 0, "ends": 0}
    handlers = broker.fast_path.handlers
    transactions = handlers.get("half messages")
    return {
        "sent": handlers["sends"].taken_messages,
        "pulled": handlers["pulls"].taken_messages,
        "halves": 0 if transactions is None else transactions.taken_halves,
        "ends": 0 if transactions is None else transactions.taken_ends,
    }


def has_fast_path() -> bool:
    return native.is_native(native.load("arrowmq.broker.fastpath._router"))
