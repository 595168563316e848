"""Our Python producer at work, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time

from arrowmq import ArrowMQError, Producer

TASKS = 2


class PythonSends(threading.Thread):
    def __init__(self, namesrv: str, topic: str, timeout_s: float) -> None:
        super().__init__(name="python producer", daemon=True)
        self._namesrv, self._topic, self._timeout_s = namesrv, topic, timeout_s
        self.acknowledged: list[float] = []
        self.failures = 0
        self.is_over = False

    def run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        async with Producer(self._namesrv, group="bench_python", timeout_s=self._timeout_s) as producer:
            await asyncio.gather(*(self._send(producer) for _ in range(TASKS)))

    async def _send(self, producer: Producer) -> None:
        while not self.is_over:
            try:
                await producer.send(self._topic, b"p" * 100)
                self.acknowledged.append(time.time() * 1000)
            except ArrowMQError:
                self.failures += 1
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.002)
