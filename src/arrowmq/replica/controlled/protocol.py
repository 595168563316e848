"""Apache's bytes between brokers under a controller (AutoSwitchHAService), as values: nothing here touches a socket.

slave to master     0  4  1: handshake
                    4  2  whether one without a log wants the last file only
                    6  2  whether it is a learner, which never counts as in sync
                    8  8  its broker id

                    0  4  2: report
                    4  8  end of its log: the first says where to begin, and each is an acknowledgement

master to slave     0  4  1: handshake
                    4  4  size of what follows the header: 12 for each epoch
                    8  8  end of the master's log
                   16  4  its last epoch
                   20  .  epochs: number (4), start (8)

                    0  4  2: transfer
                    4  4  how many bytes of the log follow the header; 0 is a heartbeat
                    8  8  their offset
                   16  4  their epoch
                   20  8  where that begins
                   28  8  confirm offset: what readers may see
                   36  .  bytes of the log, of one epoch and one file
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from arrowmq.replica.controlled.epochs import Epoch, EpochFile
from arrowmq.replica.protocol import LogBounds, MasterSession, Packet, ProtocolError

STATE = struct.Struct(">i")
HANDSHAKE, TRANSFER = 1, 2
SLAVE_HANDSHAKE = struct.Struct(">ihhq")
SLAVE_REPORT = struct.Struct(">iq")
MASTER_HANDSHAKE = struct.Struct(">iiqi")
EPOCH_ENTRY = struct.Struct(">iq")
MASTER_TRANSFER = struct.Struct(">iiqiqq")
MOST_EPOCHS = 100_000
MOST_HANDSHAKES = 8  # Apache's slave repeats its own every 5 s until it is answered; the answer has all epochs
_FORMS = {HANDSHAKE: SLAVE_HANDSHAKE, TRANSFER: SLAVE_REPORT}


class EpochMasterSession(MasterSession):
    """The master's side of one connection."""

    def __init__(self, epochs: EpochFile, confirmed: Callable[[], int]) -> None:
        super().__init__()
        self._epochs = epochs
        self._confirmed = confirmed
        self._replies = b""
        self._wants_last_file = False
        self._handshakes = 0
        self.slave_id: int | None = None
        self.is_learner = False

    def take(self, data: bytes, log: LogBounds) -> bool:
        """Bytes of the slave; whether they moved what it acknowledges."""
        pending = self._pending + data
        position = 0
        has_moved = False
        while len(pending) - position >= STATE.size:
            state = STATE.unpack_from(pending, position)[0]
            form = _FORMS.get(state)
            if form is None:
                raise ProtocolError(f"it speaks of a state {state}, which is none: is it a slave under a controller?")
            if len(pending) - position < form.size:
                break
            if state == HANDSHAKE:
                _, wants_last_file, is_learner, slave_id = form.unpack_from(pending, position)
                self._shake_hands(wants_last_file, is_learner, slave_id, log)
            else:
                has_moved |= self._reported(form.unpack_from(pending, position)[1], log)
            position += form.size
        self._pending = pending[position:]
        return has_moved

    def _shake_hands(self, wants_last_file: int, is_learner: int, slave_id: int, log: LogBounds) -> None:
        if slave_id < 1:
            raise ProtocolError(f"it says that its broker id is {slave_id}: a controller gives ids from 1")
        if self.is_begun:
            raise ProtocolError("it shakes hands a second time")
        self._handshakes += 1
        if self._handshakes > MOST_HANDSHAKES:
            raise ProtocolError(f"it shakes hands more than {MOST_HANDSHAKES} times and asks for nothing")
        self.slave_id = slave_id
        self._wants_last_file, self.is_learner = wants_last_file == 1, is_learner == 1
        entries = b"".join(EPOCH_ENTRY.pack(*epoch) for epoch in self._epochs.epochs)
        self._replies += MASTER_HANDSHAKE.pack(HANDSHAKE, len(entries), log.end, self._epochs.last_number) + entries

    def _reported(self, end: int, log: LogBounds) -> bool:
        if self.slave_id is None:
            raise ProtocolError("it reports before it shakes hands")
        if end < 0:
            raise ProtocolError(f"it reports the offset {end}, which is none")
        if not self.is_begun:
            if end == 0 and not self._wants_last_file:
                self.next_offset = log.begin
            else:
                self._begin(end, log)
        elif end > self.next_offset:
            raise ProtocolError(f"it acknowledges up to {end}, and was sent no more than up to {self.next_offset}")
        has_moved = end > self.acknowledged
        self.acknowledged = max(self.acknowledged, end)
        return has_moved

    def replies(self) -> bytes:
        """What is to be sent before anything else."""
        replies, self._replies = self._replies, b""
        return replies

    def packet(self, log: LogBounds, most: int) -> Packet | None:
        if not self.is_begun:
            return None
        packet = super().packet(log, most)
        if packet is None:
            return None
        epoch = self._epochs.at(packet.offset)
        following = self._epochs.after(epoch.number if epoch is not None else -1)
        if following is not None and packet.offset < following.start < packet.offset + packet.size:
            return Packet(packet.offset, following.start - packet.offset)
        return packet

    def header(self, packet: Packet) -> bytes:
        epoch = self._epochs.at(packet.offset) or self._first()
        self.next_offset = packet.offset + packet.size
        return MASTER_TRANSFER.pack(TRANSFER, packet.size, packet.offset, *epoch, self._confirmed())

    def heartbeat(self) -> bytes:
        epoch = self._epochs.at(self.next_offset) or self._first()
        return MASTER_TRANSFER.pack(TRANSFER, 0, self.next_offset, *epoch, self._confirmed())

    def _first(self) -> Epoch:
        epochs = self._epochs.epochs
        return epochs[0] if epochs else Epoch(0, 0)


class Handshake(NamedTuple):
    """What a master says of its log."""

    end: int
    last_epoch: int
    epochs: Sequence[Epoch]


def slave_handshake(broker_id: int, *, wants_last_file: bool, is_learner: bool) -> bytes:
    return SLAVE_HANDSHAKE.pack(HANDSHAKE, wants_last_file, is_learner, broker_id)


def handshake_body_bytes(header: bytes) -> int:
    """How much follows the header of a master's handshake."""
    state, size, _, _ = MASTER_HANDSHAKE.unpack(header)
    if state != HANDSHAKE or size < 0 or size % EPOCH_ENTRY.size or size > MOST_EPOCHS * EPOCH_ENTRY.size:
        raise ProtocolError("it does not shake hands: is it a master under a controller?")
    return int(size)


def read_handshake(header: bytes, body: bytes) -> Handshake:
    _, _, end, last_epoch = MASTER_HANDSHAKE.unpack(header)
    epochs = [Epoch(*entry) for entry in EPOCH_ENTRY.iter_unpack(body)]
    ordered = all(later.number > earlier.number for earlier, later in pairwise(epochs))
    if end < 0 or not ordered or any(epoch.start < 0 for epoch in epochs):
        raise ProtocolError("the epochs of its handshake are out of order")
    return Handshake(end, last_epoch, epochs)


class EpochSlaveSession:
    """The slave's side, once hands are shaken."""

    header_bytes = MASTER_TRANSFER.size

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self.epoch = Epoch(-1, 0)  # of the last packet
        self.confirmed = 0

    def report(self, end: int) -> bytes:
        return SLAVE_REPORT.pack(TRANSFER, end)

    def packet(self, header: bytes | bytearray | memoryview) -> Packet:
        state, size, offset, number, start, confirmed = MASTER_TRANSFER.unpack(header)
        if state != TRANSFER or not 0 <= size <= self._file_bytes or offset < -1 or start < 0:
            raise ProtocolError(f"the master sent {size} bytes from offset {offset} in state {state}, which cannot be")
        self.epoch, self.confirmed = Epoch(number, start), confirmed
        return Packet(offset, size)
