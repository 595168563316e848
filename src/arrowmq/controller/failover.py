"""Notices masters that are gone, and has others elected.

A master is gone when its lease is over, when its process no longer listens after its connection to the controller ended
(it is asked at its port until that is clear or its lease is over), or when it registers anew: it has restarted, perhaps
without the end of its log, and must not go on in the epoch that it had.

A controller that has just begun to lead knows of no heartbeats. It gives every master the time of its lease to be heard
before it takes it for gone, unless nothing listens at its port.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from arrowmq.clock import Clock, Timer
from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.config import ControllerConfig
from arrowmq.controller.decider import Decider
from arrowmq.controller.decisions import Decision, Election, elect_master
from arrowmq.controller.liveness import Liveness, Member
from arrowmq.remoting.address import parse_address
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Refused
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import BrokerHeartbeat

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 0.5
PROBE_INTERVAL_S = 0.1
RETRY_S = 0.5
NOBODY = -1  # no broker's id

Probe = Callable[[str], Awaitable[bool]]
"""Whether a process may still be there; False only if it is certain that none listens at the address."""


async def listens(address: str) -> bool:
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return True  # a network that does not answer says nothing about the process: its lease decides
    writer.close()
    return True


class Failover:
    def __init__(
        self, config: ControllerConfig, clock: Clock, decider: Decider, liveness: Liveness, probe: Probe = listens
    ) -> None:
        self._config = config
        self._clock = clock
        self._decider = decider
        self._liveness = liveness
        self._probe = probe
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self._scan_timer: Timer | None = None
        self._leading_since_s: float | None = None
        self._watched: set[Channel] = set()
        self._electing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.elections: dict[str, int] = {}  # by result, for the metrics

    # --- leading ------------------------------------------------------------------------------------------------------

    def lead(self, is_leading: bool) -> None:
        if not is_leading:
            self._leading_since_s = None
            for timer in (self._timer, self._scan_timer):
                if timer is not None:
                    timer.cancel()
            self._timer = self._scan_timer = None
            return
        self._leading_since_s = self._clock.monotonic()
        self._schedule_expiry()
        self._schedule_scan()
        for broker_set in self._decider.all().values():
            self._run(self._ask_master(broker_set))

    def stop(self) -> None:
        self.lead(False)
        for task in self._tasks:
            task.cancel()

    # --- what is heard ------------------------------------------------------------------------------------------------

    def heartbeat(self, heartbeat: BrokerHeartbeat, channel: Channel) -> bool:
        """Take a heartbeat; False if there are too many brokers to track."""
        member = self._liveness.heard(heartbeat, channel)
        if member is None:
            return False
        if channel not in self._watched:
            self._watched.add(channel)
            channel.on_close(self._channel_closed)
        if self._leading_since_s is not None:
            self._schedule_expiry()
            broker_set = self._decider.get(member.name)
            if broker_set is not None and broker_set.master_id is None and not broker_set.is_before_first_election:
                self._elect_soon(member.name, "a member of the sync state set is back")
        return True

    def _channel_closed(self, channel: Channel) -> None:
        self._watched.discard(channel)
        for member in self._liveness.channel_closed(channel):
            self._run(self._watch_silent(member, channel))

    async def _watch_silent(self, member: Member, channel: Channel) -> None:
        """Find out soon whether a broker whose connection ended is gone."""
        began_s = self._clock.monotonic()
        while True:
            live = self._liveness.get(member)
            if live is None or live.channel is not channel or not self._liveness.is_alive(member):
                return  # it is heard again, or its lease is over, which is noticed elsewhere
            if not await self._probe(live.address):
                live = self._liveness.get(member)
                if live is not None and live.channel is channel:
                    log.warning("broker gone set=%s id=%d reason=its process ended", member.name, member.broker_id)
                    self._liveness.forget(member)
                    self._lost(member, "its process ended", began_s)
                return
            await self._clock.sleep(PROBE_INTERVAL_S)

    async def _ask_master(self, broker_set: BrokerSet) -> None:
        """Has a master ended while nobody led?"""
        began_s = self._clock.monotonic()
        if broker_set.master_id is None or broker_set.master_address is None:
            return
        member = Member(broker_set.cluster, broker_set.name, broker_set.master_id)
        if self._liveness.is_alive(member) or await self._probe(broker_set.master_address):
            return
        known = self._decider.get(broker_set.name)
        if known is not None and known.master_epoch == broker_set.master_epoch and not self._liveness.is_alive(member):
            log.warning("broker gone set=%s id=%d reason=its process ended", member.name, member.broker_id)
            self._lost(member, "its process ended", began_s)

    def restarted(self, member: Member) -> Awaitable[None]:
        """A broker registers: whatever it was before, it has begun anew."""
        self._liveness.forget(member)
        return self._elect_if_master(member, "it restarted", self._clock.monotonic())

    # --- leases -------------------------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        deadline_s = self._liveness.next_deadline_s()
        if deadline_s is None or (self._timer is not None and self._timer_due_s <= deadline_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = deadline_s
        # A little later than the deadline: a lease that is just over must be seen as over.
        self._timer = self._clock.call_later(max(0.0, deadline_s - self._clock.monotonic()) + 0.001, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        if self._liveness.stalled(now_s - self._timer_due_s):
            log.warning("leases started again reason=this controller stood still for %.1f s", now_s - self._timer_due_s)
        else:
            for member in self._liveness.expired():
                log.warning("broker gone set=%s id=%d reason=its lease is over", member.name, member.broker_id)
                self._lost(member, "its lease is over", now_s)
        self._schedule_expiry()

    # --- masters that nobody misses by a lease ------------------------------------------------------------------------

    def _schedule_scan(self) -> None:
        interval_s = self._config.scan_inactive_master_interval / 1000
        leases_s = [broker_set.master_lease_ms / 1000 for broker_set in self._decider.all().values()]
        self._scan_timer = self._clock.call_later(min([interval_s, *leases_s]), self._scan)

    def _scan(self) -> None:
        if self._leading_since_s is None:
            return
        now_s = self._clock.monotonic()
        for name, broker_set in self._decider.all().items():
            alive = self._liveness.of_set(broker_set.cluster, name)
            if broker_set.is_before_first_election or broker_set.master_id in alive or not alive:
                continue
            if now_s - self._leading_since_s >= broker_set.master_lease_ms / 1000:
                self._elect_soon(name, "no master is heard")
        self._schedule_scan()

    # --- elections ----------------------------------------------------------------------------------------------------

    def _lost(self, member: Member, why: str, since_s: float) -> None:
        if self._leading_since_s is not None:
            self._run(self._elect_if_master(member, why, since_s))

    async def _elect_if_master(self, member: Member, why: str, since_s: float) -> None:
        broker_set = self._decider.get(member.name)
        if broker_set is not None and broker_set.cluster == member.cluster and broker_set.master_id == member.broker_id:
            await self._elect(member.name, f"master {member.broker_id}: {why}", since_s)

    def _elect_soon(self, name: str, why: str) -> None:
        if name not in self._electing:
            self._electing.add(name)
            self._run(self._elect_once(name, why))

    async def _elect_once(self, name: str, why: str) -> None:
        try:
            await self._elect(name, why, self._clock.monotonic())
        finally:
            self._electing.discard(name)

    async def _elect(self, name: str, why: str, since_s: float) -> None:
        for attempt in range(max(1, self._config.elect_master_max_retry_count)):
            if attempt:
                await self._clock.sleep(RETRY_S)
            try:
                heard: set[int] = set()
                while self._is_news(name, heard):
                    await self.elect(name, None, is_designated=False, reason=why, since_s=since_s)
                return
            except Refused as refusal:
                if refusal.code == ResponseCode.CONTROLLER_NOT_LEADER:
                    return
                log.warning("election failed set=%s attempt=%d reason=%s", name, attempt + 1, refusal.remark)

    def _is_news(self, name: str, heard: set[int]) -> bool:
        """The first time, and again if the set was left without a master while a member was heard for the first time:
        that heartbeat came before there was anything to elect for, and the next may be long in coming."""
        broker_set = self._decider.get(name)
        is_first = not heard
        alive = set() if broker_set is None else set(self._liveness.of_set(broker_set.cluster, name))
        is_more = not alive <= heard
        heard |= alive | {NOBODY}
        return is_first or (is_more and broker_set is not None and broker_set.master_id is None)

    async def elect(
        self, name: str, broker_id: int | None, *, is_designated: bool, reason: str, since_s: float | None = None
    ) -> Decision:
        """Without a broker id it is the controller that asks; then a set may be left without a master."""
        began_s = self._clock.monotonic() if since_s is None else since_s

        def decide(broker_set: BrokerSet | None) -> Decision:
            election = Election(
                broker_id=broker_id,
                is_designated=is_designated,
                is_unclean_allowed=self._config.enable_elect_unclean_master,
                reason=reason,
                at_ms=self._clock.now_ms(),
                took_ms=round((self._clock.monotonic() - began_s) * 1000),
            )
            alive = {} if broker_set is None else self._liveness.of_set(broker_set.cluster, broker_set.name)
            return elect_master(broker_set, election, alive)

        decision = await self._decider.decide(name, decide)
        result = _RESULTS.get(decision.code)
        if result is not None:
            self.elections[result] = self.elections.get(result, 0) + 1
        return decision

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("the watch over masters failed", exc_info=task.exception())


_RESULTS: dict[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected",
}
