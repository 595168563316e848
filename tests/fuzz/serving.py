"""A NameServer and a broker that get whatever bytes a fuzzer makes, as a client of theirs, on virtual time."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from simulated_loop import Process
from simulated_network import run_in
from simulation import Simulation, node_maker
from target import Target
from wire_targets import recorded_frames

from arrowmq.remoting.failures import FailureLog
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, decode_frame, encode_frame

BROKER_PORT, NAMES_PORT = 10911, 9876
LARGEST_REQUEST = 20_000


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.is_over = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True


class Server:
    def __init__(self) -> None:
        self.simulation = Simulation(1, Path(tempfile.mkdtemp(prefix="arrowmq-fuzz-")))
        self.simulation.__enter__()
        settings = {"traceTopicEnable": "true", "enablePropertyFilter": "true", "recallMessageEnable": "true"}
        make = node_maker(settings, namesrv_port=NAMES_PORT, broker_port=BROKER_PORT)
        self.machine = self.simulation.machine("server", make)
        self.failures: list[tuple[str, Exception]] = []
        self._watch = mock.patch.object(FailureLog, "report", self._note)
        self._watch.start()
        self.simulation.run(self.machine.start())

    def _note(self, request: str, peer: str, error: Exception) -> None:
        self.failures.append((request, error))

    def feed(self, data: bytes) -> None:
        """As one client; then another one asks the server whether it is well."""
        self.failures.clear()
        port = NAMES_PORT if data[:1] == b"n" else BROKER_PORT
        self.simulation.run(self._feed(data[1:], port))
        if self.failures:
            request, error = self.failures[0]
            raise AssertionError(f"{request} failed inside") from error

    async def _feed(self, data: bytes, port: int) -> None:
        rude, polite = Peer(), Peer()
        pipe = await self._connect(rude, port)
        pipe.write(data)
        await asyncio.sleep(0.3)
        pipe.abort()
        healthy = await self._connect(polite, port)
        code = RequestCode.GET_BROKER_CONFIG if port == BROKER_PORT else RequestCode.GET_NAMESRV_CONFIG
        healthy.write(encode_frame(Command.request(code, {})))
        async with asyncio.timeout(30.0):
            while not polite.received and not polite.is_over:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert polite.received, "the server hung up on a healthy client"
        healthy.close()

    async def _connect(self, peer: Peer, port: int) -> Any:
        process = Process("fuzzer", "10.0.9.9")
        pipe, _ = await run_in(process, self._dial, process, peer, port)
        return pipe

    def _dial(self, process: Process, peer: Peer, port: int) -> Any:
        return self.simulation.loop.network.connect(process, lambda: peer, self.machine.host, port)

    def close(self) -> None:
        """What the simulation replaced is as before."""
        self._watch.stop()
        self.simulation.__exit__(None, None, None)
        shutil.rmtree(self.simulation.folder, ignore_errors=True)


@cache
def server() -> Server:
    return Server()


def close() -> None:
    """The server, if one was started."""
    if server.cache_info().currsize:
        server().close()
        server.cache_clear()


def feed(data: bytes) -> None:
    """The first byte says whom: n the NameServer, all others the broker."""
    if len(data) > 1:
        server().feed(data)


def request_corpus() -> list[bytes]:
    """Requests of the recorded frames, to the broker and to the NameServer."""
    requests = [frame for frame in recorded_frames() if not decode_frame(frame[4:]).flag & 1]
    return [port + frame for frame in requests for port in (b"b", b"n") if len(frame) < LARGEST_REQUEST]


TARGETS = {"requests": Target(request_corpus, feed)}
