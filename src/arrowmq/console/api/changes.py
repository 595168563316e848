"""What changes of topics, groups and offsets share: found first, confirmed by name, seen at once afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from arrowmq.client.admin import Admin
from arrowmq.console.api.declare import Call
from arrowmq.console.errors import bad_request, not_found
from arrowmq.console.live.snapshot import Snapshot

_State = TypeVar("_State")


async def found_in(call: Call, table: Callable[[Snapshot], Mapping[str, _State]], name: str, kind: str) -> _State:
    """What the gatherer knows under this name; what it does not know may be new, so it looks once more."""
    gatherer = call.console.gatherer
    state = table(await gatherer.fresh()).get(name) or table(await gatherer.newer()).get(name)
    if state is None:
        raise not_found(f"{kind} {name} does not exist on any broker")
    return state


def confirmed(given: str, name: str, kind: str, why: str) -> None:
    """Nothing is lost by a slip: the name is typed once more."""
    if given != name:
        raise bad_request(f"type the {kind}'s name to confirm: {why}")


@asynccontextmanager
async def changing(call: Call) -> AsyncIterator[Admin]:
    """The visitor's admin for a change. Whatever becomes of it, the next page shows the cluster as it is then."""
    admin = await call.admin()
    try:
        yield admin
    finally:
        call.console.cache.forget()
        await call.console.gatherer.survey()
