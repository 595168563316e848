"""What the gatherer knows of the cluster now, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from arrowmq.wire.bodies import OffsetWrapper, SubscriptionGroupConfig, TopicConfig
from arrowmq.wire.message_queue import MessageQueue


class BrokerRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One broker as it tells of itself; `problem` says why it does not."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    role: str
    problem: str | None = None
    version: str | None = None
    #: "ArrowMQ", or "Apache" for any other; None while it does not answer
    product: str | None = None
    in_per_second: float | None = None
    out_per_second: float | None = None
    disk_ratio: float | None = None
    started_ms: int | None = None
    messages_today: int | None = None
    delivered_today: int | None = None
    put_latency_99_ms: float | None = None
    unflushed_bytes: int | None = None


class FindingRow(msgspec.Struct, frozen=True):
    severity: str
    name: str
    what: str
    advice: str


@dataclass(slots=True)
class GroupState:
    name: str
    configs: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    progress: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    lag: int = 0
    retry_lag: int = 0
    #: Of the oldest message that waits, where a broker tells; None if nothing waits
    lag_ms: int | None = None
    out_per_second: float | None = None
    letters: int = 0


@dataclass(slots=True)
class TopicState:
    name: str
    kind: str
    #: broker name → settings there
    configs: dict[str, TopicConfig] = field(default_factory=dict)


@dataclass(slots=True)
class Snapshot:
    at_ms: int = 0
    surveyed_ms: int = 0
    problem: str | None = None
    #: A broker asks for a user, and the console has none or one without the right
    is_denied: bool = False
    brokers: list[BrokerRow] = field(default_factory=list)
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    findings: list[FindingRow] = field(default_factory=list)
    findings_ms: int = 0
    findings_problem: str | None = None
    #: Settings by broker address, as last asked
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def masters(self) -> dict[str, str]:
        """Broker name → address, of the brokers that answer."""
        return {row.broker: row.address for row in self.brokers if row.broker_id == 0 and row.problem is None}
