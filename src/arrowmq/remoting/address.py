"""Addresses: `host:port` texts, and which of this machine's addresses to tell others.

What a broker advertises must work for the client that reads it in a route. Without `brokerIP1` the address of the
interface that leads outwards is taken: other machines can reach it, and so can this one. Where no interface leads
outwards (a laptop without network, a closed container) it is 127.0.0.1, which at least this machine can use.
"""

from __future__ import annotations

import ipaddress
import socket


class AddressError(ValueError):
    """A text that is no `host:port`."""


def parse_address(address: str) -> tuple[str, int]:
    """`host:port` or `[ipv6]:port`."""
    host, colon, port_text = address.strip().rpartition(":")
    if not colon or not host or not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise AddressError(f"{address!r} is no address: expected host:port, such as 192.168.0.5:10911")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port_text)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_addresses(text: str) -> list[str]:
    """A `;`-separated list, as in `namesrvAddr`; each part is checked, repeats are dropped."""
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    for address in addresses:
        parse_address(address)
    return list(dict.fromkeys(addresses))


def own_address() -> str:
    """The address of the interface that leads outwards, else 127.0.0.1. Sends nothing."""
    # Connecting a datagram socket only asks the routing table. The targets are documentation addresses (RFC 5737):
    # they belong to nobody.
    for target in ("192.0.2.1", "198.51.100.1"):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                host = str(probe.getsockname()[0])
        except OSError:
            continue
        if not ipaddress.ip_address(host).is_unspecified:
            return host
    return "127.0.0.1"


def advertised_host(configured: str, bind_host: str) -> str:
    """What others are told to connect to: the configured address or name, else one that the listener really has."""
    if configured:
        return configured
    if bind_host and not _is_wildcard(bind_host):
        return bind_host
    return own_address()


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
