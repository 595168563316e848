"""What every client is told about its cluster and itself; the keyword arguments that all of them share."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from arrowmq.client.errors import InvalidUse
from arrowmq.client.names import Namespace
from arrowmq.clock import Clock, SystemClock
from arrowmq.remoting.tls.settings import OutgoingTls
from arrowmq.wire.frames import Command


class RpcHook(Protocol):
    """Sees every request before it leaves (and may add to it) and every answer after it came."""

    def before_request(self, address: str, request: Command) -> None: ...

    def after_response(self, address: str, request: Command, response: Command | None) -> None: ...


class ConnectOptions(TypedDict, total=False):
    """The arguments that every client takes beside its own."""

    #: Old-style namespace: topics and groups are renamed to `namespace%name` on the wire.
    namespace: str
    #: (access key, secret key) or (access key, secret key, security token)
    credentials: tuple[str, str] | tuple[str, str, str] | None
    tls: OutgoingTls | None
    instance_name: str
    unit_name: str
    client_ip: str
    request_timeout_s: float
    #: How long a start waits for a NameServer to answer before it fails.
    start_timeout_s: float
    poll_namesrv_interval_s: float
    heartbeat_interval_s: float
    rpc_hooks: Sequence[RpcHook]
    clock: Clock


@dataclass(frozen=True, slots=True)
class Options:
    """`ConnectOptions` with every default filled in."""

    namesrv: tuple[str, ...]
    namespace: Namespace
    credentials: tuple[str, ...] | None
    tls: OutgoingTls | None
    instance_name: str
    unit_name: str
    client_ip: str
    request_timeout_s: float
    start_timeout_s: float
    poll_namesrv_interval_s: float
    heartbeat_interval_s: float
    rpc_hooks: tuple[RpcHook, ...]
    clock: Clock

    @classmethod
    def of(cls, namesrv: str | Sequence[str] | None, given: ConnectOptions) -> Options:
        unknown = set(given) - set(ConnectOptions.__annotations__)
        if unknown:
            known = ", ".join(sorted(ConnectOptions.__annotations__))
            raise TypeError(f"unknown option {', '.join(sorted(unknown))}; the shared options are {known}")
        return cls(
            namesrv=namesrv_addresses(namesrv),
            namespace=Namespace(given.get("namespace", "")),
            credentials=given.get("credentials"),
            tls=given.get("tls"),
            instance_name=given.get("instance_name", ""),
            unit_name=given.get("unit_name", ""),
            client_ip=given.get("client_ip", ""),
            request_timeout_s=given.get("request_timeout_s", 3.0),
            start_timeout_s=given.get("start_timeout_s", 10.0),
            poll_namesrv_interval_s=given.get("poll_namesrv_interval_s", 30.0),
            heartbeat_interval_s=given.get("heartbeat_interval_s", 30.0),
            rpc_hooks=tuple(given.get("rpc_hooks", ())),
            clock=given.get("clock") or SystemClock(),
        )


def namesrv_addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """`host:port;host:port`, or a sequence of such, or nothing for the environment's NAMESRV_ADDR; in random order."""
    text = given if given is not None else os.environ.get("NAMESRV_ADDR", "")
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    addresses = [part.strip().removeprefix("http://").rstrip("/") for part in parts if part.strip()]
    if not addresses:
        raise InvalidUse("no NameServer is given: pass its address, such as 'localhost:9876', or set NAMESRV_ADDR")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidUse(f"{address!r} is no NameServer address; it must look like 'localhost:9876'")
    # All clients together spread over the NameServers because each begins with another one.
    random.shuffle(addresses)
    return tuple(addresses)
