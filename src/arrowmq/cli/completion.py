"""Shell completion: `arrowmq completion SHELL` prints click's script for a shell, and while somebody types the names of
topics, groups and brokers are asked of the cluster.

A shell that waits is worse than one that does not complete: one short try, and nothing on any failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click
from click.shell_completion import get_completion_class

from arrowmq.cli.examples import examples

SHELLS = ["bash", "zsh", "fish"]
_PATIENCE_S = 0.8


@click.command(
    epilog=examples(
        'eval "$(arrowmq completion bash)" in ~/.bashrc',
        "arrowmq completion fish > ~/.config/fish/completions/arrowmq.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, and names of topics, groups and brokers."""
    from arrowmq.cli import arrowmq

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice above"
    click.echo(kind(arrowmq, {}, "arrowmq", "_ARROWMQ_COMPLETE").source())


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

    from arrowmq.cli.cluster_link import DEFAULT_NAMESRV
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
