"""`arrowmq server`, `arrowmq namesrv` and `arrowmq broker`: run a node until it is told to stop.

One line with the word `ready` goes to standard output once clients can connect and the broker is in the route;
everything else goes to standard error. SIGTERM and SIGINT stop the node with everything persisted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from arrowmq.cli import BROKER_COMMANDS, LazyGroup

DEFAULT_DIRECTORY = "arrowmq-data"
NAMESRV_PORT = 9876
BIND = "arrowmq.bind"
BROKER_PORT = 10911
CONSOLE_PORT = 8082

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _remember_bind(context: click.Context, option: click.Parameter, address: str | None) -> None:
    """Becomes the setting `bindAddress` where settings are read (`running.read_settings`)."""
    if address is not None:
        context.meta[BIND] = address


def common_options(command: Decorated) -> Decorated:
    for option in (
        click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info"),
        click.option(
            "--bind",
            metavar="ADDRESS",
            expose_value=False,
            callback=_remember_bind,
            help="Listen on this address only; 127.0.0.1 serves this machine alone.",
        ),
        click.option("--stop-with-stdin", is_flag=True, hidden=True, help="Stop when standard input ends."),
        click.option(
            "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting by Apache's name; may be repeated."
        ),
        click.option(
            "-c",
            "--config",
            "config_file",
            type=click.Path(),
            metavar="FILE",
            help="A file of Apache's form.",
        ),
    ):
        command = option(command)
    return command


PORT = click.IntRange(0, 65535)


@click.command()
@click.option("--dir", "directory", type=click.Path(file_okay=False), help=f"Data directory [./{DEFAULT_DIRECTORY}].")
@click.option("--namesrv-port", type=PORT, help=f"Port of the NameServer [{NAMESRV_PORT}].")
@click.option("--port", type=PORT, help=f"Port of the broker; two below it is used as well [{BROKER_PORT}].")
@click.option("--name", help="Name of the broker [this machine's name].")
@click.option("--proxy-port", type=PORT, help="Port for gRPC clients, with the extra grpc; 0 takes a free one [8081].")
@click.option("--no-proxy", is_flag=True, help="Serve no gRPC clients.")
@click.option("--brokers", type=click.IntRange(1, 64), default=1, show_default=True, help="Brokers, a process each.")
@click.option("--console", is_flag=True, help="A web page for it, on this machine, in a process of its own.")
@click.option("--console-port", type=PORT, default=CONSOLE_PORT, show_default=True, help="Port of that page.")
@click.option("--replicas", is_flag=True, help="One set of brokers that elects its master, with a controller.")
@common_options
def server(
    directory: str | None,
    namesrv_port: int | None,
    port: int | None,
    name: str | None,
    proxy_port: int | None,
    no_proxy: bool,
    brokers: int,
    console: bool,
    console_port: int,
    replicas: bool,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a NameServer and a broker in one process.

    With --brokers 3 --replicas, a trio that survives the loss of any of its brokers, on one machine, to try it.

    Example: arrowmq server --dir data --namesrv-port 9876 --port 10911 --set autoCreateTopicEnable=false
    """
    from arrowmq.cli.serve import running

    properties = running.read_settings(config_file, settings, {"brokerName": name})
    namesrv_port = NAMESRV_PORT if namesrv_port is None else namesrv_port
    broker_port = running.port_of(port, properties, BROKER_PORT)
    root = running.directory_of(directory, properties, DEFAULT_DIRECTORY)
    if no_proxy and proxy_port is not None:
        raise click.UsageError("--no-proxy and --proxy-port: one of them, please")
    proxy = running.proxy_of(proxy_port, is_default=not no_proxy)
    more = []
    if console:
        from arrowmq.cli.serve.console_process import console_part

        more.append(console_part(console_port, root / "console"))
    if replicas and brokers < 2:
        raise click.UsageError("--replicas makes one set out of several brokers: give --brokers 3")
    if brokers == 1:
        running.run(
            lambda: running.node(root, properties, namesrv_port, broker_port, proxy, more),
            log_level=log_level,
            stop_with_stdin=stop_with_stdin,
        )
    else:
        from arrowmq.cli.serve import broker_processes as family

        family.run(
            root,
            properties,
            namesrv_port,
            broker_port,
            brokers,
            proxy_port,
            log_level=log_level,
            more=more,
            replicas=replicas,
        )


@click.command()
@click.option("--port", type=PORT, help=f"Port to listen on [{NAMESRV_PORT}].")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Directory of kvConfig.json [~/namesrv].")
@common_options
def namesrv(
    port: int | None,
    directory: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a NameServer.

    Example: arrowmq namesrv --port 9876
    """
    from arrowmq.cli.serve import running

    properties = running.read_settings(config_file, settings, {})
    if config_file is not None:
        properties.setdefault("configStorePath", str(Path(config_file).absolute()))
    if directory is not None:
        properties["kvConfigPath"] = str(Path(directory) / "kvConfig.json")
        properties.setdefault("configStorePath", str(Path(directory) / "namesrv.properties"))
    namesrv_port = running.port_of(port, properties, NAMESRV_PORT)
    root = Path(directory) if directory is not None else Path.home()
    running.run(
        lambda: running.node(root, properties, namesrv_port, None), log_level=log_level, stop_with_stdin=stop_with_stdin
    )


@click.group(cls=LazyGroup, table=BROKER_COMMANDS, invoke_without_command=True)
@click.option("-n", "--namesrv", "namesrv_addr", metavar="HOST:PORT[;HOST:PORT]", help="The NameServers.")
@click.option("--name", help="Name of the broker [this machine's name].")
@click.option("--port", type=PORT, help=f"Port to listen on; two below it is used as well [{BROKER_PORT}].")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help=f"The store [./{DEFAULT_DIRECTORY}].")
@click.option("--proxy-port", type=PORT, help="Serve gRPC clients on this port; 0 takes a free one [none].")
@common_options
@click.pass_context
def broker(
    context: click.Context,
    namesrv_addr: str | None,
    name: str | None,
    port: int | None,
    directory: str | None,
    proxy_port: int | None,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
    stop_with_stdin: bool,
) -> None:
    """Run a broker. `arrowmq broker config` shows and changes the settings of one that runs.

    Example: arrowmq broker -n localhost:9876 --name broker-a --port 10911 --dir store-a -c broker.conf
    """
    if context.invoked_subcommand is not None:
        return
    from arrowmq.cli.serve import running

    properties = running.read_settings(config_file, settings, {"namesrvAddr": namesrv_addr, "brokerName": name})
    running.check_namesrv(properties)
    broker_port = running.port_of(port, properties, BROKER_PORT)
    root = running.directory_of(directory, properties, DEFAULT_DIRECTORY)
    proxy = running.proxy_of(proxy_port, is_default=False)
    running.run(
        lambda: running.node(root, properties, None, broker_port, proxy),
        log_level=log_level,
        stop_with_stdin=stop_with_stdin,
    )
