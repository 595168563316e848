"""Policies of a user, and which of their entries decides a request: the best match, as Apache finds it.

1. Of the user's Custom policy those entries count that match the resource, one of the asked actions and the source.
   Only if there is none, those of the Default policy do.
2. Of several the first in this order decides: an entry for one type of resource before one for everything (`*`); a
   whole name before a prefix, the longer prefix first, before all names (`Topic:*`); of full equals ALLOW before DENY.
3. Without a match the answer is no.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from arrowmq.auth.errors import AccountError
from arrowmq.auth.resources import Action, Pattern, Resource, ResourceType, parse_action, parse_resource
from arrowmq.auth.sources import Source, parse_sources
from arrowmq.auth.users import name_of, subject_of
from arrowmq.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

MAX_ENTRIES = 10_000  # of one user; each request may have to look at all of them once


class PolicyType(Enum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(Enum):
    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, slots=True)
class Entry:
    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[Source, ...]
    decision: Decision

    def matches(self, resource: Resource, actions: Collection[Action], address: str) -> bool:
        if not self.resource.matches(resource):
            return False
        if Action.ALL not in self.actions and not any(action in self.actions for action in actions):
            return False
        return not self.sources or any(source.includes(address) for source in self.sources)

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """The lowest decides."""
        pattern = self.resource.pattern
        length = len(self.resource.name or "") if pattern is Pattern.PREFIXED else 0
        return self.resource.type is ResourceType.ANY, pattern, -length, self.decision is Decision.DENY

    @property
    def text(self) -> str:
        """In one line, for who asks why."""
        actions = ",".join(action.value for action in self.actions)
        sources = ",".join(source.text for source in self.sources)
        return f"{self.decision.value} {actions} on {self.resource.key}" + (f" from {sources}" if sources else "")


@dataclass(frozen=True, slots=True)
class Match:
    policy: PolicyType
    entry: Entry


@dataclass(frozen=True, slots=True)
class Acl:
    """What one user may do."""

    user: str
    policies: tuple[tuple[PolicyType, tuple[Entry, ...]], ...] = ()

    def entries(self, type: PolicyType) -> tuple[Entry, ...]:
        return next((entries for known, entries in self.policies if known is type), ())

    def best_match(self, resource: Resource, actions: Collection[Action], address: str) -> Match | None:
        for type in PolicyType:  # Custom comes first
            found = [entry for entry in self.entries(type) if entry.matches(resource, actions, address)]
            if found:
                return Match(type, min(found, key=lambda entry: entry.rank))
        return None

    def merged(self, other: Acl) -> Acl:
        """With the entries of another: those for the same resource are replaced, the rest is added."""
        policies = dict(self.policies)
        for type, entries in other.policies:
            known = {entry.resource: entry for entry in policies.get(type, ())}
            if type in policies:
                known.update((entry.resource, entry) for entry in entries)
                policies[type] = tuple(known.values())
            else:
                policies[type] = entries
        return _bounded(replace(self, policies=tuple(policies.items())))

    def without(self, type: PolicyType, resource: Resource) -> Acl:
        policies = []
        for known, entries in self.policies:
            left = tuple(entry for entry in entries if known is not type or entry.resource != resource)
            if left:
                policies.append((known, left))
        return replace(self, policies=tuple(policies))

    def info(self, resource_filter: str | None = None) -> AclInfo:
        """In the form that mqadmin reads; with a filter, only entries whose resource contains it."""
        policies = []
        for type, entries in self.policies:
            shown = [entry for entry in entries if not resource_filter or resource_filter in entry.resource.key]
            if shown:
                policies.append(PolicyInfo(policy_type=type.value, entries=[_entry_info(entry) for entry in shown]))
        return AclInfo(subject=subject_of(self.user), policies=policies)


def _entry_info(entry: Entry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource.key,
        actions=[action.value for action in entry.actions],
        source_ips=[source.text for source in entry.sources] or None,
        decision=entry.decision.value,
    )


def parse_acl(info: AclInfo, subject: str | None = None) -> Acl:
    """An ACL from the form that mqadmin sends; a subject in it wins over the request's. Raises `AccountError`."""
    user = name_of(info.subject or subject)
    if not info.policies:
        raise AccountError("The policies is empty.")
    policies: dict[PolicyType, tuple[Entry, ...]] = {}
    for policy in info.policies:
        type = parse_policy_type(policy.policy_type)
        if not policy.entries:
            raise AccountError("The policy entries is empty.")
        policies[type] = policies.get(type, ()) + tuple(_parse_entry(entry) for entry in policy.entries)
    return _bounded(Acl(user, tuple(policies.items())))


def parse_policy_type(text: str | None) -> PolicyType:
    if text is None or not text.strip():
        return PolicyType.CUSTOM
    for known in PolicyType:
        if known.value.lower() == text.strip().lower():
            return known
    raise AccountError(f"there is no policy type {text[:40]!r}: take Custom or Default")


def parse_decision(text: str | None) -> Decision:
    for known in Decision:
        if known.value.lower() == (text or "").strip().lower():
            return known
    raise AccountError("The decision is null or illegal.")


def parse_actions(texts: Iterable[str]) -> tuple[Action, ...]:
    """Each once, in the given order. Raises `AccountError`."""
    actions = tuple(dict.fromkeys(parse_action(text) for text in texts))
    if not actions:
        raise AccountError("The actions is empty.")
    return actions


def _parse_entry(info: PolicyEntryInfo) -> Entry:
    return Entry(
        parse_resource(info.resource),
        parse_actions(info.actions),
        parse_sources(info.source_ips),
        parse_decision(info.decision),
    )


def _bounded(acl: Acl) -> Acl:
    count = sum(len(entries) for _, entries in acl.policies)
    if count > MAX_ENTRIES:
        raise AccountError(f"{count} entries for one user; at most {MAX_ENTRIES}: use prefixes (Topic:team_*)")
    return acl
