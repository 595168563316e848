"""`arrowmq proxy`: serve the gRPC clients of RocketMQ 5 before brokers that a NameServer knows."""

from __future__ import annotations

import os

import click

from arrowmq.client.errors import InvalidUse
from arrowmq.client.options import namesrv_addresses
from arrowmq.config import ConfigError
from arrowmq.server import build_proxy_node, grpc_is_installed

GRPC_PORT = 8081
_PORT = click.IntRange(0, 65535)


@click.command()
@click.option("-n", "--namesrv", "namesrv_addr", metavar="HOST:PORT[;HOST:PORT]", help="The NameServers.")
@click.option("--port", type=_PORT, help=f"Port for gRPC clients; 0 takes a free one [{GRPC_PORT}].")
@click.option("-c", "--config", "config_file", type=click.Path(), metavar="FILE", help="Apache's rmq-proxy.json.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting by Apache's name; may be repeated."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--stop-with-stdin", is_flag=True, hidden=True, help="Stop when standard input ends.")
def proxy(
    namesrv_addr: str | None,
    port: int | None,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a gRPC proxy before a cluster: it keeps nothing, and any number may stand side by side.

    Example: arrowmq proxy -n localhost:9876 --port 8081
    """
    from arrowmq.cli.serve import running

    if not grpc_is_installed():
        raise click.ClickException("a proxy needs the extra grpc: pip install 'arrowmq[grpc]'")
    from arrowmq.proxy.config import read_proxy_file

    try:
        properties = read_proxy_file(config_file) if config_file is not None else {}
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    properties.update(running.read_settings(None, settings, {"namesrvAddr": namesrv_addr}))
    if port is not None:
        properties["grpcServerPort"] = str(port)
    if not properties.get("namesrvAddr") and os.environ.get("NAMESRV_ADDR"):
        properties["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    try:
        namesrv_addresses(properties.get("namesrvAddr") or "")
    except InvalidUse as wrong:
        raise click.UsageError(str(wrong)) from wrong
    running.run(lambda: build_proxy_node(properties), log_level=log_level, stop_with_stdin=stop_with_stdin)
