"""The life of a message: events with their reasons, and the picture that is drawn of them."""

from __future__ import annotations

from typing import Literal

from arrowmq.client.errors import ArrowMQError
from arrowmq.console.api.declare import Call, Struct, endpoint
from arrowmq.console.api.messages.finding import MessageQuery
from arrowmq.inspect.messages.events import Event, events_of
from arrowmq.inspect.messages.history import GroupLife, Life, Trace, gather
from arrowmq.wire.errors import WireError

State = Literal["done", "now", "bad", "not"]


class EventRow(Struct, kw_only=True):
    at: int | None
    what: str
    text: str
    #: The name of the sentence and what fills it, for who says it in another language
    sentence: str
    values: dict[str, str]


class Stage(Struct, kw_only=True):
    """A station: `done` is behind it, `now` is where it stands, `bad` went wrong, `not` was not reached."""

    name: str
    state: State
    at: int | None = None
    detail: str = ""


class Branch(Struct, kw_only=True):
    group: str
    stages: list[Stage]


class TraceRow(Struct, kw_only=True):
    kind: str
    group: str
    at: int
    took_ms: int | None
    is_ok: bool | None


class LifeAnswer(Struct, kw_only=True):
    topic: str
    trunk: list[Stage]
    branches: list[Branch]
    rows: list[EventRow]
    traces: list[TraceRow]


@endpoint("GET", "/api/messages/{id}/life", tag="messages")
async def message_life(call: Call, query: MessageQuery) -> LifeAnswer:
    """What became of a message: stored, flushed, replicated, delivered, retried, dead; each with its reason."""
    admin = await call.admin()
    life = await gather(admin, query.id, query.topic or None)
    return LifeAnswer(
        topic=life.topic,
        trunk=[*_trunk(life), await _replicated(call, life)],
        branches=[Branch(group=each.group, stages=_branch(life, each)) for each in life.groups],
        rows=[_event_row(event) for event in events_of(life)],
        traces=[trace_row(trace) for trace in life.traces],
    )


def _event_row(event: Event) -> EventRow:
    values = {name: str(value) for name, value in event.values.items()}
    return EventRow(at=event.at_ms or None, what=event.what, text=event.text, sentence=event.sentence, values=values)


def trace_row(trace: Trace) -> TraceRow:
    return TraceRow(kind=trace.kind, group=trace.group, at=trace.at_ms, took_ms=trace.took_ms, is_ok=trace.is_ok)


def _trunk(life: Life) -> list[Stage]:
    stages = [Stage(name="born", state="done", at=life.message.born_timestamp)]
    waits = [wait for wait in life.waits if not wait.real_topic.startswith("%RETRY%")]
    for wait in waits[:1]:
        state: State = "done" if life.published is not None else "now"
        stages.append(Stage(name="delayed", state=state, at=wait.due_ms))
    if life.halves:
        ends = [how for _, how in life.ends]
        if "rollback" in ends:
            stages.append(Stage(name="rolledBack", state="bad", at=life.ends[-1][0]))
        elif "parked" in ends:
            stages.append(Stage(name="parked", state="bad", at=life.ends[-1][0]))
        else:
            is_open = life.published is None
            stages.append(Stage(name="half", state="now" if is_open else "done", at=life.halves[0].store_timestamp))
    if life.published is None:
        return [*stages, Stage(name="stored", state="not"), Stage(name="flushed", state="not")]
    where = f"{life.published.broker_name}:{life.published.queue_id}@{life.published.queue_offset}"
    stages.append(Stage(name="stored", state="done", at=life.published.store_timestamp, detail=where))
    flushed: State = "not" if life.is_flushed is None else ("done" if life.is_flushed else "now")
    stages.append(Stage(name="flushed", state=flushed, detail=life.flush_type))
    return stages


async def _replicated(call: Call, life: Life) -> Stage:
    """How many slaves have it, by the master's own account."""
    message = life.published
    address = (await call.console.gatherer.fresh()).masters.get(message.broker_name) if message is not None else None
    if message is None or address is None:
        return Stage(name="replicated", state="not")
    try:
        status = await (await call.admin()).ha_status(address)
    except (ArrowMQError, WireError):
        return Stage(name="replicated", state="not", detail="?")
    slaves = status.ha_connection_info
    if not slaves:
        return Stage(name="replicated", state="not", detail="none")
    have = sum(each.slave_ack_offset >= message.physical_offset + message.size for each in slaves)
    return Stage(name="replicated", state="done" if have == len(slaves) else "now", detail=f"{have}/{len(slaves)}")


def _branch(life: Life, group: GroupLife) -> list[Stage]:
    if life.published is None:
        return [Stage(name="delivered", state="not")]
    if group.passes is False:
        return [Stage(name="filtered", state="not", detail=group.subscription or "")]
    if group.in_flight is not None:
        return [
            Stage(name="delivered", state="done", at=group.in_flight.pop_time),
            Stage(name="inFlight", state="now", at=group.in_flight.visible_at, detail=group.in_flight.client),
        ]
    offset = life.published.queue_offset
    is_past = group.consumed is not None and group.consumed > offset
    if not is_past:
        is_held = group.pulled is not None and group.pulled > offset and group.members > 0
        return [Stage(name="delivered" if is_held else "waiting", state="now", detail=f"{group.members}")]
    stages = [Stage(name="delivered", state="done")]
    waits = [wait for wait in life.waits if wait.real_topic == f"%RETRY%{group.group}"]
    for number, (copy, consumed) in enumerate(group.retries, 1):
        is_done = consumed is not None and consumed > copy.queue_offset
        stages.append(
            Stage(name="retried", state="done" if is_done else "now", at=copy.store_timestamp, detail=f"{number}")
        )
    if len(waits) > len(group.retries) and not group.letters:
        stages.append(Stage(name="retryDue", state="now", at=waits[-1].due_ms, detail=f"{len(waits)}"))
        return stages
    if group.letters:
        stages.append(Stage(name="dead", state="bad", at=group.letters[-1].store_timestamp))
    elif all(consumed is not None and consumed > copy.queue_offset for copy, consumed in group.retries):
        stages.append(Stage(name="consumed", state="done"))
    return stages
