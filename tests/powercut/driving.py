"""A store under a seeded driver, and the auditor who holds every acknowledgement against what a power cut left.

The driver appends, flushes, rolls, dispatches, deletes topics and what has expired, writes config and epoch files. A
troubled disk also refuses operations for a while: it is full, has errors, or writes a part of what it should.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from simulated_disk import IO_ERROR, NO_SPACE, PowerCutDisk, UnforcedDisk
from writing import SMALL, abandon, message

from arrowmq.clock import VirtualClock
from arrowmq.replica.controlled.epochs import Epoch, EpochFile
from arrowmq.store import MessageStore, Put, StoreConfig
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.errors import StoreError
from arrowmq.wire.records import Record, decode_records

TOPICS = {"orders": 2, "bills": 1}
TINY = replace(SMALL, mapped_file_size_commit_log=8192, delete_when="99")
FOREVER = 1 << 62
KEPT_FILES = 3  # that retention leaves
NEEDS_SPACE = ("create", "allocate", "fill", "write", "overwrite", "make_folder")
CAN_FAIL = (*NEEDS_SPACE, "map", "force", "force_folder", "replace", "remove")


@dataclass
class Written:
    """What the driver put, queue by queue in order, and how far it was acknowledged as on disk."""

    bodies: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: list[tuple[str, str]] = field(default_factory=list)  # topic and key of acknowledged messages
    unacknowledged_keys: list[tuple[str, str]] = field(default_factory=list)
    settings: int = 0  # the version of a config file that was written last, and whose write has returned
    tried_settings: int = 0  # the highest that a write was begun with
    deleted: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)  # with their topics
    returned: set[str] = field(default_factory=set)  # topics with messages from before they were deleted
    expired: dict[tuple[str, int], int] = field(default_factory=dict)  # retention may have taken what is before this
    epochs: list[Epoch] = field(default_factory=list)  # whose write has returned
    tried_epochs: list[list[Epoch]] = field(default_factory=list)  # whose writes failed since, or are under way

    def put(self, record: Record, key: str) -> None:
        self.bodies.setdefault((record.topic, record.queue_id), []).append(record.body)
        self.unacknowledged_keys.append((record.topic, key))

    def delete(self, topic: str) -> None:
        """What the topic had may be found until the first message after it is acknowledged, and no longer."""
        for queue in [queue for queue in self.bodies if queue[0] == topic]:
            self.deleted.setdefault(queue, []).extend(self.bodies[queue])
            self.bodies[queue] = []
            self.acknowledged.pop(queue, None)
            self.expired.pop(queue, None)
        self.keys = [key for key in self.keys if key[0] != topic]
        self.unacknowledged_keys = [key for key in self.unacknowledged_keys if key[0] != topic]

    def acknowledge(self) -> None:
        self.acknowledged = {queue: len(found) for queue, found in self.bodies.items()}
        self.keys += self.unacknowledged_keys
        self.unacknowledged_keys = []


class Driver:
    """One store on a disk that can lose power, driven step by step by chance. `cuts` counts the audits."""

    def __init__(
        self, folder: Path, seed: int, config: StoreConfig = TINY, *, cut_share: float = 0.04, troubled: bool = False
    ) -> None:
        self.troubled = troubled
        self.trouble_left = 0  # steps until the disk is well again
        self.refused = 0  # puts, flushes and writes
        self.chance = random.Random(seed)
        self.folder = folder
        self.config = config
        self.cut_share = cut_share
        self.written = Written()
        self._begun: list[Record] = []  # being put at this moment: they may be there, or not
        self.number = 0
        self.cuts = 0  # audited
        self.losses = 0  # that the run went on from
        self.clock = VirtualClock(1_760_000_000_000)
        live = folder / "live"
        live.mkdir(parents=True)
        self._start(live)

    def _start(self, root: Path) -> None:
        self.root = root
        self.disk = PowerCutDisk(root)
        self.store = MessageStore(root, self.config, self.clock, self.disk)
        self.store.open()
        self.settings = JsonConfigFile(root / "config" / "topics.json", self.disk)
        self.epochs = EpochFile(root / "epochFileCheckpoint", self.disk)
        self.epochs.load()
        self.disk.before_operation = self._perhaps_cut

    def _perhaps_cut(self, operation: str) -> None:
        if self.chance.random() < self.cut_share:
            self.audit_cut(operation)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            if self.chance.random() < self.cut_share:
                self.audit_cut("between two steps")
        self.disk.before_operation = None
        abandon(self.store)

    def _step(self) -> None:
        kind = self.chance.random()
        self.clock.skip(self.chance.randint(0, 40) / 1000)
        if self.troubled:
            self._change_health()
        if kind < 0.565:
            self._put()
        elif kind < 0.58:
            self._delete_topic()
        elif kind < 0.68:
            self._put_batch()
        elif kind < 0.84:
            self._flush()
        elif kind < 0.89:
            with self._may_fail():
                self.store._flusher.force_queues()
                self.store.checkpoint.save()
        elif kind < 0.92:
            self._save_settings()
        elif kind < 0.94:
            self._begin_epoch()
        elif kind < 0.96:
            self._expire()
        elif kind < 0.99:
            self._power_loss()
        else:
            self._restart()

    def _change_health(self) -> None:
        """Now and then the disk is full, or fails at one thing, for some steps."""
        self.trouble_left -= 1
        if self.trouble_left == 0:
            self._heal()
        elif self.trouble_left < 0 and self.chance.random() < 0.05:
            self.trouble_left = self.chance.randint(1, 8)
            if self.chance.random() < 0.5:
                self.disk.failing = dict.fromkeys(NEEDS_SPACE, NO_SPACE)
            else:
                self.disk.failing = {self.chance.choice(CAN_FAIL): IO_ERROR}
            self.disk.short_writes = self.chance.random() < 0.5

    def _heal(self) -> None:
        self.trouble_left = 0
        self.disk.failing, self.disk.short_writes = {}, False

    def _may_fail(self) -> AbstractContextManager[None]:
        """A troubled disk may say no; a sound one must not."""
        if not self.disk.failing:
            return nullcontext()
        self.refused += 1
        return suppress(StoreError, OSError)

    def _flush(self) -> None:
        with self._may_fail():
            self.store.flush()
            self.written.acknowledge()

    def _record(self) -> tuple[Record, str]:
        self.number += 1
        topic = self.chance.choice(list(TOPICS))
        key = f"k{self.number}"
        body = b"%d:" % self.number + self.chance.randbytes(self.chance.choice((0, 10, 200, 1500)))
        queue_id = self.chance.randrange(TOPICS[topic])
        return message(body, topic, queue_id, keys=key, unique=f"u{self.number}"), key

    def _put(self) -> None:
        record, key = self._record()
        self._begun = [record]
        self._note(self._taken([(record, key)], lambda: self.store.put(record)))

    def _note(self, batch: list[tuple[Record, str]]) -> None:
        self._begun = []
        for record, key in batch:
            self.written.put(record, key)

    def _put_batch(self) -> None:
        first, key = self._record()
        batch = [(first, key)]
        for _ in range(self.chance.randint(0, 4)):
            record, key = self._record()
            record.topic, record.queue_id = first.topic, first.queue_id
            batch.append((record, key))
        self._begun = [record for record, _ in batch]
        self._note(self._taken(batch, lambda: self.store.put_batch(self._begun)))

    def _taken(self, batch: list[tuple[Record, str]], put: Callable[[], Put]) -> list[tuple[Record, str]]:
        """What the store took: all, or where it says no nothing. A disk that fails in the middle of an append leaves
        the sender in doubt, and what is in the queue then was taken."""
        queue = batch[0][0].topic, batch[0][0].queue_id
        with self._may_fail():
            outcome = put()
            assert outcome.is_ok or self.disk.failing, outcome
            return batch if outcome.is_ok else []
        failing, self.disk.failing = self.disk.failing, {}  # to look, a file may have to be mapped
        taken = self.store.max_offset(*queue) - len(self.written.bodies.get(queue, []))
        self.disk.failing = failing
        assert taken in (0, len(batch)), f"{taken} of a batch of {len(batch)} are there"
        return batch[:taken]

    def _delete_topic(self) -> None:
        """It is made anew by the next message."""
        if not self.disk.failing:
            topic = self.chance.choice(list(TOPICS))
            self.written.delete(topic)
            self.store.delete_topic(topic)

    def _save_settings(self) -> None:
        self.written.tried_settings += 1
        with self._may_fail():
            self.settings.persist({"version": self.written.tried_settings})
            self.written.settings = self.written.tried_settings

    def _begin_epoch(self) -> None:
        """As an elected master does: the epoch file first, then messages of that epoch."""
        number, start = self.epochs.last_number + 1, int(self.store.appended)
        kept = [epoch for epoch in self.written.epochs if epoch.start < start]
        wanted = [*kept, Epoch(number, start)]
        self.written.tried_epochs.append(wanted)
        with self._may_fail():
            self.epochs.append(number, start)
            self.written.epochs, self.written.tried_epochs = wanted, []

    def _expire(self) -> None:
        """Retention takes the oldest files; what they held need not be found any more."""
        segments = self.store.commit_log.segments
        if len(segments) <= KEPT_FILES or self.disk.failing:
            return
        first_kept = segments[-KEPT_FILES].start
        for queue in self.written.bodies:
            found = self.store.consume_queues.get(*queue).first_offset_from(first_kept)
            self.written.expired[queue] = max(self.written.expired.get(queue, 0), found)
        self.store.config = replace(
            self.config, commit_log_max_bytes=KEPT_FILES * self.config.mapped_file_size_commit_log
        )
        self.written.keys, self.written.unacknowledged_keys = [], []  # their messages may go, and index files with them
        try:
            self.store.retention.run_once()
        finally:
            self.store.config = self.config

    def _restart(self) -> None:
        """A clean stop and start: everything is on disk."""
        self._heal()
        self.store.flush()
        self.store.close()
        self.written.acknowledge()
        self._start(self.root)
        self._take_stock()
        self.written.acknowledge()

    def _power_loss(self) -> None:
        """The machine goes down, and the broker goes on with what is found afterwards."""
        self.losses += 1
        self._heal()
        left = self.folder / f"after-{self.losses}"
        self.disk.before_operation = None
        self.disk.cut(left, self.chance)
        abandon(self.store)
        shutil.rmtree(self.root)
        self._start(left)
        self._take_stock()
        self.store.flush()
        self.written.acknowledge()

    def _take_stock(self) -> None:
        """Go on with what was found. No table of topics lies beside this store that would say which were deleted: one
        without messages since may have those of before again, and is deleted again."""
        self.written = self._audited(self.store, self.root)
        for topic in self.written.returned:
            self.written.delete(topic)
            self.store.delete_topic(topic)

    def audit_cut(self, moment: str) -> None:
        """What would be found if power were lost now? The run goes on."""
        self.cuts += 1
        left = self.folder / "cut"
        self.disk.cut(left, self.chance)
        store = MessageStore(left, self.config, self.clock, UnforcedDisk())
        try:
            assert not store.open().holes, "what was forced is whole"
            self._audited(store, left)
            record, _ = message(b"and on it goes", "orders", 0), ""
            assert store.put(record).is_ok
        except BaseException as failure:
            failure.add_note(f"power lost at: {moment}, after {self.number} messages, cut {self.cuts}")
            raise
        finally:
            if store._is_open:
                store.close()
            shutil.rmtree(left)

    def _audited(self, store: MessageStore, root: Path) -> Written:
        """Nothing acknowledged is missing or altered, nothing is there that was not written; and what there is."""
        found = Written(deleted={queue: list(bodies) for queue, bodies in self.written.deleted.items()})
        queues = [*self.written.bodies, *((record.topic, record.queue_id) for record in self._begun)]
        for queue in dict.fromkeys(queues):
            bodies = self.written.bodies.get(queue, [])
            bodies = bodies + [record.body for record in self._begun if queue == (record.topic, record.queue_id)]
            first, read = store.min_offset(*queue), read_queue(store, *queue)
            kept = self.written.acknowledged.get(queue, 0)
            if kept == 0 and (read or first) and is_part(read, self.written.deleted.get(queue, [])):
                found.returned.add(queue[0])
                found.bodies[queue] = []
                continue
            assert first <= self.written.expired.get(queue, 0), f"{queue} begins at {first}: retention took too much"
            end = first + len(read)
            assert kept <= end, f"{queue}: {kept} messages were acknowledged, the queue ends at {end}"
            assert bodies[first:end] == read, f"{queue}: not what was written"
            found.bodies[queue] = bodies[:first] + read
            found.expired[queue] = self.written.expired.get(queue, 0)
        for topic, key in self.written.keys[-20:]:
            assert store.query(topic, key, 4, 0, FOREVER), f"the index does not know {key}"
        content = JsonConfigFile(root / "config" / "topics.json").load()
        version = 0 if content is None else content["version"]
        assert self.written.settings <= version <= self.written.tried_settings
        found.settings = found.tried_settings = version
        epochs = EpochFile(root / "epochFileCheckpoint", UnforcedDisk())
        epochs.load()
        assert epochs.epochs in (self.written.epochs, *self.written.tried_epochs), "epochs are not those that were kept"
        found.epochs = epochs.epochs
        found.keys = list(self.written.keys)
        return found


def is_part(some: list[bytes], of: list[bytes]) -> bool:
    """In the same order, though with gaps."""
    rest = iter(of)
    return all(any(each == other for other in rest) for each in some)


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset, 32)
        found += [record.body for record in decode_records(got.body(), check_crc=True)]
        assert got.next_offset > offset, got
        offset = got.next_offset
    return found
