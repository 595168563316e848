"""Consumer offsets: for each topic, group and queue the next offset to consume (`config/consumerOffset.json`).

Three tables, and only the first reaches the disk: what groups committed; where an administrator wants a group to go
next (`reset`, handed out once, at the group's next pull, and until then stronger than any commit); how far pulls have
come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from arrowmq.broker.data_versions import next_version
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.table_file import TableFile
from arrowmq.clock import Clock
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire.bodies import DataVersion

log = logging.getLogger(__name__)

SEPARATOR = "@"


def offset_key(topic: str, group: str) -> str:
    return f"{topic}{SEPARATOR}{group}"


class ConsumerOffsets:
    def __init__(self, config: BrokerConfig, file: JsonConfigFile, clock: Clock) -> None:
        self.config = config
        self.file = TableFile(file, clock, lambda: msgspec.json.encode(self.as_json()))
        # What others keep in the file beside the offsets, as of the moment of its writing, by name; and what was found
        self.companions: dict[str, Callable[[], Any]] = {}
        self.found: dict[str, Any] | None = None
        self.on_reset: list[Callable[[str, str, int], None]] = []
        self.clock = clock
        self.version = DataVersion(timestamp=clock.now_ms())
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._commits = 0
        self._committed_here: dict[tuple[str, int], int] = {}
        self.sources: list[Callable[[], int]] = []  # each says how often `commits_of` was written since it last did
        self.on_replace: list[
            Callable[[], None]
        ] = []  # tables that `commits_of` and `pulls_of` gave are not in use now

    def load(self) -> None:
        stored = self.found = self.file.file.load()
        if stored is None:
            return
        with self.file.file.naming_damage():
            for key, queues in stored.get("offsetTable", {}).items():
                self._committed[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            if "dataVersion" in stored:
                self.version = msgspec.convert(stored["dataVersion"], DataVersion, strict=False)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset a group goes on from: a pending reset, else what it committed, else None."""
        key = offset_key(topic, group)
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._committed.get(key)
        return None if queues is None else queues.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores an offset, also a smaller one: a group may go back."""
        key = offset_key(topic, group)
        queues = self._committed.get(key)
        if queues is None:
            queues = self._committed[key] = {}
        before = queues.get(queue_id)
        if before is not None and offset < before:
            log.info(
                "offset goes back group=%s topic=%s queue=%d from=%d to=%d", group, topic, queue_id, before, offset
            )
        queues[queue_id] = offset
        self._count(1)

    def commits_of(self, group: str, topic: str) -> dict[int, int]:
        """What a group committed in a topic, by queue, once it has; the table itself, for the fast path to write."""
        return self._committed[offset_key(topic, group)]

    def find_commits_of(self, group: str, topic: str) -> dict[int, int] | None:
        """The same, or None while it has committed nothing there."""
        return self._committed.get(offset_key(topic, group))

    def _count(self, commits: int) -> None:
        self.file.changed(soon=False)
        step = self.config.consumer_offset_update_version_step
        for _ in range((self._commits % step + commits) // step):
            self.version = next_version(self.version, self.clock.now_ms())
        self._commits += commits

    def _take_in(self) -> None:
        for source in self.sources:
            if commits := source():
                self._count(commits)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.pulls_of(group, topic)[queue_id] = offset

    def pulls_of(self, group: str, topic: str) -> dict[int, int]:
        """How far the pulls of a group have come in a topic, by queue; the table itself, for the fast path to write."""
        return self._pulled.setdefault(offset_key(topic, group), {})

    @property
    def resets(self) -> dict[str, dict[int, int]]:
        """The pending resets; while there are any, every pull has to look for its own."""
        return self._resets

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._pulled.get(offset_key(topic, group), {}).get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the offset and tells it to the group's next pull of that queue."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(offset_key(topic, group), {})[queue_id] = offset
        for notify in self.on_reset:
            notify(group, topic, queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get(offset_key(topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of a queue, which is thereby done."""
        if not self._resets:
            return None
        key = offset_key(topic, group)
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """All committed offsets of a group in a topic."""
        return dict(self._committed.get(offset_key(topic, group), {}))

    def topics_of(self, group: str) -> list[str]:
        return [topic for topic, owner in map(_split, self._committed) if owner == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        """All of them in one pass: asked group by group, the table would be read as often as there are groups."""
        found: dict[str, list[str]] = {}
        for topic, group in map(_split, self._committed):
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        return [group for name, group in map(_split, self._committed) if name == topic]

    def groups(self) -> set[str]:
        return {group for _, group in map(_split, self._committed)}

    @property
    def revision(self) -> int:
        """Another number whenever an offset was committed; for a slave, which asks for the table only then."""
        self._take_in()
        return self._commits

    def take(self, table: dict[str, dict[int, int]], version: DataVersion | None) -> list[tuple[str, str, int, int]]:
        """A slave takes its master's offsets over its own. Gives what was committed here and is ahead of them: group,
        topic, queue, offset."""
        ahead = []
        for (key, queue_id), offset in self._committed_here.items():
            theirs = table.get(key, {}).get(queue_id)
            if theirs is None or theirs < offset:
                topic, group = _split(key)
                ahead.append((group, topic, queue_id, offset))
                table.setdefault(key, {})[queue_id] = offset
        self._committed_here = {}
        if any(self._committed.get(key) != queues for key, queues in table.items()):
            self._committed.update(table)
            self._replaced()
        if version is not None:
            self.version = version
        return ahead

    def committed_here(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A slave took this commit: its master has to hear of it."""
        self._committed_here[offset_key(topic, group), queue_id] = offset

    def clone(self, source: str, target: str, topic: str) -> None:
        queues = self._committed.get(offset_key(topic, source))
        if queues is not None:
            self._committed[offset_key(topic, target)] = dict(queues)
            self._replaced()

    def remove_group(self, group: str) -> None:
        self._remove(lambda topic, owner: owner == group)

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda name, owner: name == topic)

    def _remove(self, doomed: Any) -> None:
        for table in (self._committed, self._pulled, self._resets):
            for key in [key for key in table if doomed(*_split(key))]:
                del table[key]
                self._replaced()

    def _replaced(self) -> None:
        self.file.changed(soon=False)
        for notify in self.on_replace:
            notify()

    def as_json(self) -> dict[str, Any]:
        self._take_in()
        by_group: dict[str, list[str]] = {}
        for topic, group in map(_split, self._committed):
            by_group.setdefault(group, []).append(topic)
        return {
            "dataVersion": msgspec.to_builtins(self.version),
            "groupTopicMap": by_group,
            "offsetTable": {key: dict(queues) for key, queues in self._committed.items()},
            **{name: now() for name, now in self.companions.items()},
        }

    def persist(self) -> None:
        self._take_in()
        self.file.save()

    async def persist_if_changed(self) -> None:
        self._take_in()
        await self.file.saved()


def _split(key: str) -> tuple[str, str]:
    """`topic@group` and `topic@group@broadcast`; neither a topic nor a group can hold the separator."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
