"""Pairs that check their users, ours and Apache's either way round: the slave's own requests are signed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from access.asking import ADMIN, GUARDED, Line, administer
from oracle import arrow
from oracle.pair import broker
from oracle.ports import broker_port, free_port

import arrowmq
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import KVTable
from arrowmq.wire.codes import RequestCode
from waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


async def told(line: Line, code: int, ext: dict[str, str] | None = None) -> bytes:
    answer = await administer(line, code, {"x": "x", **(ext or {})})
    return answer.body if answer.code == 0 else b""


async def log_end(line: Line) -> int:
    body = await told(line, RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(fastjson.loads(body, type=KVTable).table["commitLogMaxOffset"]) if body else -1


@pytest.mark.parametrize(("master", "slave"), [("apache", "arrowmq"), ("arrowmq", "apache"), ("arrowmq", "arrowmq")])
async def test_a_slave_copies_the_log_and_the_tables_of_a_master_that_checks_users(
    master: str, slave: str, tmp_path: Path
) -> None:
    guarded: dict[str, Any] = dict(GUARDED)
    # An Apache slave cannot show a ticket at our HA port.
    of_master = {"haSlaveAddresses": "127.0.0.1"} if (master, slave) == ("arrowmq", "apache") else {}
    with ExitStack() as stack:
        names = stack.enter_context(arrow.namesrv(tmp_path / "namesrv", free_port())).address
        first = stack.enter_context(
            broker(master, tmp_path / "master", broker_port(), names, brokerRole="ASYNC_MASTER", **guarded, **of_master)
        )
        async with arrowmq.Admin(names, credentials=ADMIN) as admin:
            await admin.create_topic("orders", queues=4)
        async with arrowmq.Producer(names, credentials=ADMIN) as producer:
            for number in range(200):
                await producer.send("orders", b"%d" % number * 100)
        second = stack.enter_context(
            broker(slave, tmp_path / "slave", broker_port(), names, brokerRole="SLAVE", brokerId=1, **guarded)
        )
        at_master, at_slave = Line(first.address), Line(second.address)

        async def has_the_log() -> bool:
            return 0 < await log_end(at_master) == await log_end(at_slave)

        async def has_the_topic() -> bool:
            return b'"orders"' in await told(at_slave, RequestCode.GET_ALL_TOPIC_CONFIG)

        async def has_the_user() -> bool:
            return b"ann" in await told(at_slave, RequestCode.AUTH_GET_USER, {"username": "ann"})

        await until(has_the_log, 60)
        await until(has_the_topic, 60)
        if slave == "arrowmq":  # Apache's slaves take no users
            made = {"password": "password-of-ann", "userType": "Normal"}
            answer = await administer(at_master, RequestCode.AUTH_CREATE_USER, {"username": "ann"}, made)
            assert answer.code == 0, answer.remark
            await until(has_the_user, 90)
        at_master.close()
        at_slave.close()
