"""A running controller: the port that brokers ask, what it has decided, and the watch over masters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from arrowmq import refusals
from arrowmq.auth.admin import UserAdmin
from arrowmq.auth.guard import Guard
from arrowmq.clock import Clock, SystemClock
from arrowmq.config import ConfigError
from arrowmq.controller.absences import Absences
from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.config import ControllerConfig, etcd_endpoints, etcd_tls
from arrowmq.controller.decider import Decider
from arrowmq.controller.failover import Failover, Probe, listens
from arrowmq.controller.liveness import Liveness
from arrowmq.controller.notices import RoleNotices
from arrowmq.controller.service import BrokerRequests, ToolRequests
from arrowmq.controller.sqlite_storage import SqliteStorage
from arrowmq.controller.storage import ControllerPeer, Storage, StorageError
from arrowmq.remoting.address import advertised_host, format_address
from arrowmq.remoting.answer_times import AnswerTimes
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import RemotingServer
from arrowmq.remoting.tls.settings import OutgoingTls, ServerTls

log = logging.getLogger(__name__)


class Controller:
    name = "controller"

    def __init__(
        self,
        config: ControllerConfig,
        directory: Path,
        clock: Clock | None = None,
        *,
        tls: ServerTls | None = None,
        outgoing_tls: OutgoingTls | None = None,
        storage: Storage | None = None,
        probe: Probe = listens,
        guard: Guard | None = None,
    ) -> None:
        self.config = config
        self.directory = directory
        self.clock = self._clock = clock or SystemClock()
        self.storage = storage or _storage(config, directory, self.peer, self._clock)
        self.liveness = Liveness(self._clock)
        self.absences = Absences(self._clock)
        self.decider = Decider(self.storage, self._kept)
        self.failover = Failover(config, self._clock, self.decider, self.liveness, probe)
        self.guard = guard
        self._remoting = RemotingClient(self._clock, outgoing_tls, sign=None if guard is None else guard.sign)
        self._notices = RoleNotices(self._remoting)
        self.answer_times = AnswerTimes()
        self.handlers = HandlerTable(
            BrokerRequests(self.decider, self.liveness, self.failover, self._notices),
            ToolRequests(config, self.storage, self.decider, self.liveness, self.absences),
            *((UserAdmin(guard),) if guard is not None and guard.is_on else ()),
            times=self.answer_times,
            server="this controller",
            otherwise=refusals.OF_NO_CONTROLLER,
        )
        if guard is not None:
            guard.watch(self.handlers.hooks)
        self._server = RemotingServer(self.handlers, clock=self._clock, tls=tls)

    @property
    def port(self) -> int:
        return self._server.port

    def peer(self) -> ControllerPeer:
        """This controller as others see it."""
        named = self.config.own_peer()
        host = advertised_host(self.config.controller_ip or (named[0] if named else ""), self.config.bind_address)
        return ControllerPeer(self.config.controller_d_leger_self_id, format_address(host, self._server.port))

    @property
    def address(self) -> str:
        return self.peer().address

    async def start(self) -> int:
        """Listen, then take up decisions: a controller that is found decides, or says who does. Returns the port."""
        if self.guard is not None and self.guard.is_on:
            self.guard.load()
        port = await self._server.start(self.config.bind_address, self.config.listen_port)
        try:
            await self.storage.open(self._leads, self.decider.changed_elsewhere)
        except BaseException as error:
            await self._stop_serving()
            if isinstance(error, StorageError):
                raise ConfigError(str(error)) from error
            raise
        leadership = self.storage.leadership()
        log.info(
            "controller started name=%s address=%s leads=%s sets=%d",
            self.peer().name,
            self.address,
            leadership.is_ours,
            len(self.decider.all()),
        )
        return port

    async def stop(self) -> None:
        self.failover.stop()
        await self.storage.close()
        await self._stop_serving()

    async def _stop_serving(self) -> None:
        await self._notices.stop()
        await self._server.close()
        await self._remoting.close()

    async def _leads(self, is_leading: bool) -> None:
        if is_leading:
            await self.decider.load()
            self.absences.begin(self.decider.all().values())
        else:
            self.decider.unload()
        log.info("controller %s", "leads now" if is_leading else "leads no longer")
        self.failover.lead(is_leading)

    def _kept(self, before: BrokerSet | None, after: BrokerSet | None) -> None:
        """A decision lasts now: tell whom it concerns."""
        if after is None:
            log.info("broker set forgotten set=%s", before.name if before is not None else "")
            return
        self.absences.seen(after)
        if before is not None and before.sync_state_set != after.sync_state_set:
            log.info(
                "sync state set changed set=%s members=%s epoch=%d",
                after.name,
                ",".join(map(str, after.sync_state_set)),
                after.sync_state_set_epoch,
            )
        if before is None or before.master_epoch == after.master_epoch:
            return
        switch = after.switches[-1]
        log.warning(
            "master elected set=%s epoch=%d master=%s previous=%s address=%s took_ms=%d reason=%s",
            after.name,
            after.master_epoch,
            after.master_id,
            before.master_id,
            after.master_address,
            switch.took_ms,
            switch.reason,
        )
        if after.master_id is not None and self.config.notify_broker_role_changed:
            self._notices.send(after, self.liveness.of_set(after.cluster, after.name))


def _storage(config: ControllerConfig, directory: Path, own: Callable[[], ControllerPeer], clock: Clock) -> Storage:
    endpoints = etcd_endpoints(config.etcd_endpoints)
    if not endpoints:
        return SqliteStorage(directory, own)
    from arrowmq.controller.etcd.client import EtcdClient
    from arrowmq.controller.etcd.storage import EtcdStorage

    client = EtcdClient(endpoints, clock, etcd_tls(config, endpoints), config.etcd_user, config.etcd_password)
    return EtcdStorage(client, config.etcd_prefix, config.etcd_lease_ms, own, clock)
