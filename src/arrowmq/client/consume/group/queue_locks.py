"""Locks on queues, for consuming in order: as long as a broker has a queue locked for a client, nobody else gets it.

A lock lives sixty seconds at the broker. It is renewed every twenty, and here it counts for thirty after the last
renewal: so this side stops consuming before the broker would give the queue to somebody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from arrowmq.client.consume.pulling import Lock
from arrowmq.client.errors import ArrowMQError
from arrowmq.client.session import Session
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import LockBatch, LockBatchResult
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.client.consume.group.membership import GroupMember

log = logging.getLogger("arrowmq.client")

RENEW_INTERVAL_S = 20.0
RENEW_SOON_S = 1.0
COUNTS_FOR_S = 30.0


class QueueLocks:
    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def acquire(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Those of the queues that are locked for us now."""
        answers = await self._lock_all(queues)
        return {queue for part in answers.values() for queue in part or ()}

    async def _lock_all(self, queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue] | None]:
        """By broker, what it has locked for us; None of a broker that did not answer."""
        parts = _by_broker(queues)
        answers = await asyncio.gather(*(self._lock(name, part) for name, part in parts.items()))
        return dict(zip(parts, answers, strict=True))

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue] | None:
        address = self._master(queues[0], broker_name)
        if address is None:
            return None
        request = Command.request(RequestCode.LOCK_BATCH_MQ, None, self._body(queues))
        try:
            answer = await self._session.ask(address, request, f"locking queues for {self._group}")
        except ArrowMQError as error:
            log.warning("%s", error)
            return None
        return fastjson.loads(answer.body, LockBatchResult).lock_ok_mq_set

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        for broker_name, part in _by_broker(queues).items():
            address = self._master(part[0], broker_name)
            if address is None:
                continue
            request = Command.request(RequestCode.UNLOCK_BATCH_MQ, None, self._body(part))
            try:
                await self._session.ask(address, request, f"unlocking queues of {self._group}")
            except ArrowMQError as error:
                log.info("%s; the locks run out by themselves", error)

    async def renew_forever(self, member: GroupMember) -> None:
        while True:
            all_held = all(pulled.lock is Lock.HELD for pulled in member.pulled.values())
            await self._session.clock.sleep(RENEW_INTERVAL_S if all_held else RENEW_SOON_S)
            await self._session.guarded(lambda: self.renew(member), RENEW_INTERVAL_S)

    async def renew(self, member: GroupMember) -> None:
        queues = list(member.pulled)
        answers = await self._lock_all(queues)
        now = self._session.clock.monotonic()
        for queue in queues:
            pulled = member.pulled.get(queue)
            if pulled is None:
                continue
            answer = answers.get(queue.broker_name)
            if answer is not None and queue in answer:
                pulled.locked_at = now
                pulled.lock = Lock.HELD
            elif answer is not None or now - pulled.locked_at > COUNTS_FOR_S:
                if pulled.lock is Lock.HELD:
                    log.warning("the lock on %s queue %d is lost; waiting for it", queue.topic, queue.queue_id)
                pulled.lock = Lock.LOST
        member.inbox.lock_renewed()

    def _master(self, queue: MessageQueue, broker_name: str) -> str | None:
        route = self._session.routes.get(queue.topic)
        return route.master(broker_name) if route is not None else None

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return fastjson.dumps(LockBatch(client_id=self._session.client_id, consumer_group=self._group, mq_set=queues))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.broker_name, []).append(queue)
    return grouped
