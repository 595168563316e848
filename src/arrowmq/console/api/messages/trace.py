"""Traces: who sent a message and who consumed it when, as clients that trace wrote it down."""

from __future__ import annotations

from typing import Annotated

import msgspec

from arrowmq.client.admin.inspect import each_of
from arrowmq.client.message_trace import TRACE_TOPIC
from arrowmq.console.api.declare import Call, Query, Struct, endpoint
from arrowmq.console.errors import bad_request, not_found
from arrowmq.inspect.messages.history import Trace, traces_of

OUTCOMES = {0: "success", 1: "timeout", 2: "exception", 3: "returned null", 4: "failed"}


class TraceQuery(Query, kw_only=True):
    """A message's id, or a key of it; in another trace topic than the usual one if clients were given one."""

    id: Annotated[str, msgspec.Meta(max_length=500)] = ""
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""


class SpanRow(Struct, kw_only=True):
    kind: str
    group: str
    begin: int
    took_ms: int
    is_ok: bool | None
    client: str
    detail: str


class TraceAnswer(Struct, kw_only=True):
    id: str
    topic: str | None
    begin: int
    end: int
    rows: list[SpanRow]


@endpoint("GET", "/api/trace", tag="trace")
async def trace(call: Call, query: TraceQuery) -> TraceAnswer:
    """The trace of a message as a waterfall: sent, consumed by each group, each try with how it ended."""
    if not query.id:
        raise bad_request("a trace is found by a message's id")
    snapshot = await call.console.gatherer.fresh()
    name = query.topic or TRACE_TOPIC
    if name not in snapshot.topics:
        raise not_found(f"there is no topic {name}: clients that trace write to it once traceTopicEnable=true is set")
    admin = await call.admin()
    masters = snapshot.masters
    found = await each_of(
        masters, lambda broker: admin.indexed_at(masters[broker], broker, name, query.id, is_unique=False)
    )
    traces = traces_of([each for some in found.values() for each in some], query.id)
    if not traces:
        raise not_found(f"no client has traced {query.id}: tracing is switched on in clients, or it is too old")
    rows = _spans(traces)
    topic = next((each.topic for each in traces if each.topic), None)
    begin = min(row.begin for row in rows)
    return TraceAnswer(
        id=query.id, topic=topic, begin=begin, end=max(row.begin + row.took_ms for row in rows), rows=rows
    )


def _spans(traces: list[Trace]) -> list[SpanRow]:
    """A try's beginning and end are two records of one request id; together they are one bar."""
    rows = []
    begun = {each.request_id: each for each in traces if each.kind == "delivered"}
    for each in traces:
        if each.kind == "sent":
            rows.append(_span(each, each.at_ms, each.took_ms or 0, ""))
        elif each.kind == "consumed":
            start = begun.pop(each.request_id, None)
            begin = start.at_ms if start is not None else each.at_ms - (each.took_ms or 0)
            outcome = OUTCOMES.get(each.outcome, "") if each.outcome is not None else ""
            rows.append(_span(each, begin, max(each.took_ms or 0, each.at_ms - begin), outcome, start))
    rows += [_span(each, each.at_ms, 0, "not finished") for each in begun.values()]
    return sorted(rows, key=lambda row: row.begin)


def _span(each: Trace, begin: int, took_ms: int, detail: str, start: Trace | None = None) -> SpanRow:
    return SpanRow(
        kind=each.kind,
        group=each.group or (start.group if start is not None else ""),
        begin=begin,
        took_ms=max(0, took_ms),
        is_ok=each.is_ok,
        client=each.client or (start.client if start is not None else ""),
        detail=detail,
    )
