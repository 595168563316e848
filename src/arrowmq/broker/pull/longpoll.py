"""Pulls that wait for a message: one list a queue, one timer for all of them, woken by the append itself.

A waiting pull costs its place in a list and nothing else. The store's listener says that a queue grew; those of its
waiting pulls that want the message run again at the end of this event loop iteration, when everything that arrived with
it is there too. A message that a pull's filter does not want only moves the pull's offset on, so that it never has to
look at that message again.

Deadlines lie in buckets of a tenth of a second. A clock's timer stands at the earliest bucket; a pull that is woken
leaves its bucket, so there is nothing to clean up.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Protocol

from arrowmq.clock import Clock, Timer
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Call
from arrowmq.store.results import EntryFilter

log = logging.getLogger(__name__)

BUCKET_MS = 100
LONGEST_WAIT_MS = 3_600_000
HELD = "longpoll.held"


class Waiting:
    """One request that waits at the end of a queue; `again(waiting, is_over)` runs it once more."""

    __slots__ = ("again", "bucket", "call", "deadline_ms", "group", "matches", "offset", "queue_id", "topic")

    def __init__(
        self,
        call: Call,
        topic: str,
        queue_id: int,
        offset: int,
        deadline_ms: int,
        matches: EntryFilter | None,
        again: Callable[[Waiting, bool], None],
        group: str = "",
    ) -> None:
        self.call = call
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.matches = matches
        self.again = again
        self.bucket = -1


class Watch(Protocol):
    def __call__(self, topic: str, queue_id: int, watched: bool) -> None: ...


class LongPoll:
    def __init__(self, clock: Clock, watch: Watch) -> None:
        self.clock = clock
        self.watch = watch
        self.count = 0
        self._queues: dict[tuple[str, int], dict[Waiting, None]] = {}
        self._buckets: dict[int, dict[Waiting, None]] = {}
        self._bucket_order: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self._woken: dict[Waiting, None] = {}
        self._is_stopped = False

    def hold(self, waiting: Waiting) -> None:
        """Lets a request wait until a message for it arrives or its deadline has passed."""
        if self._is_stopped:
            self._again(waiting, is_over=True)
            return
        key = (waiting.topic, waiting.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = {}
            self.watch(waiting.topic, waiting.queue_id, True)
        queue[waiting] = None
        self.count += 1
        waiting.call.suspend()
        self._of_connection(waiting.call.connection)[waiting] = None
        self._set_deadline(waiting)

    def _of_connection(self, connection: Channel) -> dict[Waiting, None]:
        held: dict[Waiting, None] | None = connection.attributes.get(HELD)
        if held is None:
            held = connection.attributes[HELD] = {}
            connection.on_close(self._closed)
        return held

    def _closed(self, connection: Channel) -> None:
        """Whoever hung up waits no longer."""
        for waiting in list(connection.attributes.pop(HELD, ())):
            self._remove(waiting)
            waiting.call.reply(None)  # reaches nobody, but ends the call's account of itself

    def arrived(
        self,
        topic: str,
        queue_id: int,
        next_offset: int,
        tags_code: int,
        store_timestamp: int,
        properties_raw: memoryview | bytes,
    ) -> None:
        """The store's listener: a message has been appended to this queue, whose end is `next_offset` now."""
        queue = self._queues.get((topic, queue_id))
        if not queue:
            return
        woken: list[Waiting] = []
        for waiting in queue:
            if next_offset <= waiting.offset:
                continue
            if waiting.matches is None or waiting.matches.matches_entry(tags_code):
                woken.append(waiting)
            elif next_offset == waiting.offset + 1:
                waiting.offset = next_offset
        self._wake(woken)

    def poke(self, topic: str, queue_id: int) -> None:
        """Lets the waiting requests of a queue look again."""
        self._wake(list(self._queues.get((topic, queue_id), ())))

    def poke_group(self, group: str, topic: str, queue_count: int) -> None:
        """Lets the waiting requests of one group look again, in all queues of a topic."""
        for queue_id in range(queue_count):
            queue = self._queues.get((topic, queue_id), {})
            self._wake([waiting for waiting in queue if waiting.group == group])

    def _wake(self, woken: list[Waiting]) -> None:
        for waiting in woken:
            self._remove(waiting)
            if not self._woken:
                asyncio.get_running_loop().call_soon(self._run_woken)
            self._woken[waiting] = None

    def wake_all(self, topic: str | None = None) -> None:
        """Runs waiting requests again whatever is there: their topic is gone, or the broker stops."""
        for queue in [queue for (name, _), queue in self._queues.items() if topic is None or name == topic]:
            for waiting in list(queue):
                self._remove(waiting)
                self._again(waiting, is_over=True)

    def waiting_in(self, topic: str, queue_id: int) -> int:
        return len(self._queues.get((topic, queue_id), ()))

    def stop(self) -> None:
        """Answers everybody who waits, and lets nobody wait any more."""
        self._is_stopped = True
        self.wake_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for waiting in woken:
            self._again(waiting, is_over=False)

    def _again(self, waiting: Waiting, *, is_over: bool) -> None:
        if waiting.call.connection.closed:
            waiting.call.reply(None)  # reaches nobody, but ends the call's account of itself
            return
        try:
            waiting.again(waiting, is_over)
        except Exception as failure:
            log.exception("a waiting request of topic[%s] queue %d failed", waiting.topic, waiting.queue_id)
            waiting.call.refuse(1, f"{type(failure).__name__}: {failure}")

    def _remove(self, waiting: Waiting) -> None:
        key = (waiting.topic, waiting.queue_id)
        queue = self._queues[key]
        del queue[waiting]
        waiting.call.connection.attributes.get(HELD, {}).pop(waiting, None)
        self.count -= 1
        if not queue:
            del self._queues[key]
            self.watch(waiting.topic, waiting.queue_id, False)
        bucket = self._buckets.get(waiting.bucket)
        if bucket is not None:
            bucket.pop(waiting, None)

    def _set_deadline(self, waiting: Waiting) -> None:
        latest_ms = self.clock.now_ms() + LONGEST_WAIT_MS
        number = -(-min(waiting.deadline_ms, latest_ms) // BUCKET_MS)
        waiting.bucket = number
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_order, number)
        bucket[waiting] = None
        if self._timer is None or number < self._timer_bucket:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._bucket_order:
            self._timer_bucket = self._bucket_order[0]
            delay_ms = self._timer_bucket * BUCKET_MS - self.clock.now_ms()
            self._timer = self.clock.call_later(max(0, delay_ms) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self.clock.now_ms()
        while self._bucket_order and self._bucket_order[0] * BUCKET_MS <= now_ms:
            for waiting in self._buckets.pop(heapq.heappop(self._bucket_order)):
                self._remove(waiting)
                self._again(waiting, is_over=True)
        self._set_timer()
