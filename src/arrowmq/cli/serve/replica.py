"""`arrowmq replica`: copy the log of a broker, ours or Apache's, for Spark and tools."""

from __future__ import annotations

from pathlib import Path

import click

from arrowmq.cli.examples import examples
from arrowmq.cli.serve.command import common_options


@click.command(
    epilog=examples(
        "arrowmq replica --of localhost:9876 --broker broker-a --dir archive/broker-a",
        "arrowmq replica --of 10.0.0.1:9876 --broker broker-a --dir archive/broker-a --set fileReservedTime=8760",
        "arrowmq store stats archive/broker-a",
    )
)
@click.option("--of", "namesrv", required=True, metavar="HOST:PORT[;HOST:PORT]", help="The NameServers of the broker.")
@click.option("--broker", "broker_name", required=True, help="Name of the broker whose master is copied.")
@click.option("--dir", "directory", required=True, type=click.Path(file_okay=False), help="The copy.")
@common_options
def replica(
    namesrv: str,
    broker_name: str,
    directory: str,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Copy the log of a broker as it grows, without being a part of its cluster.

    It appears in no route, takes no messages and no offsets, and keeps messages for ever unless fileReservedTime (in
    hours) says otherwise. Spark's `arrowmq.store` and `arrowmq store` read its folder while it grows.
    """
    from arrowmq.cli.serve import running
    from arrowmq.server import Node, replica_part

    properties = running.read_settings(config_file, settings, {})
    running.run(
        lambda: Node([replica_part(namesrv, broker_name, Path(directory), properties)]),
        log_level=log_level,
        stop_with_stdin=stop_with_stdin,
    )
