"""Queue locks for orderly consumers: one client of a group holds a queue, for a minute, and renews it.

In memory only: after a restart clients lock again, within their 20 s period.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from arrowmq.clock import Clock
from arrowmq.remoting.handlers import Answer, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import LockBatch, LockBatchResult
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger(__name__)

LOCK_LIVES_MS = 60_000


class QueueLocks:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # group -> queue -> (owner, time of the last lock)
        self._locks: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """The queues that the client holds now: its own, renewed, and those that nobody held or held too long ago."""
        now_ms = self.clock.now_ms()
        locks = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            owner, since_ms = locks.get(queue, (client_id, now_ms))
            if owner != client_id and now_ms - since_ms <= LOCK_LIVES_MS:
                continue
            if owner != client_id:
                log.info("group[%s] %s: lock of %s ran out, %s takes it", group, queue, owner, client_id)
            locks[queue] = (client_id, now_ms)
            held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        locks = self._locks.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held[0] == client_id:
                del locks[queue]
        if not locks:
            self._locks.pop(group, None)

    def is_held(self, group: str) -> bool:
        """Whether a group holds any queue, which means that it consumes in order."""
        now_ms = self.clock.now_ms()
        return any(now_ms - since_ms <= LOCK_LIVES_MS for _, since_ms in self._locks.get(group, {}).values())


class LockService:
    def __init__(self, locks: QueueLocks) -> None:
        self.locks = locks

    @handles(RequestCode.LOCK_BATCH_MQ)
    def lock_batch(self, request: LockBatch) -> Answer:
        held = self.locks.lock(request.consumer_group, request.mq_set, request.client_id)
        return Answer(body=fastjson.dumps(LockBatchResult(lock_ok_mq_set=held)))

    @handles(RequestCode.UNLOCK_BATCH_MQ)
    def unlock_batch(self, request: LockBatch) -> None:
        self.locks.unlock(request.consumer_group, request.mq_set, request.client_id)
