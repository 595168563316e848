"""W3C trace context in message properties: `traceparent` and `tracestate` travel with a message.

A producer with the `TraceContext` hook writes the current context into what it sends; a push consumer makes a message's
context the current one while its handler runs. Where OpenTelemetry is installed, its context is the current one;
else the one that `current` holds.
"""

from __future__ import annotations

import contextvars
import importlib
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from arrowmq.client.hooks import Hook

if TYPE_CHECKING:
    from arrowmq.client.message import ReceivedMessage
    from arrowmq.client.produce.outgoing import Packed

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
_FORM = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TraceParent(msgspec.Struct, frozen=True):
    """A position in a trace: `00-<trace id>-<span id>-<flags>`."""

    trace_id: str
    span_id: str
    flags: str = "01"
    state: str = ""

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    @classmethod
    def new(cls) -> TraceParent:
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    def child(self) -> TraceParent:
        return TraceParent(self.trace_id, secrets.token_hex(8), self.flags, self.state)


current: contextvars.ContextVar[TraceParent | None] = contextvars.ContextVar("arrowmq_trace_parent", default=None)


def parse(text: str | None, state: str = "") -> TraceParent | None:
    """None for what is no traceparent: a broken one of somebody else's must not break ours."""
    if not text or not _FORM.fullmatch(text):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return TraceParent(trace_id, span_id, flags, state)


def of_message(message: ReceivedMessage) -> TraceParent | None:
    return parse(message.properties.get(TRACEPARENT), message.properties.get(TRACESTATE, ""))


def _propagator() -> ModuleType | None:
    try:
        return importlib.import_module("opentelemetry.propagate")
    except ImportError:
        return None


class TraceContext(Hook):
    """Writes the current trace context into every message sent; begins a trace if there is none."""

    def __init__(self) -> None:
        self._propagate = _propagator()

    def before_send(self, packed: Packed) -> None:
        properties = packed.properties
        if TRACEPARENT in properties:
            return
        if self._propagate is not None:
            carrier: dict[str, str] = {}
            self._propagate.inject(carrier)
            properties.update({name: value for name, value in carrier.items() if value})
            if TRACEPARENT in properties:
                return
        parent = current.get()
        position = parent.child() if parent is not None else TraceParent.new()
        properties[TRACEPARENT] = str(position)
        if position.state:
            properties[TRACESTATE] = position.state


@contextmanager
def continued(message: ReceivedMessage) -> Iterator[None]:
    """Within this block the message's trace is the current one."""
    if message.record.property(TRACEPARENT) is None:
        yield
        return
    token = current.set(of_message(message))
    try:
        yield
    finally:
        current.reset(token)


def in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function run with the context of now, also in another thread."""
    context = contextvars.copy_context()
    return lambda *arguments: context.run(function, *arguments)
