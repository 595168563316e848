"""Registered SQL92 filters, kept in `config/consumerFilter.json` as Apache's broker keeps them.

What the filters are is known from heartbeats; this is the memory of it across restarts, which tools read and which
Apache's broker goes on from. The file follows what is subscribed now: a group that left is marked dead, and forgotten
after a day.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from arrowmq.broker.background import Background
from arrowmq.broker.clients.table import Clients
from arrowmq.clock import Clock
from arrowmq.filter import FilterError, is_tag_type
from arrowmq.filter import compile as compile_filter
from arrowmq.filter.bloom import bloom_positions, bloom_size
from arrowmq.store.config_file import JsonConfigFile

PERSIST_S = 10.0
FORGOTTEN_AFTER_MS = 24 * 3_600_000
# After a start nobody is subscribed yet; whoever was is dead since a moment before it.
DEAD_BEFORE_START_MS = 30_000

Entry = dict[str, Any]


class ConsumerFilters:
    def __init__(self, clients: Clients, file: JsonConfigFile, background: Background, clock: Clock) -> None:
        self.clients = clients
        self.file = file
        self.clock = clock
        # topic -> group -> entry, in the words of the file
        self.table: dict[str, dict[str, Entry]] = {}
        background.every("persist registered filters", PERSIST_S, self.persist_if_changed)

    def load(self) -> None:
        stored = (self.file.load() or {}).get("filterDataByTopic", {})
        now_ms = self.clock.now_ms()
        with self.file.naming_damage():
            for topic, by_group in stored.items():
                for group, entry in by_group.get("groupFilterData", {}).items():
                    if entry.get("bloomFilterData", {}).get("bitNum") != bloom_size()[0]:
                        continue
                    dead_ms = int(entry.get("deadTime") or 0) or now_ms - DEAD_BEFORE_START_MS
                    self.table.setdefault(topic, {})[group] = {**entry, "dead": True, "deadTime": dead_ms}

    def follow(self) -> bool:
        """Brings the table up to what is subscribed now. True if that changed it."""
        now_ms = self.clock.now_ms()
        before = copy.deepcopy(self.table)
        alive = set()
        for group in list(self.clients.consumers.values()):
            for topic, subscription in group.subscriptions.items():
                if is_tag_type(subscription.expression_type):
                    continue
                try:
                    compile_filter(subscription.expression_type, subscription.sub_string)
                except FilterError:
                    continue  # its pulls are refused, with the reason
                alive.add((topic, group.name))
                kind, text = subscription.expression_type or "", subscription.sub_string or ""
                expression = (kind, text, subscription.sub_version)
                self._register(topic, group.name, expression, now_ms)
        for topic, by_group in list(self.table.items()):
            for name, entry in list(by_group.items()):
                if (topic, name) not in alive and not entry["dead"]:
                    entry.update(dead=True, deadTime=now_ms)
                if entry["dead"] and now_ms - entry["deadTime"] > FORGOTTEN_AFTER_MS:
                    del by_group[name]
            if not by_group:
                del self.table[topic]
        return self.table != before

    def _register(self, topic: str, group: str, expression: tuple[str, str, int], now_ms: int) -> None:
        kind, text, version = expression
        known = self.table.setdefault(topic, {}).get(group)
        if known is not None and known["expression"] == text and known["expressionType"] == kind:
            known.update(dead=False, deadTime=0, clientVersion=max(version, known.get("clientVersion", 0)))
            return
        self.table[topic][group] = {
            "bloomFilterData": {"bitNum": bloom_size()[0], "bitPos": bloom_positions(group, topic)},
            "bornTime": now_ms,
            "clientVersion": version,
            "consumerGroup": group,
            "dead": False,
            "deadTime": 0,
            "expression": text,
            "expressionType": kind,
            "topic": topic,
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "filterDataByTopic": {
                topic: {"groupFilterData": copy.deepcopy(by_group), "topic": topic}
                for topic, by_group in self.table.items()
            }
        }

    async def persist_if_changed(self) -> None:
        if self.follow():
            await asyncio.to_thread(self.file.writing(self.as_json()))

    def persist(self) -> None:
        """At the end, when every client has been disconnected."""
        if self.follow() or self.table:
            self.file.persist(self.as_json())
