"""Where clients find this broker: the host it advertises, the port it listens on, and both as records carry them."""

from __future__ import annotations

from arrowmq.broker.settings.config import resolve_address
from arrowmq.remoting.address import format_address
from arrowmq.wire.ids import offset_message_id


class BrokerAddress:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.ip = resolve_address(host)
        self.port = port

    @property
    def text(self) -> str:
        return format_address(self.host, self.port)

    @property
    def store_host(self) -> tuple[bytes, int]:
        return (self.ip, self.port)

    def message_id(self, physical_offset: int) -> str:
        """The offset message id of a record of this broker."""
        return offset_message_id(self.ip, self.port, physical_offset)
