"""Dead letters: whose, why, and sending them again, one edited or many at a rate."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec

from arrowmq.client.admin import Admin
from arrowmq.client.errors import Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.produce.outgoing import Message
from arrowmq.console.api.consumers.groups import state_of
from arrowmq.console.api.declare import Call, Done, ListQuery, Name, Query, Struct, endpoint, paged
from arrowmq.console.api.messages.finding import MessageAnswer, shown
from arrowmq.console.api.messages.sending import decoded_body, send
from arrowmq.console.errors import bad_request, conflict, is_denied, not_found
from arrowmq.console.jobs import record as states
from arrowmq.console.jobs.letters import Letter, LetterFilter, letter_of, parse_place, read_letters
from arrowmq.console.jobs.record import JobRow, ResultRow
from arrowmq.console.jobs.resend import read_one
from arrowmq.inspect.texts import body_text
from arrowmq.wire import properties as prop

MOST_LISTED = 20_000
KEPT_S = 8.0


class LetterGroup(Struct, kw_only=True):
    group: str
    letters: int
    members: int | None = None


class LetterGroups(Struct, kw_only=True):
    total: int
    rows: list[LetterGroup]


@endpoint("GET", "/api/letters", tag="dead letters")
async def letter_groups(call: Call, query: ListQuery) -> LetterGroups:
    """The groups that have dead letters."""
    snapshot = await call.console.gatherer.fresh()
    text = query.q.lower()
    found = [
        LetterGroup(group=state.name, letters=state.letters)
        for state in snapshot.groups.values()
        if state.letters and text in state.name.lower()
    ]
    sorts = {"group": lambda row: row.group.lower(), "letters": lambda row: (row.letters, row.group.lower())}
    total, rows = paged(found, query, sorts, "-letters")
    return LetterGroups(total=total, rows=rows)


# -- of one group


class LettersQuery(ListQuery, kw_only=True):
    group: Name
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    tag: Annotated[str, msgspec.Meta(max_length=255)] = ""
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""
    begin: int | None = None
    end: int | None = None

    def chosen(self) -> LetterFilter:
        return LetterFilter(
            text=self.q,
            topic=self.topic,
            tag=self.tag,
            key=self.key,
            reason=self.reason,
            begin=self.begin,
            end=self.end,
        )


class Share(Struct, kw_only=True):
    name: str
    count: int


class LettersAnswer(Struct, kw_only=True):
    group: str
    #: How many fit, how many there are, and whether all of them were looked at
    total: int
    all: int
    is_complete: bool
    reasons: list[Share]
    origins: list[Share]
    rows: list[Letter]


@endpoint("GET", "/api/letters/{group}", tag="dead letters")
async def letters(call: Call, query: LettersQuery) -> LettersAnswer:
    """The dead letters of a group that fit, the newest first, with how many there are of each reason and origin."""
    await _known(call, query.group)
    every, is_complete = await _all(call, query.group)
    chosen = query.chosen()
    fitting = [letter for letter, body in every if chosen.fits(letter, body)]
    sorts = {
        "stored": lambda row: row.stored,
        "origin": lambda row: (row.origin or "", row.stored),
        "reason": lambda row: (row.reason, row.stored),
        "tries": lambda row: (row.tries, row.stored),
        "tag": lambda row: (row.tag or "", row.stored),
    }
    total, rows = paged(fitting, query, sorts, "-stored")
    jobs = call.console.jobs
    known = await jobs.do(jobs.record.resent, query.group, [row.place for row in rows])
    for row in rows:
        row.resent_as = known[row.place][0] if row.place in known else None
    return LettersAnswer(
        group=query.group,
        total=total,
        all=len(every),
        is_complete=is_complete,
        reasons=[
            Share(name=name, count=count) for name, count in Counter(each.reason for each, _ in every).most_common(20)
        ],
        origins=[
            Share(name=name, count=count)
            for name, count in Counter(each.origin or "?" for each, _ in every).most_common(20)
        ],
        rows=rows,
    )


async def _known(call: Call, group: str) -> int:
    """How often the group tries a message; a group that nobody knows is said to be so."""
    state = await state_of(call, group)
    return next((config.retry_max_times for config in state.configs.values()), 16)


async def _all(call: Call, group: str) -> tuple[list[tuple[Letter, str]], bool]:
    """Every letter with the beginning of its body in which text is searched."""
    retry_max_times = await _known(call, group)

    async def ask(admin: Admin) -> tuple[list[tuple[Letter, str]], bool]:
        found: list[tuple[Letter, str]] = []
        async for letter, message in read_letters(admin, group, retry_max_times):
            found.append((letter, body_text(message.body[:1024])))
            if len(found) >= MOST_LISTED:
                return found, False
        return found, True

    return await call.kept(("letters", group), KEPT_S, ask)


# -- one


class LetterQuery(Query, kw_only=True):
    group: Name
    place: Annotated[str, msgspec.Meta(min_length=7, max_length=400)]


class LetterAnswer(Struct, kw_only=True):
    letter: Letter
    message: MessageAnswer


@endpoint("GET", "/api/letters/{group}/{place}", tag="dead letters")
async def letter(call: Call, query: LetterQuery) -> LetterAnswer:
    """One dead letter with its properties and body."""
    found = await _one(call, query)
    row = letter_of(found, await _known(call, query.group))
    jobs = call.console.jobs
    known = await jobs.do(jobs.record.resent, query.group, [row.place])
    row.resent_as = known[row.place][0] if row.place in known else None
    return LetterAnswer(letter=row, message=shown(found))


async def _one(call: Call, query: LetterQuery) -> ReceivedMessage:
    try:
        parse_place(query.place)
    except ValueError:
        raise bad_request("a place is BROKER:QUEUE:OFFSET:TIME, as the list of letters gives it") from None
    await _known(call, query.group)
    try:
        found = await read_one(await call.admin(), query.group, query.place)
    except Refused as refused:
        if is_denied(refused):
            raise
        raise not_found(str(refused)) from refused
    if found is None:
        raise not_found("this letter is gone: it was too old to be kept, or its place is not right")
    return found


class EditedLetter(Struct, kw_only=True, forbid_unknown_fields=True):
    """A copy to send instead; what is not given stays as it is in the letter."""

    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    body: Annotated[str, msgspec.Meta(max_length=6 << 20)] | None = None
    tag: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    #: Also if it was sent again before
    again: bool = False


@endpoint("POST", "/api/letters/{group}/{place}/resend", tag="dead letters")
async def resend_letter(call: Call, query: LetterQuery, body: EditedLetter) -> Done:
    """Send one dead letter again, as it is or edited; noted in the record, so that no job sends it once more."""
    found = await _one(call, query)
    jobs = call.console.jobs
    known = await jobs.do(jobs.record.resent, query.group, [query.place])
    if query.place in known and not body.again:
        raise conflict(f"this letter was sent again as {known[query.place][0]}; to send it once more, say so")
    row = letter_of(found, 0)
    topic = body.topic or row.origin
    if not topic:
        raise bad_request("the letter does not say which topic it came from: name one")
    own = {name: value for name, value in found.properties.items() if name not in prop.RESERVED}
    copy = Message(
        topic,
        found.body if body.body is None else decoded_body(body.body, "text"),
        found.tag if body.tag is None else body.tag or None,
        found.keys if body.keys is None else body.keys,
        (own if body.properties is None else body.properties) or None,
        order_key=found.properties.get(prop.SHARDING_KEY),
        flag=found.flag,
    )
    # Noted before and after: if the console ends in between, the letter counts as sent until a person says otherwise.
    await jobs.do(jobs.record.note_single, query.group, query.place, "?", states.SENDING)
    try:
        sent = await send(call, copy)
    except Refused:
        await jobs.do(jobs.record.forget_single, query.group, query.place)
        raise
    await jobs.do(jobs.record.note_single, query.group, query.place, sent.msg_id, states.SENT)
    return Done(done=f"sent to {topic} as {sent.msg_id}")


# -- many

Rate = Annotated[float, msgspec.Meta(ge=0.1, le=5000)]


class NewJob(Struct, kw_only=True, forbid_unknown_fields=True):
    """All letters that fit are sent to the topics they came from, at most `rate` a second."""

    filter: LetterFilter = msgspec.field(default_factory=LetterFilter)
    rate: Rate = 100.0
    #: Also those that this console sent again before
    again: bool = False


class JobPage(Struct, kw_only=True):
    total: int
    rows: list[JobRow]


class JobQuery(Query, kw_only=True):
    job: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]


class LetterGroupQuery(Query, kw_only=True):
    group: Name


@endpoint("POST", "/api/letters/{group}/jobs", tag="dead letters")
async def start_job(call: Call, query: LetterGroupQuery, body: NewJob) -> JobRow:
    """Begin to send the letters that fit again; each exactly once by the console's record."""
    tries = await _known(call, query.group)
    jobs = call.console.jobs
    job = await jobs.begin(await call.admin(), query.group, call.visitor.who, body.filter, body.rate, body.again, tries)
    return await jobs.row(job)


@endpoint("GET", "/api/jobs", tag="dead letters")
async def list_jobs(call: Call, query: ListQuery) -> JobPage:
    """Jobs that send dead letters again, the newest first."""
    jobs = call.console.jobs
    text = query.q.lower()
    found = [row for row in await jobs.do(jobs.record.jobs) if text in row.group.lower()]
    total, rows = paged(found, query, {"id": lambda row: row.id, "group": lambda row: row.group}, "-id")
    return JobPage(total=total, rows=rows)


@endpoint("GET", "/api/jobs/{job}", tag="dead letters")
async def get_job(call: Call, query: JobQuery) -> JobRow:
    """One job and how far it is."""
    return await call.console.jobs.row(query.job)


class ResultsQuery(ListQuery, kw_only=True):
    job: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
    state: Annotated[str, msgspec.Meta(max_length=20)] = ""


class ResultPage(Struct, kw_only=True):
    total: int
    rows: list[ResultRow]


@endpoint("GET", "/api/jobs/{job}/letters", tag="dead letters")
async def job_letters(call: Call, query: ResultsQuery) -> ResultPage:
    """What became of each letter of a job."""
    jobs = call.console.jobs
    row = await jobs.row(query.job)
    every = (states.WAITING, states.SENDING, states.SENT, states.FAILED, states.SKIPPED)
    if query.state and query.state not in every:
        raise bad_request(f"state={query.state}: there are {', '.join(every)}")
    counts = {
        states.WAITING: row.waiting,
        states.SENT: row.sent,
        states.FAILED: row.failed,
        states.SKIPPED: row.skipped,
    }
    wanted = (query.state,) if query.state else every
    rows = await jobs.do(jobs.record.letters, query.job, wanted, query.size, (query.page - 1) * query.size)
    return ResultPage(total=counts.get(query.state, row.total), rows=rows)


@endpoint("POST", "/api/jobs/{job}/stop", tag="dead letters")
async def stop_job(call: Call, query: JobQuery) -> JobRow:
    """Stop a job; what was not sent yet stays unsent until it goes on."""
    return await call.console.jobs.halt(query.job)


class GoOn(Struct, kw_only=True, forbid_unknown_fields=True):
    rate: Rate | None = None


@endpoint("POST", "/api/jobs/{job}/go-on", tag="dead letters")
async def go_on_with_job(call: Call, query: JobQuery, body: GoOn) -> JobRow:
    """Go on with a job that was stopped; what it sent before is not sent again."""
    jobs = call.console.jobs
    row = await jobs.row(query.job)
    await jobs.go_on(await call.admin(), query.job, body.rate, await _known(call, row.group))
    return await jobs.row(query.job)
