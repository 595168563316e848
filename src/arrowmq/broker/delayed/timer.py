"""Timer messages: delivered at a time of the sender's choosing, to the second, up to days ahead.

A message with TIMER_DELIVER_MS, TIMER_DELAY_SEC or TIMER_DELAY_MS is stored in rmq_sys_wheel_timer. From there it is
entered into the wheel (`timer_files.py`) under the second before it is due, and once a second the slot whose time has
come is emptied into the topics. A message due beyond the wheel's window is put back and entered anew when the window
ends. A recall is a timer message itself: a delete mark that comes due in the same second as what it deletes.

The queue of rmq_sys_wheel_timer is the truth. The wheel is written after it, and how far it has come is in
`config/timercheck`; after a crash the last seconds are gone through again, and what the log shows as delivered is not
delivered twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

from arrowmq.broker.background import Background
from arrowmq.broker.delayed.delivery import STORED, Poisoned, deliver, delivered_copy, is_delivered
from arrowmq.broker.delayed.timer_counts import TimerCounts, due_soon
from arrowmq.broker.delayed.timer_files import (
    DELETE,
    NORMAL,
    NOWHERE,
    PRECISION_MS,
    ROLL,
    Checkpoint,
    Slot,
    TimerLog,
    TimerWheel,
    Unit,
    pack_checkpoint,
    read_checkpoint,
    unpack_checkpoint,
    write_checkpoint,
)
from arrowmq.broker.names import HALF_TOPIC, SCHEDULE_TOPIC, SLAVE, TIMER_TOPIC
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused, set_properties
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.handlers import Answer, handles
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.errors import StoreDamaged
from arrowmq.touches import Touches
from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import TimerMetrics
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, RecordError
from arrowmq.wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type

log = logging.getLogger(__name__)

QUEUE = 0
ENTRIES_A_TURN = 128
SLOTS_A_TURN = 5000
RETRY_S = 0.5
UNSURE_MS = 60_000  # how much older than the last deliveries the last word on them may be
# The wheel turns in two weeks. What was due longer ago than this, when the broker comes back, looks like the future.
OLDEST_READ_MS = 7 * 86_400_000 - 60_000
DELIVERED_AT_ONCE = (1 << 63) - 1
NO_LIMIT = (1 << 31) - 1


def wanted_time(properties: dict[str, str], now_ms: int) -> int | None:
    """When a message asks to be delivered, or None; raises ValueError for a time that is no number."""
    if properties.get(keys.TIMER_DELAY_SEC):
        return now_ms + int(properties[keys.TIMER_DELAY_SEC]) * 1000
    if properties.get(keys.TIMER_DELAY_MS):
        return now_ms + int(properties[keys.TIMER_DELAY_MS])
    if properties.get(keys.TIMER_DELIVER_MS):
        return int(properties[keys.TIMER_DELIVER_MS])
    return None


def slot_time(deliver_ms: int) -> int:
    """The second under which a message waits: it is emptied when that second is over."""
    whole = deliver_ms - deliver_ms % PRECISION_MS
    return whole - PRECISION_MS if whole == deliver_ms else whole


class TimerMessages:
    writes_topics_only = True  # an acting master does this too

    def __init__(
        self,
        config: BrokerConfig,
        root: Path,
        store: MessageStore,
        topics: Topics,
        path: MessagePath,
        background: Background,
        stats: BrokerStats,
        clock: Clock,
        was_clean: Callable[[], bool],
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.stats = stats
        self.clock = clock
        self.was_clean = was_clean
        self.check_path = root / "config" / "timercheck"
        self.log = TimerLog(root / "timerlog", config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(root / "timerwheel")
        self.counts = TimerCounts(JsonConfigFile(root / "config" / "timermetrics"), topics)
        self.queue_offset = 0  # of the next message to be entered
        self.read_ms = 0  # every slot before this is empty
        self.delivered = 0
        self.skipped = 0
        self._timer: Timer | None = None
        self._is_running = False
        self._has_copied = config.broker_role == SLAVE  # the queue grew without this service having a part in it
        self._delivered_before_ms = 0  # what was due before this, another broker delivered in this one's place ...
        self._delivered_end = 0  # ... if it was in the queue then
        self._is_dirty = False
        self._counter = 0
        self._unsure_until_ms = 0  # what was due by then may have been delivered: the log says it
        self._latest_ms = 0  # the latest time that `read_ms` ever had
        self._deleted: set[str] = set()
        self._left: list[Unit] = []  # of the slot that is being emptied
        self._round_end = 0  # the queue's end when this round of entering began ...
        self._round_ms = 0  # ... and when that was: slots before it may be emptied once the round is over
        path.rewrites.add(self.rewrite, Touches(properties=keys.TIMERS))
        background.every("force timer files", 1.0, self.persist_if_changed)
        background.every("delete old timer log files", 60.0, lambda: self.log.forget_before(store.min_physical_offset))

    # On the way in

    def rewrite(self, record: Record) -> None:
        if b"TIMER_DE" not in record.properties_raw or record.topic in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
            return
        if transaction_type(record.sys_flag) not in (TRANSACTION_NOT, TRANSACTION_COMMIT):
            return
        properties = dict(record.properties)
        if keys.TIMER_OUT_MS in properties:
            return
        now_ms = self.clock.now_ms()
        try:
            deliver_ms = wanted_time(properties, now_ms)
        except ValueError as fault:
            raise PutRefused(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, f"timer message illegal: {fault}") from None
        if deliver_ms is None:
            return
        self._check(deliver_ms, now_ms, is_recall=keys.TIMER_DEL_UNIQKEY in properties)
        if deliver_ms <= now_ms:
            return
        properties[keys.TIMER_OUT_MS] = str(slot_time(deliver_ms))
        properties[keys.REAL_TOPIC] = record.topic
        properties[keys.REAL_QID] = str(record.queue_id)
        record.topic, record.queue_id = TIMER_TOPIC, QUEUE
        set_properties(record, properties)
        if self._is_running:
            self._arm(0)

    def _check(self, deliver_ms: int, now_ms: int, *, is_recall: bool) -> None:
        if not self.config.timer_wheel_enable:
            raise PutRefused(
                PutStatus.WHEEL_TIMER_NOT_ENABLE, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        longest_ms = self.config.timer_max_delay_sec * 1000
        if deliver_ms - now_ms > longest_ms or (is_recall and deliver_ms <= now_ms):
            raise PutRefused(
                PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
                f"timer message illegal, the delay time should not be bigger than the max delay {longest_ms}ms; "
                "or if set del msg, the delay time should be bigger than the current time",
            )
        if deliver_ms > now_ms:
            self._check_room(slot_time(deliver_ms))

    def _check_room(self, slot_ms: int) -> None:
        """More than the limit in one second are refused the more often the more there are; twice the limit, always."""
        limit = self.config.timer_congest_num_each_slot
        if limit == NO_LIMIT or not self.wheel.exists:
            return
        slot = self.wheel.slot(slot_ms)
        beyond = (0 if slot is None else slot.messages) - limit
        if beyond > 0 and (beyond >= limit or random.random() < beyond / limit):
            raise PutRefused(
                PutStatus.WHEEL_TIMER_FLOW_CONTROL,
                f"timer message is under flow control, max num limit is {limit * 2} or the current value is greater "
                f"than {limit} and less than {limit * 2}, trigger random flow control",
            )

    # Life

    def load(self) -> None:
        """Goes on where the files say; what is in the log and not in the wheel is entered when the service starts."""
        self._unsure_until_ms = self.clock.now_ms()
        self.read_ms = self._now()
        check = read_checkpoint(self.check_path)
        if check is None:
            self.log.clear()
            self.wheel.clear()
        else:
            self.read_ms = self._read_before(check)
            self._latest_ms = max(check.read_ms, check.latest_ms)
            self._unsure_until_ms = max(self.clock.now_ms(), self._latest_ms + UNSURE_MS)
            self.queue_offset = check.queue_offset
            self.log.load()
            is_counted = self._load_counts()
            if self.was_clean() and is_counted and self.wheel.exists and self.log.is_end(check.log_position):
                self.log.end = check.log_position
            else:
                self._rebuild()
        lowest, highest = self._bounds()
        self.queue_offset = min(max(self.queue_offset, lowest), highest)
        self._deleted = self._recalled(highest)

    def _load_counts(self) -> bool:
        try:
            self.counts.load()
        except StoreDamaged as damage:
            log.warning("what waits is counted anew: %s", damage)
            return False
        return True

    def _read_before(self, check: Checkpoint) -> int:
        """Where to go on. No slot can have been emptied before its second: if the checkpoint says so, it is damaged or
        the clock was set back, and all that the wheel has is gone through again."""
        oldest_ms = self._now() - OLDEST_READ_MS
        if check.read_ms > self._now():
            ahead_s = (check.read_ms - self._now()) // 1000
            log.warning("%s is %d s ahead of the clock: every slot is looked at again", self.check_path, ahead_s)
            return oldest_ms
        return max(check.read_ms, oldest_ms)

    def _recalled(self, highest: int) -> set[str]:
        """What marks that wait to be entered take back: a message overdue by now must not overtake them."""
        marks: set[str] = set()
        for offset in range(self.queue_offset, highest, ENTRIES_A_TURN):
            for entry in self.store.entries(TIMER_TOPIC, QUEUE, offset, min(ENTRIES_A_TURN, highest - offset)):
                record = self._record(entry.physical_offset)
                if record is not None and keys.TIMER_DEL_UNIQKEY in record.properties:
                    marks.add(record.properties[keys.TIMER_DEL_UNIQKEY])
        return marks

    def _rebuild(self) -> None:
        """After a crash: the wheel anew from the log, whatever of either had reached the disk."""
        self.wheel.clear()
        last: Unit | None = None
        waiting: list[Unit] = []
        for position, unit in self.log.recover():
            last = unit
            if unit.due_ms >= self.read_ms:
                waiting.append(unit)
                slot = self.wheel.slot(unit.due_ms)
                first, messages = (position, 0) if slot is None else (slot.first, slot.messages)
                self.wheel.put(unit.due_ms, Slot(first, position, messages + 1))
        self.counts.recount(waiting, self.clock.now_ms())
        entered = None if last is None else self._queue_offset_of(last)
        if entered is not None:
            self.queue_offset = entered + 1

    def _queue_offset_of(self, unit: Unit) -> int | None:
        try:
            record = self.store.record_at(unit.physical_offset)
        except RecordError:
            return None
        return record.queue_offset if record is not None and record.topic == TIMER_TOPIC else None

    def _bounds(self) -> tuple[int, int]:
        return self.store.min_offset(TIMER_TOPIC, QUEUE), self.store.max_offset(TIMER_TOPIC, QUEUE)

    def resume(self) -> None:
        """Enter and deliver from here on: a master's duty. What is due on a slave, its master delivers, and the copy
        comes with its log."""
        if self._has_copied:
            self._take_over()
        self._is_running = True
        if self.queue_offset < self._bounds()[1] or self.log.end > 0:
            self._arm(0)

    def _take_over(self) -> None:
        """Make the wheel anew from the queue, and go on where the master was. What still waits was stored, or put back,
        within the wheel's window. Of what was due shortly before the master's last word, the log says whether it was
        delivered."""
        self._has_copied = False
        self.counts.forget_waiting()
        now_ms = self.clock.now_ms()
        self.log.clear()
        self.wheel.clear()
        self._left, self._deleted = [], set()
        masters_ms = self.read_ms  # by the master's clock, which may be another
        self._unsure_until_ms = max(now_ms, masters_ms + UNSURE_MS)
        self.read_ms = min(max(masters_ms, self._now() - OLDEST_READ_MS), self._now())
        window_ms = (self.config.timer_roll_window_slot + 1) * PRECISION_MS + UNSURE_MS
        lowest, highest = self._bounds()
        self._delivered_before_ms, self._delivered_end = self.read_ms - UNSURE_MS, highest
        found = self.store.offset_by_time(TIMER_TOPIC, QUEUE, min(now_ms, masters_ms) - window_ms) if highest else 0
        self.queue_offset = min(max(found, lowest), highest)
        self._round_end = 0
        self._deleted = self._recalled(highest)

    async def stop(self) -> None:
        await self.suspend()

    async def suspend(self) -> None:
        self._is_running, self._has_copied = False, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def persist(self) -> None:
        if self.log.end > 0:
            self._force(self._checkpoint())
            self.counts.persist(self.clock.now_ms())
        self.log.close()
        self.wheel.close()

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.read_ms, self.log.end, self.queue_offset, max(self.read_ms, self._latest_ms))

    def _force(self, check: Checkpoint) -> None:
        self.log.force()
        self.wheel.force()
        self._counter += 1
        write_checkpoint(self.check_path, check, self.clock.now_ms(), self._counter)

    async def persist_if_changed(self) -> None:
        """Files first, then how far they have come; and never further than the delivered messages are kept."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        check = self._checkpoint()
        positions = self.store.positions
        if self._left or await positions.wait(self.store.appended, positions.kept):
            self._is_dirty = True
            return
        await asyncio.to_thread(self._force, check)

    # What is told of it

    @handles(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self) -> Answer:
        """For a slave, which delivers when its master is gone."""
        return Answer(body=pack_checkpoint(self._checkpoint(), self.clock.now_ms(), self._counter))

    def take_checkpoint(self, data: bytes) -> None:
        """A slave takes how far its master has delivered."""
        check = unpack_checkpoint(data)
        if check is not None and not self._is_running:
            self.read_ms = check.read_ms
            write_checkpoint(self.check_path, check, self.clock.now_ms(), self._counter)

    def take_metrics(self, data: bytes) -> None:
        """A slave takes how much waits at its master, by topic."""
        if not self._is_running:
            self.counts.take(fastjson.loads(data, type=TimerMetrics))

    def take_back(self, data: bytes) -> None:
        """A master that comes back: a slave that acted has delivered up to there."""
        check = unpack_checkpoint(data)
        if check is not None and check.read_ms > self.read_ms and not self._is_running:
            self._unsure_until_ms = self.clock.now_ms()
            self._delivered_before_ms, self._delivered_end = check.read_ms, self._bounds()[1]

    @property
    def is_used(self) -> bool:
        return self.log.end > 0 or self._bounds()[1] > 0

    @handles(RequestCode.GET_TIMER_METRICS)
    def metrics(self) -> Answer:
        return Answer(body=fastjson.dumps(self.counts.body(self.clock.now_ms())))

    @property
    def not_entered(self) -> int:
        """Messages that wait to be entered into the wheel."""
        return max(0, self._bounds()[1] - self.queue_offset)

    @property
    def behind_ms(self) -> int:
        """How long the slot that is to be emptied next has been over."""
        return max(0, self.clock.now_ms() - self.read_ms) if self.log.end > 0 else 0

    def due_soon(self) -> dict[int, int]:
        return due_soon(self.wheel, self._now())

    # Turning

    def _now(self) -> int:
        now_ms = self.clock.now_ms()
        return now_ms - now_ms % PRECISION_MS

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clock.call_later(delay_s, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._is_running:
            return
        try:
            self._follow_clock()
            wait_s = self._enter()
            if wait_s is None:
                wait_s = self._empty()
        except OSError as problem:
            log.error("timer messages wait, their files cannot be written: %s", problem)
            wait_s = 10.0
        except Exception:
            log.exception("timer messages wait 10 s")
            wait_s = 10.0
        if wait_s is None:
            wait_s = self._until_next_round()
        if wait_s is not None:
            self._arm(wait_s)

    def _follow_clock(self) -> None:
        """A clock that was set back: what is sent now waits under seconds that were emptied once. They are emptied
        again when they are over; the log says what of them was delivered."""
        now_ms = self._now()
        if self.read_ms <= now_ms or self.log.end == 0:
            return
        if self.read_ms > now_ms + PRECISION_MS:
            log.warning("the clock was set back by %d s: timers go by it", (self.read_ms - now_ms) // 1000)
        self._latest_ms = max(self._latest_ms, self.read_ms)
        self._unsure_until_ms = max(self._unsure_until_ms, self.read_ms)
        self.read_ms, self._round_ms, self._left = now_ms, min(self._round_ms, now_ms), []
        self._is_dirty = True

    def _until_next_round(self) -> float | None:
        if self.queue_offset < self._queue_end():
            return 0.0
        if self.log.end == 0:
            return None
        is_late = self.read_ms < self._now()  # a second has ended since the round began
        return 0.0 if is_late else (PRECISION_MS - self.clock.now_ms() % PRECISION_MS) / 1000

    def _queue_end(self) -> int:
        """Under SYNC_FLUSH what is up to there can be read once it is on disk."""
        return self.store.queue(TIMER_TOPIC, QUEUE).next_offset

    def _enter(self) -> float | None:
        """Enters into the wheel what was in the queue when the round began. None when that is done: without an end to
        it, nothing would be delivered while more comes than one pass enters."""
        lowest, highest = self._bounds()
        self.queue_offset = min(max(self.queue_offset, lowest), highest)
        if self.queue_offset >= self._round_end:
            self._round_end, self._round_ms = self._queue_end(), self._now()
        count = min(ENTRIES_A_TURN, self._round_end - self.queue_offset)
        entries = self.store.entries(TIMER_TOPIC, QUEUE, self.queue_offset, count) if count > 0 else []
        for entry in entries:
            record = self._record(entry.physical_offset)
            if record is not None and not self._enter_one(record, entry.size):
                return RETRY_S
            self.queue_offset = entry.queue_offset + 1
            self._is_dirty = True
        if self.queue_offset < self._round_end:
            return 0.0 if entries else RETRY_S
        return None

    def _record(self, physical_offset: int) -> Record | None:
        try:
            record = self.store.record_at(physical_offset)
            if record is None:
                raise Poisoned("it is no longer in the log")
            if not record.properties.get(keys.TIMER_OUT_MS, "").isdecimal():
                raise Poisoned("it does not say when it is due")
        except (RecordError, Poisoned) as fault:
            self.skipped += 1
            log.error("timer message at log offset %d is passed over: %s", physical_offset, fault)
            return None
        return record

    def _enter_one(self, record: Record, size: int) -> bool:
        due_ms, now_ms = int(record.properties[keys.TIMER_OUT_MS]), self._now()
        if due_ms < self._delivered_before_ms and record.queue_offset < self._delivered_end:
            return True
        is_delete = keys.TIMER_DEL_UNIQKEY in record.properties
        if due_ms < self._first_open():
            return is_delete or self._is_deleted(record) or self._deliver(record, entered_ms=DELIVERED_AT_ONCE)
        waits_ms, is_new = due_ms - record.born_timestamp, keys.TIMER_ROLL_TIMES not in record.properties
        magic = NORMAL | (DELETE if is_delete else 0)
        window_ms = self.config.timer_roll_window_slot * PRECISION_MS
        if due_ms - now_ms >= window_ms:
            magic |= ROLL
            is_nearly_there = due_ms - now_ms - window_ms < window_ms // 3
            due_ms = now_ms + (window_ms // 2 if is_nearly_there else window_ms)
        entered_ms = min(now_ms, due_ms)
        if self.log.end == 0:
            self.read_ms = entered_ms
        slot = self.wheel.slot(due_ms)
        topic = record.properties.get(keys.REAL_TOPIC, "")
        previous = NOWHERE if slot is None else slot.last
        position = self.log.append(
            Unit(previous, magic, entered_ms, due_ms - entered_ms, record.physical_offset, size, java_hash(topic))
        )
        self.stats.timer_entered.add(1)
        self.counts.entered_one(topic, waits_ms, self.clock.now_ms(), is_delete=is_delete, is_new=is_new)
        messages = (0 if slot is None else slot.messages) + (-1 if is_delete else 1)
        self.wheel.put(due_ms, Slot(position if slot is None else slot.first, position, messages))
        return True

    def _first_open(self) -> int:
        """The first second that a message can be entered under. It may be over by now, if the broker was busy or away:
        it is emptied when all are entered, so that a recall finds its message, whichever of them was entered late."""
        looked_through_ms = PRECISION_MS if self._left else 0
        return max(self.read_ms + looked_through_ms, self._now() - OLDEST_READ_MS)

    def _empty(self) -> float | None:
        """Empties every slot whose second was over when the round began. None when they are all empty."""
        for _ in range(SLOTS_A_TURN):
            if not self._left:
                if self.read_ms >= self._round_ms or self.log.end == 0:
                    return None
                self._left = self._waiting(self.read_ms)
            for _ in range(ENTRIES_A_TURN):
                if not self._left:
                    break
                if not self._serve(self._left[-1]):
                    return RETRY_S
                self._left.pop()
            if self._left:
                return 0.0
            self.read_ms += PRECISION_MS
            self._is_dirty = True
        return 0.0

    def _waiting(self, time_ms: int) -> list[Unit]:
        """The units of a slot, the oldest last; what they delete is noted apart."""
        self._deleted = set()
        units: list[Unit] = []
        slot = self.wheel.slot(time_ms)
        position = NOWHERE if slot is None else slot.last
        while (unit := self.log.read(position)) is not None and unit.due_ms == time_ms:
            position = unit.previous
            if unit.magic & DELETE and not unit.magic & ROLL:
                record = self._record(unit.physical_offset)
                if record is not None:
                    self._deleted.add(record.properties[keys.TIMER_DEL_UNIQKEY])
            else:
                units.append(unit)
        return units

    def _serve(self, unit: Unit) -> bool:
        record = self._record(unit.physical_offset)
        if record is None:
            return True
        if unit.magic & ROLL:
            return self._put_back(record, unit.due_ms)
        return self._is_deleted(record) or self._deliver(record, entered_ms=unit.written_ms)

    def _is_deleted(self, record: Record) -> bool:
        """A mark names the id, with appendTopicForTimerDeleteKey also the topic: another one may use the same id."""
        unique_id = record.properties.get(keys.UNIQ_KEY, "")
        return f"{record.properties.get(keys.REAL_TOPIC)}+{unique_id}" in self._deleted or unique_id in self._deleted

    def _deliver(self, record: Record, *, entered_ms: int) -> bool:
        """Puts a message to its own topic. False if that has to be tried again."""
        try:
            copy = delivered_copy(record)
            due_ms = int(record.properties[keys.TIMER_OUT_MS])
            if self._may_have_been_served(due_ms) and is_delivered(self.store, record, copy):
                return True
            stamps = {keys.TIMER_ENQUEUE_MS: str(entered_ms), keys.TIMER_DEQUEUE_MS: str(self.clock.now_ms())}
            copy.properties_raw = encode_properties({**record.properties, **stamps})
            put = deliver(self.store, self.topics, self.stats, copy)
        except Poisoned as poisoned:
            self.skipped += 1
            log.error("timer message at log offset %d cannot be delivered: %s", record.physical_offset, poisoned)
            return True
        if put.status in STORED:
            self.delivered += 1
            self.stats.timer_delivered.add(1)
            self.counts.delivered_one(copy.topic, self.clock.now_ms(), has_waited=entered_ms != DELIVERED_AT_ONCE)
        return self._is_stored(put)

    def _may_have_been_served(self, due_ms: int) -> bool:
        return due_ms <= self._unsure_until_ms

    def _put_back(self, record: Record, due_ms: int) -> bool:
        rolls = int(record.properties.get(keys.TIMER_ROLL_TIMES, "0") or 0) + 1
        again = delivered_copy(record)
        again.topic, again.queue_id = TIMER_TOPIC, QUEUE
        if self._may_have_been_served(due_ms) and is_delivered(self.store, record, again):
            return True
        again.properties_raw = encode_properties({**record.properties, keys.TIMER_ROLL_TIMES: str(rolls)})
        is_stored = self._is_stored(self.store.put(again))
        if is_stored:
            self.counts.put_back_one(record.properties.get(keys.REAL_TOPIC, ""), self.clock.now_ms())
        return is_stored

    def _is_stored(self, put: Put) -> bool:
        if put.status in STORED:
            return True
        if put.status is not PutStatus.PUT_TO_REMOTE_BROKER_FAIL:
            log.warning("timer messages wait: %s", put.reason or put.status.name)
        return False
