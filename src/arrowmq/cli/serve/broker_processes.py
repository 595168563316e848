"""`arrowmq server --brokers N`: a NameServer here, and N brokers as processes of their own, to use N cores.

With `--replicas` they are one set under a controller that runs here, too: one of them is master, the others copy it,
and one that ends is started again, because the set survives it.

The brokers are `arrowmq broker` commands in `DIR/broker-1` … `DIR/broker-N` on ports ten apart. They hang on this
process by their standard input: if it ends in any way, they stop in order. If one of them ends, all stop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from arrowmq.cli.serve import running
from arrowmq.config import ConfigError
from arrowmq.server import Part, build_node, controller_port_of

log = logging.getLogger("arrowmq")

PORT_STEP = 10  # a broker uses its port, two below it and one above it
STOP_GRACE_S = 30.0
RESTART_PAUSE_S = 1.0


def run(
    root: Path,
    properties: Mapping[str, str],
    namesrv_port: int,
    broker_port: int,
    count: int,
    proxy_port: int | None = None,
    *,
    log_level: str,
    more: Sequence[Part] = (),
    replicas: bool = False,
) -> None:
    running.configure_logging(log_level)
    running.allow_many_connections()
    if broker_port and broker_port + PORT_STEP * (count - 1) > 65535:
        raise click.ClickException(f"--port {broker_port}: {count} brokers, {PORT_STEP} ports apart, do not fit")
    try:
        with asyncio.Runner(loop_factory=running.new_event_loop) as runner:
            family = _Family(root, properties, namesrv_port, broker_port, count, proxy_port, log_level, more, replicas)
            runner.run(family.serve())
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error


class _Family:
    def __init__(
        self,
        root: Path,
        properties: Mapping[str, str],
        namesrv_port: int,
        broker_port: int,
        count: int,
        proxy_port: int | None,
        log_level: str,
        more: Sequence[Part],
        replicas: bool,
    ) -> None:
        self._root = root
        self._replicas = replicas
        self._properties = dict(properties)
        self._name = self._properties.pop("brokerName", "") or socket.gethostname()
        self._broker_port = broker_port
        self._count = count
        self._proxy_port = proxy_port  # of the first broker, which forwards to the others
        self._log_level = log_level
        if replicas:
            controller_port = controller_port_of(properties)
            self._namesrv = build_node(
                root, properties, namesrv_port=namesrv_port, controller_port=controller_port, more=more
            )
        else:
            self._namesrv = running.node(root, properties, namesrv_port, None, more=more)
        self._is_stopping = False
        self._children: list[asyncio.subprocess.Process] = []

    async def serve(self) -> None:
        stop = asyncio.Event()
        running.on_stop_signals(stop.set)
        await self._namesrv.start()
        failure: str | None = None
        try:
            for number in range(self._count):
                self._children.append(await self._spawn(number))
            ends = [asyncio.ensure_future(self._watch(number)) for number in range(self._count)]
            ready = asyncio.gather(*(self._ready(number) for number in range(self._count)))
            stopping = asyncio.ensure_future(stop.wait())
            tasks: list[asyncio.Future[Any]] = [ready, stopping, *ends]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not stopping.done() and not any(end.done() for end in ends):
                brokers = ", ".join([*ready.result(), *self._namesrv.also_ready])
                print(f"ready: NameServer {self._namesrv.namesrv_address}, {brokers}", flush=True)
                await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                failure = next(end.result() for end in ends if end.done())
            for task in tasks:
                task.cancel()
        finally:
            await self._stop_children()
            await self._namesrv.stop()
        if failure is not None:
            raise click.ClickException(failure)

    def _name_of(self, number: int) -> str:
        if self._replicas:
            return self._name
        return f"{self._name}-{number + 1}"

    async def _spawn(self, number: int) -> asyncio.subprocess.Process:
        port = self._broker_port + PORT_STEP * number if self._broker_port else 0
        words = [
            *("broker", "-n", self._namesrv.namesrv_address, "--name", self._name_of(number), "--port", str(port)),
            *("--dir", str(self._root / f"broker-{number + 1}"), "--log-level", self._log_level, "--stop-with-stdin"),
        ]
        if number == 0 and self._proxy_port is not None:
            words += ["--proxy-port", str(self._proxy_port)]
        for key, value in {**self._controlled(), **self._properties}.items():
            words += ["--set", f"{key}={value}"]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from arrowmq.cli import main; main()",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal reaches us alone; we tell the brokers
        )

    def _controlled(self) -> dict[str, str]:
        """What makes a trio of it: every acknowledged message is on all in-sync brokers, and on two at least."""
        if not self._replicas or self._namesrv.controller is None:
            return {}
        return {
            "enableControllerMode": "true",
            "controllerAddr": self._namesrv.controller.address,
            "allAckInSyncStateSet": "true",
            "minInSyncReplicas": "2",
        }

    async def _ready(self, number: int) -> str:
        stdout = self._children[number].stdout
        assert stdout is not None
        async for line in stdout:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("ready: "):
                return text.removeprefix("ready: ").rpartition(" (")[0]
        await asyncio.Event().wait()  # it ended; the watch says how
        return ""

    async def _watch(self, number: int) -> str:
        code = await self._children[number].wait()
        while self._replicas and not self._is_stopping:
            log.error("broker ended, and is started again number=%d exit code=%d", number + 1, code)
            await asyncio.sleep(RESTART_PAUSE_S)
            self._children[number] = await self._spawn(number)
            code = await self._children[number].wait()
        return f"broker {self._name_of(number)} ended with exit code {code}: all are stopped; its log says why"

    async def _stop_children(self) -> None:
        self._is_stopping = True
        for child in self._children:
            if child.stdin is not None:
                child.stdin.close()
        for child in self._children:
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await child.wait()
            except TimeoutError:
                log.error("broker did not stop in time pid=%d: killed", child.pid)
                child.kill()
                await child.wait()
