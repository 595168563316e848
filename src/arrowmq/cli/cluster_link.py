"""What every command that talks to a cluster shares: its options, its connection, and how a failure ends.

A verb is an async function with `@connected`: it gets a `Link` (an open `Admin` and a `Screen`) and its own arguments.
What goes wrong becomes one sentence on standard error and an exit code that a script can use:

  0  done
  1  refused, failed, or nothing found
  2  the command line is wrong
  3  no server answers at the address
  4  a server did not answer in time: whether it took effect is not known
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from arrowmq.cli.screen import Screen
from arrowmq.client.admin import Admin
from arrowmq.client.errors import ArrowMQError, InvalidName, InvalidUse, NamesrvUnreachable, TimedOut, Unreachable
from arrowmq.client.options import ConnectOptions
from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import client_tls, context_of
from arrowmq.wire.errors import WireError

DEFAULT_NAMESRV = "127.0.0.1:9876"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Failure(click.ClickException):
    """A sentence for the user; exit code 1."""


class NotReachable(Failure):
    exit_code = 3


class TooLate(Failure):
    exit_code = 4


@dataclass(slots=True)
class Link:
    """A verb's connection and its screen."""

    admin: Admin
    screen: Screen
    namesrv: str
    connect: ConnectOptions


def identity_options(command: Decorated) -> Decorated:
    """Who asks, and how it connects."""
    for option in (
        click.option("--tls-key", type=click.Path(), metavar="FILE", help="The key of --tls-cert, if not in its file."),
        click.option(
            "--tls-cert", type=click.Path(), metavar="FILE", help="The certificate to show, where servers ask for one."
        ),
        click.option("--tls-ca", type=click.Path(), metavar="FILE", help="Check servers' certificates against these."),
        click.option("--tls", "use_tls", is_flag=True, envvar="ARROWMQ_TLS", help="Connect by TLS."),
        click.option("--secret-key", envvar="ARROWMQ_SECRET_KEY", help="The secret key that belongs to it."),
        click.option("--access-key", envvar="ARROWMQ_ACCESS_KEY", help="Access key, for clusters that ask for one."),
        click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=5.0, help="Seconds a request."),
    ):
        command = option(command)
    return command


def namesrv_options(command: Decorated) -> Decorated:
    """Which cluster, and who asks."""
    return click.option(
        "-n",
        "--namesrv",
        envvar=["ARROWMQ_NAMESRV", "NAMESRV_ADDR"],
        default=DEFAULT_NAMESRV,
        show_default=True,
        metavar="HOST:PORT[;…]",
        help="The NameServers; also from ARROWMQ_NAMESRV.",
    )(identity_options(command))


def json_option(command: Decorated) -> Decorated:
    return click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of tables.")(command)


def connect_options(
    timeout_s: float,
    access_key: str | None,
    secret_key: str | None,
    use_tls: bool,
    tls_ca: str | None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> ConnectOptions:
    if (access_key is None) != (secret_key is None):
        raise click.UsageError("--access-key and --secret-key belong together: give both or neither")
    options = ConnectOptions(request_timeout_s=timeout_s, start_timeout_s=max(1.0, timeout_s))
    if access_key is not None and secret_key is not None:
        options["credentials"] = (access_key, secret_key)
    if tls_key and not tls_cert:
        raise click.UsageError("--tls-key belongs to a certificate: give --tls-cert as well")
    if use_tls or tls_ca or tls_cert:
        properties = {"tls.enable": "true"}
        if tls_ca:
            properties |= {"tls.client.authServer": "true", "tls.client.trustCertPath": tls_ca}
        if tls_cert:
            properties |= {"tls.client.certPath": tls_cert, "tls.client.keyPath": tls_key or ""}
        try:
            options["tls"] = context_of(client_tls(properties))
        except ConfigError as wrong:
            raise click.UsageError(str(wrong)) from wrong
    return options


def connected(verb: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Gives a verb its `Link` as first argument, and the options that belong to it."""

    @namesrv_options
    @json_option
    @functools.wraps(verb)
    def command(
        *,
        namesrv: str,
        timeout_s: float,
        access_key: str | None,
        secret_key: str | None,
        use_tls: bool,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        as_json: bool,
        **arguments: Any,
    ) -> None:
        connect = connect_options(timeout_s, access_key, secret_key, use_tls, tls_ca, tls_cert, tls_key)

        async def work() -> None:
            await knock(namesrv, timeout_s)
            try:
                async with Admin(namesrv, **connect) as admin:
                    await verb(Link(admin, Screen(as_json), namesrv, connect), **arguments)
            except NamesrvUnreachable as down:
                if "tls" not in connect and "closed it" in str(down):
                    raise NotReachable(f"{down}. If it takes TLS connections only, add --tls") from down
                raise

        run(work)

    return command


def run(work: Callable[[], Awaitable[None]]) -> None:
    """The one place where errors of a verb become sentences."""
    # A command has one line for one failure: what the client logs on the way would say it twice.
    log = logging.getLogger("arrowmq")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        asyncio.run(_awaited(work))
    except InvalidName as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except (Unreachable, NamesrvUnreachable) as down:
        raise NotReachable(str(down)) from down
    except TimedOut as late:
        raise TooLate(str(late)) from late
    except InvalidUse as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except (ArrowMQError, WireError) as error:
        raise Failure(str(error)) from error
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`): not an error, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        log.setLevel(level)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def knock(namesrv: str, timeout_s: float) -> None:
    """A client waits for a NameServer that starts late; a person at a terminal wants to know at once that none runs."""
    from arrowmq.client.options import namesrv_addresses

    addresses = namesrv_addresses(namesrv)
    causes: list[BaseException] = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            causes.append(TimeoutError(f"no connection within {timeout_s:g} s"))
        except OSError as failure:
            causes.append(OSError(_reason(failure)))
        else:
            writer.close()
            return
    tried = "; ".join(f"{address}: {cause}" for address, cause in zip(addresses, causes, strict=True))
    raise NotReachable(
        f"no NameServer answers ({tried}). Start one with `arrowmq server`, or name another with -n HOST:PORT; "
        f"`arrowmq doctor` looks closer"
    )


def _reason(failure: OSError) -> str:
    if failure.errno is not None and failure.errno > 0:
        return os.strerror(failure.errno).lower()
    return failure.strerror or str(failure)


def confirm(question: str, is_sure: bool) -> None:
    """Asks before something that cannot be undone; where nobody can answer, insists on --yes."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask at: give --yes to go ahead")
    if not click.confirm(question):
        raise Failure("nothing was changed")


yes_option = click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
cluster_option = click.option("--cluster", help="Only the brokers of this cluster.")
broker_option = click.option("--broker", help="Only this broker (name or address).")
