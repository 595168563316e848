"""The `checkpoint` file: up to which message time the log, the queues and the index were forced to disk.

    4096 bytes, big endian: 0 physicMsgTimestamp, 8 logicsMsgTimestamp, 16 indexMsgTimestamp,
    24 masterFlushedOffset, 32 confirmPhyOffset, and other fields of Apache's later versions (40 logicsPhysicalOffset),
    which are kept as they were found; ours, at the end of the first sector, where Apache's broker keeps what it finds:
    484 the end of what was forced of the log, 492 physicMsgTimestamp at that time, 500 which start of the machine
    this was, 508 CRC32 of these 24 bytes

A hint for where recovery may start reading, never newer than what was forced. Where the log ends, recovery decides by
bytes, but not before `log_end`: what was forced there was whole, and is damaged if it is no longer. The same holds of
all that a killed process wrote, as long as the machine is up (`boot`).
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path

from arrowmq.store.disk import Disk
from arrowmq.wire.checksum import crc32

FILE_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_OURS = struct.Struct(">qqq")
_CRC = struct.Struct(">I")
_SECTOR_BYTES = 512  # what a disk writes whole or not at all
_OURS_AT = _SECTOR_BYTES - _OURS.size - _CRC.size
_SAFETY_MS = 3000


class Checkpoint:
    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._rest = bytes(FILE_BYTES - _FIELDS.size)
        self.log_end = self.boot = 0
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0
        self._written = b""

    def load(self) -> None:
        """A missing or short file is as good as all zeros: recovery then reads the log from its start."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        if len(data) < _FIELDS.size:
            return
        fields = _FIELDS.unpack_from(data)
        self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = fields[:3]
        self.master_flushed_offset, self.confirm_physical_offset = fields[3:]
        data = data.ljust(FILE_BYTES, b"\0")
        self._rest = data[_FIELDS.size :]
        ours = data[_OURS_AT : _OURS_AT + _OURS.size]
        log_end, as_of, boot = _OURS.unpack(ours)
        # Another broker that wrote messages since has moved the time, and may have cut the log before that.
        if data[_OURS_AT + _OURS.size : _SECTOR_BYTES] == _crc(ours) and as_of == self.physic_msg_timestamp:
            self.log_end, self.boot = log_end, boot

    @property
    def min_timestamp(self) -> int:
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)

    def forget_beyond(self, end: int) -> None:
        """Before the log is cut to end here: what comes instead is not forced yet."""
        if self.log_end > end:
            self.log_end = end
            self.save()

    def save(self) -> None:
        with self._lock:
            self._save()

    def _save(self) -> None:
        fields = _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )
        ours = _OURS.pack(self.log_end, self.physic_msg_timestamp, self.boot)
        rest = self._rest
        data = fields + rest[: _OURS_AT - len(fields)] + ours + _crc(ours) + rest[_SECTOR_BYTES - len(fields) :]
        if data == self._written:
            return
        self._disk.overwrite(self.path, data)
        self._written = data


def _crc(ours: bytes) -> bytes:
    return _CRC.pack(crc32(ours) & 0xFFFFFFFF)
