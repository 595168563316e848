"""Subscription groups: who may read here, and how retries go. Kept in `config/subscriptionGroup.json`."""

from __future__ import annotations

import logging

import msgspec

from arrowmq.broker import names
from arrowmq.broker.data_versions import next_version
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.table_file import TableFile
from arrowmq.clock import Clock
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.wire.bodies import DataVersion, SubscriptionGroupConfig

log = logging.getLogger(__name__)

FORBID_READ = 1 << 2
PRIORITY_FACTOR = "priority.factor"
ALWAYS = 100


def is_priority_factor(text: str) -> bool:
    return text.isdecimal() and int(text) <= ALWAYS


def priority_factor(group: SubscriptionGroupConfig) -> int:
    """In how many of a hundred pops higher priorities come first."""
    text = (group.attributes or {}).get(PRIORITY_FACTOR, "")
    return int(text) if is_priority_factor(text) else ALWAYS


class SubscriptionGroups:
    def __init__(self, config: BrokerConfig, file: JsonConfigFile, clock: Clock) -> None:
        self.config = config
        self.file = TableFile(file, clock, self.encode)
        self.clock = clock
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        for group in names.BUILT_IN_GROUPS:
            self.table[group] = SubscriptionGroupConfig(group_name=group)
        stored = self.file.file.load()
        if stored is None:
            return
        with self.file.file.naming_damage():
            for group, entry in stored.get("subscriptionGroupTable", {}).items():
                self.table[group] = msgspec.convert(
                    {**entry, "groupName": group}, SubscriptionGroupConfig, strict=False
                )
            for group, topics in stored.get("forbiddenTable", {}).items():
                self.forbidden[group] = {topic: int(mask) for topic, mask in topics.items()}
            if "dataVersion" in stored:
                self.version = msgspec.convert(stored["dataVersion"], DataVersion, strict=False)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings without creating it."""
        return self.table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings; a group that does not exist comes into being here if the broker allows that."""
        found = self.table.get(group)
        if found is not None or self.why_not_created(group) is not None:
            return found
        created = SubscriptionGroupConfig(group_name=group)
        self.table[group] = created
        log.info("group created group=%s reason=a consumer came with it", group)
        self._changed()
        return created

    def why_not_created(self, group: str) -> str | None:
        """What keeps an unknown group from being created on first use, in words that name the remedy."""
        if (fault := names.group_fault(group)) is not None:
            return fault
        if self.config.auto_create_subscription_group:
            return None
        if group.startswith(names.SYSTEM_GROUP_PREFIX) and self.config.enable_create_sys_group:
            return None
        return (
            "autoCreateSubscriptionGroup is false on this broker: create the group first, "
            f"for example with `arrowmq group create {group}` or mqadmin updateSubGroup"
        )

    def update(self, wanted: SubscriptionGroupConfig) -> None:
        """Attributes are changes: `+name` sets one, `-name` takes it away, what is not named stays."""
        existing = self.table.get(wanted.group_name)
        attributes = dict(existing.attributes or {}) if existing is not None else {}
        for signed_key, value in (wanted.attributes or {}).items():
            if signed_key.startswith("-"):
                attributes.pop(signed_key[1:], None)
            else:
                attributes[signed_key.removeprefix("+")] = value
        wanted.attributes = attributes
        self.table[wanted.group_name] = wanted
        self._changed()

    def delete(self, group: str) -> bool:
        known = self.table.pop(group, None) is not None
        forbidden = self.forbidden.pop(group, None) is not None
        if known or forbidden:
            self._changed()
        return known

    def take(
        self,
        table: dict[str, SubscriptionGroupConfig],
        forbidden: dict[str, dict[str, int]],
        version: DataVersion | None,
    ) -> None:
        """A slave takes its master's table as it is."""
        if table != self.table or forbidden != self.forbidden:
            self.table, self.forbidden = dict(table), forbidden
            self.file.changed()
        if version is not None:
            self.version = version

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        masks = self.forbidden.setdefault(group, {})
        mask = masks.get(topic, 0)
        mask = mask & ~FORBID_READ if readable else mask | FORBID_READ
        if mask:
            masks[topic] = mask
        else:
            masks.pop(topic, None)
        if not masks:
            del self.forbidden[group]
        self._changed()

    def may_read(self, group: str, topic: str) -> bool:
        return not self.forbidden.get(group, {}).get(topic, 0) & FORBID_READ

    def _changed(self) -> None:
        self.version = next_version(self.version, self.clock.now_ms())
        self.file.changed()

    def encode(self) -> bytes:
        table = {
            "dataVersion": self.version,
            "forbiddenTable": self.forbidden,
            "subscriptionGroupTable": self.table,
        }
        return msgspec.json.encode(table)

    async def saved(self) -> None:
        """Returns when all changes up to now are on disk."""
        await self.file.saved()

    def persist(self) -> None:
        self.file.save()
