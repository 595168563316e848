"""A store under a seeded driver, and the auditor who holds every acknowledgement against what a power cut left."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from simulated_disk import PowerCutDisk, UnforcedDisk
from writing import SMALL, abandon, message

from arrowmq.clock import VirtualClock
from arrowmq.store import MessageStore, StoreConfig
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire.records import Record, decode_records

TOPICS = {"orders": 2, "bills": 1}
TINY = replace(SMALL, mapped_file_size_commit_log=8192)
FOREVER = 1 << 62


@dataclass
class Written:
    """What the driver put, queue by queue in order, and how far it was acknowledged as on disk."""

    bodies: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: list[tuple[str, str]] = field(default_factory=list)  # topic and key of acknowledged messages
    unacknowledged_keys: list[tuple[str, str]] = field(default_factory=list)
    settings: int = 0  # the version of a config file that was written last, and whose write has returned

    def put(self, record: Record, key: str) -> None:
        self.bodies.setdefault((record.topic, record.queue_id), []).append(record.body)
        self.unacknowledged_keys.append((record.topic, key))

    def acknowledge(self) -> None:
        self.acknowledged = {queue: len(found) for queue, found in self.bodies.items()}
        self.keys += self.unacknowledged_keys
        self.unacknowledged_keys = []


class Driver:
    """One store on a disk that can lose power, driven step by step by chance. `cuts` counts the audits."""

    def __init__(self, folder: Path, seed: int, config: StoreConfig = TINY, *, cut_share: float = 0.04) -> None:
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
        if kind < 0.62:
            self._put()
        elif kind < 0.72:
            self._put_batch()
        elif kind < 0.88:
            self.store.flush()
            self.written.acknowledge()
        elif kind < 0.93:
            self.store._flusher.force_queues()
            self.store.checkpoint.save()
        elif kind < 0.96:
            self._save_settings()
        elif kind < 0.99:
            self._power_loss()
        else:
            self._restart()

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
        put = self.store.put(record)
        assert put.is_ok, put
        self._note([(record, key)])

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
        put = self.store.put_batch(self._begun)
        assert put.is_ok, put
        self._note(batch)

    def _save_settings(self) -> None:
        self.settings.persist({"version": self.written.settings + 1})
        self.written.settings += 1

    def _restart(self) -> None:
        """A clean stop and start: everything is on disk."""
        self.store.close()
        self.written.acknowledge()
        self._start(self.root)

    def _power_loss(self) -> None:
        """The machine goes down, and the broker goes on with what is found afterwards."""
        self.losses += 1
        left = self.folder / f"after-{self.losses}"
        self.disk.before_operation = None
        self.disk.cut(left, self.chance)
        abandon(self.store)
        shutil.rmtree(self.root)
        self._start(left)
        self.written = self._audited(self.store, left)
        self.store.flush()
        self.written.acknowledge()

    def audit_cut(self, moment: str) -> None:
        """What would be found if power were lost now? The run goes on."""
        self.cuts += 1
        left = self.folder / "cut"
        self.disk.cut(left, self.chance)
        store = MessageStore(left, self.config, self.clock, UnforcedDisk())
        try:
            store.open()
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
        found = Written()
        queues = [*self.written.bodies, *((record.topic, record.queue_id) for record in self._begun)]
        for queue in dict.fromkeys(queues):
            bodies = self.written.bodies.get(queue, [])
            bodies = bodies + [record.body for record in self._begun if queue == (record.topic, record.queue_id)]
            read = read_queue(store, *queue)
            kept = self.written.acknowledged.get(queue, 0)
            assert kept <= len(read), f"{queue}: {kept} messages were acknowledged, {len(read)} are there"
            assert bodies[: len(read)] == read, f"{queue}: not what was written"
            found.bodies[queue] = read
        for topic, key in self.written.keys[-20:]:
            assert store.query(topic, key, 4, 0, FOREVER), f"the index does not know {key}"
        content = JsonConfigFile(root / "config" / "topics.json").load()
        version = 0 if content is None else content["version"]
        assert self.written.settings <= version <= self.written.settings + 1
        found.settings = version
        found.keys = list(self.written.keys)
        return found


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset, 32)
        found += [record.body for record in decode_records(got.body(), check_crc=True)]
        assert got.next_offset > offset, got
        offset = got.next_offset
    return found
