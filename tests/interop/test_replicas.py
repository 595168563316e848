"""Pairs of brokers, ours and Apache's either way round: one log, byte for byte, whatever happens to one of them.

A slave joins late, is killed (-9) in the middle, stands still for a while (SIGSTOP), and ends with its master's log,
queues and index.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from oracle.pair import FILE_BYTES, PAIRS, REVIVE_TOPIC, Pair, flood

from arrowmq.wire.codes import RequestCode
from waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

MESSAGES = 20_000


@pytest.mark.parametrize(("master", "slave"), PAIRS)
async def test_a_pair_has_one_log_whatever_happens_to_the_slave(master: str, slave: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = Pair(stack, tmp_path, master, slave)
        pair.master.start()
        topic = "orders"
        await flood(pair, topic, 0, MESSAGES // 4)
        pair.slave.start()  # late
        flooding = asyncio.ensure_future(flood(pair, topic, MESSAGES // 4, MESSAGES // 2))
        await until(lambda: _has_log(tmp_path / "slave"), 60)
        pair.slave.kill()  # in the middle
        await flooding
        pair.slave.start()
        flooding = asyncio.ensure_future(flood(pair, topic, MESSAGES // 2, MESSAGES))
        os.kill(pair.slave.pid, signal.SIGSTOP)
        await asyncio.sleep(1)  # it stands still for a while: this is what is tested
        os.kill(pair.slave.pid, signal.SIGCONT)
        await flooding
        await pair.caught_up()
        begin, end = await pair.bounds(pair.slave)
        assert end > 4 * FILE_BYTES
        assert pair.log("master", begin, end) == pair.log("slave", begin, end)
        ours = await pair.max_offsets(pair.master, topic, 4)
        await until(lambda: pair.has(topic, ours), 30)
        await until(lambda: _same_check_points(pair), 60)
        found = await pair.ask(
            pair.slave,
            RequestCode.QUERY_MESSAGE,
            {"topic": topic, "key": f"k{MESSAGES - 1}", "maxNum": 8, "beginTimestamp": 0,
             "endTimestamp": int(time.time() * 1000) + 60_000},
        )  # fmt: skip
        assert found.code == 0, found.remark
        assert f"{MESSAGES - 1}x".encode() in found.body
        await pair.remoting.close()


def _has_log(folder: Path) -> bool:
    logs = folder / "store" / "commitlog"
    return logs.is_dir() and any(logs.iterdir())


async def _same_check_points(pair: Pair) -> bool:
    """What was popped and acknowledged is in the slave's queues as in the master's, while some of it comes back."""
    ours, theirs = [await pair.max_offsets(server, REVIVE_TOPIC, 8) for server in (pair.master, pair.slave)]
    return ours == theirs and sum(ours) > 100
