"""`arrowmq controller`: run a controller until it is told to stop."""

from __future__ import annotations

from pathlib import Path

import click

from arrowmq.cli.examples import examples
from arrowmq.cli.serve.command import PORT, common_options
from arrowmq.controller.config import DEFAULT_PORT


@click.command(
    epilog=examples(
        "arrowmq controller --dir controller-data --port 9878",
        "arrowmq controller --etcd http://10.0.0.1:2379,http://10.0.0.2:2379 --set controllerDLegerSelfId=n1",
    )
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Its decisions [./controller-data].")
@click.option("--port", type=PORT, help=f"Port to listen on [{DEFAULT_PORT}].")
@click.option("--etcd", metavar="URL,URL,…", help="Keep decisions in this etcd, shared with other controllers.")
@common_options
def controller(
    directory: str | None,
    port: int | None,
    etcd: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a controller: it gives brokers their ids, watches them, and elects masters.

    Alone, it keeps its decisions in a file of its own, forced to disk. With --etcd, several share one etcd cluster and
    one of them leads.
    """
    from arrowmq.cli.serve import running
    from arrowmq.server import build_node

    properties = running.read_settings(config_file, settings, {"etcdEndpoints": etcd})
    root = Path(directory or properties.get("controllerStorePath", "").strip() or "controller-data")
    properties["controllerStorePath"] = str(root)
    if config_file is not None:
        properties.setdefault("configStorePath", str(Path(config_file).absolute()))
    listen = running.port_of(port, properties, _peer_port(properties))
    running.run(
        lambda: build_node(root, properties, controller_port=listen),
        log_level=log_level,
        stop_with_stdin=stop_with_stdin,
    )


def _peer_port(properties: dict[str, str]) -> int:
    """Apache's controllers listen where `controllerDLegerPeers` names them."""
    from arrowmq.config import ConfigError
    from arrowmq.controller.config import ControllerConfig

    try:
        place = ControllerConfig.from_properties(properties)[0].own_peer()
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    return DEFAULT_PORT if place is None else place[1]
