"""Between the pull loops and whoever consumes: messages that are ready to be handed out.

A concurrent inbox hands out everything as it comes. An orderly inbox hands out the next message of a queue only when
the one before it is settled, so that a queue is consumed in order however many consume from the inbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from arrowmq.client.consume.pulling import PulledQueue
from arrowmq.client.message import Delivered


class Inbox:
    """The waiting that both kinds share."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_closed = False

    def arrived(self, pulled: PulledQueue, messages: Sequence[Delivered]) -> None:
        raise TypeError("an inbox is concurrent or orderly")

    def dropped(self, pulled: PulledQueue) -> None:
        """The queue is not ours any more."""

    def lock_renewed(self) -> None:
        """Queues that were unusable may be usable again."""

    def take(self) -> Delivered | None:
        """The next message, if one is ready."""
        raise TypeError("an inbox is concurrent or orderly")

    def settled(self, message: Delivered) -> None:
        """Acknowledged, or given back."""

    def again(self, message: Delivered) -> None:
        """Hand it out once more."""
        raise TypeError("an inbox is concurrent or orderly")

    async def wait(self) -> None:
        """Until there may be something to take, or the inbox is closed."""
        if self.is_closed:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # what woke us would else be left to nobody
            raise

    def _wake(self, count: int) -> None:
        waiting = self._waiting
        while count > 0 and waiting:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def close(self) -> None:
        self.is_closed = True
        self._wake(len(self._waiting))


class ConcurrentInbox(Inbox):
    """Messages of all queues in the order they arrived."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: deque[Delivered] = deque()

    def arrived(self, pulled: PulledQueue, messages: Sequence[Delivered]) -> None:
        self._ready.extend(messages)
        if self._waiting:
            self._wake(len(messages))

    def take(self) -> Delivered | None:
        ready = self._ready
        while ready:
            message = ready.popleft()
            source = message.pulled_from
            if source is not None and not source.is_dropped:
                return message
        return None

    def again(self, message: Delivered) -> None:
        self._ready.append(message)
        self._wake(1)

    def __len__(self) -> int:
        return len(self._ready)


class OrderlyInbox(Inbox):
    """One message a queue at a time; queues take turns."""

    def __init__(self) -> None:
        super().__init__()
        self._queued: dict[PulledQueue, deque[Delivered]] = {}
        self._turns: deque[PulledQueue] = deque()
        #: Queues whose turn it is, or whose message is being consumed.
        self._active: set[PulledQueue] = set()

    def arrived(self, pulled: PulledQueue, messages: Sequence[Delivered]) -> None:
        self._queued.setdefault(pulled, deque()).extend(messages)
        self._offer(pulled)

    def _offer(self, pulled: PulledQueue) -> None:
        if pulled not in self._active and self._queued.get(pulled):
            self._active.add(pulled)
            self._turns.append(pulled)
            self._wake(1)

    def dropped(self, pulled: PulledQueue) -> None:
        self._queued.pop(pulled, None)
        self._active.discard(pulled)

    def take(self) -> Delivered | None:
        for _ in range(len(self._turns)):
            pulled = self._turns.popleft()
            queued = self._queued.get(pulled)
            if pulled.is_dropped or not queued:
                self._active.discard(pulled)
                continue
            if not pulled.is_usable:
                self._turns.append(pulled)  # the lock is lost for the moment; its renewal wakes us
                continue
            return queued.popleft()
        return None

    def settled(self, message: Delivered) -> None:
        pulled = message.pulled_from
        if pulled is not None:
            self._active.discard(pulled)
            self._offer(pulled)

    def again(self, message: Delivered) -> None:
        """Back to the front of its queue: what lies behind it waits."""
        pulled = message.pulled_from
        if pulled is None or pulled.is_dropped:
            return
        self._queued.setdefault(pulled, deque()).appendleft(message)
        self._active.discard(pulled)
        self._offer(pulled)

    def lock_renewed(self) -> None:
        self._wake(len(self._turns))
