"""The `checkpoint` file: up to which message time the log, the queues and the index were forced to disk.

    4096 bytes, big endian: 0 physicMsgTimestamp, 8 logicsMsgTimestamp, 16 indexMsgTimestamp,
    24 masterFlushedOffset, 32 confirmPhyOffset, and other fields of Apache's later versions (40 logicsPhysicalOffset),
    which are kept as they were found; ours, at the end of the first sector, where Apache's broker keeps what it finds:
    492 the end of what was forced of the log, 500 physicMsgTimestamp at that time, 508 CRC32 of these 16 bytes

A hint for where recovery may start reading, never newer than what was forced. Where the log ends, recovery decides by
bytes, but not before `log_end`: what was forced there was whole, and is damaged if it is no longer.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path

from arrowmq.store.disk import Disk
from arrowmq.wire.checksum import crc32

FILE_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_OURS = struct.Struct(">qq")
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
        self.log_end = 0
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
        log_end, as_of = _OURS.unpack_from(data, _OURS_AT)
        is_whole = _CRC.unpack_from(data, _OURS_AT + _OURS.size)[0] == _crc(log_end, as_of)
        # Another broker that wrote messages since has moved the time, and may have cut the log before that.
        self.log_end = log_end if is_whole and as_of == self.physic_msg_timestamp else 0

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
        log_end, as_of = self.log_end, self.physic_msg_timestamp
        ours = _OURS.pack(log_end, as_of) + _CRC.pack(_crc(log_end, as_of))
        between = _OURS_AT - _FIELDS.size
        data = fields + self._rest[:between] + ours + self._rest[between + len(ours) :]
        if data == self._written:
            return
        self._disk.overwrite(self.path, data)
        self._written = data


def _crc(log_end: int, as_of: int) -> int:
    return crc32(_OURS.pack(log_end, as_of)) & 0xFFFFFFFF
