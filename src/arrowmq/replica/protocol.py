"""Apache's bytes between a master and its slaves (DefaultHAService), as values: nothing here touches a socket.

    slave to master     0  8  end of the slave's log: the first says where to begin, and each is an acknowledgement
    master to slave     0  8  offset of the bytes in the log
                        8  4  how many; 0 is a heartbeat, with the offset that comes next
                       12  .  bytes of the log, cut anywhere, but never over the end of a file

A session on either side is a small state machine: bytes and numbers in, bytes and numbers out. What does not fit raises
`ProtocolError`, with a sentence for the log, and ends the connection. Another protocol between the same logs (epochs of
a controller) is another pair of sessions with the same methods.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

REPORT = struct.Struct(">q")
PACKET = struct.Struct(">qi")

# Apache's slave reads into 4 MiB and takes a packet when it is whole: more in one would never be.
LARGEST_PACKET = 2 << 20


class ProtocolError(Exception):
    """The other side said something that cannot be; the connection ends."""


class Packet(NamedTuple):
    """So many bytes of the log, from this offset on."""

    offset: int
    size: int


class LogBounds(NamedTuple):
    """What a master has: the start of its first file, its end, and the size of its files."""

    begin: int
    end: int
    file_bytes: int


class MasterSession:
    """The master's side of one connection."""

    def __init__(self) -> None:
        self._pending = b""
        self.next_offset = -1  # what is sent next; -1 before the first report
        self.acknowledged = -1

    @property
    def is_begun(self) -> bool:
        return self.next_offset >= 0

    def take(self, data: bytes, log: LogBounds) -> bool:
        """Bytes of the slave; whether they moved what it acknowledges. Only the last whole report counts."""
        data = self._pending + data
        whole = len(data) // REPORT.size * REPORT.size
        self._pending = data[whole:]
        if not whole:
            return False
        if not self.is_begun:
            self._begin(REPORT.unpack_from(data, 0)[0], log)
        reported: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        if reported < 0:
            raise ProtocolError(f"it reports the offset {reported}, which is none")
        if reported > self.next_offset:
            raise ProtocolError(f"it acknowledges up to {reported}, and was sent no more than up to {self.next_offset}")
        has_moved = reported > self.acknowledged
        self.acknowledged = max(self.acknowledged, reported)
        return has_moved

    def _begin(self, asked: int, log: LogBounds) -> None:
        """Where to begin. As Apache's master does, one that has nothing gets the last file."""
        if asked < 0:
            raise ProtocolError(f"it asks for the offset {asked}, which is none")
        if asked == 0:
            self.next_offset = max(log.begin, log.end - log.end % log.file_bytes)
            return
        if asked > log.end:
            raise ProtocolError(
                f"its log ends at {asked} and this one at {log.end}: it has what this master has not. If this master "
                "lost messages, start the other one as master; else delete the slave's store and start it again"
            )
        if asked < log.begin:
            raise ProtocolError(
                f"its log ends at {asked}, and this one begins at {log.begin}: files it needs are deleted by now. "
                "Delete the slave's store and start it again"
            )
        self.next_offset = asked

    def replies(self) -> bytes:
        """What is to be sent before anything else, such as the answer to a handshake."""
        return b""

    def packet(self, log: LogBounds, most: int) -> Packet | None:
        """What to send next; None if the slave has everything."""
        start = self.next_offset
        end = min(log.end, start - start % log.file_bytes + log.file_bytes, start + most)
        return Packet(start, end - start) if end > start else None

    def header(self, packet: Packet) -> bytes:
        """What goes before the bytes of a packet, which then count as sent."""
        self.next_offset = packet.offset + packet.size
        return PACKET.pack(packet.offset, packet.size)

    def heartbeat(self) -> bytes:
        return PACKET.pack(self.next_offset, 0)


class SlaveSession:
    """The slave's side."""

    header_bytes = PACKET.size

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes

    def report(self, end: int) -> bytes:
        return REPORT.pack(end)

    def packet(self, header: bytes | bytearray | memoryview) -> Packet:
        packet = Packet(*PACKET.unpack(header))
        if packet.offset < 0 or not 0 <= packet.size <= self._file_bytes:
            raise ProtocolError(f"the master sent {packet.size} bytes from offset {packet.offset}, which cannot be")
        return packet
