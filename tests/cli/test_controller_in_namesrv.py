"""`enableControllerInNamesrv=true`: one process is NameServer and controller, and remembers what it decided."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from oracle import arrow
from oracle.ports import broker_port, free_port
from oracle.process import Server

import arrowmq
from waiting import block_until

from .conftest import Command

pytestmark = pytest.mark.timeout(180)

NAME = "broker-a"


def test_a_namesrv_elects_masters_and_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = free_port()
        above = arrow.namesrv(
            *(tmp_path / "namesrv", free_port()),
            enableControllerInNamesrv=True,
            controllerDLegerPeers=f"n0-127.0.0.1:{port}",
        )
        stack.enter_context(above)
        brokers: dict[int, Server] = {}
        for number in (1, 2):
            listen = broker_port()
            brokers[number] = stack.enter_context(
                arrow.broker(
                    *(tmp_path / f"broker-{number}", listen, above.address),
                    name=NAME,
                    haListenPort=listen + 1,
                    enableControllerMode=True,
                    controllerAddr=f"127.0.0.1:{port}",
                    allAckInSyncStateSet=True,
                    mappedFileSizeCommitLog=1 << 24,
                    controllerHeartBeatTimeoutMills=5000,
                )
            )
        command = Command(above.address)

        def controlled() -> dict[str, Any]:
            said = command.run("cluster", "show", "--json")
            rows = command.json("cluster", "show") if said.exit_code == 0 else []
            return next((row["controlled"] for row in rows if row.get("controlled")), {})

        block_until(lambda: controlled().get("syncStateSet") == [1, 2])
        assert (1, 1) == (controlled()["masterId"], controlled()["epoch"])
        asyncio.run(_send(above.address, "before"))
        assert (tmp_path / "namesrv" / "controller" / "decisions.db").exists()

        above.kill()
        above.start()
        block_until(lambda: controlled().get("syncStateSet") == [1, 2])
        assert (1, 1) == (controlled()["masterId"], controlled()["epoch"])

        brokers[1].kill()
        block_until(lambda: controlled().get("masterId") == 2)
        asyncio.run(_send(above.address, "after"))
        brokers[1].start()
        block_until(lambda: controlled().get("syncStateSet") == [1, 2])


async def _send(namesrv: str, body: str) -> None:
    async with arrowmq.Producer(namesrv, timeout_s=30) as producer:
        assert "SEND_OK" == (await producer.send("orders", body.encode())).status.name
