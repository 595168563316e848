"""Messages that push consumers work on stay invisible for as long as they do.

A push consumer asks for messages with `auto_renew`: they are popped for a minute, and as long as the client is there
and has not settled a message, its time is prolonged before it ends: by 1, 3, 5, 10, 30 and then 60 minutes, up to three
hours in all. After that the message is given back with the delay of its group's policy. A message of a client that has
gone comes to another after a second.

Each prolongation changes the handle. The client knows only the first one, so what it sends with that is translated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from arrowmq.clock import Clock, Timer
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.service.clients import Client
from arrowmq.proxy.service.settings import retry_delay_ms
from arrowmq.wire.errors import HeaderError
from arrowmq.wire.headers.pop import Receipt, parse_receipt

if TYPE_CHECKING:
    from arrowmq.proxy.service.settling import Settling

log = logging.getLogger(__name__)

STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
#: Of one client; beyond it messages are delivered and not prolonged
MAX_HANDLES = 100_000
AT_ONCE = 64

Key = tuple[str, str, str, int, int]


class _Held:
    __slots__ = ("failures", "is_busy", "receipt", "reconsume_times", "since_ms", "steps", "topic")

    def __init__(self, receipt: Receipt, topic: str, reconsume_times: int, now_ms: int) -> None:
        self.receipt = receipt
        self.topic = topic
        self.reconsume_times = reconsume_times
        self.since_ms = now_ms
        self.steps = 0
        self.failures = 0
        self.is_busy = False

    @property
    def ends_ms(self) -> int:
        return self.receipt.pop_time + self.receipt.invisible_time


def _key(group: str, message_id: str, receipt: Receipt) -> Key:
    return group, message_id, receipt.broker_name, receipt.queue_id, receipt.queue_offset


class Renewal:
    def __init__(self, config: ProxyConfig, back: Back, settling: Settling, clock: Clock) -> None:
        self._config, self._back, self._settling, self._clock = config, back, settling, clock
        self._held: dict[Client, dict[Key, _Held]] = {}
        self._timer: Timer | None = None
        self._scan: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def start(self) -> None:
        self._timer = self._clock.call_later(self._config.renew_schedule_period_millis / 1000, self._turn)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks, *([self._scan] if self._scan is not None else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(
        self, client: Client, group: str, topic: str, message_id: str, receipt: Receipt, reconsume_times: int
    ) -> None:
        held = self._held.setdefault(client, {})
        if len(held) < MAX_HANDLES:
            held[_key(group, message_id, receipt)] = _Held(receipt, topic, reconsume_times, self._clock.now_ms())

    def taken(self, client: Client | None, group: str, message_id: str, handle: str) -> str:
        """The client settles this message: its newest handle, and nothing more is done about it here."""
        held = self._held.get(client) if client is not None else None
        if not held:
            return handle
        try:
            receipt = parse_receipt(handle)
        except HeaderError:
            return handle
        entry = held.pop(_key(group, message_id, receipt), None)
        return handle if entry is None else entry.receipt.encode()

    def holds(self, client: Client | None) -> bool:
        """Whether anything is renewed for this client."""
        return client is not None and bool(self._held.get(client))

    def was_renewed(self, client: Client, group: str, message_id: str, handle: str) -> bool:
        """Whether this message has a newer handle than the one that its client knows."""
        held = self._held.get(client)
        if not held:
            return False
        try:
            entry = held.get(_key(group, message_id, parse_receipt(handle)))
        except HeaderError:
            return False
        return entry is not None and (entry.steps > 0 or entry.is_busy)

    def client_gone(self, client: Client) -> None:
        """Its messages come to others soon."""
        held = self._held.pop(client, None)
        if held:
            task = asyncio.get_running_loop().create_task(self._give_back(held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, held: dict[Key, _Held]) -> None:
        for (group, *_), entry in held.items():
            try:
                await self._settling.change(
                    entry.receipt, entry.topic, group, self._config.invisible_time_millis_when_clear
                )
            except Fault as fault:
                log.debug("a message of a client that has gone was not given back: %s", fault)

    # --- prolonging --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.start()
        if self._scan is None or self._scan.done():
            self._scan = asyncio.get_running_loop().create_task(self._prolong_due())

    async def _prolong_due(self) -> None:
        now_ms = self._clock.now_ms()
        due = [
            (client, key, entry)
            for client, held in self._held.items()
            for key, entry in held.items()
            if entry.ends_ms - now_ms < self._config.renew_ahead_time_millis and not entry.is_busy
        ]
        for begin in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._prolong(*each) for each in due[begin : begin + AT_ONCE]))

    async def _prolong(self, client: Client, key: Key, entry: _Held) -> None:
        group = key[0]
        entry.is_busy = True
        is_last = self._clock.now_ms() - entry.since_ms >= self._config.renew_max_time_millis
        try:
            if is_last:
                invisible_ms = retry_delay_ms(await self._back.group_config(group), entry.reconsume_times)
            else:
                invisible_ms = STEPS_MS[min(entry.steps, len(STEPS_MS) - 1)]
            entry.receipt = await self._settling.change(entry.receipt, entry.topic, group, invisible_ms)
            entry.steps += 1
            entry.failures = 0
        except Fault as fault:
            entry.failures += 1
            log.info("a message could not be kept invisible group=%s id=%s: %s", group, key[1], fault)
            if fault.code == v2.INVALID_RECEIPT_HANDLE or entry.failures >= self._config.max_renew_retry_times:
                is_last = True
        finally:
            entry.is_busy = False
        if is_last and (held := self._held.get(client)) is not None:
            held.pop(key, None)
