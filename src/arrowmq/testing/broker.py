"""The real NameServer and broker inside of a test process.

They listen on free ports of 127.0.0.1, so clients of any language can connect. Their files are small, and silence of a
client is never held against it: a leap of the clock must not look like a client that has been dead for days.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from arrowmq.client.async_scope import Scope
from arrowmq.server import Node, build_node
from arrowmq.store.disk import Disk, DiskUsage
from arrowmq.sync.loop_thread import LoopThread
from arrowmq.testing.leap_clock import LeapClock

_NEVER_MS = str(100 * 365 * 86_400 * 1000)
SETTINGS: dict[str, str] = {
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "brokerName": "broker-a",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 2000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "fileReservedTime": str(100 * 365 * 24),
    "cleanFileForciblyEnable": "false",
    "channelExpiredTimeout": _NEVER_MS,
    "serverChannelMaxIdleTimeSeconds": str(100 * 365 * 86_400),
    "scanNotActiveBrokerInterval": _NEVER_MS,
}


class RoomyDisk(Disk):
    """The real disk, which never looks full: how full a laptop is must not decide a test."""

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(used=0, usable=super().usage(path).usable)


class LocalBroker(Scope):
    """NameServer and broker in the running event loop: `async with LocalBroker() as broker: ...`"""

    def __init__(
        self, folder: Path | None = None, *, settings: Mapping[str, str] | None = None, clock: LeapClock | None = None
    ) -> None:
        self.clock = clock or LeapClock()
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="arrowmq-test-"))
        self._settings = {**SETTINGS, **(settings or {})}
        self._ports = (0, 0)
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError("the test broker does not run: start it, or use `async with`")
        return self._node

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self.node.namesrv_address

    @property
    def broker_address(self) -> str:
        return self.node.broker_address

    async def start(self) -> None:
        namesrv_port, broker_port = self._ports
        self._node = build_node(
            self.folder,
            self._settings,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            clock=self.clock,
            disk=RoomyDisk(),
        )
        await self._node.start()
        self._ports = (_port(self._node.namesrv_address), _port(self._node.broker_address))

    async def stop(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    async def restart(self) -> None:
        """Stop and start on the same store and the same ports, as an operator would."""
        await self.stop()
        await self.start()

    async def advance(self, duration: float | timedelta) -> None:
        """Let so many seconds (or a timedelta) pass at once: what is due in them happens."""
        await self.clock.advance(duration.total_seconds() if isinstance(duration, timedelta) else duration)

    async def close(self) -> None:
        await self.stop()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


class BrokerThread:
    """The same in a thread of its own, for tests with or without an event loop; its methods block."""

    def __init__(self, folder: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._thread = LoopThread("arrowmq test broker")
        self._broker = LocalBroker(folder, settings=settings)
        try:
            self._thread.call(self._broker.start)
        except BaseException:
            self._thread.stop()
            raise

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self._broker.namesrv

    @property
    def broker_address(self) -> str:
        return self._broker.broker_address

    @property
    def node(self) -> Node:
        return self._broker.node

    def now_ms(self) -> int:
        """The broker's time."""
        return self._broker.clock.now_ms()

    def advance(self, duration: float | timedelta) -> None:
        """Let so many seconds (or a timedelta) pass at once: delays, retries and checks that are due happen."""
        self._thread.call(lambda: self._broker.advance(duration))

    async def advance_until(
        self, is_done: Callable[[], bool], *, step: float | timedelta = 60.0, steps: int = 1000
    ) -> None:
        """Leap and let clients work, in turns, until the condition holds; for retries that follow each other."""
        for _ in range(steps):
            if is_done():
                return
            self.advance(step)
            # Real time for real sockets: what the leap set free travels to the clients and their answers back.
            await asyncio.sleep(0.005)
        raise AssertionError(f"after {steps} leaps of {step} the condition still does not hold")

    def stop(self) -> None:
        self._thread.call(self._broker.stop)

    def start(self) -> None:
        self._thread.call(self._broker.start)

    def restart(self) -> None:
        """Stop and start on the same store and the same ports, as an operator would."""
        self._thread.call(self._broker.restart)

    def close(self) -> None:
        try:
            self._thread.call(self._broker.close)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
