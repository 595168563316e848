"""Questions for the route of a retry topic that come a moment before the topic.

A consumer asks for the route of `%RETRY%group` as it starts. Of a new group there is none: the first heartbeat makes
the topic. Java clients ask again from another thread about when that heartbeat is under way, and then after 30 s; who
misses it both times gets no retries for half a minute. So the first question of a connection is answered at once (the
client sends its heartbeat only then), and the second waits a moment for a broker to register the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from arrowmq.remoting.channel import Channel

RETRY_PREFIX = "%RETRY%"
LONGEST_WAIT_S = 0.25
MOST_WAITING = 10_000
MOST_TOPICS = 100  # remembered of a connection
ASKED = "namesrv.retry topics asked for"


class RetryRoutes:
    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.waiting = 0

    def is_asked_again(self, topic: str, connection: Channel) -> bool:
        """Whether this connection asked for a topic that does not exist before; notes that it did."""
        if not topic.startswith(RETRY_PREFIX):
            return False
        asked: set[str] = connection.attributes.setdefault(ASKED, set())
        if topic in asked:
            asked.remove(topic)
            return self.waiting < MOST_WAITING
        if len(asked) < MOST_TOPICS:
            asked.add(topic)
        return False

    async def appears(self, topic: str) -> None:
        """Returns when a broker has registered the topic, or after a moment."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(topic, []).append(future)
        self.waiting += 1
        # By the loop's time, not a clock's: it is frames on their way that are waited for.
        timer = loop.call_later(LONGEST_WAIT_S, _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            self.waiting -= 1
            waiting = self._waiting.get(topic, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(topic, None)

    def registered(self, topics: Iterable[str]) -> None:
        """A broker told of these topics."""
        if self._waiting:
            for topic in self._waiting.keys() & set(topics):
                for future in self._waiting.pop(topic):
                    _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
