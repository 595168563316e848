"""What rights are about: resources by type and name, and the actions on them, under RocketMQ's names.

*             everything              Topic:orders     this topic
Topic:*       every topic             Topic:team_a_*   every topic whose name begins so
Group:…       consumer groups         Cluster:…        the servers themselves
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from arrowmq.auth.errors import AccountError

EVERY = "*"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
NAME_MAX_LENGTH = 255


class ResourceType(Enum):
    ANY = "Any"
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(IntEnum):
    """How a policy names resources; of two that match, the lower number decides."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(Enum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, or a pattern of them. A request that names none has `name` None; only `*` matches that."""

    type: ResourceType
    name: str | None
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        if self.type is ResourceType.ANY:
            return EVERY
        if self.pattern is Pattern.ANY:
            return f"{self.type.value}:{EVERY}"
        name = "null" if self.name is None else self.name
        return f"{self.type.value}:{name}{EVERY if self.pattern is Pattern.PREFIXED else ''}"

    def matches(self, asked: Resource) -> bool:
        if self.type is ResourceType.ANY:
            return True
        if self.type is not asked.type:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if asked.name is None or self.name is None:
            return False
        return asked.name == self.name if self.pattern is Pattern.LITERAL else asked.name.startswith(self.name)


EVERYTHING = Resource(ResourceType.ANY, None, Pattern.ANY)


def topic_resource(name: str | None) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str | None) -> Resource:
    """A group; the retry topic of one stands for it."""
    if name is not None and is_retry_topic(name):
        name = name.removeprefix(RETRY_PREFIX)
    return Resource(ResourceType.GROUP, name)


def cluster_resource(name: str) -> Resource:
    return Resource(ResourceType.CLUSTER, name)


def is_retry_topic(name: str | None) -> bool:
    return name is not None and name.startswith(RETRY_PREFIX)


def parse_resource(key: str | None) -> Resource:
    """A resource as policies write it. Raises `AccountError`."""
    if key is None or not key.strip():
        raise AccountError("The resource is null.")
    if len(key) > NAME_MAX_LENGTH or not key.isprintable():
        raise AccountError(f"a resource is at most {NAME_MAX_LENGTH} printable characters")
    if key == EVERY:
        return EVERYTHING
    kind, colon, name = key.partition(":")
    type = next((known for known in ResourceType if known.value.lower() == kind.lower()), None)
    if type is None or type is ResourceType.ANY or not colon:
        raise AccountError(
            f"The resource type is null. {key!r} names none: write Topic:…, Group:…, Cluster:… or * for everything"
        )
    if name == EVERY:
        return Resource(type, None, Pattern.ANY)
    if name.endswith(EVERY):
        name = name.removesuffix(EVERY)
        if EVERY in name:
            raise AccountError(f"The resource {key!r} has a * before its end: only the end of a name may be left open")
        return Resource(type, name, Pattern.PREFIXED)
    if EVERY in name:
        raise AccountError(f"The resource {key!r} has a * before its end: only the end of a name may be left open")
    return Resource(type, name)


def parse_action(text: str) -> Action:
    """Raises `AccountError`."""
    for known in Action:
        if known.value.lower() == text.strip().lower():
            return known
    if text.strip().lower() == "any":
        raise AccountError("The actions can not be Any.")
    names = ", ".join(known.value for known in Action)
    raise AccountError(f"there is no action {text[:40]!r}: take some of {names}")
