"""Options of the source, the sink and the store scan: names, aliases, and errors that name the option at fault.

Spark hands options over as a dictionary with lower-cased keys and string values. Every reader and writer asks an
`Options` for what it knows and calls `finish`, which refuses whatever nobody asked for: a misspelt option must not be
silently ignored.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

# The names of the connectors that people come from -> ours. Kafka's connector, and the old rocketmq-spark.
ALIASES: dict[str, str] = {
    "subscribe": "topics",
    "subscribepattern": "topicPattern",
    "assign": "queues",
    "kafka.bootstrap.servers": "namesrv",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "nameserver": "namesrv",
    "nameserver.addr": "namesrv",
    "namesrvaddr": "namesrv",
    "consumer.group": "group",
    "consumer.topic": "topic",
    "consumer.tag": "tags",
    "subexpression": "tags",
    "pull.max.batch.size": "pullBatchSize",
    "pull.timeout.ms": "pullTimeoutMs",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
    "pull.max.speed.per.partition": "maxOffsetsPerTrigger",
}
# Options that Spark itself puts beside ours.
SPARKS_OWN = frozenset(
    {"checkpointlocation", "queryname", "querytype", "outputmode", "triggerinterval", "name", "__table"}
)


class OptionError(ValueError):
    """An option that cannot be used; the message starts with its name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"option {name}: {reason}")
        self.option = name


class Options:
    """Reads options by name, remembers which were asked for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        for name, value in given.items():
            key = ALIASES.get(name.lower(), name).lower()
            if key in self._given and self._given[key] != value:
                raise OptionError(name, f"is another name of {self._spelled[key]}, which has a different value")
            self._given[key] = value
            self._spelled[key] = name

    def has(self, name: str) -> bool:
        self._asked[name.lower()] = name
        return name.lower() in self._given

    def text(self, name: str, default: str | None = None) -> str | None:
        self._asked[name.lower()] = name
        value = self._given.get(name.lower())
        return default if value is None or not value.strip() else value.strip()

    def required(self, name: str, reason: str) -> str:
        value = self.text(name)
        if value is None:
            raise OptionError(name, reason)
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise OptionError(name, f"{value!r} is not a whole number") from None
        if number < least:
            raise OptionError(name, f"{number} is below {least}")
        return number

    def size(self, name: str) -> int | None:
        """A number of bytes, such as 1048576, 64m or 1g."""
        value = self.text(name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", value.lower())
        if match is None or int(match[1]) == 0:
            raise OptionError(name, f"{value!r} is not a size such as 1048576, 64m or 1g")
        return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]

    def duration_ms(self, name: str, default: int) -> int:
        """A time such as 500ms, 10s, 15m or 1h; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", value.lower())
        if match is None:
            raise OptionError(name, f"{value!r} is not a time such as 500ms, 10s, 15m or 1h")
        unit = match[2] or "ms"
        return int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]

    def truth(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(name, f"{value!r} is neither true nor false")
        return value.lower() == "true"

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise OptionError(name, f"{value!r} is none of {', '.join(choices)}")
        return value

    def names(self, name: str) -> list[str] | None:
        value = self.text(name)
        if value is None:
            return None
        found = [part.strip() for part in value.split(",") if part.strip()]
        if not found:
            raise OptionError(name, "holds no name")
        return found

    def json_object(self, name: str) -> dict[str, Any] | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            found = json.loads(value)
        except ValueError as wrong:
            raise OptionError(name, f"{value!r} is not JSON: {wrong}") from None
        if not isinstance(found, dict):
            raise OptionError(name, f"{value!r} is not a JSON object")
        return found

    def finish(self, *also: str) -> None:
        """Refuses options that nobody asked for; `also` names those that another side of the format understands."""
        known = {**self._asked, **{name.lower(): name for name in also}}
        for key, spelled in self._spelled.items():
            if key in known or key in SPARKS_OWN or key.startswith("kafka."):
                continue
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else f"; known are {', '.join(sorted(known.values()))}"
            raise OptionError(spelled, f"is not an option of this format{hint}")
