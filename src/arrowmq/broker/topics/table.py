"""The topic table: which topics this broker has, how many queues each, and who may do what with them.

Kept in `config/topics.json`. A change made by an administrator is on disk before it is answered (`saved`). A topic that
came into being by its first message is written a moment later, together with others (five thousand such topics would
otherwise mean five thousand rewrites of the file); should the broker die in between, `adopt` finds its queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from arrowmq import refusals
from arrowmq.broker import names
from arrowmq.broker.data_versions import next_version
from arrowmq.broker.settings.config import INHERIT, BrokerConfig
from arrowmq.broker.table_file import TableFile
from arrowmq.clock import Clock
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire.bodies import DataVersion, TopicConfig

log = logging.getLogger(__name__)

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2
MESSAGE_TYPE = "message.type"

# Attribute -> (may be changed after creation, values allowed)
ATTRIBUTES: dict[str, tuple[bool, tuple[str, ...] | None]] = {
    "queue.type": (False, ("SimpleCQ",)),  # BatchCQ needs queue files of another form, which this store does not keep
    "cleanup.policy": (False, ("DELETE", "COMPACTION")),
    MESSAGE_TYPE: (True, ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY")),
    "reserve.time": (True, None),
}


class WrongAttribute(ValueError):
    """A topic attribute that cannot be set as asked; the text says which and why."""


class Topics:
    def __init__(self, config: BrokerConfig, file: JsonConfigFile, clock: Clock) -> None:
        self.config = config
        self.file = TableFile(file, clock, self.encode)
        self.clock = clock
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self.on_change: list[Callable[[list[TopicConfig]], None]] = []
        self._unsaved: dict[str, int] = {}  # made by use, and by which change of the table

    def load(self) -> None:
        """Built-in topics, then what the file says over them."""
        for topic, (queues, perm) in names.built_in_topics(self.config).items():
            self.table[topic] = _topic(topic, queues, perm)
        stored = self.file.file.load()
        if stored is None:
            return
        with self.file.file.naming_damage():
            for topic, entry in stored.get("topicConfigTable", {}).items():
                self.table[topic] = found = msgspec.convert({**entry, "topicName": topic}, TopicConfig, strict=False)
                for key, value in (found.attributes or {}).items():
                    if (why := refusals.reason(refusals.TOPIC_ATTRIBUTES, key, value)) is not None:
                        log.warning(
                            "topic[%s] of another broker's making has an attribute without effect: %s", topic, why
                        )
            if "dataVersion" in stored:
                self.version = msgspec.convert(stored["dataVersion"], DataVersion, strict=False)
        default = self.table.get(names.AUTO_CREATE_TOPIC)
        if default is not None and not self.config.auto_create_topic_enable:
            default.perm = 6

    def adopt(self, queues: Mapping[str, list[int]]) -> list[str]:
        """Takes over topics that the store has queues of and the table does not know; gives their names."""
        adopted = []
        for topic, queue_ids in queues.items():
            if topic in self.table or not queue_ids or names.topic_fault(_without_plus(topic)) is not None:
                continue
            self.table[topic] = _topic(topic, max(queue_ids) + 1, 6)
            adopted.append(topic)
        if adopted:
            log.warning(
                "topics.json does not know %d topics that have messages; taken over: %s", len(adopted), adopted[:10]
            )
            self.version = next_version(self.version, self.clock.now_ms())
            self.file.changed(soon=False)
        return adopted

    def get(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def create_by_message(
        self, topic: str, default_topic: str, default_queues: int, *, unit: bool = False
    ) -> TopicConfig | str:
        """The topic made after the template that the sender named, or why there is none."""
        template = self.table.get(default_topic)
        if template is None:
            if default_topic == names.AUTO_CREATE_TOPIC and not self.config.auto_create_topic_enable:
                return "autoCreateTopicEnable is false on this broker"
            return f"the template topic[{default_topic}] named by the sender does not exist"
        if not template.perm & INHERIT:
            if default_topic == names.AUTO_CREATE_TOPIC:
                return "autoCreateTopicEnable is false on this broker"
            return f"the template topic[{default_topic}] named by the sender may not be inherited from"
        queues = max(0, min(default_queues, template.write_queue_nums))
        created = _topic(topic, queues, template.perm & ~INHERIT)
        created.topic_filter_type = template.topic_filter_type
        created.topic_sys_flag = UNIT_FLAG if unit else 0
        self._add(created)
        return created

    def create_internal(
        self, topic: str, queues: int, *, perm: int = 6, unit: bool = False, order: bool = False
    ) -> TopicConfig:
        """A topic that the broker itself needs (retry, dead letters), made if it is not there."""
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        created = _topic(topic, queues, perm)
        created.topic_sys_flag = UNIT_SUBSCRIPTION_FLAG if unit else 0
        created.order = order
        self._add(created)
        return created

    def update(self, wanted: TopicConfig, attribute_changes: Mapping[str, str]) -> bool:
        """Creates or replaces by an administrator's word. True if it changed; `saved` tells when it is on disk."""
        existing = self.table.get(wanted.topic_name)
        current = dict(existing.attributes or {}) if existing is not None else {}
        wanted.attributes = altered_attributes(current, attribute_changes, is_new=existing is None)
        if existing == wanted:
            return False
        self.table[wanted.topic_name] = wanted
        self._changed([wanted])
        return True

    def delete(self, topic: str) -> bool:
        if self.table.pop(topic, None) is None:
            return False
        self._changed([])
        return True

    def take(self, table: dict[str, TopicConfig], version: DataVersion | None) -> list[str]:
        """A slave takes its master's table as it is; gives the names that are not in it any more."""
        changed = [topic for name, topic in table.items() if self.table.get(name) != topic]
        gone = [name for name in self.table if name not in table]
        self.table = dict(table)
        if version is not None:
            self.version = version
        if changed or gone:
            self.file.changed()
            for listener in self.on_change:
                listener([] if gone else changed)
        return gone

    def set_order(self, order_topics: set[str]) -> None:
        """Follows the NameServers' list of ordered topics. Those in it are ordered; a topic that is not in it may have
        been made an ordered one by an administrator, so it keeps its flag, as with Apache's broker."""
        changed = [topic for topic in self.table.values() if topic.topic_name in order_topics and not topic.order]
        for topic in changed:
            topic.order = True
        if changed:
            self.version = next_version(self.version, self.clock.now_ms())
            self.file.changed()

    def _add(self, created: TopicConfig) -> None:
        log.info(
            "topic created topic=%s writeQueues=%d reason=it was used", created.topic_name, created.write_queue_nums
        )
        self.table[created.topic_name] = created
        self._changed([created])
        self._unsaved[created.topic_name] = self.file.state

    def widened(self, topic: TopicConfig) -> None:
        """The broker gave a topic of its own more queues."""
        self._changed([topic])

    def is_unsaved(self, topic: str) -> bool:
        """Whether it was made by use and is perhaps not on disk yet."""
        state = self._unsaved.get(topic)
        if state is None:
            return False
        if self.file.has_written(state):
            del self._unsaved[topic]
            return False
        return True

    def _changed(self, changed: list[TopicConfig]) -> None:
        self.version = next_version(self.version, self.clock.now_ms())
        self.file.changed()
        for listener in self.on_change:
            listener(changed)

    def encode(self) -> bytes:
        return msgspec.json.encode({"dataVersion": self.version, "topicConfigTable": self.table})

    async def saved(self) -> None:
        """Returns when all changes up to now are on disk."""
        await self.file.saved()

    def persist(self) -> None:
        self.file.save()


def altered_attributes(current: dict[str, str], changes: Mapping[str, str], *, is_new: bool) -> dict[str, str]:
    """Attributes after a change list: keys begin with `+` (set) or `-` (remove)."""
    result = dict(current)
    for signed_key, value in changes.items():
        sign, key = signed_key[:1], signed_key[1:]
        if sign not in "+-" or not key:
            raise WrongAttribute(f"kv string format wrong: {signed_key!r} must begin with + (set) or - (remove)")
        if key not in ATTRIBUTES:
            raise WrongAttribute(f"unsupported key: {key}, known are {', '.join(sorted(ATTRIBUTES))}")
        changeable, allowed = ATTRIBUTES[key]
        if sign == "-":
            if is_new:
                raise WrongAttribute(f"only add attribute is supported while creating topic. key: {key}")
            if not changeable:
                raise WrongAttribute(f"attempt to update an unchangeable attribute. key: {key}")
            if key not in result:
                raise WrongAttribute(f"attempt to delete a nonexistent key: {key}")
            del result[key]
            continue
        if not is_new and not changeable and result.get(key) != value:
            raise WrongAttribute(f"attempt to update an unchangeable attribute. key: {key}")
        if allowed is not None and value not in allowed:
            raise WrongAttribute(f"value is not in set: {value!r} for {key}, allowed are {', '.join(allowed)}")
        if allowed is None and not value.lstrip("-").isdigit():
            raise WrongAttribute(f"value is not a whole number: {value!r} for {key}")
        result[key] = value
    return result


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """`+k=v,-k` -> {"+k": "v", "-k": ""}."""
    changes: dict[str, str] = {}
    for item in (text or "").split(","):
        if not item.strip():
            continue
        key, _, value = item.strip().partition("=")
        if key in changes:
            raise WrongAttribute(f"key duplication: {key}")
        changes[key.strip()] = value.strip()
    return changes


def _without_plus(topic: str) -> str:
    """A retry topic of pop may be `%RETRY%group+topic`, with a sign that no client can use."""
    return topic.replace("+", "_", 1) if topic.startswith(names.RETRY_PREFIX) else topic


def _topic(name: str, queues: int, perm: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
