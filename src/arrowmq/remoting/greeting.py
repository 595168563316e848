r"""What may come on a connection before the first frame: a PROXY header, a TLS hello.

Both begin with bytes that no frame can begin with, because they would be a length beyond any limit:

    PROXY v1     "PROXY TCP4 192.0.2.7 192.0.2.9 5000 10911\r\n", at most 108 bytes
    PROXY v2     \r\n\r\n\0\r\nQUIT\n, version and command (1), family (1), length (2), addresses,
                 then fields: type (1), length (2), value
    TLS          0x16, the record type of a handshake

A proxy's header tells who is really there; it becomes attributes of the connection under RocketMQ's names.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from arrowmq.wire.errors import FrameError

TLS_HANDSHAKE = 0x16
V1_START = b"PROXY "
V2_START = b"\r\n\r\n\x00\r\nQUIT\n"
V1_MAX_BYTES = 108

ADDRESS = "proxy_protocol_addr"
PORT = "proxy_protocol_port"
SERVER_ADDRESS = "proxy_protocol_server_addr"
SERVER_PORT = "proxy_protocol_server_port"
FIELD_PREFIX = "proxy_protocol_tlv_0x"


@dataclass(slots=True)
class ProxyHeader:
    length: int
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> tuple[str, int] | None:
        """Who is really there; None where the proxy speaks for itself."""
        if ADDRESS not in self.attributes:
            return None
        return self.attributes[ADDRESS], int(self.attributes[PORT])


def proxy_line(source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """A PROXY v1 header that tells who is really there, and what it connected to."""
    try:
        versions = {ipaddress.ip_address(host).version for host in (source[0], target[0])}
    except ValueError:
        versions = set()
    if len(versions) != 1:
        return b"PROXY UNKNOWN\r\n"
    return f"PROXY TCP{versions.pop()} {source[0]} {target[0]} {source[1]} {target[1]}\r\n".encode()


def is_tls(data: memoryview) -> bool:
    return len(data) > 0 and data[0] == TLS_HANDSHAKE


def may_be_proxy(data: memoryview) -> bool:
    start = bytes(data[:12])
    return any(start.startswith(known[: len(start)]) for known in (V1_START, V2_START))


def read_proxy(data: memoryview) -> ProxyHeader | None:
    """The header at the beginning of `data`, or None if more of it must come. Raises `FrameError`."""
    if bytes(data[:1]) == V1_START[:1]:
        return _read_v1(bytes(data[:V1_MAX_BYTES]))
    return _read_v2(data)


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n")
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise FrameError("a PROXY line without an end")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if len(words) >= 2 and words[1] == "UNKNOWN":
        return ProxyHeader(end + 2)
    try:
        _, family, source, target, source_port, target_port = words
        if family not in ("TCP4", "TCP6"):
            raise ValueError(family)
        attributes = _attributes(source, int(source_port), target, int(target_port))
    except ValueError:
        raise FrameError(f"a PROXY line that cannot be read: {data[:end]!r}") from None
    return ProxyHeader(end + 2, attributes)


def _read_v2(data: memoryview) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    version, command = data[12] >> 4, data[12] & 0xF
    family = data[13] >> 4
    length = int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1:
        raise FrameError(f"a PROXY header of version {version} and command {command}")
    if len(data) < 16 + length:
        return None
    header = ProxyHeader(16 + length)
    if command == 0:  # LOCAL: a health check of the proxy itself
        return header
    payload = bytes(data[16 : 16 + length])
    size = {1: 4, 2: 16}.get(family)
    if size is None:
        return header
    if len(payload) < 2 * size + 4:
        raise FrameError("a PROXY header too short for its addresses")
    source, target = (str(ipaddress.ip_address(payload[at : at + size])) for at in (0, size))
    source_port = int.from_bytes(payload[2 * size : 2 * size + 2], "big")
    target_port = int.from_bytes(payload[2 * size + 2 : 2 * size + 4], "big")
    header.attributes = _attributes(source, source_port, target, target_port)
    header.attributes.update(_fields(payload[2 * size + 4 :]))
    return header


def _attributes(source: str, source_port: int, target: str, target_port: int) -> dict[str, str]:
    for host, port in ((source, source_port), (target, target_port)):
        ipaddress.ip_address(host)
        if not 0 <= port <= 65535:
            raise ValueError(port)
    return {ADDRESS: source, PORT: str(source_port), SERVER_ADDRESS: target, SERVER_PORT: str(target_port)}


def _fields(data: bytes) -> dict[str, str]:
    """Further fields whose value is printable; a cut-off one ends the list."""
    found: dict[str, str] = {}
    position = 0
    while position + 3 <= len(data):
        length = int.from_bytes(data[position + 1 : position + 3], "big")
        value = data[position + 3 : position + 3 + length]
        if len(value) == length and value.isascii() and value.decode("ascii").isprintable():
            found[f"{FIELD_PREFIX}{data[position]:02x}"] = value.decode("ascii")
        position += 3 + length
    return found
