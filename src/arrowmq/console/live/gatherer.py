"""The one who asks the brokers, for all pages.

A beat asks each broker how it is: one small request. A survey asks for topics, groups and their offsets: a handful of
requests, however many there are. Both come often while somebody watches and seldom while nobody does, and a survey that
takes long comes so much later that it costs a broker no more than `SHARE` of a core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError
from arrowmq.client.options import namesrv_addresses
from arrowmq.console.errors import is_denied
from arrowmq.console.live.history import History, Rates
from arrowmq.console.live.hub import Hub
from arrowmq.console.live.snapshot import BrokerRow, FindingRow, GroupState, Snapshot, TopicState
from arrowmq.console.options import ConsoleOptions
from arrowmq.inspect.doctor import examine
from arrowmq.inspect.doctor.gather import gather
from arrowmq.wire.bodies import OffsetWrapper
from arrowmq.wire.errors import WireError
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Of the time, how long surveys may take. A broker computes for about half of it.
SHARE = 0.004
UNWATCHED_FACTOR = 4
LONGEST_FACTOR = 4
WATCHED_FOR_S = 60.0
DOCTOR_WATCH_S = 1.0
DOCTOR_PATIENCE = 8
DOCTOR_CALLS_A_SECOND = 5.0
NEWEST_MS = 1_000
#: What only our brokers tell of their running: versions and requests are Apache's.
OWN_FIELD = "fastPathClosedBy"


class Gatherer:
    def __init__(self, options: ConsoleOptions, admin: Admin, hub: Hub) -> None:
        self.options = options
        self.admin = admin
        self.hub = hub
        self.history = History()
        self.rates = Rates()
        self.now = Snapshot()
        self._asked_at = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._first_beat = asyncio.Event()
        self._first_survey = asyncio.Event()
        self._survey_lock = asyncio.Lock()
        self._doctor_lock = asyncio.Lock()
        self._asked_doctor_lock = asyncio.Lock()

    # -- life

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._every(self.options.beat_s, self.beat), name="console beat"),
            asyncio.create_task(self._every(self.options.survey_s, self.survey), name="console survey"),
            asyncio.create_task(self._visits(), name="console doctor"),
        ]

    async def _visits(self) -> None:
        """The doctor asks about every topic and group: the first page that is opened need not wait for that."""
        began = time.monotonic()
        await self._first_survey.wait()
        await asyncio.sleep((time.monotonic() - began) * DOCTOR_PATIENCE)
        await self._every(self.options.doctor_s, self.examine)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def is_watched(self) -> bool:
        return self.hub.watchers > 0 or time.monotonic() - self._asked_at < WATCHED_FOR_S

    def asked(self) -> None:
        """Somebody looks: for a while, everything is kept fresh."""
        self._asked_at = time.monotonic()

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            began = time.monotonic()
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("gathering failed work=%s", getattr(work, "__name__", "?"))
            took_s = time.monotonic() - began
            pause_s = (
                interval_s if work == self.beat else max(interval_s, min(took_s / SHARE, interval_s * LONGEST_FACTOR))
            )
            while True:
                left_s = began + pause_s * (1 if self.is_watched else UNWATCHED_FACTOR) - time.monotonic()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(left_s, 1.0))

    # -- brokers

    async def beat(self) -> None:
        try:
            await self._beat()
        finally:
            self._first_beat.set()

    async def _beat(self) -> None:
        now_ms = round(time.time() * 1000)
        try:
            info = await self.admin.cluster_info()
        except (ArrowMQError, WireError) as failure:
            self.now.problem = str(failure)
            self.now.is_denied = is_denied(failure)
            self.now.at_ms = now_ms
            self._publish()
            return
        self.now.is_denied = False
        places = sorted(
            (broker.cluster or "", name, int(broker_id), address)
            for name, broker in info.broker_addr_table.items()
            for broker_id, address in broker.broker_addrs.items()
        )
        rows = await each_of(places, lambda place: self._broker(*place))
        self.now.brokers = list(rows.values())
        self.now.problem = None
        self.now.at_ms = now_ms
        for row in rows.values():
            if row.problem is None and row.broker_id == 0:
                self.history.add(f"in:{row.broker}", now_ms, row.in_per_second or 0.0)
                self.history.add(f"out:{row.broker}", now_ms, row.out_per_second or 0.0)
                self.history.add(f"disk:{row.broker}", now_ms, (row.disk_ratio or 0.0) * 100)
        self.history.add("in", now_ms, sum(row.in_per_second or 0.0 for row in rows.values() if not row.broker_id))
        self.history.add("out", now_ms, sum(row.out_per_second or 0.0 for row in rows.values()))
        self._publish()

    async def _broker(self, cluster: str, name: str, broker_id: int, address: str) -> BrokerRow:
        row = BrokerRow(
            cluster=cluster,
            broker=name,
            broker_id=broker_id,
            address=address,
            role="master" if broker_id == 0 else "slave",
        )
        try:
            runtime = await self.admin.broker_runtime(address)
        except (ArrowMQError, WireError) as failure:
            row.problem = str(failure)
            self.now.is_denied = self.now.is_denied or is_denied(failure)
            return row
        row.version = runtime.get("brokerVersionDesc")
        row.product = "ArrowMQ" if OWN_FIELD in runtime else "Apache"
        row.in_per_second = first_number(runtime.get("putTps"))
        row.out_per_second = first_number(runtime.get("getTransferredTps") or runtime.get("getTransferedTps"))
        row.disk_ratio = first_number(runtime.get("commitLogDiskRatio"))
        row.started_ms = _whole(runtime.get("bootTimestamp"))
        # Apache counts from the beginning and tells what it was at midnight.
        row.messages_today = _difference(runtime, "msgPutTotalTodayNow", "msgPutTotalTodayMorning")
        row.delivered_today = _difference(runtime, "msgGetTotalTodayNow", "msgGetTotalTodayMorning")
        row.put_latency_99_ms = first_number(runtime.get("putLatency99"))
        row.unflushed_bytes = _whole(runtime.get("remainHowManyDataToFlush"))
        return row

    def _publish(self) -> None:
        self.hub.publish(
            "beat",
            {
                "at": self.now.at_ms,
                "problem": self.now.problem,
                "brokers": self.now.brokers,
                "in": sum(row.in_per_second or 0.0 for row in self.now.brokers if not row.broker_id),
                "out": sum(row.out_per_second or 0.0 for row in self.now.brokers),
            },
        )

    # -- topics and groups

    async def survey(self) -> None:
        async with self._survey_lock:
            await self._survey()

    async def fresh(self) -> Snapshot:
        """The snapshot, at least once surveyed: the first page that is opened waits for it."""
        self.asked()
        if not self.now.surveyed_ms:
            await self._first_beat.wait()
            async with self._survey_lock:
                if not self.now.surveyed_ms:
                    await self._survey()
        return self.now

    async def newer(self) -> Snapshot:
        """For who asks about what the snapshot does not know: it may be new. Surveys anew, but not all the time."""
        if time.time() * 1000 - self.now.surveyed_ms > NEWEST_MS:
            await self.survey()
        return self.now

    async def _survey(self) -> None:
        await self._first_beat.wait()
        masters = self.now.masters
        if not masters:
            await self.beat()
            masters = self.now.masters
        if not masters:
            return
        topics: dict[str, TopicState] = {}
        groups: dict[str, GroupState] = {}
        own = set(masters) | {row.cluster for row in self.now.brokers}

        async def ask(name: str) -> None:
            address = masters[name]
            # At once: what one broker answers is read while it makes the next answer.
            known, settings, progress = await asyncio.gather(
                _or_nothing(self.admin.topic_configs(address), name),
                _or_nothing(self.admin.group_configs(address), name),
                _or_nothing(self.admin.progress_of_groups(address), name),
            )
            for topic, config in known.items():
                kind = "system" if topic in own else kind_of(topic, config.attributes)
                topics.setdefault(topic, TopicState(topic, kind)).configs[name] = config
            for group, about in settings.items():
                groups.setdefault(group, GroupState(group)).configs[name] = about
            for group, queues in progress.items():
                groups.setdefault(group, GroupState(group)).progress.update(queues)

        await each_of(masters, ask)
        now_ms = round(time.time() * 1000)
        ends: dict[MessageQueue, int] = {}
        for state in groups.values():
            judge_lag(state, now_ms)
            for queue, each in state.progress.items():
                ends[queue] = each.broker_offset
            consumed = sum(max(0, each.consumer_offset) for each in state.progress.values())
            state.out_per_second = self.rates.see(f"group {state.name}", now_ms, consumed)
            if not names.is_system_group(state.name):
                self.history.add(f"lag:{state.name}", now_ms, state.lag)
                self.history.add(f"lagtime:{state.name}", now_ms, (state.lag_ms or 0) / 1000)
        by_topic: dict[str, int] = {}
        for queue, end in ends.items():
            by_topic[queue.topic] = by_topic.get(queue.topic, 0) + end
        for topic, count in by_topic.items():
            rate = self.rates.see(f"topic {topic}", now_ms, count)
            if rate is not None and topic in topics and topics[topic].kind != "system":
                self.history.add(f"topic:{topic}", now_ms, rate)
        await self._count_letters(groups, topics, masters)
        self.now.topics, self.now.groups = topics, groups
        self.now.surveyed_ms = now_ms
        self._first_survey.set()
        total = sum(state.lag for state in groups.values() if not names.is_system_group(state.name))
        self.history.add("lag", now_ms, total)
        self.hub.publish(
            "survey",
            {
                "at": now_ms,
                "topics": sum(state.kind != "system" for state in topics.values()),
                "groups": sum(not names.is_system_group(name) for name in groups),
                "lag": total,
                "letters": sum(state.letters for state in groups.values()),
            },
        )

    async def _count_letters(
        self, groups: dict[str, GroupState], topics: dict[str, TopicState], masters: dict[str, str]
    ) -> None:
        """Groups with dead letters are few, as a rule; their number is asked for with every survey."""
        dead = [topic for topic in topics if topic.startswith(names.DLQ_PREFIX)]

        async def count(topic: str) -> int:
            total = 0
            for name in topics[topic].configs:
                try:
                    stats = await self.admin.topic_stats_at(masters[name], topic)
                    total += sum(each.max_offset - each.min_offset for each in stats.values())
                except (ArrowMQError, WireError):
                    continue
            return total

        for topic, letters in (await each_of(dead, count)).items():
            group = topic.removeprefix(names.DLQ_PREFIX)
            groups.setdefault(group, GroupState(group)).letters = letters

    # -- what is wrong

    async def examine(self) -> None:
        """Slowly enough not to be felt by the brokers of a large cluster."""
        await self._examine(self._doctor_lock, DOCTOR_CALLS_A_SECOND)

    async def examine_now(self) -> None:
        """Somebody waits for it, and not for a slow visit that may be under way."""
        await self._examine(self._asked_doctor_lock, 0.0)

    async def _examine(self, lock: asyncio.Lock, calls_a_second: float) -> None:
        async with lock:
            began_ms = round(time.time() * 1000)
            try:
                facts = await gather(
                    sorted(namesrv_addresses(self.options.namesrv)),
                    self.options.connect,
                    topic=None,
                    directory=None,
                    watch_s=DOCTOR_WATCH_S,
                    calls_a_second=calls_a_second,
                )
            except (ArrowMQError, WireError) as failure:
                self.now.findings_problem = str(failure)
                return
            if self.now.findings_ms > began_ms:
                return  # somebody has asked meanwhile, and seen it later than this visit began
            found = [finding for some in examine(facts).values() for finding in some]
            self.now.findings = [FindingRow(each.severity, each.name, each.what, each.advice) for each in found]
            self.now.findings_ms = round(time.time() * 1000)
            self.now.findings_problem = None
            self.hub.publish("findings", {"at": self.now.findings_ms, "findings": self.now.findings})


async def _or_nothing(asked: Awaitable[dict[str, _T]], broker: str) -> dict[str, _T]:
    try:
        return await asked
    except (ArrowMQError, WireError) as failure:
        log.warning("a broker could not be surveyed broker=%s reason=%s", broker, failure)
        return {}


def first_number(text: str | None) -> float | None:
    """Rates come as `10s 60s 600s` averages: the first is the freshest."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _whole(text: str | None) -> int | None:
    number = first_number(text)
    return None if number is None else int(number)


def _difference(runtime: dict[str, str], now: str, morning: str) -> int | None:
    total = _whole(runtime.get(now))
    return None if total is None else max(0, total - (_whole(runtime.get(morning)) or 0))


def kind_of(topic: str, attributes: dict[str, str]) -> str:
    """normal, fifo, delay, transaction, …; retry, dead or system for those that brokers keep."""
    if topic.startswith(names.RETRY_PREFIX):
        return "retry"
    if topic.startswith(names.DLQ_PREFIX):
        return "dead"
    if names.is_system_topic(topic) or topic.endswith("_REPLY_TOPIC"):
        return "system"
    return attributes.get("message.type", "NORMAL").lower()


def lag_of(each: OffsetWrapper) -> int:
    return max(0, each.broker_offset - max(0, each.consumer_offset))


def judge_lag(state: GroupState, now_ms: int) -> None:
    state.lag = state.retry_lag = 0
    oldest: int | None = None
    for queue, each in state.progress.items():
        lag = lag_of(each)
        if queue.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
            state.retry_lag += lag
            continue
        state.lag += lag
        # The time of the last message that was consumed: what waits is newer, so this is the longest it can be.
        if lag and each.last_timestamp > 0:
            oldest = each.last_timestamp if oldest is None else min(oldest, each.last_timestamp)
    state.lag_ms = None if oldest is None else max(0, now_ms - oldest)
