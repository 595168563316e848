"""What the steps of a request's way touch: declarations that say what the fast path may not skip.

A gate, a rule, a rewrite, a store listener, a request hook is a step: a function on the general path that may refuse or
change what passes. The fast path takes a request past all of them, and may do so only where none of them would have
done anything. So each says, when it is added, what it touches:

    path.rewrites.add(self.rewrite, Touches(properties=(DELAY,)))          # messages with this property
    path.rules.add(self.rule, Touches(topics=("%RETRY%*",)))               # messages to these topics
    path.gates.add(self.gate, Touches(only_while=self.busy_with))          # everything, but only while it says so
    hooks.add(self.check)                                                  # nothing is said: everything

A step touches what all its declarations together name; what it does not declare may be anything. One that declares
nothing touches everything, and closes the fast path for all that passes it (`broker/fastpath/permit.py`). Steps may be
added and removed at any time; it counts from the next request on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

PREFIX_END = "*"


@dataclass(frozen=True, slots=True, init=False)
class Touches:
    """What a step may look at or change; None says it may be any."""

    codes: frozenset[int] | None  # of requests
    topics: frozenset[str] | None  # names, or beginnings of names with a `*` behind them
    properties: frozenset[str] | None  # of messages that have any of them
    fields: frozenset[str] | None  # of request headers that have any of them, by their Java names
    only_while: Callable[[], object] | None  # asked before requests pass: while it says no, nothing is touched

    def __init__(
        self,
        *,
        codes: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        properties: Iterable[str] | None = None,
        fields: Iterable[str] | None = None,
        only_while: Callable[[], object] | None = None,
    ) -> None:
        for name, values in (("codes", codes), ("topics", topics), ("properties", properties), ("fields", fields)):
            if isinstance(values, str):
                raise TypeError(f"{name}={values!r}: a collection of names, not one name")
            object.__setattr__(self, name, None if values is None else frozenset(values))
        object.__setattr__(self, "only_while", only_while)

    def may_touch_code(self, code: int) -> bool:
        return self.codes is None or code in self.codes


ANYTHING = Touches()

Step = TypeVar("Step", bound=Callable[..., object])


class Steps(Generic[Step]):
    """Steps in the order in which they run, each with what it touches."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # how an operator hears of one: "rule", "request hook"
        self.on_change: list[Callable[[], object]] = []
        self._order: tuple[Step, ...] = ()
        self._touches: tuple[Touches, ...] = ()

    def add(self, step: Step, touches: Touches = ANYTHING, *, is_first: bool = False) -> None:
        """Behind the others, or before them."""
        self._order = (step, *self._order) if is_first else (*self._order, step)
        self._touches = (touches, *self._touches) if is_first else (*self._touches, touches)
        self._changed()

    def remove(self, step: Step) -> None:
        """Raises ValueError if it is none of them."""
        place = self._order.index(step)
        self._order = self._order[:place] + self._order[place + 1 :]
        self._touches = self._touches[:place] + self._touches[place + 1 :]
        self._changed()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()

    def __iter__(self) -> Iterator[Step]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def declared(self) -> list[tuple[Step, Touches]]:
        return list(zip(self._order, self._touches, strict=True))

    def name_of(self, step: Step) -> str:
        return f"{self.kind} {getattr(step, '__qualname__', repr(step))}"


def is_named(topic: str, topics: Iterable[str]) -> bool:
    """Whether a declaration's topics name this one."""
    return any(
        topic.startswith(name.removesuffix(PREFIX_END)) if name.endswith(PREFIX_END) else topic == name
        for name in topics
    )
