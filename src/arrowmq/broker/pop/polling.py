"""Requests that wait for a message of a topic: by topic, group and queue (or any queue), the oldest first.

A message that arrives wakes one request of each group that waits for its queue, and one that waits for any. If that
one leaves something behind, it wakes the next. So no group waits for another, and a thousand waiting members of one
group are not all woken for a single message.

A message that comes back wakes a request for the topic that it is a retry of (`came_back`). Whoever hung up waits no
longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from arrowmq.broker.pop.due import Due
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Call
from arrowmq.store.results import EntryFilter
from arrowmq.wire.codes import ResponseCode

log = logging.getLogger(__name__)

ANY_QUEUE = -1
EARLY_MS = 50  # before the time that the client gave, so that it has the answer in time (Apache's)
BUCKET_MS = 20
Key = tuple[str, str, int]
Watch = Callable[[str, int, bool], None]


class Waiting:
    """One request; `again(is_over)` runs it once more."""

    __slots__ = ("again", "bucket", "call", "group", "is_there", "matches", "queue_id", "topic")

    def __init__(
        self,
        call: Call,
        topic: str,
        group: str,
        queue_id: int,
        matches: EntryFilter | None,
        again: Callable[[bool], None],
    ) -> None:
        self.call = call
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.matches = matches
        self.again = again
        self.bucket = -1
        self.is_there = False

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id


class Polling:
    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        watch: Watch,
        queues_of: Callable[[str], int],
        *,
        newest_first: bool = False,
        name: str = "pop",
    ) -> None:
        self.config = config
        self.clock = clock
        self.watch = watch
        self.queues_of = queues_of
        self.newest_first = newest_first
        self.held_by = f"pop.polling.{name}"
        self.count = 0
        self.lines: dict[Key, deque[Waiting]] = {}
        self._counts: dict[Key, int] = {}
        self._groups: dict[str, dict[str, set[int]]] = {}  # topic -> group -> queues that it waits for
        self._watched: dict[str, int] = {}  # topic -> so many of its queues
        self._due: Due[Waiting] = Due(clock, BUCKET_MS, self._expired)
        self._woken: dict[Waiting, None] = {}
        self._is_stopped = False
        self._due.start()

    # Waiting

    def refusal(self, key: Key, born_ms: int, poll_ms: int) -> ResponseCode | None:
        """Why a request cannot wait: too many do, or its time is over; None if it can."""
        if poll_ms <= 0 or self._is_stopped:
            return ResponseCode.POLLING_TIMEOUT
        if self.count >= self.config.max_pop_polling_size:
            return ResponseCode.POLLING_FULL
        if self.clock.now_ms() >= born_ms + poll_ms - EARLY_MS:
            return ResponseCode.POLLING_TIMEOUT
        if self._counts.get(key, 0) > self.config.pop_polling_size:
            return ResponseCode.POLLING_FULL
        return None

    def hold(self, waiting: Waiting, until_ms: int) -> None:
        key = waiting.key
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = deque()
            self._groups.setdefault(waiting.topic, {}).setdefault(waiting.group, set()).add(waiting.queue_id)
            self._watch(waiting.topic)
        line.append(waiting)
        self._counts[key] = self._counts.get(key, 0) + 1
        self.count += 1
        waiting.is_there = True
        waiting.call.suspend()
        self._of_client(waiting.call.connection)[waiting] = None
        waiting.bucket = self._due.add(waiting, until_ms - EARLY_MS)

    def _of_client(self, client: Channel) -> dict[Waiting, None]:
        held: dict[Waiting, None] | None = client.attributes.get(self.held_by)
        if held is None:
            held = client.attributes[self.held_by] = {}
            client.on_close(self._closed)
        return held

    def _closed(self, client: Channel) -> None:
        for waiting in list(client.attributes.pop(self.held_by, ())):
            self._remove(waiting)
            waiting.call.reply(None)  # reaches nobody, but ends the call's account of itself

    def _remove(self, waiting: Waiting) -> None:
        if not waiting.is_there:
            return
        waiting.is_there = False
        self.count -= 1
        key = waiting.key
        left = self._counts[key] = self._counts[key] - 1
        self._due.remove(waiting, waiting.bucket)
        waiting.call.connection.attributes.get(self.held_by, {}).pop(waiting, None)
        line = self.lines[key]
        if left == 0:
            self._drop_line(key)
        elif len(line) > 2 * left + 16:  # those who hung up in the middle of the line
            self.lines[key] = deque(each for each in line if each.is_there)

    def _drop_line(self, key: Key) -> None:
        topic, group, queue_id = key
        del self.lines[key], self._counts[key]
        groups = self._groups[topic]
        groups[group].discard(queue_id)
        if not groups[group]:
            del groups[group]
            if not groups:
                del self._groups[topic]

    # Watching: a queue is watched from the first request that waits for it until a message comes that nobody wants

    def _watch(self, topic: str) -> None:
        watched, wanted = self._watched.get(topic, 0), self.queues_of(topic)
        for queue_id in range(watched, wanted):
            self.watch(topic, queue_id, True)
        self._watched[topic] = max(wanted, watched)

    def _unwatch(self, topic: str) -> None:
        for queue_id in range(self._watched.pop(topic, 0)):
            self.watch(topic, queue_id, False)

    # Waking

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_timestamp: int, properties: object
    ) -> None:
        """The store's listener."""
        if topic not in self._watched:
            return
        groups = self._groups.get(topic)
        if groups is None:
            self._unwatch(topic)
            return
        interval = self.config.pop_long_polling_force_notify_interval
        # From time to time also those who do not want it, to see how far they have come
        code = None if interval > 0 and next_offset % interval == 0 else tags_code
        for group in list(groups):
            self.wake((topic, group, ANY_QUEUE), code)
            self.wake((topic, group, queue_id), code)

    def came_back(self, topic: str, group: str) -> None:
        """A message waits in the retry topic, which every pop of the group reads, whichever queue it asks for."""
        for queue_id in list(self._groups.get(topic, {}).get(group, ())):
            self.wake((topic, group, queue_id))

    def wake(self, key: Key, tags_code: int | None = None) -> bool:
        """Runs the one whose turn it is once more, at the end of this event loop iteration; with a code, the first that
        may want a message with it. False if there is none."""
        line = self.lines.get(key)
        if line is None:
            return False
        found = self._next(line, tags_code)
        if found is None:
            return False
        self._remove(found)
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._run_woken)
        self._woken[found] = None
        return True

    def wake_for(self, topic: str, group: str, queue_id: int) -> None:
        """A queue of a group has something to hand out again: for one that waits for any queue, or else for this."""
        self.wake((topic, group, ANY_QUEUE)) or self.wake((topic, group, queue_id))

    def _next(self, line: deque[Waiting], tags_code: int | None) -> Waiting | None:
        while line:
            found = line[-1] if self.newest_first else line[0]
            if found.is_there:
                break
            line.pop() if self.newest_first else line.popleft()
        for found in reversed(line) if self.newest_first else line:
            if found.is_there and (
                tags_code is None or found.matches is None or found.matches.matches_entry(tags_code)
            ):
                return found
        return None

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for waiting in woken:
            self._again(waiting, is_over=False)

    def _expired(self, items: Iterable[Waiting]) -> None:
        for waiting in list(items):
            if waiting.is_there:
                self._remove(waiting)
                self._again(waiting, is_over=True)

    def _again(self, waiting: Waiting, *, is_over: bool) -> None:
        if waiting.call.connection.closed:
            waiting.call.reply(None)
            return
        try:
            waiting.again(is_over)
        except Exception as failure:
            log.exception("a waiting request of topic[%s] group[%s] failed", waiting.topic, waiting.group)
            waiting.call.refuse(ResponseCode.SYSTEM_ERROR, f"{type(failure).__name__}: {failure}")

    def poke(self, topic: str, group: str | None = None) -> None:
        """Lets everybody who waits for a topic look again: it is gone, or a group was sent elsewhere."""
        if not self.queues_of(topic):
            self._unwatch(topic)
        for name in list(self._groups.get(topic, {})):
            if group in (None, name):
                for queue_id in list(self._groups.get(topic, {}).get(name, ())):
                    while self.wake((topic, name, queue_id)):
                        pass

    def waiting_in(self, key: Key) -> int:
        return self._counts.get(key, 0)

    def groups_waiting(self, topic: str) -> list[str]:
        return list(self._groups.get(topic, {}))

    def stop(self) -> None:
        """Answers everybody who waits, and lets nobody wait any more."""
        self._is_stopped = True
        self.answer_all()
        self._due.stop()

    def answer_all(self) -> None:
        """Ends the time of everybody who waits: who asks again is checked again, by rights that may have changed."""
        for line in list(self.lines.values()):
            for waiting in list(line):
                if waiting.is_there:
                    self._remove(waiting)
                    self._again(waiting, is_over=True)
