"""The permit: everything that can close the fast path, asked by each of its handlers before it takes a request.

The fast path is closed for a kind of request while

  - a closer says so: a condition of the whole broker, such as its role, its permissions, a disk that is full
    (`closers.py` has those of every broker; a capability adds its own with `permit.close_while`), or
  - a step that such requests pass on the general path (a gate, rule, rewrite, listener or hook) touches all of them.
    One that declared nothing does.

Where steps touch some of them only, the fast path leaves those alone: `Ordinary` says what a request must not have. So
nothing is passed by unless it was declared that it may be; adding a step or a closer counts at once. An operator finds
why the fast path is closed in the runtime info of the broker, as `fastPathClosedBy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, NamedTuple

from arrowmq.broker.send.message_path import MessagePath
from arrowmq.remoting.handlers import Hook
from arrowmq.store.listeners import Listener
from arrowmq.touches import Steps
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.in_place.fields import EXTRA_FIELDS, FIELDS


class Does(Flag):
    """What requests of a kind do; a closer says which of these it is about."""

    WRITES = auto()
    READS = auto()
    TRANSACTIONS = auto()
    POPS = auto()


ANY = Does.WRITES | Does.READS | Does.TRANSACTIONS | Does.POPS


class Kind(NamedTuple):
    """One kind of request that the fast path may serve, and which steps see it on the general path."""

    name: str
    codes: frozenset[int]
    does: Does
    stages: tuple[str, ...]
    has_properties: bool = False  # and the fast path looks at each of their names


_SEND_CODES = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
SENDS = Kind("sends", _SEND_CODES, Does.WRITES, ("hooks", "gates", "rules", "rewrites", "listeners"), True)
BATCHES = Kind("batches", _SEND_CODES, Does.WRITES, ("hooks", "gates", "batch_rules", "listeners"))
HALVES = SENDS._replace(name="half messages", does=Does.WRITES | Does.TRANSACTIONS)
ENDS = Kind(
    "ends of transactions",
    frozenset({RequestCode.END_TRANSACTION}),
    Does.WRITES | Does.TRANSACTIONS,
    ("hooks", "rewrites", "listeners"),
    True,
)
PULLS = Kind("pulls", frozenset({RequestCode.PULL_MESSAGE}), Does.READS, ("hooks",))
# What these write, check points and acks, is the broker's own: it passes no gate, rule or rewrite
POPS = Kind("pops", frozenset({RequestCode.POP_MESSAGE}), Does.READS | Does.WRITES | Does.POPS, ("hooks", "listeners"))
ACKS = Kind(
    "acks",
    frozenset({RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE}),
    Does.WRITES | Does.POPS,
    ("hooks", "listeners"),
)


Why = Callable[[], object]
"""Says why the fast path is closed now, in words for an operator; None, or what is false, if it is not."""


class Closer(NamedTuple):
    name: str
    why: Why
    of: Does


@dataclass(frozen=True, slots=True)
class Ordinary:
    """What a request must not have for the fast path to take it, and what closes it for all of them."""

    properties: frozenset[str]
    topics: frozenset[str]
    fields: frozenset[str]
    closed_by: tuple[str, ...]  # steps that touch every request
    asked: tuple[tuple[str, Why], ...]  # closers, and steps that touch every request at times


class KindPermit:
    """The permit for one kind of request. `implements` are steps that the fast path does the work of."""

    def __init__(self, permit: Permit, kind: Kind, implements: tuple[Any, ...] = ()) -> None:
        self.kind = kind
        self._permit = permit
        self._implements = implements
        self.ordinary = self._derive()

    def is_open(self) -> bool:
        for _, why in self.ordinary.asked:
            if why():
                return False
        return not self.ordinary.closed_by

    def closed_by(self) -> list[str]:
        """The names of what closes it now, each with its reason."""
        found = list(self.ordinary.closed_by)
        for name, why in self.ordinary.asked:
            reason = why()
            if reason:
                found.append(f"{name} ({reason})" if isinstance(reason, str) else name)
        return found

    def renew(self) -> None:
        self.ordinary = self._derive()

    def _derive(self) -> Ordinary:
        kind = self.kind
        properties, topics, fields = set[str](), set[str](), set[str]()
        closed_by: list[str] = []
        asked = [(closer.name, closer.why) for closer in self._permit.closers if closer.of & kind.does]
        for stage in kind.stages:
            steps = self._permit.stages[stage]
            for step, touches in steps.declared:
                if (
                    step in self._implements
                    or step in self._permit.native_checks
                    or not (touches.codes is None or touches.codes & kind.codes)
                ):
                    continue
                # It touches only what has all that it declares, so to leave alone what has one of them is enough.
                if touches.only_while is not None:
                    asked.append((steps.name_of(step), touches.only_while))
                elif touches.properties is not None and kind.has_properties:
                    properties |= touches.properties
                elif touches.fields is not None:
                    fields |= touches.fields
                elif touches.topics is not None:
                    topics |= touches.topics
                else:
                    closed_by.append(steps.name_of(step))
        return Ordinary(frozenset(properties), frozenset(topics), frozenset(fields), tuple(closed_by), tuple(asked))


class Permit:
    def __init__(self, hooks: Steps[Hook], path: MessagePath, listeners: Steps[Listener]) -> None:
        self.stages: dict[str, Steps[Any]] = {
            "hooks": hooks,
            "gates": path.gates,
            "rules": path.rules,
            "batch_rules": path.batch_rules,
            "rewrites": path.rewrites,
            "listeners": listeners,
        }
        self.closers: list[Closer] = []
        #: Request hooks that have a native form, which every request of the fast path has to pass
        self.native_checks: dict[Hook, Any] = {}
        self.extra_fields: dict[str, int] = {}
        self.on_change: list[Callable[[], object]] = []
        self._kinds: list[KindPermit] = []
        for steps in self.stages.values():
            steps.on_change.append(self.changed)

    def close_while(self, name: str, why: Why, of: Does = ANY) -> None:
        """Close the fast path, for requests that do any of this, while `why` gives a reason. It is asked once a
        millisecond at most; what must count at once calls `changed`."""
        self.closers.append(Closer(name, why, of))
        self.changed()

    def remove(self, name: str) -> None:
        """Takes a closer out again."""
        self.closers = [closer for closer in self.closers if closer.name != name]
        self.changed()

    def check_natively(self, hook: Hook, check: Any, fields: tuple[str, ...] = ()) -> None:
        """A hook of every request has a native form (`RequestCheck` in `_router_native.pxd`): what that passes need not
        be shown to the hook, and the fast path stays open beside it. `fields` are what it reads beyond a request's
        header; they stand in `request.fields` from `FIELDS` on."""
        names = dict.fromkeys((*self.extra_fields, *fields))
        if len(names) > EXTRA_FIELDS:
            raise ValueError(f"{len(names)} fields; there is room for {EXTRA_FIELDS}")
        self.native_checks[hook] = check
        self.extra_fields = {name: FIELDS + number for number, name in enumerate(names, 1)}
        self.changed()

    def of(self, kind: Kind, implements: tuple[Any, ...] = ()) -> KindPermit:
        permit = KindPermit(self, kind, implements)
        self._kinds.append(permit)
        return permit

    def changed(self) -> None:
        """Whatever the fast path has been answered, it must ask again."""
        for permit in self._kinds:
            permit.renew()
        for callback in self.on_change:
            callback()

    def report(self) -> dict[str, str]:
        """What closes the fast path now, by kind of request; for the broker's runtime info."""
        closed = {permit.kind.name: "; ".join(permit.closed_by()) for permit in self._kinds}
        return {"fastPathClosedBy": ", ".join(f"{kind}: {why}" for kind, why in closed.items() if why) or "nothing"}
