"""The master's side under a controller: who is in sync, and what senders are promised by it.

    allAckInSyncStateSet, or inSyncReplicas above 1    a message is safe once every member of the sync state set has it,
                                                       and so many brokers in all
    otherwise                                          nobody waits for slaves

Apache's master waits, without allAckInSyncStateSet, for *some* `inSyncReplicas` brokers. A member of the set that has
not got the message may then be elected, and the message is lost although two brokers had it. Here `inSyncReplicas` is
a lower bound, and whoever may be elected has the message.

A slave joins the set when it has all that is confirmed and is in the current epoch; it leaves when its connection ends,
or when it has not had everything for `haMaxTimeSlaveNotCatchup`. The controller has the last word on both. With fewer
members than `minInSyncReplicas`, messages are refused before anything is written. Learners never join.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from arrowmq.clock import Clock
from arrowmq.replica.controlled.epochs import EpochFile
from arrowmq.replica.controlled.protocol import EpochMasterSession
from arrowmq.replica.controlled.sync_state import SyncStateSet
from arrowmq.replica.feed import Feed
from arrowmq.replica.feeds import NOT_ENOUGH, Feeds
from arrowmq.replica.members import Members
from arrowmq.store import Put, PutStatus
from arrowmq.store.positions import APPENDED, FLUSHED, Promise, replicated

if TYPE_CHECKING:
    from arrowmq.broker.settings.config import BrokerConfig
    from arrowmq.replica.protocol import MasterSession
    from arrowmq.store import MessageStore

log = logging.getLogger(__name__)

NO_LEASE = Put(
    PutStatus.SERVICE_NOT_AVAILABLE,
    reason="this master has not heard from its controllers for the time of its lease: another may be elected by now",
)


class ControlledFeeds(Feeds):
    """`wants_set(members)` when the controller should be asked for another sync state set."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        members: Members,
        clock: Clock,
        on_change: Callable[[], object],
        *,
        epochs: EpochFile,
        wants_set: Callable[[frozenset[int]], object],
    ) -> None:
        super().__init__(config, store, members, clock, on_change)
        self._epochs = epochs
        self._wants_set = wants_set
        self.sync_state = SyncStateSet(0)
        self.has_lease = True
        self._acknowledged: dict[int, int] = {}  # by slave id: the end of its log, as it said last in this epoch
        self._heard_s: dict[int, float] = {}  # when it last said anything
        self._caught_up_s: dict[int, float] = {}
        self._is_leaving = False
        self._floor = 0  # what is confirmed once stays it

    # Life

    def start(self, *, is_sync: bool) -> None:
        self._acknowledged, self._heard_s, self._caught_up_s = {}, {}, {}
        self._floor = int(self._store.appended)
        super().start(is_sync=is_sync)

    def stop(self, why: str, *, keeps_promise: bool = False) -> None:
        """What was not confirmed by now may be cut when this broker follows another: nobody reads it, and who waits for
        it to be acknowledged is not told that it was."""
        positions = self._store.positions
        confirmed = int(positions.confirmed)
        self._is_leaving = True
        positions.promised = self._lowest | replicated(1)
        positions.kept = FLUSHED | positions.promised
        positions.members_have(confirmed)
        super().stop(why, keeps_promise=keeps_promise)
        self._is_leaving = False
        positions.abandon()

    @property
    def _lowest(self) -> Promise:
        return FLUSHED if self._store.config.is_sync_flush else APPENDED

    def _promise(self, more: Promise) -> None:
        if not self._is_leaving:
            super()._promise(more)

    def make_session(self) -> MasterSession:
        return EpochMasterSession(self._epochs, lambda: int(self._store.positions.confirmed))

    def _refresh_members(self) -> None:
        """Who counts, the controller says; no NameServer is asked."""

    # Slaves

    def by_id(self) -> dict[int, Feed]:
        return {slave_id: feed for feed in self._feeds if (slave_id := _slave_id(feed)) is not None}

    def heard_from_others(self) -> Iterable[float]:
        """When each other member of the set last said anything."""
        connected = self.by_id()
        return [
            connected[member].received_s if member in connected else self._heard_s.get(member, 0.0)
            for member in self.sync_state.others
        ]

    def _moved(self, feed: Feed) -> None:
        slave_id = _slave_id(feed)
        if slave_id is None:
            return
        for other in list(self._feeds):
            if other is not feed and _slave_id(other) == slave_id:
                other.close("it has connected again")
        self._acknowledged[slave_id] = feed.acknowledged
        self._caught_up_s[slave_id] = max(self._caught_up_s.get(slave_id, 0.0), feed.caught_up_s)
        if slave_id in self.sync_state.needed:
            self._count()
        else:
            self._consider(slave_id, feed)

    def _consider(self, slave_id: int, feed: Feed) -> None:
        """Should this slave join?"""
        current = self._epochs.last
        if self.sync_state.asked is not None or current is None or not self.is_feeding or _is_learner(feed):
            return
        if feed.acknowledged >= max(int(self._store.positions.confirmed), current.start):
            self._caught_up_s[slave_id] = self._clock.monotonic()
            self._wants_set(self.sync_state.members | {slave_id})

    def _closed(self, feed: Feed, why: str) -> None:
        super()._closed(feed, why)
        slave_id = _slave_id(feed)
        if slave_id is not None:
            self._heard_s[slave_id] = max(feed.received_s, self._heard_s.get(slave_id, 0.0))
        if self.is_feeding and slave_id in self.sync_state.members and slave_id not in self.by_id():
            self._want_without({slave_id})

    def check_sync_state(self) -> None:
        """Who has not been level for too long leaves, and who is not even there."""
        if not self.is_feeding:
            return
        connected = self.by_id()
        now_s = self._clock.monotonic()
        for slave_id, feed in connected.items():
            if feed.lag == 0:
                self._caught_up_s[slave_id] = now_s
        latest_s = now_s - self._config.ha_max_time_slave_not_catchup / 1000
        late = {
            member
            for member in self.sync_state.members - {self.sync_state.own_id}
            if member not in connected or self._caught_up_s.get(member, 0.0) < latest_s
        }
        if late:
            self._want_without(late)
            return
        for slave_id, feed in connected.items():
            if slave_id not in self.sync_state.needed:
                self._consider(slave_id, feed)

    def _second(self) -> None:
        super()._second()
        self.check_sync_state()

    def _want_without(self, slave_ids: set[int]) -> None:
        if self.sync_state.asked is None:
            self._wants_set(self.sync_state.members - slave_ids)

    def set_changed(self) -> None:
        """The sync state set, or what was asked for, is another."""
        self.settle()
        self._on_change()

    # What acknowledgements are worth

    def settle(self) -> None:
        state = self.sync_state
        self._counted = [feed for slave_id, feed in self.by_id().items() if slave_id in state.others]
        for feed in self._feeds:
            feed.is_member = feed in self._counted
        positions = self._store.positions
        # A member that is gone is waited for: the controller is asked to take it out, and then nobody waits for it.
        positions.available_replicas = max(len(self.by_id()), len(state.others))
        if not self.is_feeding:
            return
        self._store.refuse(NO_LEASE if not self.has_lease else NOT_ENOUGH if self.has_too_few else None)
        self._floor = max(self._floor, int(positions.confirmed))
        if self.waits_for_members:
            self._promise(replicated(max(len(state.others), self._config.in_sync_replicas - 1)))
        else:
            self._promise(APPENDED)
        # Another master cuts what the members of the set have not all got.
        positions.kept = FLUSHED | positions.promised
        self._count()

    @property
    def has_too_few(self) -> bool:
        return len(self.sync_state.members) < self._config.min_in_sync_replicas

    @property
    def waits_for_members(self) -> bool:
        return self._is_sync and (self._config.all_ack_in_sync_state_set or self._config.in_sync_replicas > 1)

    def _count(self) -> None:
        """Only what everybody has counts, who may be elected."""
        positions = self._store.positions
        wanted = positions.promised.replicas
        if not wanted:
            return
        members = [self._acknowledged.get(member, 0) for member in self.sync_state.others]
        missing = wanted - len(members)
        if missing > 0:  # fewer members than brokers that must have it: then others count as well
            needed = self.sync_state.needed
            outside = sorted((end for slave, end in self._acknowledged.items() if slave not in needed), reverse=True)
            members.append(outside[missing - 1] if len(outside) >= missing else 0)
        # What is confirmed once stays it, also while nobody is left who could confirm more.
        positions.members_have(max(self._floor, min(members)))

    def in_sync(self) -> list[Feed]:
        """The slaves in the sync state set."""
        return [feed for slave_id, feed in self.by_id().items() if slave_id in self.sync_state.members]


def _slave_id(feed: Feed) -> int | None:
    session = feed.session
    return session.slave_id if isinstance(session, EpochMasterSession) else None


def _is_learner(feed: Feed) -> bool:
    session = feed.session
    return isinstance(session, EpochMasterSession) and session.is_learner
