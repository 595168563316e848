"""What the doctor looks at: plain facts, gathered first and judged after that by `servers` and `topics`.

Nothing here asks anybody. So every check is a function of facts, and a test can hand it any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from arrowmq.client.admin.controlled import ControlledSet
from arrowmq.wire.bodies import OffsetWrapper, TopicConfig, TopicOffset, TopicRouteData
from arrowmq.wire.message_queue import MessageQueue

ERROR = "error"
WARNING = "warning"
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in a sentence, and what to do about it. `name` is for scripts and stays the same."""

    severity: str
    name: str
    what: str
    advice: str


@dataclass(slots=True)
class NamesrvFacts:
    """`problem` is "", or how it failed: name, refused, timeout, silent, broker."""

    address: str
    problem: str = ""
    detail: str = ""
    #: broker name → broker id → address, as this NameServer tells
    brokers: dict[str, dict[int, str]] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerFacts:
    name: str
    cluster: str
    broker_id: int
    address: str
    problem: str = ""
    runtime: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    #: The broker's clock minus ours; None if it does not tell
    clock_skew_ms: int | None = None

    def number(self, key: str) -> float | None:
        words = self.runtime.get(key, "").split()
        try:
            return float(words[0])
        except (IndexError, ValueError):
            return None

    def ratio(self, key: str, default: int, lowest: int, highest: int) -> float:
        """A limit of disk use, with the bounds that brokers put to it, as a fraction."""
        text = self.config.get(key, "")
        percent = int(text) if text.isdigit() else default
        return min(max(percent, lowest), highest) / 100


@dataclass(slots=True)
class TopicFacts:
    name: str
    route: TopicRouteData | None
    #: The whole topic's queues: where they begin and end
    queues: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


@dataclass(slots=True)
class Held:
    """What one member has in hand of one queue: how many messages, and the first of them."""

    count: int
    first_offset: int


@dataclass(slots=True)
class MemberFacts:
    client_id: str
    language: str | None = None
    version: int = 0
    #: topic → expression; None if the member did not tell
    subscriptions: dict[str, str] | None = None
    held: dict[MessageQueue, Held] = field(default_factory=dict)
    #: The same a moment later
    held_later: dict[MessageQueue, Held] = field(default_factory=dict)


@dataclass(slots=True)
class GroupFacts:
    name: str
    members: list[MemberFacts] = field(default_factory=list)
    model: str | None = None
    disabled_on: list[str] = field(default_factory=list)
    progress: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    letters: int = 0
    newest_letter_ms: int = 0


@dataclass(slots=True)
class MachineFacts:
    """The machine that the doctor runs on, which often is the broker's as well."""

    memory_limit_bytes: int | None = None
    memory_total_bytes: int | None = None
    open_files_hard: int = 1 << 20
    max_map_count: int | None = None
    is_native: bool = True
    directory: str = ""
    directory_problem: str = ""
    directory_free_bytes: int | None = None


@dataclass(slots=True)
class Facts:
    now_ms: int
    watched_s: float
    namesrvs: list[NamesrvFacts] = field(default_factory=list)
    brokers: list[BrokerFacts] = field(default_factory=list)
    topics: list[TopicFacts] = field(default_factory=list)
    groups: list[GroupFacts] = field(default_factory=list)
    machine: MachineFacts = field(default_factory=MachineFacts)
    #: Sets of brokers under a controller, by name; in words why none of their controllers tells of them
    controlled: dict[str, ControlledSet | str] = field(default_factory=dict)
    #: The topic that the user asked about
    asked_topic: str | None = None

    @property
    def masters(self) -> list[BrokerFacts]:
        return [broker for broker in self.brokers if broker.broker_id == 0]

    @property
    def reached(self) -> list[BrokerFacts]:
        return [broker for broker in self.brokers if not broker.problem]
