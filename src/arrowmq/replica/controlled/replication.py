"""Replication of one broker under a controller: it gets its id, its role and its epochs from there.

    1. A controller that leads is found; until then, and until a role is known, no NameServer hears of this broker, and
       it takes no messages.
    2. It applies for an id, once in its life, and registers with it. It restarted, so the controller lets it begin in
       no role that it had.
    3. If there is no master, it asks for an election.
    4. It takes the role that was decided, if its epoch is later than the last. What a notice says
       (NOTIFY_BROKER_ROLE_CHANGED) and what it learns by asking every few seconds is the same to it.

As master of an epoch, it writes that epoch into its file before it takes the first message.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from arrowmq.broker.role import Master, Role, StaleEpoch
from arrowmq.config import ConfigError
from arrowmq.controller.notices import STEP_ASIDE
from arrowmq.remoting.address import AddressError, parse_addresses
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, handles
from arrowmq.replica.controlled import truncation
from arrowmq.replica.controlled.controllers import ControllerRefused, Controllers, ControllerUnreachable, Decided
from arrowmq.replica.controlled.epochs import EpochFile, end_of
from arrowmq.replica.controlled.feeds import ControlledFeeds
from arrowmq.replica.controlled.follower import ControlledFollower
from arrowmq.replica.controlled.forwarding import Forwarding
from arrowmq.replica.controlled.heartbeats import Heartbeats
from arrowmq.replica.controlled.identity import IdentityFiles
from arrowmq.replica.controlled.lease import WriteLease
from arrowmq.replica.replication import Replication
from arrowmq.store.positions import replicated
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import EpochEntry, EpochEntryCache, SyncStateSet
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ExchangeHAInfo, NotifyBrokerRoleChanged
from arrowmq.wire.headers.declare import decode_header

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.wire.headers import RegisterBrokerResult

log = logging.getLogger(__name__)

RETRY_S = 0.5
STEP_ASIDE_S = 2.0  # then sends are served again, whatever became of the switch
GATHER_S = 0.8  # how long sends wait for a new master's set to grow; less than impatient clients wait
LEVEL_S = 1.0
ASK_TIMEOUT_S = 3.0
NOT_YET_S = 2.0  # how long a slave that has heard of its master sooner than the master itself asks again at once
ASK_AGAIN_S = 0.01


class ControlledReplication(Replication):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        config, store = broker.config, broker.store
        root = broker.store.root
        self.epochs = EpochFile(Path(config.store_path_epoch_file or root / "epochFileCheckpoint"), store.disk)
        self.identity = IdentityFiles(
            Path(config.store_path_broker_identity or root / "brokerIdentity"),
            store.disk,
            config.broker_cluster_name,
            config.broker_name,
        )
        try:
            addresses = parse_addresses(config.controller_addr)
        except AddressError as error:
            raise ConfigError(f"controllerAddr: {error}") from error
        if not addresses:
            raise ConfigError("enableControllerMode=true needs controllerAddr, such as 10.0.0.1:9878;10.0.0.2:9878")
        self.controllers = Controllers(
            addresses, config.broker_cluster_name, config.broker_name, broker.remoting, broker.clock
        )
        self.feeds: ControlledFeeds = ControlledFeeds(
            config, store, self.members, broker.clock, self._changed, epochs=self.epochs, wants_set=self._want_set
        )
        self.follower: ControlledFollower = ControlledFollower(
            store,
            broker.remoting,
            broker.clock,
            find_master=lambda: broker.role.master,
            ask_for_master=lambda: None,
            heartbeat_s=config.ha_send_heartbeat_interval / 1000,
            silence_s=config.ha_housekeeping_interval / 1000,
            checks_crc=config.ha_check_crc,
            epochs=self.epochs,
            own_id=lambda: self.broker_id,
            is_learner=config.async_learner,
            wants_last_file=config.sync_from_last_file,
            find_ha_address=self._find_ha_address,
        )
        self.follower.on_state.append(self._follower_changed)
        self.lease = WriteLease(
            broker.clock,
            lambda: config.controller_heart_beat_timeout_mills / 1000,
            self.feeds.heard_from_others,
            self._lease_changed,
        )
        self.heartbeats = Heartbeats(broker, self.controllers, self.epochs, lambda: self.broker_id, self.lease.renewed)
        self.broker_id = 0
        self.master_id: int | None = None
        self.epoch = 0  # of the role that was taken last
        self._rising_to: int | None = None  # the epoch that this broker is about to be master of
        self._role_lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._set_task: asyncio.Task[None] | None = None
        self.role_changes = 0
        self.forwarding = Forwarding(broker)
        self._is_gathering = False  # sends wait until the set of this new master is large enough
        broker.registration.hold()

    # Life

    def _opened(self) -> None:
        """What is confirmed of this log, the controller's masters say: it may have an end that will be cut."""

    def _risen(self) -> None:
        """The feeds count what an elected master has."""

    async def start(self) -> None:
        await super().start()
        self.epochs.load()
        self.epochs.cut(int(self.broker.store.appended))
        identity = self.identity.load()
        if identity is not None:
            self.broker_id = identity.broker_id
        self._tasks = [asyncio.ensure_future(self._live()), asyncio.ensure_future(self.heartbeats.run())]

    async def stop(self) -> None:
        for task in [*self._tasks, *([self._set_task] if self._set_task is not None else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.controllers.stop()
        self.forwarding.stop()
        self.lease.stop()
        await super().stop()

    async def _live(self) -> None:
        """Until a role is known, try; then look every few seconds whether it is still the one."""
        said = ""
        is_joined = False
        while True:
            pause_s = self.config.sync_broker_metadata_period / 1000
            try:
                if not is_joined:
                    await self._join()
                    is_joined = True
                else:
                    await self._look()
                said = ""
            except (ControllerUnreachable, ControllerRefused) as failure:
                pause_s = RETRY_S
                if str(failure) != said:
                    said = str(failure)
                    log.warning("controller: %s", failure)
                if isinstance(failure, ControllerRefused):
                    is_joined = is_joined and failure.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            except Exception:
                log.exception("the role cannot be kept up")
            await self.broker.clock.sleep(pause_s)

    async def _join(self) -> None:
        await self.controllers.find_leader()
        if not self.broker_id:
            self.broker_id = await self._obtain_id()
        decided = await self.controllers.register(self.broker_id, self.broker.address.text)
        await self.heartbeats.beat()
        if decided.master_id is None:
            decided = await self.controllers.elect(self.broker_id)
        await self.take(decided)

    async def _obtain_id(self) -> int:
        applied = self.identity.load_applied()
        if applied is None:
            broker_id = await self.controllers.next_broker_id()
            applied = self.identity.apply(broker_id, f"{self.broker.address.text};{self.broker.clock.now_ms()}")
        try:
            await self.controllers.apply_broker_id(applied.broker_id, applied.check_code)
        except ControllerRefused:
            self.identity.forget_applied()  # somebody else was faster
            raise
        log.info("broker id given id=%d", applied.broker_id)
        return self.identity.given(applied.broker_id).broker_id

    async def _look(self) -> None:
        decided = await self.controllers.decided()
        if decided.master_id is None and decided.master_epoch >= self.epoch:
            decided = await self.controllers.elect(self.broker_id)
        await self.take(decided)

    def _lease_changed(self, is_valid: bool) -> None:
        if is_valid:
            log.warning("the controllers are heard again: messages are taken")
        else:
            log.error("no controller was heard for the time of the lease: messages are refused")
        self.feeds.has_lease = is_valid
        self.feeds.set_changed()

    # Roles

    @handles(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    async def role_changed(self, request: NotifyBrokerRoleChanged, call: Call) -> Answer:
        if STEP_ASIDE in call.ext:
            await self._step_aside()
            return Answer()
        try:
            found = fastjson.loads(call.body, SyncStateSet) if call.body else SyncStateSet()
        except WireError:
            found = SyncStateSet()
        decided = Decided(
            request.master_broker_id,
            request.master_address or "",
            request.master_epoch or 0,
            tuple(found.sync_state_set),
            found.sync_state_set_epoch,
        )
        await self.take(decided)
        return Answer()

    async def _step_aside(self) -> None:
        """A switch is about to be decided: keep new sends waiting until all members have what was taken."""
        if not self.broker.role.is_master:
            return
        log.info("this master steps aside for a planned switch")
        self.forwarding.hold(STEP_ASIDE_S)
        positions = self.broker.store.positions
        deadline_s = self.broker.clock.monotonic() + LEVEL_S
        while int(positions.confirmed) < int(positions.appended) and self.broker.clock.monotonic() < deadline_s:
            await self.broker.clock.sleep(0.001)

    def _gather(self) -> None:
        """A new master begins with a set of one, and slaves join it within moments: what comes meanwhile waits."""
        self._is_gathering = self.feeds.has_too_few
        if self._is_gathering:
            self.forwarding.hold(GATHER_S)

    def _changed(self) -> None:
        super()._changed()
        if self._is_gathering and not self.feeds.has_too_few:
            self._is_gathering = False
            self.forwarding.release()

    async def take(self, decided: Decided) -> None:
        """Take the role that was decided, unless a later one was taken already."""
        async with self._role_lock:
            if decided.master_id is None or not self.broker_id:
                return
            if decided.master_epoch < self.epoch:
                return
            if decided.master_epoch == self.epoch:
                if self.master_id == self.broker_id and self.feeds.sync_state.told(
                    decided.members, decided.members_epoch, is_answer=False
                ):
                    self.feeds.set_changed()
                return
            if decided.master_epoch < self.epochs.last_number:
                raise ControllerRefused(
                    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                    f"the controller is at epoch {decided.master_epoch} and this broker's log at "
                    f"{self.epochs.last_number}: the controller's data are lost or old. Restore them, or designate the "
                    "broker that has all messages (mqadmin electMaster)",
                )
            try:
                if decided.master_id == self.broker_id:
                    await self._rise(decided)
                else:
                    await self._follow(decided)
            except StaleEpoch as stale:
                log.info("%s", stale)
                return
            self.role_changes += 1
            if not self._is_gathering:
                self.forwarding.release()
            self.broker.registration.release()

    async def _rise(self, decided: Decided) -> None:
        was_master = self.master_id == self.broker_id
        self._rising_to = decided.master_epoch
        self.lease.stop()
        try:
            self.feeds.sync_state.own_id = self.broker_id
            self.feeds.sync_state.begin(decided.members, decided.members_epoch)
            self.feeds.has_lease = True
            self._gather()
            self._set_state_version(decided.master_epoch)
            await self.broker.role.become(Role.SYNC_MASTER, broker_id=0, epoch=decided.master_epoch)
        finally:
            self._rising_to = None
        self.master_id, self.epoch = decided.master_id, decided.master_epoch
        self.lease.start()
        log.warning(
            "this broker is master epoch=%d log_end=%d%s",
            decided.master_epoch,
            self.broker.store.appended,
            " again" if was_master else "",
        )

    async def _follow(self, decided: Decided) -> None:
        self.lease.stop()
        self._is_gathering = False
        self._set_state_version(decided.master_epoch)
        await self.broker.role.become(
            Role.SLAVE,
            broker_id=self.broker_id,
            epoch=decided.master_epoch,
            master=Master(decided.master_address, ""),
        )
        self.master_id, self.epoch = decided.master_id, decided.master_epoch
        log.warning(
            "this broker is slave epoch=%d master=%s at %s",
            decided.master_epoch,
            decided.master_id,
            decided.master_address,
        )

    def _set_state_version(self, epoch: int) -> None:
        """Of two that say they are master, a NameServer believes the one of the later epoch."""
        topics = self.broker.topics
        topics.version = msgspec.structs.replace(topics.version, state_version=epoch)

    async def _leave(self, role: Role) -> None:
        await super()._leave(role)
        if self._rising_to is not None:
            # The log is whole and nobody writes to it yet.
            self.epochs.append(self._rising_to, int(self.broker.store.appended))

    async def _enter(self, role: Role) -> None:
        if role is Role.SLAVE:
            # Readers see what the master says is confirmed; before it has said anything, what was so before.
            positions = self.broker.store.positions
            if not positions.promised.replicas:
                positions.promised = positions.promised | replicated(1)
                positions.members_have(0)
        await super()._enter(role)

    def _may_wait(self, role: Role) -> bool:
        return role is Role.SYNC_MASTER

    def _registered(self, answer: RegisterBrokerResult) -> None:
        """Who is master, the controller says, not a NameServer."""

    async def _find_ha_address(self, master_address: str) -> str:
        clock = self.broker.clock
        deadline_s = clock.monotonic() + NOT_YET_S
        while True:
            command = Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfo())
            try:
                answer = await self.broker.remoting.invoke(master_address, command, ASK_TIMEOUT_S)
            except RemotingError as failure:
                raise OSError(str(failure)) from failure
            found = decode_header(ExchangeHAInfo, answer.ext).master_ha_address
            if answer.code == ResponseCode.SUCCESS and found:
                return found
            if clock.monotonic() > deadline_s:
                raise OSError(f"{master_address} is not master yet")
            await clock.sleep(ASK_AGAIN_S)

    # The sync state set

    def _want_set(self, members: frozenset[int]) -> None:
        if self._set_task is None or self._set_task.done():
            self.feeds.sync_state.ask(members)
            self.feeds.set_changed()
            self._set_task = asyncio.ensure_future(self._ask_for_set(members))

    async def _ask_for_set(self, members: frozenset[int]) -> None:
        state = self.feeds.sync_state
        epoch = self.epoch if self._rising_to is None else self._rising_to
        try:
            kept, kept_epoch = await self.controllers.alter_sync_state_set(
                self.broker_id, epoch, sorted(members), state.epoch
            )
        except ControllerRefused as refusal:
            log.info("sync state set not changed members=%s reason=%s", sorted(members), refusal.remark)
            state.refused()
            await self._learn_set()
        except ControllerUnreachable as failure:
            # It may have been done: those who were asked for stay needed. The same is asked again; if it was done, the
            # controller says that its set is another by now.
            log.warning("sync state set perhaps not changed members=%s reason=%s", sorted(members), failure)
            await self.broker.clock.sleep(RETRY_S)
            if self.broker.role.is_master and self.epoch == epoch:
                await self._ask_for_set(members)
            return
        else:
            if epoch == self.epoch or epoch == self._rising_to:
                state.told(kept, kept_epoch, is_answer=True)
                log.info("sync state set members=%s epoch=%d", sorted(state.members), state.epoch)
        self.feeds.set_changed()

    async def _learn_set(self) -> None:
        while self.broker.role.is_master:
            try:
                decided = await self.controllers.decided()
            except ControllerUnreachable:
                await self.broker.clock.sleep(RETRY_S)
                continue
            except ControllerRefused as refusal:
                log.warning("the sync state set is not known: %s", refusal)
                return
            if decided.master_epoch == self.epoch:
                self.feeds.sync_state.told(decided.members, decided.members_epoch, is_answer=True)
            return

    # To see

    def runtime(self) -> dict[str, str]:
        table = super().runtime()
        put_aside = truncation.tails(self.broker.store.root)
        if put_aside:
            last = put_aside[-1]
            table |= {
                "haCutTails": str(len(put_aside)),
                "haCutBytes": str(sum(tail.end - tail.start for tail in put_aside)),
                "haLastCut": str(last.path),
                "haLastCutAt": str(round(last.path.stat().st_mtime * 1000)),
            }
        return table

    # Requests

    @handles(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epoch_cache(self) -> Answer:
        epochs, end = self.epochs.epochs, int(self.broker.store.appended)
        entries = [
            EpochEntry(epoch=epoch.number, start_offset=epoch.start, end_offset=end_of(epochs, index, end))
            for index, epoch in enumerate(epochs)
        ]
        body = EpochEntryCache(
            broker_id=self.config.broker_id,  # as in routes: a master's is 0
            broker_name=self.config.broker_name,
            cluster_name=self.config.broker_cluster_name,
            epoch_list=entries,
            max_offset=end,
        )
        return Answer(body=fastjson.dumps(body))
