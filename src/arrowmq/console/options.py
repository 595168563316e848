"""What a console is told when it starts."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from arrowmq.client.options import ConnectOptions

DEFAULT_PORT = 8082
DEFAULT_BIND = "127.0.0.1"
DEFAULT_DIRECTORY = "arrowmq-console"


@dataclass(slots=True)
class ConsoleOptions:
    namesrv: str
    bind: str = DEFAULT_BIND
    port: int = DEFAULT_PORT
    directory: Path = Path(DEFAULT_DIRECTORY)
    connect: ConnectOptions = field(default_factory=lambda: ConnectOptions())
    is_read_only: bool = False
    #: What opens the door beyond loopback. Made at start where none is given and one is needed.
    token: str = ""
    #: Names under which browsers may reach the console, beside the address it is bound to.
    hosts: tuple[str, ...] = ()
    #: Seconds between two looks at the brokers while somebody watches
    beat_s: float = 5.0
    survey_s: float = 15.0
    doctor_s: float = 120.0

    def __post_init__(self) -> None:
        if not self.token and self.needs_login:
            self.token = secrets.token_urlsafe(24)

    @property
    def is_loopback(self) -> bool:
        if self.bind == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.bind).is_loopback
        except ValueError:
            return False

    @property
    def needs_login(self) -> bool:
        return bool(self.token) or not self.is_loopback
