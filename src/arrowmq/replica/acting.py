"""Slave acting master: while the master is gone, the slave with the lowest id does what it can of its work.

Brokers with enableSlaveActingMaster send heartbeats to the NameServers every second, and learn who is there from them:
by asking, and at once by NOTIFY_MIN_BROKER_ID_CHANGE. NameServers (supportActingMaster) show the lowest slave as the
master of its name, for reading: clients read from it, lock queues at it and commit offsets to it. With
enableRemoteEscape it also delivers what becomes due, to brokers of other names (`escape`).

A master that comes back hears first what happened without it (pre-online): it tells the lowest slave where its HA port
is, waits until that follows it, and takes consumer offsets, delay offsets and the timer's progress from it. Only then
do NameServers hear of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from arrowmq.broker.role import MASTER_ID, Master
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import handles
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import BrokerHeartbeat, ExchangeHAInfo, NotifyMinBrokerIdChange

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.replica.feeds import Feeds
    from arrowmq.replica.members import Members

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 3.0
LONGEST_PRE_ONLINE_S = 15.0
LOOK_S = 0.1
# A slave whose master said that it comes back leaves the duties alone for so long
HANDED_OVER_S = LONGEST_PRE_ONLINE_S + 5.0


class ActingMaster:
    def __init__(self, broker: Broker, members: Members, feeds: Feeds) -> None:
        self._broker = broker
        self._config = broker.config
        self._members = members
        self._feeds = feeds
        self.min_broker_id = MASTER_ID
        self._paused_until_s: float | None = None
        if self._config.enable_slave_acting_master:
            heartbeat_s = max(100, self._config.broker_heartbeat_interval) / 1000
            broker.background.every("heartbeat to the NameServers", heartbeat_s, self.heartbeat)
            period_s = max(100, self._config.sync_broker_member_group_period) / 1000
            broker.background.every("look who is there", period_s, self.look)

    # Who is there

    async def heartbeat(self) -> None:
        """A broker that says so every second is missed after `brokerNotActiveTimeoutMillis`."""
        header = BrokerHeartbeat(
            cluster_name=self._config.broker_cluster_name,
            broker_name=self._config.broker_name,
            broker_addr=self._broker.address.text,
            broker_id=self._config.broker_id,
        )
        command = Command.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)
        for name_server in self._broker.registration.name_servers:
            if name_server.is_registered:
                try:
                    await self._broker.remoting.invoke_oneway(name_server.address, command, 1.0)
                except (RemotingError, OSError) as failure:
                    log.debug("NameServer %s did not get a heartbeat: %s", name_server.address, failure)

    async def look(self) -> None:
        if self._paused_until_s is not None and self._broker.clock.monotonic() >= self._paused_until_s:
            self._paused_until_s = None
            await self._broker.role.pause(False)
        found = await self._members.refresh()
        if found and self._broker.role.is_slave and self._config.broker_id in found:
            await self._min_is(min(found), found[min(found)], "")

    @handles(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    async def min_broker_id_changed(self, request: NotifyMinBrokerIdChange) -> None:
        if request.min_broker_id is None or request.broker_name not in (None, self._config.broker_name):
            return
        if self._config.enable_slave_acting_master and self._broker.role.is_slave:
            await self._min_is(request.min_broker_id, request.min_broker_addr or "", request.ha_broker_addr or "")

    async def _min_is(self, broker_id: int, address: str, ha_address: str) -> None:
        if broker_id == self.min_broker_id:
            return
        log.info("lowest broker id changed from=%d to=%d address=%s", self.min_broker_id, broker_id, address)
        self.min_broker_id = broker_id
        if broker_id == MASTER_ID and address:
            known = self._broker.role.master
            self._broker.role.follow(
                Master(address, ha_address or (known.ha_address if known.address == address else ""))
            )
        await self._broker.role.act(broker_id == self._config.broker_id)

    async def hand_over(self) -> None:
        """The master announced itself: what it asks for next must be final. If it does not come, the duties go on."""
        if self._broker.role.is_slave and self._broker.role.is_acting:
            self._paused_until_s = self._broker.clock.monotonic() + HANDED_OVER_S
            await self._broker.role.pause(True)

    # A master comes back

    async def before_online(self) -> None:
        """What a master does before NameServers hear of it; a group of one has nobody to ask."""
        if (
            not self._config.enable_slave_acting_master
            or self._config.total_replicas <= 1
            or self._config.skip_pre_online
        ):
            return
        found = await self._members.refresh() or {}
        slaves = {number: address for number, address in found.items() if number != MASTER_ID}
        if not slaves:
            return
        lowest = slaves[min(slaves)]
        log.info("pre-online: asking slave %s what happened without this master", lowest)
        try:
            async with asyncio.timeout(LONGEST_PRE_ONLINE_S):
                await self._introduce(lowest)
                while not any(feed.session.is_begun for feed in self._feeds.all):
                    await self._broker.clock.sleep(LOOK_S)
                await self._take_back(lowest)
        except (RemotingError, WireError, OSError, TimeoutError, msgspec.ValidationError) as failure:
            log.warning("pre-online: slave %s did not hand back what it has, going on without: %r", lowest, failure)

    async def _introduce(self, slave: str) -> None:
        header = ExchangeHAInfo(
            master_ha_address=self._broker.ha_address,
            master_flush_offset=int(self._broker.store.flushed_position),
            master_address=self._broker.address.text,
        )
        command = Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        await self._broker.remoting.invoke(slave, command, ASK_TIMEOUT_S)

    async def _take_back(self, slave: str) -> None:
        offsets = await self._table(slave, RequestCode.GET_ALL_CONSUMER_OFFSET)
        taken = {
            key: {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            for key, queues in (offsets.get("offsetTable") or {}).items()
        }
        if taken:
            self._broker.offsets.take(self._further(taken), None)
            for duty in (self._broker.services.transaction_checks, self._broker.services.pop_revive):
                duty.progress_taken()
            log.info("pre-online: offsets of %d groups and topics taken from slave %s", len(taken), slave)
        delays = await self._table(slave, RequestCode.GET_ALL_DELAY_OFFSET)
        levels = {int(level): int(offset) for level, offset in (delays.get("offsetTable") or {}).items()}
        service = self._broker.services.delay_levels
        if levels:
            own = {level.number: level.offset for level in service.levels}
            service.take(
                {**own, **{number: max(offset, own.get(number, 0)) for number, offset in levels.items()}}, None
            )
        answer = await self._broker.remoting.invoke(
            slave, Command.request(RequestCode.GET_TIMER_CHECK_POINT), ASK_TIMEOUT_S
        )
        if answer.code == ResponseCode.SUCCESS and answer.body:
            self._broker.services.timer.take_back(answer.body)

    def _further(self, theirs: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
        """Of each queue the further of both offsets. Versions say nothing here: they count in hundreds of commits, and
        a slave lacks what was committed to its master in its last second."""
        found = {}
        for key, queues in theirs.items():
            topic, _, group = key.partition("@")
            own = self._broker.offsets.queues(group, topic)
            found[key] = {**own, **{number: max(offset, own.get(number, 0)) for number, offset in queues.items()}}
        return found

    async def _table(self, address: str, code: RequestCode) -> dict[str, Any]:
        answer = await self._broker.remoting.invoke(address, Command.request(code), ASK_TIMEOUT_S)
        table = fastjson.loads(answer.body) if answer.code == ResponseCode.SUCCESS and answer.body else {}
        return table if isinstance(table, dict) else {}
