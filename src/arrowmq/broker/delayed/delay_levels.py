"""Delay levels: a message with DELAY=n waits in queue n-1 of SCHEDULE_TOPIC_XXXX and is put to its own topic when due.

All messages of a level wait equally long, so the queue of a level is in the order of due times, and one timer a level
is enough: for its oldest message. A million waiting messages are records and queue entries on disk and nothing else.
What is remembered is one offset a level (`config/delayOffset.json`); after a crash delivery goes on from the last one
written, and messages that were delivered after that are recognised in the log and not delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from arrowmq.broker.background import Background
from arrowmq.broker.data_versions import next_version
from arrowmq.broker.delayed.delivery import STORED, Poisoned, deliver, delivered_copy, is_delivered
from arrowmq.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused, set_properties
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock, Timer
from arrowmq.remoting.handlers import Answer, handles
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.config import parse_delay_levels
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.results import Entry
from arrowmq.touches import Touches
from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import DataVersion
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.records import Record, RecordError
from arrowmq.wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type

log = logging.getLogger(__name__)

# A put that failed for a passing reason is tried again after this, as often as it takes.
RETRY_S = 0.1
# Timers are looked after at least so often, because the clock of the machine may be set while they run.
LONGEST_WAIT_S = 30.0
# After so many deliveries in a row the loop gets a turn.
DELIVERIES_A_TURN = 64
FIRST_PERSIST_S = 10.0


class Level:
    __slots__ = ("delay_ms", "delivering", "is_unsure", "number", "offset", "timer")

    def __init__(self, number: int, delay_ms: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.offset = 0
        self.timer: Timer | None = None
        self.delivering = False
        # What the process before delivered since it last wrote down its offset is in the log. It went on in order: the
        # first that was not delivered is followed by others.
        self.is_unsure = True

    @property
    def queue_id(self) -> int:
        return self.number - 1


class DelayLevels:
    writes_topics_only = True  # an acting master does this too

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        path: MessagePath,
        file: JsonConfigFile,
        background: Background,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self.store = store
        self.topics = topics
        self.file = file
        self.background = background
        self.stats = stats
        self.clock = clock
        self.persist_interval_s = config.flush_delay_offset_interval / 1000
        delays = parse_delay_levels(config.message_delay_level)
        self.levels = [Level(number, delay_ms) for number, delay_ms in enumerate(delays, 1)]
        self.version = DataVersion(timestamp=clock.now_ms())
        self.delivered = 0
        self.skipped = 0
        self._is_dirty = False
        self._kept: dict[int, int] = {}  # see `kept_offsets`
        self._is_running = False
        self._warming: set[asyncio.Future[None]] = set()
        path.rewrites.add(self.rewrite, Touches(properties=(keys.DELAY,)))

    # On the way in

    def rewrite(self, record: Record) -> None:
        """Sends a message with a delay level to wait; a half message only once it is committed."""
        if b"DELAY\x01" not in record.properties_raw or record.topic in (HALF_TOPIC, SCHEDULE_TOPIC):
            return
        if transaction_type(record.sys_flag) not in (TRANSACTION_NOT, TRANSACTION_COMMIT):
            return
        properties = dict(record.properties)
        wanted = properties.get(keys.DELAY, "0")
        try:
            number = int(wanted)
        except ValueError:
            raise PutRefused(
                PutStatus.MESSAGE_ILLEGAL,
                f"DELAY={wanted} is no delay level: give a number from 1 to {len(self.levels)}",
            ) from None
        if number <= 0:
            return
        level = self.levels[min(number, len(self.levels)) - 1]
        for name in (keys.TIMER_DELIVER_MS, keys.TIMER_DELAY_SEC, keys.TIMER_DELAY_MS):
            properties.pop(name, None)
        properties[keys.DELAY] = str(level.number)
        properties[keys.REAL_TOPIC] = record.topic
        properties[keys.REAL_QID] = str(record.queue_id)
        record.topic = SCHEDULE_TOPIC
        record.queue_id = level.queue_id
        set_properties(record, properties)
        if self._is_running and level.timer is None and not level.delivering:
            self._arm(level, level.delay_ms / 1000)

    # Delivery

    def load(self) -> None:
        """Where each level goes on from."""
        stored = self.file.load() or {}
        with self.file.naming_damage():
            offsets = {int(number): int(offset) for number, offset in stored.get("offsetTable", {}).items()}
            if "dataVersion" in stored:
                self.version = msgspec.convert(stored["dataVersion"], DataVersion, strict=False)
        for level in self.levels:
            lowest, highest = self._bounds(level)
            level.offset = min(max(offsets.get(level.number, 0), lowest), highest)
            level.is_unsure = True
        self._kept = self.as_json()["offsetTable"]

    def start(self) -> None:
        self.background.every(
            "persist delay offsets", self.persist_interval_s, self.persist_if_changed, first_s=FIRST_PERSIST_S
        )

    def resume(self) -> None:
        """Deliver from here on: a master's duty. What is due on a slave, its master delivers, and the copy comes with
        its log; where that had come to is in the file, which a slave gets from its master."""
        self.load()
        self._is_running = True
        for level in self.levels:
            if level.offset < self._bounds(level)[1]:
                self._arm(level, 0)

    async def stop(self) -> None:
        await self.suspend()

    async def suspend(self) -> None:
        self._is_running = False
        for level in self.levels:
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None
        for task in list(self._warming):
            task.cancel()
        await asyncio.gather(*self._warming, return_exceptions=True)

    def pending(self, number: int) -> int:
        """How many messages wait on a level."""
        level = self.levels[number - 1]
        return max(0, self._bounds(level)[1] - level.offset)

    def _bounds(self, level: Level) -> tuple[int, int]:
        return (
            self.store.min_offset(SCHEDULE_TOPIC, level.queue_id),
            self.store.max_offset(SCHEDULE_TOPIC, level.queue_id),
        )

    def _arm(self, level: Level, delay_s: float) -> None:
        if level.timer is not None:
            level.timer.cancel()
        level.timer = self.clock.call_later(min(delay_s, LONGEST_WAIT_S), lambda: self._due(level))

    def _due(self, level: Level) -> None:
        level.timer = None
        if not self._is_running:
            return
        level.delivering = True
        try:
            wait_s = self._deliver_due(level)
        except Exception:
            log.exception(
                "delay level %d: delivery failed at offset %d; it goes on in 10 s", level.number, level.offset
            )
            wait_s = 10.0
        finally:
            level.delivering = False
        if wait_s is not None:
            self._arm(level, wait_s)

    def _deliver_due(self, level: Level) -> float | None:
        """Delivers what is due. How long to wait for the next, or None if nothing waits on this level."""
        lowest, highest = self._bounds(level)
        if not lowest <= level.offset <= highest:
            log.warning("delay level %d: offset %d is outside of its queue", level.number, level.offset)
            level.offset = min(max(level.offset, lowest), highest)
        entries = self.store.entries(SCHEDULE_TOPIC, level.queue_id, level.offset, DELIVERIES_A_TURN)
        for entry in entries:
            now_ms = self.clock.now_ms()
            # Due later than any message of this level can be: the clock was set back since. It has waited long enough.
            is_due = entry.tags_code <= now_ms or entry.tags_code > now_ms + level.delay_ms
            if not is_due:
                return max(0.001, (entry.tags_code - now_ms) / 1000)
            if self.store.is_cold(entry.physical_offset, entry.size):
                self._warm(level, len(entries))
                return None
            if not self._deliver(level, entry):
                return RETRY_S
            level.offset = entry.queue_offset + 1
            self._is_dirty = True
        if entries:
            return 0.0
        # Under SYNC_FLUSH a message is in its queue once it is on disk; until then the queue is not seen to be longer.
        return None if level.offset >= self.store.queue(SCHEDULE_TOPIC, level.queue_id).next_offset else RETRY_S

    def _warm(self, level: Level, count: int) -> None:
        """Has the records read from disk by the cold-read thread, and goes on when they are in memory."""

        async def read() -> None:
            got = await self.store.get_cold(SCHEDULE_TOPIC, level.queue_id, level.offset, count)
            got.release()

        def go_on(task: asyncio.Future[None]) -> None:
            self._warming.discard(task)
            if self._is_running and not task.cancelled():
                self._arm(level, 0 if task.exception() is None else RETRY_S)

        task = asyncio.ensure_future(read())
        self._warming.add(task)
        task.add_done_callback(go_on)

    def _deliver(self, level: Level, entry: Entry) -> bool:
        """Puts one message to its own topic. False if that has to be tried again."""
        try:
            copy = self._copy(level, entry)
            if copy is None:
                return True
            put = deliver(self.store, self.topics, self.stats, copy)
        except Poisoned as poisoned:
            self.skipped += 1
            log.error(
                "delay level %d: the message at offset %d (log offset %d) cannot be delivered and is left behind: %s",
                level.number,
                entry.queue_offset,
                entry.physical_offset,
                poisoned,
            )
            return True
        if put.status in STORED:
            self.delivered += 1
            level.is_unsure = level.is_unsure and keys.UNIQ_KEY not in copy.properties
            return True
        if put.status is not PutStatus.PUT_TO_REMOTE_BROKER_FAIL:
            log.warning("delay level %d: delivery waits, %s", level.number, put.reason or put.status.name)
        return False

    def _copy(self, level: Level, entry: Entry) -> Record | None:
        """The message as its topic gets it, or None if it is there already."""
        try:
            waiting = self.store.record_at(entry.physical_offset)
        except RecordError as damage:
            raise Poisoned(f"its record is damaged: {damage}") from damage
        if waiting is None:
            raise Poisoned("its record is no longer in the log")
        copy = delivered_copy(waiting)
        return None if level.is_unsure and is_delivered(self.store, waiting, copy) else copy

    # The file

    @handles(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_offsets(self) -> Answer:
        """For a slave, which delivers when its master is gone. It hears of no delivery whose message it may not have
        when it is master; that a message was delivered already, it finds in its log."""
        return Answer(body=fastjson.dumps(self._kept_json()))

    def kept_offsets(self) -> dict[int, int]:
        """Offsets by level, as of the last moment when all that was delivered was confirmed."""
        if self.store.positions.confirmed >= self.store.appended:
            self._kept = self.as_json()["offsetTable"]
        return self._kept

    def _kept_json(self) -> dict[str, Any]:
        return {**self.as_json(), "offsetTable": self.kept_offsets()}

    def take(self, offsets: dict[int, int], version: DataVersion | None) -> None:
        """A slave takes how far its master has delivered, for the time when it has to go on from there."""
        if self._is_running:
            return
        for level in self.levels:
            level.offset = offsets.get(level.number, 0)
        if version is not None:
            self.version = version
        self.file.persist({"dataVersion": msgspec.to_builtins(self.version), "offsetTable": offsets})

    def as_json(self) -> dict[str, Any]:
        offsets = {level.number: level.offset for level in self.levels if level.offset or self._bounds(level)[1]}
        return {"dataVersion": msgspec.to_builtins(self.version), "offsetTable": offsets}

    def persist(self) -> None:
        self.version = next_version(self.version, self.clock.now_ms())
        self.file.persist(self._kept_json())

    async def persist_if_changed(self) -> None:
        """Writes the file, but never an offset whose delivered messages a power cut, or the next master, could still
        take away."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        snapshot = self.as_json()
        positions = self.store.positions
        if await positions.wait(self.store.appended, positions.kept):
            self._is_dirty = True
            return
        self._kept = snapshot["offsetTable"]
        self.version = next_version(self.version, self.clock.now_ms())
        try:
            write = self.file.writing({**snapshot, "dataVersion": msgspec.to_builtins(self.version)})
            await asyncio.to_thread(write)
        except BaseException:
            self._is_dirty = True
            raise
