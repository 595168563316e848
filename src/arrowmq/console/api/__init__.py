"""The HTTP API under `/api/`: one module a subject, each a few functions from typed values to typed values.

In: query and body as declared structs. Out: structs, which become JSON or CSV; the pages call the same functions.
`declare` turns functions into routes, `openapi` into a description of them. The subjects: `topics`, `consumers`,
`messages`, `cluster`; `session` and `search` serve every page.
"""

from __future__ import annotations

from arrowmq.console.api import search, session, topics
from arrowmq.console.api.cluster import metrics, overview, pairs, settings, users
from arrowmq.console.api.consumers import clients, groups, offsets
from arrowmq.console.api.messages import finding, letters, life, scheduled, sending, trace, transactions

ALL = (
    overview,
    session,
    search,
    topics,
    groups,
    offsets,
    finding,
    sending,
    life,
    letters,
    scheduled,
    transactions,
    trace,
    pairs,
    clients,
    users,
    settings,
    metrics,
)
