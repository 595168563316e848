"""`arrowmq server --console`: the console beside a node, in a process of its own.

A page that takes long to make must not hold up a broker's event loop, and a broker without a console imports nothing of
it. The process hangs on the node by its standard input: if that ends in any way, the console stops.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from arrowmq.config import ConfigError
from arrowmq.server import Component, Node, Part

log = logging.getLogger("arrowmq")

READY = "ready: console at "
STOP_GRACE_S = 10.0


class ConsoleProcess:
    name = "console"

    def __init__(self, node: Node, port: int, directory: Path) -> None:
        self._node = node
        self._port = port
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        words = ["console", "-n", self._node.namesrv_address, "--port", str(self._port), "--dir", str(self._directory)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from arrowmq.cli import main; main()",
            *words,
            "--stop-with-stdin",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal reaches the node alone
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode("utf-8", "replace").strip()
        if not line.startswith(READY):
            await self._process.wait()
            raise ConfigError("the console did not start; what it said stands above")
        self._node.also_ready.append(line.removeprefix("ready: "))
        self._watch = asyncio.create_task(self._notice_end(), name="console process")

    async def _notice_end(self) -> None:
        """A console that ends does not end the broker: nobody's messages depend on it."""
        assert self._process is not None
        code = await self._process.wait()
        log.error("the console ended by itself code=%d: start it again with `arrowmq console`", code)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            log.error("the console did not stop in time pid=%d: killed", process.pid)
            process.kill()
            await process.wait()


def console_part(port: int, directory: Path) -> Part:
    def part(node: Node) -> Component:
        return ConsoleProcess(node, port, directory)

    return part
