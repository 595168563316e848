"""An event loop in a thread of its own, for callers that wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from arrowmq.client.errors import InvalidUse

_R = TypeVar("_R")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def begin(self, work: Callable[[], Awaitable[_R]]) -> concurrent.futures.Future[_R]:
        if os.getpid() != self._pid:
            raise InvalidUse("this client was made before a fork: make a new one in the child process")
        if threading.current_thread() is self._thread:
            raise InvalidUse("a blocking call inside of the client's own event loop would wait for itself")

        async def run() -> _R:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop)

    def call(self, work: Callable[[], Awaitable[_R]]) -> _R:
        """Run in the loop and wait; an interrupt (Ctrl-C) cancels what runs there."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
