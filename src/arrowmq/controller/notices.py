"""Tells brokers of their roles: NOTIFY_BROKER_ROLE_CHANGED, one-way, to every live replica of a set.

Who does not hear it learns it from its next look (brokers ask every few seconds). Of two notices to one broker the
later one is enough: one that is still under way for an earlier epoch is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.decisions import sync_state_body
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import NotifyBrokerRoleChanged

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0
STEP_ASIDE_TIMEOUT_S = 1.5
STEP_ASIDE = "stepAside"  # a field of ours: before a planned switch, the master lets the others draw level


class RoleNotices:
    def __init__(self, remoting: RemotingClient) -> None:
        self._remoting = remoting
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def send(self, broker_set: BrokerSet, members: Iterable[int]) -> None:
        for member in members:
            replica = broker_set.replicas.get(member)
            if replica is None:
                continue
            previous = self._under_way.pop(replica.address, None)
            if previous is not None:
                previous.cancel()
            task = asyncio.ensure_future(self._send(replica.address, broker_set))
            self._under_way[replica.address] = task
            task.add_done_callback(partial(self._done, replica.address))

    async def step_aside(self, broker_set: BrokerSet) -> None:
        """Have the master wait with new sends until all have what it took. Apache's brokers do not know this, and take
        it for a notice without news."""
        address = broker_set.master_address
        if address is None:
            return
        header = {STEP_ASIDE: "true", "masterEpoch": str(broker_set.master_epoch)}
        try:
            command = Command.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header)
            await self._remoting.invoke(address, command, STEP_ASIDE_TIMEOUT_S)
        except RemotingError as error:
            log.info("master did not step aside broker=%s reason=%s", address, error)

    async def stop(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()

    async def _send(self, address: str, broker_set: BrokerSet) -> None:
        header = NotifyBrokerRoleChanged(
            master_address=broker_set.master_address,
            master_epoch=broker_set.master_epoch,
            sync_state_set_epoch=broker_set.sync_state_set_epoch,
            master_broker_id=broker_set.master_id,
        )
        command = Command.request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, sync_state_body(broker_set), oneway=True
        )
        try:
            await self._remoting.invoke_oneway(address, command, TIMEOUT_S)
        except RemotingError as error:
            log.info("notice not delivered broker=%s reason=%s", address, error)

    def _done(self, address: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(address) is task:
            del self._under_way[address]
