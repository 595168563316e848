"""Shell completion: names of topics, groups and brokers, asked of the cluster while somebody types.

A shell that waits is worse than one that does not complete: one short try, and nothing on any failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

_PATIENCE_S = 0.8


def complete_topic(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda admin: admin.topics())


def complete_group(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda admin: admin.groups())


def complete_broker(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda admin: admin.masters())


def _names(
    context: click.Context, incomplete: str, ask: Callable[..., Awaitable[list[str] | dict[str, str]]]
) -> list[str]:
    import logging
    import os

    from arrowmq.cli.link import DEFAULT_NAMESRV
    from arrowmq.client.admin import Admin
    from arrowmq.client.errors import ArrowMQError

    logging.getLogger("arrowmq").setLevel(logging.CRITICAL)
    namesrv = context.params.get("namesrv") or os.environ.get("ARROWMQ_NAMESRV") or DEFAULT_NAMESRV

    async def asked() -> list[str]:
        async with asyncio.timeout(_PATIENCE_S), Admin(namesrv, start_timeout_s=_PATIENCE_S) as admin:
            return list(await ask(admin))

    try:
        return [name for name in asyncio.run(asked()) if name.startswith(incomplete)]
    except (ArrowMQError, OSError, TimeoutError):
        return []
