"""One entry of the router: a native handler, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arrowmq.broker.fastpath.permit import KindPermit
from arrowmq.wire.in_place.fields import NativeFields


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    handler: Any  # a NativeHandler
    codes: tuple[int, ...]
    fields: NativeFields  # of the header that it reads
    permits: tuple[KindPermit, ...]  # that it works under
    renew: Callable[[], None] | None = None  # gives the handler its tables anew, and lets it ask again
    at_vip_port: bool = True
