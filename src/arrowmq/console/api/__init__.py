"""The HTTP API under `/api/`: one module a subject, each a few functions from typed values to typed values.

In: query and body as declared structs. Out: structs, which become JSON or CSV; the pages call the same functions.
`declare` turns functions into routes, `openapi` into a description of them.
"""

from __future__ import annotations

from arrowmq.console.api import (
    clients,
    cluster,
    groups,
    letters,
    life,
    messages,
    metrics,
    offsets,
    overview,
    scheduled,
    search,
    session,
    settings,
    topics,
    trace,
    transactions,
    users,
)

ALL = (
    overview,
    session,
    search,
    topics,
    groups,
    offsets,
    messages,
    life,
    letters,
    scheduled,
    transactions,
    trace,
    cluster,
    clients,
    users,
    settings,
    metrics,
)
