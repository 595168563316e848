"""Replication of one broker: by its role it feeds slaves or follows a master, and it answers requests about that.

A broker is handed this as an extension (`Broker(..., extensions=[Replication])`), because it stands below this package.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arrowmq.broker.role import Master, Role
from arrowmq.remoting.address import format_address
from arrowmq.remoting.handlers import Answer, Refused, handles
from arrowmq.remoting.server import ListenFailed
from arrowmq.replica.acting import ActingMaster
from arrowmq.replica.encrypted import HaTls
from arrowmq.replica.escape import EscapeBridge
from arrowmq.replica.feed import Feed
from arrowmq.replica.feeds import Feeds
from arrowmq.replica.follower import COPYING, Follower
from arrowmq.replica.members import Members
from arrowmq.replica.tables import TableCopy, versions_of
from arrowmq.wire.bodies import HAClientRuntimeInfo, HAConnectionInfo, HARuntimeInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import ExchangeHAInfo, ResetMasterFlushOffset

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.wire.headers import RegisterBrokerResult

log = logging.getLogger(__name__)

ASK_AGAIN_S = 1.0


class Replication:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = config = broker.config
        self._wants_any_port = config.listen_port == 0 and config.ha_listen_port == 0
        self._asked_s = 0.0
        self.members = Members(config, broker.remoting)
        self.feeds = Feeds(config, broker.store, self.members, broker.clock, self._changed)
        self.follower = Follower(
            broker.store,
            broker.remoting,
            broker.clock,
            find_master=self._find_master,
            ask_for_master=self._ask_for_master,
            heartbeat_s=config.ha_send_heartbeat_interval / 1000,
            silence_s=config.ha_housekeeping_interval / 1000,
            checks_crc=config.ha_check_crc,
            wants_whole_log=config.ha_copy_whole_log,
        )
        self.follower.on_state.append(self._follower_changed)
        self.follower.hello_id = lambda: config.broker_id
        self.tables = TableCopy(broker)
        self.acting = ActingMaster(broker, self.members, self.feeds)
        broker.handlers.add_service(self.acting)
        self.escape = EscapeBridge(broker)
        if config.enable_slave_acting_master and config.enable_remote_escape:
            broker.role.escape = self.escape.put
        self.master_flush_offset = 0
        broker.role.on_leave.append(self._leave)
        broker.role.on_enter.append(self._enter)
        broker.registration.on_answer.append(self._registered)
        broker.on_config_change.append(self._config_changed)
        if self._may_wait(broker.role.current):
            # Before its port opens: a sender may come sooner than the role is taken up.
            broker.path.may_wait = True
            self.feeds.promise_replicas()
        broker.on_open.append(self._opened)
        broker.ha_report = self.report
        broker.ha_lag_s = self.lag_s
        broker.runtime_reports.append(self.runtime)

    def encrypt(self, tls: HaTls) -> None:
        """HA connections use TLS, as the mode says."""
        self.feeds.encrypt(tls)
        self.follower.tls = tls

    # Life

    async def start(self) -> None:
        """Open the HA port, before anybody hears of it. One that needs no slaves does without it if it is taken."""
        self.feeds.needs_proof = self.broker.guard.is_on
        port = 0 if self._wants_any_port else self.config.ha_port
        try:
            self.config.ha_listen_port = self.feeds.listen(self.config.bind_address, port)
        except OSError as error:
            address = format_address(self.config.bind_address, port)
            if self.config.ha_listen_port or self.broker.role.current is not Role.ASYNC_MASTER:
                raise ListenFailed(error.errno, f"cannot listen on {address} for slaves: {error.strerror}") from error
            log.warning("no HA port, no slave can copy from this broker address=%s reason=%s", address, error.strerror)

    def _opened(self) -> None:
        if self._may_wait(self.broker.role.current):
            self.feeds.own_log_counts()

    async def stop(self) -> None:
        await self.escape.stop()
        self.feeds.close()

    async def _enter(self, role: Role) -> None:
        self.broker.path.may_wait = self._may_wait(role)
        if role is Role.SLAVE:
            self.follower.start()
        else:
            self.feeds.start(is_sync=role is Role.SYNC_MASTER)
            if not self.broker.registration.is_running:
                await self.acting.before_online()

    async def _leave(self, role: Role) -> None:
        if role is Role.SLAVE:
            await self.follower.stop()
            if self.broker.is_running:
                self._risen()
        else:
            # One that stops for good keeps its promise: who sends meanwhile hears that it was not kept.
            self.feeds.stop("this broker is no master any more", keeps_promise=not self.broker.is_running)

    def _risen(self) -> None:
        """A slave that becomes master, before anybody writes to it."""
        self.feeds.own_log_counts()

    def _config_changed(self) -> None:
        self.broker.store.positions.replica_timeout_s = self.config.slave_timeout / 1000
        self.broker.path.may_wait = self._may_wait(self.broker.role.current)
        if self.broker.role.is_master and self.feeds.is_feeding:
            self.feeds.settle()

    def _may_wait(self, role: Role) -> bool:
        return role is Role.SYNC_MASTER and self.config.in_sync_replicas > 1

    def _changed(self) -> None:
        """A slave came or went: whether replicas are missing is asked anew."""
        self.broker.permit.changed()

    # The master of a slave

    def _follower_changed(self) -> None:
        role, was_there = self.broker.role, self.broker.role.master_is_there
        role.master_is_there = self.follower.state == COPYING
        if was_there and not role.master_is_there:
            # Its last topics may have come with the log and not with the tables: their messages must be readable.
            adopted = self.broker.topics.adopt(self.broker.store.queues())
            self.broker.registration.topics_changed([self.broker.topics.table[name] for name in adopted])

    def _find_master(self) -> Master:
        known = self.broker.role.master
        return Master(known.address, self.config.ha_master_address or known.ha_address)

    def _ask_for_master(self) -> None:
        now = self.broker.clock.monotonic()
        if now - self._asked_s >= ASK_AGAIN_S:
            self._asked_s = now
            self.broker.registration.register_soon()

    def _registered(self, answer: RegisterBrokerResult) -> None:
        """A NameServer said who the master is."""
        role = self.broker.role
        if role.is_slave and answer.master_addr and answer.master_addr != self.broker.address.text:
            role.follow(Master(answer.master_addr, answer.ha_server_addr or ""))

    # To see

    def runtime(self) -> dict[str, str]:
        """For the broker's runtime info: `arrowmq cluster show` and the doctor read it."""
        role, follower = self.broker.role, self.follower
        table = {"brokerRole": role.current.value, "haRoleSince": str(role.since_ms), "haEpoch": str(role.epoch)}
        if role.is_slave:
            end = int(self.broker.store.appended)
            table |= {
                "haState": follower.state,
                "haReason": follower.reason,
                "haSince": str(follower.since_ms),
                "haMaster": follower.master_ha_address,
                "haActing": "true" if role.is_acting else "false",
                "haLagBytes": str(max(0, follower.master_end - end)),
                "haTablesCopied": str(self.tables.copied_ms),
            }
            return table
        feeds = self.feeds.all
        table |= {
            "haSlaves": str(len(feeds)),
            "haSlavesInSync": str(len(self.feeds.in_sync())),
            "haLagBytes": str(max((feed.lag for feed in feeds), default=0)),
            "haLagSeconds": f"{self.lag_s():.1f}",
        }
        return table

    def lag_s(self) -> float:
        """How old the oldest message is that the furthest slave lacks, at most."""
        return max((self._behind_s(feed) for feed in self.feeds.all), default=0.0)

    def _behind_s(self, feed: Feed) -> float:
        return 0.0 if feed.lag == 0 else max(0, self.broker.clock.now_ms() - feed.caught_up_ms) / 1000

    # Requests

    def report(self) -> HARuntimeInfo:
        """Answer to GET_BROKER_HA_STATUS."""
        store, follower = self.broker.store, self.follower
        if self.broker.role.is_slave:
            client = HAClientRuntimeInfo(
                activated=follower.state == COPYING,
                master_addr=follower.master_ha_address,
                max_offset=store.appended,
                last_read_timestamp=follower.received_ms,
                last_write_timestamp=follower.reported_ms,
                master_flush_offset=self.master_flush_offset,
            )
            return HARuntimeInfo(master=False, ha_client_runtime_info=client)
        in_sync = self.feeds.in_sync()
        connections = [
            HAConnectionInfo(
                addr=feed.peer,
                slave_ack_offset=feed.acknowledged,
                diff=feed.lag,
                transfer_from_where=feed.session.next_offset,
                in_sync=feed in in_sync,
                transferred_byte_in_second=feed.rate.per_second,
            )
            for feed in self.feeds.all
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=store.appended,
            in_sync_slave_nums=len(in_sync),
            ha_connection_info=connections,
        )

    @handles(RequestCode.EXCHANGE_BROKER_HA_INFO)
    async def exchange(self, request: ExchangeHAInfo) -> Answer | ExchangeHAInfo:
        """Without fields a question: where a slave finds this master. With them, what a slave is told."""
        if request.master_ha_address is not None:
            if self.broker.role.is_slave:
                self.broker.role.follow(Master(request.master_address or "", request.master_ha_address))
                await self.acting.hand_over()
                self.master_flush_offset = request.master_flush_offset or self.master_flush_offset
            return Answer()
        if self.broker.role.is_slave:
            return Answer()
        return ExchangeHAInfo(
            master_ha_address=self.broker.ha_address,
            master_flush_offset=int(self.broker.store.flushed_position),
            master_address=self.broker.address.text,
            table_versions=versions_of(self.broker),
            ha_ticket=None if request.ha_ticket is None else self._ticket(request.ha_ticket),
            ha_tls=True if request.ha_ticket is not None and self.feeds.arrivals is not None else None,
        )

    def _ticket(self, broker_id: str) -> str:
        try:
            return self.feeds.tickets.give(int(broker_id))
        except ValueError:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"haTicket={broker_id}: a broker id is wanted") from None

    @handles(RequestCode.RESET_MASTER_FLUSH_OFFSET)
    def reset_master_flush_offset(self, request: ResetMasterFlushOffset) -> None:
        if self.broker.role.is_master:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a master: it knows what it has flushed")
        self.master_flush_offset = request.master_flush_offset
