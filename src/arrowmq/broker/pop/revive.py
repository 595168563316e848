"""Taking back what was not acknowledged in time: a copy goes to the retry topic of its group, counted once more.

Each check point has its own moment, to the hundredth of a second, and fails alone: one whose messages cannot be copied
is tried again later and later, and holds up no other. That its messages were taken back is stored as acks of them, so
that no crash brings them back a second time.

It runs on a master (`role.py`): `resume` and `suspend` may come at any time. A slave that acts for its master does it
too: its copies go to brokers of other names, and nothing is written down but how far everything is done with.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.background import Background
from arrowmq.broker.delayed.delivery import STORED
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.names import SLAVE
from arrowmq.broker.pop.check_points import CheckPoint, CheckPoints
from arrowmq.broker.pop.due import Due
from arrowmq.broker.pop.merging import Merging
from arrowmq.broker.pop.offset_replay import OffsetReplay
from arrowmq.broker.pop.pop_counts import PopCounts
from arrowmq.broker.pop.retry_topics import RetryTopics, normal_topic
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.store import MessageStore, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, RecordError

log = logging.getLogger(__name__)

BUCKET_MS = 10
MESSAGES_A_TURN = 64
BEHIND_MS = 100
ON_ITS_WAY_MS = 50  # until another broker, which got a copy, is expected to have it
FORGET_LANES_S = 60.0
# A check point that came by the timer waits for its acks, which come by the timer a second later (Apache: 2 s)
TIMER_MS = 2000
# After so many failures: so many seconds (Apache's)
BACK_OFF_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

ORIGIN_GROUP = "ORIGIN_GROUP"


class NotNow(Exception):
    """A message that cannot be copied at the moment: the text says why."""


class OnItsWay(Exception):
    """Another broker was sent the copy: ask again whether it has it."""


class ReviveService:
    writes_topics_only = True  # an acting master does this too

    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        table: CheckPoints,
        revive_log: ReviveLog,
        merging: Merging,
        retry_topics: RetryTopics,
        replay: OffsetReplay,
        timer_is_behind: Callable[[], bool],
        background: Background,
        stats: BrokerStats,
        counts: PopCounts,
        clock: Clock,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.topics = topics
        self.groups = groups
        self.table = table
        self.log = revive_log
        self.merging = merging
        self.retry_topics = retry_topics
        self.replay = replay
        self.timer_is_behind = timer_is_behind
        self.stats = stats
        self.counts = counts
        self.clock = clock
        self.revived = 0
        self.on_revived: list[Callable[[str, str], None]] = []  # topic and group
        self.is_reviving = False
        self._is_ready = False
        self.due: Due[CheckPoint] = Due(clock, BUCKET_MS, self._became_due, table.due)
        self._waiting: deque[CheckPoint] = deque()
        self._turn: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        revive_log.on_read.append(self.watch)
        replay.before_writing(self._note)
        background.every("forget idle pop lanes", FORGET_LANES_S, table.forget_idle_lanes)

    # Life

    def load(self) -> None:
        self.store.add_listener(self.log.arrived)
        if self.config.broker_role != SLAVE:
            for _ in self._read_log():
                pass

    def _read_log(self) -> Iterable[None]:
        self.due.clear()
        self.merging.clear()
        self.replay.begin()
        yield from self.log.begin()
        self.replay.end()
        self._is_ready = True

    def resume(self) -> None:
        """Take back from here on: a master's duty. What is in flight is in its log."""
        if not self._is_ready:
            for _ in self._read_log():
                pass
        self.is_reviving = True
        self.due.start()
        self.merging.start()

    async def suspend(self) -> None:
        """The broker stops, or another one is the master now: what is known here of messages in flight grows old."""
        if self._is_ready:
            if not self.log.is_closed:
                self.merging.write_all()
            self._note()
        await self._halt()
        self._is_ready = False

    def progress_taken(self) -> None:
        """The offsets are another broker's, which did this in the meantime: `resume` reads the log from there."""
        self._is_ready = False

    async def stop(self) -> None:
        await self._halt()

    async def _halt(self) -> None:
        self.is_reviving = False
        self.due.stop()
        self.merging.stop()
        self.log.stop()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for check_point in self._waiting:
            self.watch(check_point)
        self._waiting.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _note(self) -> None:
        if self._is_ready:
            self.log.note()

    # When

    def watch(self, check_point: CheckPoint, not_before_ms: int = 0) -> None:
        """Takes a check point back when its time is over."""
        due_ms = check_point.revive_time
        if check_point.waits_for_timer:
            due_ms += TIMER_MS
        self.due.add(check_point, max(due_ms, not_before_ms))

    def _became_due(self, items: Iterable[CheckPoint]) -> None:
        self._waiting.extend(items)
        self._go_on()

    def _go_on(self) -> None:
        if self._turn is None and self._waiting and self.is_reviving:
            self._turn = asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._turn = None
        left = MESSAGES_A_TURN
        while self._waiting and left > 0:
            check_point = self._waiting.popleft()
            left -= max(1, check_point.open_count)
            try:
                self._take_back(check_point)
            except Exception:
                log.exception("check point %s cannot be revived now", self._name(check_point))
                self._later(check_point)
        self._go_on()

    # How

    def _take_back(self, check_point: CheckPoint) -> None:
        if not check_point.is_open:
            return
        now_ms = self.clock.now_ms()
        if self.log.is_behind(check_point.revive_queue) or (check_point.waits_for_timer and self.timer_is_behind()):
            self.watch(check_point, now_ms + BEHIND_MS)  # its acks may be among what is not read yet
            return
        is_in_log = check_point.revive_offset >= 0 or self.log.is_closed
        if not is_in_log and not self.merging.write(check_point):
            self._later(check_point)
            return
        lane = check_point.lane
        if self.topics.get(normal_topic(lane.topic, lane.group)) is None or self.groups.find(lane.group) is None:
            log.info("check point %s is dropped: its topic or group is gone", self._name(check_point))
            self._settle(check_point, check_point.open_offsets())
            return
        cold = self._cold_offsets(check_point)
        if cold:
            self._warm(check_point, cold)
            return
        done: list[int] = []
        failure = ""
        is_on_its_way = False
        for offset in check_point.open_offsets():
            try:
                self._copy(check_point, offset)
            except NotNow as problem:
                failure = str(problem)
                break
            except OnItsWay:
                is_on_its_way = True
                break
            done.append(offset)
        if done:
            self._settle(check_point, done)
            self._notify_waiting(normal_topic(lane.topic, lane.group), lane.group)
        if is_on_its_way:
            self.watch(check_point, now_ms + ON_ITS_WAY_MS)
        elif failure:
            log.warning(
                "check point %s: message %d cannot be revived (try %d): %s",
                *(self._name(check_point), check_point.open_offsets()[0], check_point.tries + 1, failure),
            )
            if check_point.tries >= len(BACK_OFF_S) and self.config.skip_when_ck_re_put_reach_max_times:
                self._settle(check_point, check_point.open_offsets())
            else:
                self._later(check_point)

    def _notify_waiting(self, topic: str, group: str) -> None:
        """Notifies those who wait, once they can read what came back."""

        def notify(missed: object = None) -> None:
            for callback in self.on_revived:
                callback(topic, group)

        positions = self.store.positions
        if positions.promised:
            positions.when(positions.appended, positions.promised, notify)
        else:
            notify()

    def _later(self, check_point: CheckPoint) -> None:
        wait_s = BACK_OFF_S[min(check_point.tries, len(BACK_OFF_S) - 1)]
        check_point.tries += 1
        self.watch(check_point, self.clock.now_ms() + wait_s * 1000)

    def _settle(self, check_point: CheckPoint, offsets: list[int]) -> None:
        if self.log.is_closed:
            self._settle_in_table(check_point, offsets)
            self._note()
            return
        put = self.log.write_ack(check_point, offsets, is_batch=True)
        if put.status not in STORED:
            # In memory it is done; a crash now would revive these messages once more.
            log.warning("revived messages are not noted: %s", put.reason or put.status.name)
        self._settle_in_table(check_point, offsets)

    def _settle_in_table(self, check_point: CheckPoint, offsets: list[int]) -> None:
        bits = sum(1 << check_point.index_of(offset) for offset in offsets)
        self.table.settle(check_point, bits)

    def _cold_offsets(self, check_point: CheckPoint) -> list[int]:
        lane = check_point.lane
        cold = []
        for offset in check_point.open_offsets():
            for entry in self.store.entries(lane.topic, lane.queue_id, offset, 1):
                if self.store.is_cold(entry.physical_offset, entry.size):
                    cold.append(offset)
        return cold

    def _warm(self, check_point: CheckPoint, offsets: list[int]) -> None:
        """Has the messages read from disk by the cold-read thread, and goes on when they are in memory."""

        async def read() -> None:
            lane = check_point.lane
            try:
                for offset in offsets:
                    (await self.store.get_cold(lane.topic, lane.queue_id, offset, 1)).release()
            except Exception:
                log.exception("check point %s: its messages cannot be read", self._name(check_point))
                self._later(check_point)
                return
            self._waiting.append(check_point)
            self._go_on()

        task = asyncio.ensure_future(read())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _copy(self, check_point: CheckPoint, offset: int) -> None:
        """Puts one message to the retry topic. What is no longer there, or damaged, is done with."""
        lane = check_point.lane
        entries = self.store.entries(lane.topic, lane.queue_id, offset, 1)
        try:
            found = self.store.record_at(entries[0].physical_offset) if entries else None
        except RecordError as damage:
            log.error("check point %s: message %d is damaged: %s", self._name(check_point), offset, damage)
            return
        if found is None:
            if (
                self.store.min_offset(lane.topic, lane.queue_id)
                <= offset
                < self.store.queue(lane.topic, lane.queue_id).next_offset
            ):
                raise NotNow("it cannot be read yet")
            log.info("check point %s: message %d is no longer in the log", self._name(check_point), offset)
            return
        name = self.retry_topics.written(lane.topic, lane.group)
        queue_id = 0
        if not self.log.is_closed:
            queue_id = self.retry_topics.queue_of(self.retry_topics.ensure(name, lane.group), found.queue_id)
        put = self.store.put(self._revived(found, check_point, name, queue_id))
        if put.status is PutStatus.PUT_TO_REMOTE_BROKER_FAIL:
            raise OnItsWay
        self.counts.retry_message(lane.group, lane.topic, put.status.name)
        if put.status not in STORED:
            raise NotNow(put.reason or put.status.name)
        self.revived += 1
        self.stats.put(name, 0, 1, put.size)

    def _revived(self, found: Record, check_point: CheckPoint, topic: str, queue_id: int) -> Record:
        properties = dict(found.properties)
        if found.reconsume_times == 0 or keys.FIRST_POP_TIME not in properties:
            properties[keys.FIRST_POP_TIME] = str(check_point.pop_time)
        properties[ORIGIN_GROUP] = check_point.lane.group
        host = self.address.store_host
        return Record(
            topic=topic,
            queue_id=queue_id,
            flag=found.flag,
            sys_flag=found.sys_flag,
            born_timestamp=found.born_timestamp,
            born_host=host,
            store_host=host,
            reconsume_times=found.reconsume_times + (0 if check_point.is_suspend else 1),
            body=found.body,
            properties_raw=encode_properties(properties),
        )

    def _name(self, check_point: CheckPoint) -> str:
        lane = check_point.lane
        return (
            f"group[{lane.group}] topic[{lane.topic}] queue {lane.queue_id} offset {check_point.start_offset} "
            f"popped {check_point.pop_time}"
        )

    # What is told of it

    def behind(self, queue_id: int) -> tuple[int, int]:
        """How many messages of a revive queue are not done with, and how long the oldest should have been."""
        queue = self.log.queues[queue_id]
        first = queue.first_open()
        if first is None:
            return 0, 0
        late_ms = max(0, self.clock.now_ms() - first.revive_time)
        return max(0, queue.read_offset - first.revive_offset), late_ms
