"""The master's side: the HA port, a feed for each slave, and what their acknowledgements are worth.

What senders are promised follows from the role and the settings, as in Apache's broker:

    ASYNC_MASTER   nobody waits for slaves
    SYNC_MASTER    a message is safe once `inSyncReplicas` brokers have it, this one included; so with 1, its default,
                   nobody waits (Apache's trap). After `slaveTimeout` a sender hears FLUSH_SLAVE_TIMEOUT; where so many
                   slaves are not connected, or further behind than `haMaxGapNotInSync`, SLAVE_NOT_AVAILABLE at once
    with enableSlaveActingMaster, the replicas that are there count: with enableAutoInSyncReplicas the number is lowered
                   to them, though not below `minInSyncReplicas`; if they are still too few, puts are refused with
                   IN_SYNC_REPLICAS_NOT_ENOUGH before anything is written

Readers see what is promised: `Positions` has the one mark that bounds them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.auth.settings import read_networks
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.address import format_address
from arrowmq.replica.encrypted import Arrivals, HaTls, Line
from arrowmq.replica.feed import Feed
from arrowmq.replica.hello import Greeting, Tickets
from arrowmq.replica.members import Members
from arrowmq.replica.protocol import MasterSession
from arrowmq.store import Put, PutStatus
from arrowmq.store.positions import APPENDED, FLUSHED, Promise, replicated

if TYPE_CHECKING:
    from arrowmq.broker.settings.config import BrokerConfig
    from arrowmq.store import MessageStore

log = logging.getLogger(__name__)

# Nobody waits for the slaves of an ASYNC_MASTER, so they are looked after so often while the log grows, and half as
# often while it grows fast: what a look costs on both sides is then time that senders lack. Apache's master looks every
# 100 ms.
TICK_S = 0.01
BUSY_TICK_S = 0.02
BUSY_BYTES = 128 << 10  # that came since the last look
IDLE_TICK_S = 0.02
SECOND_S = 1.0
MOST_FEEDS = 128
NOT_ENOUGH = Put(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)


class Feeds:
    """`on_change()` when a slave came, went, or moved in or out of sync."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, members: Members, clock: Clock, on_change: Callable[[], object]
    ) -> None:
        self._config = config
        self._store = store
        self._members = members
        self._clock = clock
        self._on_change = on_change
        self._listener: socket.socket | None = None
        self._feeds: list[Feed] = []
        self._counted: list[Feed] = []
        self._tick_timer: Timer | None = None
        self._second_timer: Timer | None = None
        self._pumped_end = -1
        self._is_pump_scheduled = False
        self._is_sync = False
        self._refresh: asyncio.Task[None] | None = None
        self.tickets = Tickets(clock)
        self.arrivals: Arrivals | None = None  # where HA connections may be encrypted
        self.needs_proof = False  # users are on: a slave has to prove who it is
        self.refused = 0  # connections that were one too many, or a stranger's
        self._trusted = read_networks("haTrustedSources", config.ha_trusted_sources)

    # Life

    def listen(self, host: str, port: int) -> int:
        """Open the HA port; returns it. Raises OSError if that is taken."""
        listener = socket.create_server((host, port), backlog=MOST_FEEDS)
        listener.setblocking(False)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)
        return int(listener.getsockname()[1])

    def start(self, *, is_sync: bool) -> None:
        """This broker is a master: feed, and promise."""
        self._is_sync = is_sync
        positions = self._store.positions
        positions.replica_timeout_s = self._config.slave_timeout / 1000
        positions.wants_replicas = self._wanted
        self._second()
        self.settle()

    def stop(self, why: str, *, keeps_promise: bool = False) -> None:
        """It is none any more: slaves go, and nothing is promised of them unless the broker stops with that."""
        for timer in (self._tick_timer, self._second_timer):
            if timer is not None:
                timer.cancel()
        self._tick_timer = self._second_timer = None
        if self._refresh is not None:
            self._refresh.cancel()
            self._refresh = None
        for feed in list(self._feeds):
            feed.close(why)
        self._is_sync = False
        self._store.positions.wants_replicas = None
        if not keeps_promise:
            self._promise(APPENDED)

    def own_log_counts(self) -> None:
        """Nothing was written here since the store was opened, or since this broker was a slave: all of it is readable.
        What was acknowledged of it, slaves have; of the rest, nobody was told that it is safe. Without that, readers
        and the broker's own services would find every queue empty until a slave connects."""
        positions = self._store.positions
        positions.members_have(int(positions.appended))

    def promise_replicas(self) -> None:
        """What the settings ask for, before anybody is connected."""
        self._promise(replicated(max(1, self._config.in_sync_replicas) - 1))

    def close(self) -> None:
        if self.arrivals is not None:
            self.arrivals.close()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    @property
    def is_feeding(self) -> bool:
        return self._second_timer is not None

    # Slaves come and go

    def _why_not(self, address: str) -> str:
        if self._trusted is not None and not any(network.includes(address) for network in self._trusted):
            return "its address is not in haTrustedSources"
        if not self.is_feeding:
            return "this broker is no master"
        return f"{MOST_FEEDS} are connected already" if len(self._feeds) >= MOST_FEEDS else ""

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as problem:
            log.error("no slave can be accepted: %s", problem)
            return
        why = self._why_not(peer[0])
        if why:
            self._refused(format_address(*peer[:2]), why)
            connection.close()
            return
        if self.arrivals is not None:
            self.arrivals.take(connection, format_address(*peer[:2]))
        else:
            self._begin(connection)

    def encrypt(self, tls: HaTls) -> None:
        """Serve slaves by TLS from now on, as the mode says."""
        self.arrivals = Arrivals(tls, self._config.ha_housekeeping_interval / 1000, self._arrived, self._refused)

    def _arrived(self, connection: Line) -> None:
        why = self._why_not(connection.getpeername()[0])  # it took its time for that
        if why:
            self._refused(format_address(*connection.getpeername()[:2]), why)
            connection.close()
            return
        self._begin(connection)

    def _refused(self, peer: str, why: str) -> None:
        self.refused += 1
        log.warning("slave refused peer=%s: %s", peer, why)

    def _begin(self, connection: Line) -> None:
        try:
            feed = Feed(
                connection,
                self._store,
                self._clock,
                batch_bytes=self._config.ha_transfer_batch_size,
                on_moved=self._moved,
                on_closed=self._closed,
                session=self.make_session(),
                greeting=Greeting(self.tickets),
                why_refused=self._why_refused,
            )
        except OSError:  # it is gone already
            connection.close()
            return
        log.info("slave connected peer=%s", feed.peer)
        if self._config.ha_flow_control_enable:
            feed.allowance = self._config.max_ha_transfer_byte_in_second
        self._feeds.append(feed)
        self._refresh_members()
        if self._tick_timer is None:
            self._tick()

    def _why_refused(self, feed: Feed) -> str | None:
        """Why a connection may not stay, once it has greeted."""
        if feed.greeting.is_forged:
            return "the ticket that it shows was not given by this master, or is used up or too old"
        if self.needs_proof and feed.greeting.broker_id is None and not self._members.is_named(feed.host):
            return (
                "users are on, and it did not prove who it is: an ArrowMQ slave needs "
                "innerClientAuthenticationCredentials of a user with the right to update the cluster, an Apache slave "
                "has to be named in haSlaveAddresses"
            )
        return None

    def make_session(self) -> MasterSession:
        """The protocol that is spoken with a slave."""
        return MasterSession()

    def _closed(self, feed: Feed, why: str) -> None:
        log.warning("slave gone peer=%s reason=%s", feed.peer, why)
        if feed in self._feeds:
            self._feeds.remove(feed)
        self.settle()
        self._on_change()

    def _refresh_members(self) -> None:
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.ensure_future(self._ask_members())

    async def _ask_members(self) -> None:
        await self._members.refresh()
        self.settle()
        self._on_change()

    # Pace

    def _wanted(self) -> None:
        """A sender waits: what it wrote goes out at the end of this event loop iteration."""
        if not self._is_pump_scheduled:
            self._is_pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_scheduled = False
        self._pumped_end = int(self._store.appended)
        for feed in list(self._feeds):
            feed.pump()

    def _tick(self) -> None:
        self._tick_timer = None
        if not self._feeds:
            return
        news = int(self._store.appended) - self._pumped_end
        if news:
            self._pump()
        pause_s = IDLE_TICK_S if not news else TICK_S if news < BUSY_BYTES else BUSY_TICK_S
        self._tick_timer = self._clock.call_later(pause_s, self._tick)

    def _second(self) -> None:
        """Heartbeats, silence, flow control, and who is in sync."""
        self._second_timer = self._clock.call_later(SECOND_S, self._second)
        now = self._clock.monotonic()
        for feed in list(self._feeds):
            feed.rate.second(feed.sent_bytes)
            silent_s = now - feed.received_s
            if silent_s > self._config.ha_housekeeping_interval / 1000:
                feed.close(f"it said nothing for {silent_s:.0f} s")
                continue
            if self._config.ha_flow_control_enable:
                feed.allowance = self._config.max_ha_transfer_byte_in_second
                feed.pump()
            if now - feed.sent_s >= self._config.ha_send_heartbeat_interval / 1000:
                feed.heartbeat()
        if self._feeds or self._config.enable_slave_acting_master:
            self._refresh_members()
        self.settle()

    # What acknowledgements are worth

    def _moved(self, feed: Feed) -> None:
        if not feed.is_member:
            self.settle()
        elif self._is_sync:
            self._store.positions.replicas_have([each.acknowledged for each in self._counted])

    def settle(self) -> None:
        """Count the members anew, and promise what can be kept."""
        self._counted = self._members.count(self._feeds, needs_proof=self.needs_proof)
        in_sync = len(self.in_sync())
        positions = self._store.positions
        if not self._is_sync:
            positions.available_replicas = in_sync
            return
        wanted = max(1, self._config.in_sync_replicas)
        refusal: Put | None = None
        if self._config.enable_slave_acting_master:
            available = min(self._members.alive, 1 + in_sync)
            if self._config.enable_auto_in_sync_replicas:
                wanted = max(min(wanted, available), self._config.min_in_sync_replicas)
            if wanted > available:
                refusal = NOT_ENOUGH
        positions.available_replicas = in_sync
        self._store.refuse(refusal)
        self._promise(replicated(wanted - 1))
        positions.replicas_have([each.acknowledged for each in self._counted])

    def _promise(self, more: Promise) -> None:
        promise = (FLUSHED if self._store.config.is_sync_flush else APPENDED) | more
        positions = self._store.positions
        if positions.promised != promise:
            positions.promised = promise

    def in_sync(self) -> list[Feed]:
        """The members that are not too far behind."""
        return [feed for feed in self._counted if feed.lag < self._config.ha_max_gap_not_in_sync]

    @property
    def all(self) -> list[Feed]:
        return list(self._feeds)
