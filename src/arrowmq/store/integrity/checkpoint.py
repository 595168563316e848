"""The `checkpoint` file: up to which message time the log, the queues and the index were forced to disk.

    4096 bytes, big endian: 0 physicMsgTimestamp, 8 logicsMsgTimestamp, 16 indexMsgTimestamp,
    24 masterFlushedOffset, 32 confirmPhyOffset; what follows is kept as it was found.

A hint for where recovery may start reading, never newer than what was forced; recovery itself believes bytes alone.
"""

from __future__ import annotations

import struct
from pathlib import Path

from arrowmq.store.disk import Disk

FILE_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_SAFETY_MS = 3000


class Checkpoint:
    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._rest = bytes(FILE_BYTES - _FIELDS.size)
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
        self._rest = data[_FIELDS.size :].ljust(FILE_BYTES - _FIELDS.size, b"\0")

    @property
    def min_timestamp(self) -> int:
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)

    def save(self) -> None:
        fields = _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )
        data = fields + self._rest
        if data == self._written:
            return
        self._disk.overwrite(self.path, data)
        self._written = data
