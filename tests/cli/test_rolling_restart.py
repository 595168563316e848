"""The rolling restart of docs/failover.md, with the commands that it names: every broker of a trio is stopped and
started again under load, and no send fails.
"""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from oracle.trio import ARROW, NAME, Trio

import arrowmq
from waiting import block_until

from .conftest import Command

pytestmark = pytest.mark.timeout(240)

TOPIC, TASKS = "orders", 3


class Sends(threading.Thread):
    """Producers that never repeat what failed: a failure ends them, and the test."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(name="sends", daemon=True)
        self._namesrv = namesrv
        self.acknowledged: list[tuple[str, float]] = []
        self.failures: list[str] = []
        self.is_over = False

    def run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        async with arrowmq.Producer(self._namesrv, timeout_s=10) as producer:
            await asyncio.gather(*(self._send(producer, task) for task in range(TASKS)))

    async def _send(self, producer: arrowmq.Producer, task: int) -> None:
        number = 0
        while not self.is_over:
            body = f"{task}:{number}"
            try:
                receipt = await producer.send(TOPIC, body.encode())
            except arrowmq.ArrowMQError as error:
                self.failures.append(str(error))
                return
            if receipt.status.name != "SEND_OK":
                self.failures.append(f"{body}: {receipt.status.name}")
            self.acknowledged.append((body, time.monotonic()))
            number += 1
            await asyncio.sleep(0.005)

    def go_on(self) -> None:
        so_far = len(self.acknowledged)
        block_until(lambda: self.failures or len(self.acknowledged) > so_far + 20)
        assert not self.failures


async def bodies(namesrv: str, wanted: set[str]) -> set[str]:
    found: set[str] = set()
    async with asyncio.timeout(60), arrowmq.Consumer(namesrv, group="all", topic=TOPIC, consume_from="first") as reader:
        async for message in reader:
            found.add(message.body.decode())
            await message.ack()
            if wanted <= found:
                break
    return found


def test_every_broker_is_restarted_and_no_send_fails(tmp_path: Path) -> None:
    with Trio(tmp_path, [ARROW] * 3, minInSyncReplicas=2, autoCreateTopicEnable=True) as trio:
        command = Command(trio.names.address)
        everybody = set(trio.brokers)

        def in_sync() -> bool:
            shown = command.json("cluster", "show")
            return {str(sorted(everybody))} == {str(row["controlled"]["syncStateSet"]) for row in shown}

        def restart(number: int) -> None:
            trio.brokers[number].stop()
            sends.go_on()
            trio.brokers[number].start()
            block_until(in_sync)
            sends.go_on()

        sends = Sends(trio.names.address)
        sends.start()
        sends.go_on()
        master = trio.new_master()
        for slave in everybody - {master}:
            restart(slave)
        assert master == trio.master(), "it was master all the time"
        command("cluster", "switch", NAME)
        block_until(lambda: trio.master() not in (None, master))
        sends.go_on()
        block_until(in_sync)
        restart(master)
        sends.is_over = True
        sends.join(30)
        assert [] == sends.failures
        assert 2 == trio.epoch(), "one switch, and no election beside it"
        wanted = {body for body, _ in sends.acknowledged}
        assert wanted <= asyncio.run(bodies(trio.names.address, wanted))
        block_until(lambda: trio.log(1) == trio.log(2) == trio.log(3))
        pause_s = max(later - earlier for (_, earlier), (_, later) in pairwise(sends.acknowledged))
        print(f"the longest pause between two acknowledgements: {pause_s * 1000:.0f} ms")
