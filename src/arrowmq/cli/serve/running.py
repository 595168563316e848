"""How a node is run from the command line: settings, logging, the loop, signals, and what a failure looks like."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from arrowmq.cli.serve.command import BIND
from arrowmq.config import ConfigError, parse_settings, read_properties
from arrowmq.remoting.address import AddressError, parse_addresses
from arrowmq.server import Node, Part, build_node, grpc_is_installed

log = logging.getLogger("arrowmq")

STARTED = time.monotonic()
GRPC_PORT = 8081


def read_settings(
    config_file: str | None, settings: tuple[str, ...], options: Mapping[str, str | None]
) -> dict[str, str]:
    """File, then --set, then options of their own: the later wins."""
    try:
        properties = read_properties(config_file) if config_file is not None else {}
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    try:
        properties.update(parse_settings(settings))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    properties.update({key: value for key, value in options.items() if value is not None})
    bind = click.get_current_context().meta.get(BIND)
    if bind is not None:
        properties["bindAddress"] = bind
    return properties


def port_of(option: int | None, properties: dict[str, str], default: int) -> int:
    """The port from the option, else from `listenPort`, which then is not left for anybody else to read."""
    text = properties.pop("listenPort", str(default)).strip()
    if option is not None:
        return option
    if not text.isdigit() or int(text) > 65535:
        raise click.ClickException(f"listenPort={text}: expected a port, 0 to 65535")
    return int(text)


def directory_of(option: str | None, properties: Mapping[str, str], default: str) -> Path:
    return Path(option or properties.get("storePathRootDir", "").strip() or default)


def check_namesrv(properties: Mapping[str, str]) -> None:
    """A broker without a NameServer, or with one that is no address, should say so before it touches its store."""
    text = properties.get("namesrvAddr") or os.environ.get("NAMESRV_ADDR", "")
    try:
        if not parse_addresses(text):
            raise click.UsageError("a broker needs a NameServer: give it one with -n HOST:PORT, or set namesrvAddr")
    except AddressError as error:
        raise click.UsageError(f"namesrvAddr: {error}") from error


def node(
    root: Path,
    properties: Mapping[str, str],
    namesrv_port: int | None,
    broker_port: int | None,
    proxy: tuple[int | None, bool] = (None, False),
    more: Sequence[Part] = (),
) -> Node:
    with_metrics = {"metricsExporterType": "PROM", **properties} if broker_port is not None else properties
    proxy_port, is_optional = proxy
    return build_node(
        root,
        with_metrics,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        proxy_port=proxy_port,
        is_proxy_optional=is_optional,
        more=more,
    )


def proxy_of(option: int | None, *, is_default: bool) -> tuple[int | None, bool]:
    """The port for gRPC clients, and whether a server may go on without it: one that nobody asked for by number."""
    if option is None and not is_default:
        return None, False
    if not grpc_is_installed():
        if option is not None:
            raise click.ClickException("--proxy-port needs the extra grpc: pip install 'arrowmq[grpc]'")
        return None, False
    return (GRPC_PORT, True) if option is None else (option, False)


def run(build: Callable[[], Node], *, log_level: str, stop_with_stdin: bool) -> None:
    """Run a node until a signal; a failure to start ends with one sentence and exit code 1."""
    configure_logging(log_level)
    allow_many_connections()
    # Only what starting may raise because of the machine or its settings; anything else is a defect and shows itself.
    from arrowmq.store.errors import StoreError

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(build, stop_with_stdin))
    except (ConfigError, AddressError, OSError, StoreError) as error:
        log.debug("start failed", exc_info=error)
        raise click.ClickException(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


async def _serve(build: Callable[[], Node], stop_with_stdin: bool) -> None:
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    if stop_with_stdin:
        watch_stdin(stop.set)
    running = build()
    starting = asyncio.ensure_future(running.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return
    try:
        starting.result()
    except BaseException:
        stopping.cancel()
        raise
    # What exists now lives as long as the server: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    print(ready_line(running), flush=True)
    await stopping
    began = time.monotonic()
    await running.stop()
    log.info("stopped seconds=%.2f", time.monotonic() - began)


def ready_line(running: Node) -> str:
    parts = []
    if running.namesrv is not None:
        parts.append(f"NameServer {running.namesrv_address}")
    if running.controller is not None:
        parts.append(f"controller {running.controller.address}")
    if running.broker is not None:
        parts.append(f"broker {running.broker.config.broker_name} at {running.broker_address}")
    if running.replica is not None:
        parts.append(f"copy of broker {running.replica.broker_name} in {running.replica.directory}")
    if running.proxy is not None and running.proxy.port:
        parts.append(f"gRPC proxy at {running.proxy.address}")
    parts += running.also_ready
    return f"ready: {', '.join(parts)} ({time.monotonic() - STARTED:.2f} s)"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def on_stop_signals(callback: Callable[[], object]) -> None:
    """The first SIGTERM or SIGINT stops cleanly; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def received(number: signal.Signals) -> None:
        log.info("stopping signal=%s", number.name)
        for other in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)
        callback()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received, number)


def watch_stdin(callback: Callable[[], object]) -> None:
    """A process started by another one follows it: when that ends, even by kill -9, our standard input ends."""
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(fd, 4096):
            loop.remove_reader(fd)
            callback()

    loop.add_reader(fd, readable)


def configure_logging(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )


def allow_many_connections() -> None:
    """Each connection is a file descriptor, and the usual soft limit of 1024 is for desktop programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
