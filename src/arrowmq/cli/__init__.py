"""The `arrowmq` command: `arrowmq <noun> <verb>`.

The nouns stand in `COMMANDS`, each with the place it is loaded from when it is used: a server starts fast because
nothing else is imported for it, and `arrowmq --help` imports none of them. To add a noun, add a line.

In: the words of a command line, an address of a NameServer, answers of brokers. Out: tables for people,
`--json` for scripts, an exit code, one sentence for a failure.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

#  name → where the command is, what it is for
COMMANDS = {
    "server": ("arrowmq.cli.serve.command:server", "Run a NameServer and a broker in one process."),
    "namesrv": ("arrowmq.cli.serve.command:namesrv", "Run a NameServer."),
    "broker": ("arrowmq.cli.serve.command:broker", "Run a broker; `broker config` shows and changes its settings."),
    "replica": ("arrowmq.cli.serve.replica:replica", "Copy the log of a broker, for Spark and tools."),
    "controller": ("arrowmq.cli.serve.controller:controller", "Run a controller: it elects masters."),
    "proxy": ("arrowmq.cli.serve.proxy:proxy", "Run a gRPC proxy before a cluster, for clients of the 5.x line."),
    "topic": ("arrowmq.cli.topic:topic_group", "Create, list, show and delete topics."),
    "group": ("arrowmq.cli.group:group_group", "Consumer groups: list, show, lag, delete."),
    "offset": ("arrowmq.cli.offset:offset_group", "Show and reset the offsets of a group."),
    "message": ("arrowmq.cli.messages.command:message_group", "Send, tail, find, show and explain messages."),
    "dead-letters": ("arrowmq.cli.messages.dead_letters:dead_letters_group", "List, show and resend dead letters."),
    "cluster": ("arrowmq.cli.cluster:cluster_group", "Brokers of a cluster and how they are."),
    "client": ("arrowmq.cli.client:client_group", "Who is connected, with which subscription."),
    "user": ("arrowmq.cli.access.user:user_group", "Create, change, list and delete users."),
    "acl": ("arrowmq.cli.access.acl:acl_group", "Give, take, list and test rights of users."),
    "tls": ("arrowmq.cli.tls:tls_group", "Make certificates for trying TLS."),
    "console": ("arrowmq.cli.console:console", "A web page to see a cluster, find messages, repair what is dead."),
    "store": ("arrowmq.cli.store:store_group", "Check, dump, measure and rebuild a store directory."),
    "pipeline": ("arrowmq.cli.pipeline.command:pipeline_group", "Run Spark pipelines over topics."),
    "bench": ("arrowmq.cli.bench:bench", "Measure a running server."),
    "doctor": ("arrowmq.cli.doctor:doctor", "Look for what is wrong, and say what to do."),
    "completion": ("arrowmq.cli.completion:completion", "Print the script that makes a shell complete commands."),
}
BROKER_COMMANDS = {
    "config": ("arrowmq.cli.broker_config:config_group", "Show and change a broker's settings."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *arguments: Any, table: dict[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table

    def list_commands(self, context: click.Context) -> list[str]:
        del context
        return list(self._table)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        del context
        place, _ = self._table.get(name, ("", ""))
        if not place:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name][1]) for name in self.list_commands(context)])


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: arrowmq server; then, elsewhere: arrowmq topic create orders",
)
@click.version_option(package_name="arrowmq", message="arrowmq %(version)s")
def arrowmq() -> None:
    """RocketMQ in Python: servers, tools and pipelines."""


def main() -> None:
    sys.exit(arrowmq(prog_name="arrowmq"))
