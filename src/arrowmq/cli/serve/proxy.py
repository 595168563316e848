"""`arrowmq proxy`: serve gRPC clients and remoting clients before brokers that a NameServer knows."""

from __future__ import annotations

import os

import click

from arrowmq.client.errors import InvalidUse
from arrowmq.client.options import namesrv_addresses
from arrowmq.config import ConfigError
from arrowmq.server import build_proxy_node, grpc_is_installed

GRPC_PORT, REMOTING_PORT = 8081, 8080
_PORT = click.IntRange(0, 65535)


@click.command()
@click.option("-n", "--namesrv", "namesrv_addr", metavar="HOST:PORT[;HOST:PORT]", help="The NameServers.")
@click.option("--port", type=_PORT, help=f"Port for gRPC clients; 0 takes a free one [{GRPC_PORT}].")
@click.option(
    "--remoting-port",
    type=_PORT,
    help=f"Port for remoting clients (4.x and 5.x); 0 takes a free one [{REMOTING_PORT}].",
)
@click.option("--no-remoting", is_flag=True, help="Serve gRPC clients alone.")
@click.option("-c", "--config", "config_file", type=click.Path(), metavar="FILE", help="Apache's rmq-proxy.json.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting by Apache's name; may be repeated."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--stop-with-stdin", is_flag=True, hidden=True, help="Stop when standard input ends.")
def proxy(
    namesrv_addr: str | None,
    port: int | None,
    remoting_port: int | None,
    no_remoting: bool,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a proxy before a cluster: it keeps nothing, and any number may stand side by side.

    Clients of the 5.x line connect by gRPC. Those of the remoting protocol take the remoting port for their
    NameServer, and are told that all brokers are there.

    Example: arrowmq proxy -n localhost:9876 --port 8081 --remoting-port 8080
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
    if no_remoting and remoting_port is not None:
        raise click.UsageError("--remoting-port and --no-remoting: only one of them can be meant")
    if no_remoting or remoting_port is not None:
        properties["remotingListenPort"] = "-1" if no_remoting else str(remoting_port)
    if not properties.get("namesrvAddr") and os.environ.get("NAMESRV_ADDR"):
        properties["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    try:
        namesrv_addresses(properties.get("namesrvAddr") or "")
    except InvalidUse as wrong:
        raise click.UsageError(str(wrong)) from wrong
    running.run(lambda: build_proxy_node(properties), log_level=log_level, stop_with_stdin=stop_with_stdin)
