"""An endpoint is a function with annotations: its path, query and body are structs, its answer is one.

    @endpoint("GET", "/api/topics", tag="topics")
    async def topics(call: Call, query: TopicsQuery) -> TopicPage: ...

From the annotations come decoding, checking, encoding, CSV, and the OpenAPI page. What a struct lacks is refused.
"""

from __future__ import annotations

import csv
import inspect
import io
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from arrowmq.client.admin.inspect import each_of
from arrowmq.console.doors.sessions import Visitor
from arrowmq.console.errors import Problem, bad_request, problem_of

if TYPE_CHECKING:
    from arrowmq.client.admin import Admin
    from arrowmq.console.console import Console

_Row = TypeVar("_Row")
_Kept = TypeVar("_Kept")

PAGE_SIZE = 50
LARGEST_PAGE = 1000


class Struct(msgspec.Struct, kw_only=True, rename="camel"):
    """What the API takes and gives; its JSON is in camelCase, as all of RocketMQ's."""


class Query(Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class ListQuery(Query, kw_only=True):
    """A page of a list: what it contains, how it is sorted (`-lag`: the largest first), where it begins."""

    q: typing.Annotated[str, msgspec.Meta(max_length=500)] = ""
    sort: typing.Annotated[str, msgspec.Meta(max_length=50)] = ""
    page: typing.Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    size: typing.Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = PAGE_SIZE


Name = typing.Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Done(Struct, kw_only=True):
    """What was changed, in a sentence."""

    done: str


@dataclass(slots=True)
class Call:
    console: Console
    visitor: Visitor
    address: str

    async def admin(self) -> Admin:
        """Asks and changes with the rights of the visitor."""
        return await self.console.admin_of(self.visitor)

    async def kept(self, key: tuple[object, ...], kept_s: float, ask: Callable[[Admin], Awaitable[_Kept]]) -> _Kept:
        """An answer of the brokers, shared for some seconds by all who ask with the same rights."""
        admin = await self.admin()
        return await self.console.cache.get((self.visitor.credentials, *key), kept_s, lambda: ask(admin))


Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    tag: str
    handler: Handler
    query: type[Struct] | None
    body: type[Struct] | None
    answer: Any
    summary: str
    changes: bool

    @property
    def path_names(self) -> list[str]:
        return [part.strip("{}").partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


ENDPOINTS: list[Endpoint] = []


def endpoint(method: str, path: str, *, tag: str, changes: bool | None = None) -> Callable[[Handler], Handler]:
    """`changes`: whether the audit log notes it; everything but GET, unless said otherwise."""

    def declare(handler: Handler) -> Handler:
        hints = typing.get_type_hints(handler, include_extras=True)
        ENDPOINTS.append(
            Endpoint(
                method,
                path,
                tag,
                handler,
                hints.get("query"),
                hints.get("body"),
                hints["return"],
                inspect.cleandoc(handler.__doc__ or ""),
                method != "GET" if changes is None else changes,
            )
        )
        return handler

    return declare


# -- serving


async def serve(console: Console, each: Endpoint, request: Request) -> Response:
    call = Call(console, request.scope["visitor"], request.client.host if request.client else "?")
    detail: dict[str, Any] = {}
    try:
        arguments: dict[str, Any] = {}
        pairs = dict(request.query_params)
        form = pairs.pop("format", "json")
        if form not in ("json", "csv"):
            raise bad_request(f"format={form[:40]}: there are json and csv")
        pairs.update({name: str(value) for name, value in request.path_params.items()})
        if each.query is not None:
            arguments["query"] = decoded(pairs, each.query)
        elif unknown := set(pairs) - set(each.path_names):
            raise bad_request(f"unknown parameters: {', '.join(sorted(unknown))[:200]}")
        detail = dict(pairs)
        if each.body is not None:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Problem(415, "the body must be JSON: Content-Type: application/json")
            raw = await request.body()
            try:
                detail |= msgspec.to_builtins(msgspec.json.decode(raw, type=dict[str, Any]))
                arguments["body"] = msgspec.json.decode(raw, type=each.body)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as wrong:
                raise bad_request(f"the body is not as it must be: {wrong}") from wrong
        answer = await each.handler(call, **arguments)
    except Exception as error:
        problem = problem_of(error)
        if each.changes:
            console.audit.note(call.visitor.who, call.address, name_of(each), detail, problem.status, problem.sentence)
        return json_response({"error": problem.sentence}, problem.status)
    if each.changes:
        outcome = answer.done if isinstance(answer, Done) else "done"
        console.audit.note(call.visitor.who, call.address, name_of(each), detail, 200, outcome)
    if isinstance(answer, Response):
        return answer
    if form == "csv":
        rows = getattr(answer, "rows", None)
        if rows is None:
            return json_response({"error": "this answer is no table: format=csv does not apply"}, 400)
        name = each.path.rstrip("/").rpartition("/")[2].strip("{}") or "table"
        disposition = f'attachment; filename="{name}.csv"'
        return Response(csv_text(rows), media_type="text/csv", headers={"content-disposition": disposition})
    return json_response(answer)


def name_of(each: Endpoint) -> str:
    return f"{each.method} {each.path}"


def decoded(pairs: dict[str, str], kind: type[Struct]) -> Any:
    """A struct from text: query strings know no types. An empty value is as good as none."""
    given = {name: value for name, value in pairs.items() if value != ""}
    try:
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, OverflowError, ValueError) as wrong:
        raise bad_request(f"{wrong}") from wrong


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def csv_text(rows: list[Any]) -> str:
    """Cells that a spreadsheet would take for a formula begin with an apostrophe: they may be anybody's text."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, row in enumerate(rows):
        fields = msgspec.to_builtins(row)
        if number == 0:
            writer.writerow(fields)
        writer.writerow([_cell(value) for value in fields.values()])
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# -- lists


async def for_each(rows: Sequence[_Row], ask: Callable[[_Row], Awaitable[None]]) -> None:
    """Fill in what is asked for row by row, some of them at once."""
    await each_of(range(len(rows)), lambda index: ask(rows[index]))


def paged(
    rows: list[Any], query: ListQuery, sorts: dict[str, Callable[[Any], Any]], default: str
) -> tuple[int, list[Any]]:
    """(how many there are, those of this page) of rows that already fit the query's text."""
    sort = query.sort or default
    name = sort.removeprefix("-")
    if name not in sorts:
        raise bad_request(f"sort={name}: there are {', '.join(sorted(sorts))}")
    rows = sorted(rows, key=sorts[name], reverse=sort.startswith("-"))
    begin = (query.page - 1) * query.size
    return len(rows), rows[begin : begin + query.size]
