"""The search box: topics, groups, brokers and ids by what somebody types."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import msgspec

from arrowmq.client import names
from arrowmq.console.api.declare import Call, Query, Struct, endpoint

MOST = 20
KEPT_BY_BROKERS = ("system", "retry", "dead")
_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


class SearchQuery(Query, kw_only=True):
    q: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Hit(Struct, kw_only=True):
    kind: str
    name: str
    url: str


class Hits(Struct, kw_only=True):
    rows: list[Hit]


@endpoint("GET", "/api/search", tag="overview")
async def search(call: Call, query: SearchQuery) -> Hits:
    """What has this in its name; a message id leads to the message."""
    snapshot = await call.console.gatherer.fresh()
    text = query.q.strip()
    word = text.lower()
    rows: list[Hit] = []
    if _ID.fullmatch(text):
        rows.append(Hit(kind="message", name=text.upper(), url=f"/messages/{text.upper()}"))
    topics = [state for state in snapshot.topics.values() if word in state.name.lower()]
    topics.sort(key=lambda state: (not state.name.lower().startswith(word), state.name))
    own = [state.name for state in topics if state.kind not in KEPT_BY_BROKERS]
    others = [state.name for state in topics if state.kind in KEPT_BY_BROKERS]
    groups = sorted(name for name in snapshot.groups if word in name.lower() and not names.is_system_group(name))
    rows += [_hit("topic", name, "topics") for name in own[: MOST // 2]]
    rows += [_hit("group", name, "groups") for name in groups[: MOST // 2]]
    rows += [
        Hit(kind="broker", name=row.broker, url=f"/settings?broker={quote(row.address, safe='')}")
        for row in snapshot.brokers
        if word in row.broker.lower() or word in row.address
    ]
    rows += [_hit("topic", name, "topics") for name in others[:MOST]]
    return Hits(rows=rows[:MOST])


def _hit(kind: str, name: str, folder: str) -> Hit:
    return Hit(kind=kind, name=name, url=f"/{folder}/{quote(name, safe='')}")
