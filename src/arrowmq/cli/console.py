"""`arrowmq console`: the web page for a cluster, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import click

from arrowmq.cli.cluster_link import connect_options, namesrv_options
from arrowmq.cli.examples import examples

DEFAULT_PORT = 8082


@click.command(epilog=examples("arrowmq console", "arrowmq console -n 10.0.0.5:9876 --bind 0.0.0.0 --read-only"))
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Its port.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--host", "hosts", multiple=True, help="A name under which browsers reach it; may be repeated.")
@click.option("--token", envvar="ARROWMQ_CONSOLE_TOKEN", default="", help="What opens it; made if one is needed.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("arrowmq-console"),
    show_default=True,
    help="For its audit log and its record of what was sent again.",
)
@click.option("--stop-with-stdin", is_flag=True, hidden=True, help="Stop when standard input ends.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning")
@namesrv_options
def console(
    port: int,
    bind: str,
    hosts: tuple[str, ...],
    token: str,
    read_only: bool,
    directory: Path,
    stop_with_stdin: bool,
    log_level: str,
    namesrv: str,
    timeout_s: float,
    access_key: str | None,
    secret_key: str | None,
    use_tls: bool,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Run the console: a web page to see a cluster, find messages, and repair what is dead.

    On loopback it is open to this machine; beyond that a log-in is needed, with the token that is printed at start
    or as a user of the brokers.
    """
    try:
        from arrowmq.console.options import ConsoleOptions
        from arrowmq.console.server import ConsoleServer
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"the console needs {missing.name}, which is not installed: pip install 'arrowmq[console]'"
        ) from missing
    from arrowmq.cli.serve import running

    running.configure_logging(log_level)
    options = ConsoleOptions(
        namesrv=namesrv,
        bind=bind,
        port=port,
        directory=directory,
        connect=connect_options(timeout_s, access_key, secret_key, use_tls, tls_ca, tls_cert, tls_key),
        is_read_only=read_only,
        token=token,
        hosts=hosts,
    )

    async def serve() -> None:
        stop = asyncio.Event()
        running.on_stop_signals(stop.set)
        if stop_with_stdin:
            running.watch_stdin(stop.set)
        server = ConsoleServer(options)
        await server.start()
        print(f"ready: console at {server.address}", flush=True)
        if options.needs_login and not token:
            print(f"token: {options.token}", flush=True)
        try:
            await stop.wait()
        finally:
            await server.stop()

    try:
        with asyncio.Runner(loop_factory=running.new_event_loop) as runner, contextlib.suppress(KeyboardInterrupt):
            runner.run(serve())
    except OSError as error:
        raise click.ClickException(str(error)) from error
