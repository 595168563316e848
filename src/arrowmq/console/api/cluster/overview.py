"""The whole cluster at one look, its last hour, live events, and who changed what."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from starlette.responses import Response, StreamingResponse

from arrowmq.client import names
from arrowmq.console.api.declare import Call, Done, ListQuery, Query, Struct, endpoint, paged
from arrowmq.console.doors.audit import AuditRow
from arrowmq.console.errors import Problem
from arrowmq.console.live.hub import MOST_PAGES
from arrowmq.console.live.snapshot import BrokerRow, FindingRow

HOUR_MS = 3_600_000


class Overview(Struct, kw_only=True):
    at: int
    problem: str | None
    brokers: list[BrokerRow]
    in_per_second: float
    out_per_second: float
    topics: int
    groups: int
    lag: int
    letters: int
    findings: list[FindingRow]
    findings_at: int
    findings_problem: str | None


@endpoint("GET", "/api/overview", tag="overview")
async def overview(call: Call) -> Overview:
    """Brokers with their rates, how many topics and groups there are, and what doctor found."""
    now = await call.console.gatherer.fresh()
    groups = [state for state in now.groups.values() if not names.is_system_group(state.name)]
    return Overview(
        at=now.at_ms,
        problem=now.problem,
        brokers=now.brokers,
        in_per_second=sum(row.in_per_second or 0.0 for row in now.brokers if not row.broker_id),
        out_per_second=sum(row.out_per_second or 0.0 for row in now.brokers),
        topics=sum(state.kind not in ("system", "retry", "dead") for state in now.topics.values()),
        groups=len(groups),
        lag=sum(state.lag for state in groups),
        letters=sum(state.letters for state in groups),
        findings=now.findings,
        findings_at=now.findings_ms,
        findings_problem=now.findings_problem,
    )


class HistoryQuery(Query, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    minutes: Annotated[int, msgspec.Meta(ge=1, le=60)] = 60


class HistoryAnswer(Struct, kw_only=True):
    name: str
    #: [milliseconds since 1970, value]
    points: list[list[float]]


@endpoint("GET", "/api/history", tag="overview")
async def history(call: Call, query: HistoryQuery) -> HistoryAnswer:
    """A number over the last hour: in, out, lag, in:BROKER, disk:BROKER, lag:GROUP, topic:TOPIC."""
    call.console.gatherer.asked()
    since = round(time.time() * 1000) - query.minutes * 60_000
    points = [[at_ms, value] for at_ms, value in call.console.gatherer.history.since(query.name, since)]
    return HistoryAnswer(name=query.name, points=points)


@endpoint("GET", "/api/events", tag="overview")
async def events(call: Call) -> Response:
    """A stream of server-sent events: beat, survey, findings, job."""
    if call.console.hub.watchers >= MOST_PAGES:
        raise Problem(429, f"{MOST_PAGES} pages are open already; this one is shown without live numbers")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(call.console.hub.stream(), media_type="text/event-stream", headers=headers)


@endpoint("POST", "/api/doctor", tag="overview", changes=False)
async def look_again(call: Call) -> Done:
    """Let the doctor look at the cluster now."""
    await call.console.gatherer.examine_now()
    return Done(done=f"{len(call.console.gatherer.now.findings)} findings")


class AuditPage(Struct, kw_only=True):
    total: int
    rows: list[AuditRow]


@endpoint("GET", "/api/audit", tag="overview")
async def audit(call: Call, query: ListQuery) -> AuditPage:
    """The newest changes that were made through this console; all of them are in its audit log."""
    text = query.q.lower()
    rows = [row for row in call.console.audit.recent() if text in f"{row.who} {row.action} {row.outcome}".lower()]
    total, shown = paged(rows, query, {"at": lambda row: row.at}, "-at")
    return AuditPage(total=total, rows=shown)
