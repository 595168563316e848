"""Templates, and what every page has: words, who looks, where it is, how numbers and times are written."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from arrowmq.console.api.declare import Call, Struct, decoded
from arrowmq.console.console import Console
from arrowmq.console.pages.safe_text import visible
from arrowmq.console.pages.words import LANGUAGES, NAMES, Words, language_of
from arrowmq.inspect.texts import bytes_text
from arrowmq.wire.releases import version_name

#: How many rows a file has, by the parameter that lists of this kind take
DOWNLOADED = {"size": 1000, "limit": 500}

#: (name, address, icon), as the menu shows them
MENU = (
    ("overview", "/", "gauge"),
    ("topics", "/topics", "stack"),
    ("groups", "/groups", "people"),
    ("messages", "/messages", "mail"),
    ("letters", "/letters", "skull"),
    ("scheduled", "/scheduled", "clock"),
    ("transactions", "/transactions", "half"),
    ("trace", "/trace", "path"),
    ("cluster", "/cluster", "nodes"),
    ("clients", "/clients", "plug"),
    ("users", "/users", "key"),
    ("settings", "/settings", "sliders"),
    ("metrics", "/metrics", "chart"),
)


@functools.cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("arrowmq.console", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
    )
    made.filters.update(
        u=lambda text: quote(str(text), safe=""),
        num=number_text,
        rate=rate_text,
        bytes=lambda size: "–" if size is None else bytes_text(size),
        percent=lambda ratio: "–" if ratio is None else f"{ratio:.0%}",
        when=time_tag,
        span=span_text,
        ticks=ticked,
        release=lambda ordinal: version_name(ordinal).removeprefix("v").replace("_", "."),
        tail=lambda text: f"…{str(text)[-12:]}" if len(str(text)) > 14 else str(text),
    )
    made.tests["broker_kept"] = lambda topic: str(topic).startswith(("%RETRY%", "%DLQ%"))
    made.globals["menu"] = MENU
    made.globals["version"] = version("arrowmq")
    made.globals["languages"] = [(each, NAMES[each]) for each in LANGUAGES]
    return made


def prepare() -> None:
    """Compiles every template, so that the first visitor does not wait for it."""
    for name in environment().list_templates(extensions=["html"]):
        environment().get_template(name)


def _finalized(value: Any) -> Any:
    """The last thing before any value is written into a page."""
    if value is None:
        return "–"
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


# -- how things are written


def number_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}"


def rate_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def time_tag(timestamp_ms: int | None) -> Markup:
    """UTC here; the page's script writes it in the visitor's zone if that is wanted."""
    if not timestamp_ms or timestamp_ms < 0:
        return Markup("–")
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return Markup(escape(str(timestamp_ms)))
    text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
    return Markup('<time datetime="{}Z" data-ms="{}">{} UTC</time>').format(
        moment.isoformat(timespec="milliseconds").removesuffix("+00:00"), timestamp_ms, text
    )


def span_text(elapsed_ms: float | None) -> str:
    """`90 s`, `12 min`, `3.5 h`: the same in every language."""
    if elapsed_ms is None:
        return "–"
    if elapsed_ms < 1000:
        return f"{elapsed_ms:.0f} ms"
    seconds = elapsed_ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


def ticked(text: str) -> Markup:
    """Commands stand in backticks in the doctor's sentences."""
    parts = visible(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 and number < len(parts) - 1 else escape(part)
        for number, part in enumerate(parts)
    )


# -- a page


@dataclass(slots=True)
class View:
    """One request for a page."""

    request: Request
    console: Console
    call: Call
    words: Words

    @classmethod
    def of(cls, console: Console, request: Request) -> View:
        call = Call(console, request.scope["visitor"], request.client.host if request.client else "?")
        language = language_of(request.cookies.get("lang", ""), request.headers.get("accept-language", ""))
        return cls(request, console, call, Words(language))

    def query(self, kind: type[Struct]) -> Any:
        pairs = {name: value for name, value in self.request.query_params.items() if name in _fields(kind)}
        pairs.update({name: str(value) for name, value in self.request.path_params.items()})
        return decoded(pairs, kind)

    def link(self, **changes: object) -> str:
        """This page with other parameters: how lists are sorted, filtered and turned over."""
        pairs = dict(self.request.query_params)
        pairs.update({name: str(value) for name, value in changes.items()})
        text = urlencode({name: value for name, value in pairs.items() if value != ""})
        path = quote(self.request.url.path, safe="/%")
        return f"{self._path()}?{text}" if text else path

    def _path(self) -> str:
        return quote(self.request.scope["path"], safe="/:@")

    def api_link(self, path: str, form: str, most: str = "size", *, is_own: bool = True) -> str:
        """A list as a file. `most` names the parameter that says how long it may be, if it has one; `is_own`: it is
        what this page lists, so this page's filter applies."""
        pairs = dict(self.request.query_params) if is_own else {}
        pairs = {name: value for name, value in pairs.items() if name not in ("page", "size", "tab")}
        if most:
            pairs[most] = str(DOWNLOADED[most])
        return f"{path}?{urlencode({**pairs, 'format': form})}"

    def sort_link(self, name: str) -> str:
        now = self.request.query_params.get("sort", "")
        return self.link(sort=f"-{name}" if now == name else name, page="")

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        cookies = self.request.cookies
        theme = cookies.get("theme", "")
        snapshot = self.console.gatherer.now
        visitor = self.call.visitor
        text = (
            environment()
            .get_template(template)
            .render(
                t=self.words,
                lang=self.words.language,
                theme=theme if theme in ("dark", "light") else "",
                zone="utc" if cookies.get("zone") == "utc" else "local",
                view=self,
                visitor=visitor,
                csrf=self.console.sessions.csrf_of(visitor) if visitor is not None else "",
                is_read_only=self.console.options.is_read_only,
                namesrv=self.console.options.namesrv,
                cluster_problem=snapshot.problem,
                is_denied=snapshot.is_denied,
                asked=self.request.query_params,
                **values,
            )
        )
        return HTMLResponse(text, status)


@functools.cache
def _fields(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_encode_fields__)
