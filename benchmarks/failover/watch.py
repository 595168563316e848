"""When NameServer and controller changed what they say, and when servers said something in their logs."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from oracle.trio import ARROW, JAVA, NAME, Trio

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

INTERVAL_S = 0.004
#: How the servers say it themselves: the controller that it misses a master, a broker that it has become one.
NOTICED = {ARROW: r"broker gone", JAVA: r"broker inactive event|not active|channel.*(?:clos|inactive|destroy)"}
TAKEN = {ARROW: r"this broker is master", JAVA: r"Change ha to master success|[Cc]hange to master.*success"}
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3})")


class Watch(threading.Thread):
    """Asks both every few milliseconds, and notes when what they say changes."""

    def __init__(self, trio: Trio) -> None:
        super().__init__(name="watch", daemon=True)
        self._trio = trio
        self.routes: list[tuple[float, str]] = []
        self.elections: list[tuple[float, int]] = []
        self.is_over = False

    def run(self) -> None:
        asyncio.run(self._watch_both())

    async def _watch_both(self) -> None:
        client = RemotingClient()

        async def route() -> None:
            command = Command.request(
                RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "DefaultCluster", "brokerName": NAME}
            )
            answer = await client.invoke(self._trio.names.address, command, 1)
            addresses: Any = fastjson.loads(answer.body, dict[str, Any])["brokerMemberGroup"]["brokerAddrs"]
            _note(self.routes, addresses.get("0", addresses.get(0, "")))

        async def election() -> None:
            command = Command.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": NAME})
            answer = await client.invoke(self._trio.controller.address, command, 1)
            if answer.ext.get("masterBrokerId"):
                _note(self.elections, int(answer.ext.get("masterEpoch", 0)))

        async def repeat(ask: Callable[[], Awaitable[None]]) -> None:
            while not self.is_over:
                with suppress(RemotingError, KeyError):
                    await ask()
                await asyncio.sleep(INTERVAL_S)

        await asyncio.gather(repeat(route), repeat(election))
        await client.close()

    def elected_ms(self, after_ms: float) -> float | None:
        return next((moment for moment, _ in self.elections if moment >= after_ms), None)

    def routed_ms(self, address: str, after_ms: float) -> float | None:
        """When clients were first told of this master."""
        return next((moment for moment, master in self.routes if moment >= after_ms and master == address), None)


def _note(seen: list[tuple[float, Any]], value: Any) -> None:
    if not seen or seen[-1][1] != value:
        seen.append((time.time() * 1000, value))


def noticed_ms(trio: Trio, after_ms: float) -> float | None:
    """When the controller said that it misses a broker."""
    if trio.controller_kind == ARROW:
        path = trio.controller.output
    else:
        path = trio.folder / "controller/logs/rocketmqlogs/controller.log"
    return _first_said(path, NOTICED[trio.controller_kind], after_ms)


def taken_ms(trio: Trio, number: int, after_ms: float) -> float | None:
    """When a broker said that it is master."""
    kind = trio.kinds[number - 1]
    path = trio.brokers[number].output
    if kind == JAVA:
        path = trio.folder / f"broker-{number}/logs/rocketmqlogs/broker.log"
    return _first_said(path, TAKEN[kind], after_ms)


def _first_said(path: Path, pattern: str, after_ms: float) -> float | None:
    found = re.compile(pattern)
    if not path.exists():
        return None
    for line in path.read_text(errors="replace").splitlines():
        stamp = _TIME.match(line)
        if stamp and found.search(line):
            at_ms = datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}").timestamp() * 1000 + int(stamp[3])
            if at_ms >= after_ms - 1:
                return at_ms
    return None
