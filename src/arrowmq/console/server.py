"""The console's port: uvicorn with what it leaves open closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from arrowmq.console.app import build_app
from arrowmq.console.console import Console
from arrowmq.console.options import ConsoleOptions

log = logging.getLogger(__name__)

HEAD_TIMEOUT_S = 10.0
MOST_CONNECTIONS = 512
LARGEST_HEAD_BYTES = 32 << 10


class TimedProtocol(H11Protocol):
    """A connection that has not sent a whole request head in time is closed: uvicorn would wait for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        is_between = self.cycle is not None and self.cycle.response_complete
        # Between two requests uvicorn's own time-out counts, unless the next one has begun to come.
        if self.cycle is None or (is_between and self.conn.trailing_data[0]):
            self.transport.close()
            return
        self._watch = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, self._look)


class ConsoleServer:
    """A component of a node, or all of a process: `start` returns when the page can be opened."""

    name = "console"

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.console: Console | None = None
        self.port = 0
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        host = "127.0.0.1" if self.options.bind in ("", "0.0.0.0") else self.options.bind
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self) -> None:
        listener = _listen(self.options.bind, self.options.port)
        self.port = listener.getsockname()[1]
        self.console = Console(self.options)
        try:
            await self.console.start()
            config = uvicorn.Config(
                build_app(self.console),
                http=TimedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=MOST_CONNECTIONS,
                h11_max_incomplete_event_size=LARGEST_HEAD_BYTES,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=3,
                backlog=128,
                proxy_headers=False,
            )
            self._server = uvicorn.Server(config)
            # Signals belong to whoever runs the process.
            self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
            self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="console server")
            while not self._server.started:
                if self._task.done():
                    self._task.result()
                    raise RuntimeError("the console's server ended as soon as it began")
                await asyncio.sleep(0.005)
        except BaseException:
            listener.close()
            await self.stop()
            raise
        log.info("console at %s", self.address)

    async def stop(self) -> None:
        if self.console is not None:
            self.console.hub.close()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await asyncio.gather(self._task, return_exceptions=True)
        if self.console is not None:
            await self.console.stop()
        self._server = self._task = self.console = None


def _listen(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind, port))
    except OSError as failure:
        listener.close()
        raise OSError(f"the console cannot listen on {bind}:{port}: {failure.strerror}") from failure
    return listener
