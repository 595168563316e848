"""What a group wants of a topic: tags (`created || paid`) or an SQL92 expression, in the form that brokers are told."""

from __future__ import annotations

from dataclasses import dataclass

from arrowmq.wire.bodies import SubscriptionData
from arrowmq.wire.checksum import java_hash

EVERYTHING = "*"
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str = EVERYTHING
    expression_type: str = TAG
    #: Milliseconds; the broker keeps the expression with the higher version.
    version: int = 0

    @property
    def tags(self) -> frozenset[str]:
        """The tags wanted, empty for all of them (and for SQL92, which the broker alone evaluates)."""
        if self.expression_type != TAG or self.expression == EVERYTHING:
            return frozenset()
        return frozenset(filter(None, (tag.strip() for tag in self.expression.split("||"))))

    @property
    def filters(self) -> bool:
        return self.expression_type != TAG or bool(self.tags)

    def with_version(self, version: int) -> Subscription:
        return Subscription(self.topic, self.expression, self.expression_type, version)

    def to_data(self) -> SubscriptionData:
        tags = sorted(self.tags)
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression if self.filters else EVERYTHING,
            tags_set=tags,
            code_set=[java_hash(tag) for tag in tags],
            sub_version=self.version,
            expression_type=self.expression_type,
        )


def subscription(topic: str, tags: str | None, sql: str | None, version: int) -> Subscription:
    """From what a user writes: tags or an SQL92 expression, not both."""
    if sql is not None:
        if tags not in (None, "", EVERYTHING):
            raise ValueError(f"a subscription to {topic} takes tags or sql, not both: tags={tags!r}, sql={sql!r}")
        if not sql.strip():
            raise ValueError(f"the SQL92 expression for {topic} is empty")
        return Subscription(topic, sql, SQL92, version)
    return Subscription(topic, (tags or "").strip() or EVERYTHING, TAG, version)
