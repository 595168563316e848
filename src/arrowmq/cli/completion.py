"""`arrowmq completion SHELL`: click's completion script for a shell, to be evaluated in its start-up file."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from arrowmq.cli.examples import examples

SHELLS = ["bash", "zsh", "fish"]


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
