"""Tells every controller that this broker lives, and how far its log reaches.

One after another at their interval, answered or not: a controller that hangs must not keep those that do not from
hearing of this broker. They would take it for gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.replica.controlled.controllers import Controllers, ControllerUnreachable
from arrowmq.wire.headers import BrokerHeartbeat

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.replica.controlled.epochs import EpochFile

log = logging.getLogger(__name__)


class Heartbeats:
    """`on_heard(sent_s)` when a leading controller has answered the one that was sent then."""

    def __init__(
        self,
        broker: Broker,
        controllers: Controllers,
        epochs: EpochFile,
        own_id: Callable[[], int],
        on_heard: Callable[[float], object],
    ) -> None:
        self._broker = broker
        self._controllers = controllers
        self._epochs = epochs
        self._own_id = own_id
        self._on_heard = on_heard

    async def run(self) -> None:
        """As soon as there is an id, for good."""
        beats: set[asyncio.Task[None]] = set()
        try:
            while True:
                if self._own_id():
                    beat = asyncio.ensure_future(self._beat_safely())
                    beats.add(beat)
                    beat.add_done_callback(beats.discard)
                await self._broker.clock.sleep(self._broker.config.broker_heartbeat_interval / 1000)
        finally:
            for beat in beats:
                beat.cancel()

    async def _beat_safely(self) -> None:
        try:
            await self.beat()
        except Exception:
            log.exception("no heartbeat could be sent")

    async def beat(self) -> None:
        """One, and its answer by the controller that leads, if there is one."""
        store, config, clock = self._broker.store, self._broker.config, self._broker.clock
        header = BrokerHeartbeat(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._broker.address.text,
            broker_name=config.broker_name,
            broker_id=self._own_id(),
            epoch=self._epochs.last_number,
            max_offset=int(store.appended),
            confirm_offset=int(store.positions.confirmed),
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )
        sent_s = clock.monotonic()
        if await self._controllers.heartbeat(header, config.controller_heart_beat_timeout_mills / 1000):
            self._on_heard(sent_s)
        elif not self._controllers.leader:
            try:
                await self._controllers.find_leader()
            except ControllerUnreachable as failure:
                log.debug("no controller leads: %s", failure)
