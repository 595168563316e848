"""Where a request may come from: addresses (`192.0.2.7`) and networks (`192.0.2.0/24`, `2001:db8::/32`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from arrowmq.auth.errors import AccountError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Source:
    text: str
    network: Network

    def includes(self, address: str) -> bool:
        found = _address(address)
        return found is not None and found.version == self.network.version and found in self.network


@lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped  # a client of IPv4 at a socket for both
    return found


def parse_source(text: str | None) -> Source:
    """Raises `AccountError`, in Apache's words."""
    if text is None or not text.strip():
        raise AccountError("The source ip is empty.")
    try:
        # Host bits may be set, as in 192.0.2.7/24: Apache takes the network.
        return Source(text, ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise AccountError("The source ip is invalid.") from None


def parse_sources(texts: Iterable[str] | None) -> tuple[Source, ...]:
    return tuple(parse_source(text) for text in texts or ())
