"""The slave's side under a controller: hands are shaken, the log is cut to where it agrees with the master's, then it
is copied as any slave's.

What is cut is put aside first (`truncation.py`). Before anything is copied, the last record that is left is compared
with the master's, because two brokers of Apache's can have written different bytes under the same epoch; if it
differs, the log is cut back by an epoch more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from arrowmq.remoting.address import AddressError, parse_address
from arrowmq.replica import master_check
from arrowmq.replica.controlled import truncation
from arrowmq.replica.controlled.epochs import EpochFile, consistent_point
from arrowmq.replica.controlled.protocol import (
    MASTER_HANDSHAKE,
    EpochSlaveSession,
    Handshake,
    handshake_body_bytes,
    read_handshake,
    slave_handshake,
)
from arrowmq.replica.encrypted import Line, receive, send_all
from arrowmq.replica.follower import CHECKING, COPYING, REFUSED, WAITING, Copying, Follower
from arrowmq.replica.protocol import Packet, ProtocolError
from arrowmq.store.errors import StoreError

if TYPE_CHECKING:
    from arrowmq.broker.role import Master
    from arrowmq.clock import Clock
    from arrowmq.remoting.client import RemotingClient
    from arrowmq.store import MessageStore
    from arrowmq.store.copied_log import CopiedLog

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 5.0


class ControlledFollower(Follower):
    def __init__(
        self,
        store: MessageStore,
        remoting: RemotingClient,
        clock: Clock,
        *,
        find_master: Callable[[], Master],
        ask_for_master: Callable[[], object],
        heartbeat_s: float,
        silence_s: float,
        checks_crc: bool,
        epochs: EpochFile,
        own_id: Callable[[], int],
        is_learner: bool,
        wants_last_file: bool,
        find_ha_address: Callable[[str], Awaitable[str]],
    ) -> None:
        super().__init__(
            store,
            remoting,
            clock,
            find_master=find_master,
            ask_for_master=ask_for_master,
            heartbeat_s=heartbeat_s,
            silence_s=silence_s,
            checks_crc=checks_crc,
        )
        self.epochs = epochs
        self._own_id = own_id
        self._is_learner = is_learner
        self._wants_last_file = wants_last_file
        self._find_ha_address = find_ha_address
        self.last_cut: truncation.CutTail | None = None

    async def _follow(self, copy: CopiedLog) -> str:
        master = self._find_master()
        if not master.address:
            self._become(WAITING, "no master is known")
            return self.reason
        if self.state != REFUSED:
            self._become(CHECKING)
        connection: Line | None = None
        try:
            self.master_ha_address = master.ha_address or await self._find_ha_address(master.address)
            host, port = parse_address(self.master_ha_address)
            connection = await self._connect(host, port)
            theirs = await self._shake_hands(connection)
            await self._agree(copy, theirs, master.address)
        except (ProtocolError, StoreError) as fault:
            _close(connection)
            self._become(REFUSED, str(fault))
            return self.reason
        except (AddressError, OSError, EOFError, TimeoutError, master_check.NotAnswered) as failure:
            _close(connection)
            self._become(WAITING, f"{self.master_ha_address}: {failure or 'it does not answer'}")
            return self.reason
        except BaseException:
            _close(connection)
            raise
        self._become(COPYING)
        log.info("following master=%s offset=%d epoch=%d", self.master_ha_address, copy.end, theirs.last_epoch)
        return await ControlledCopying(self, connection, copy).ended()

    async def _shake_hands(self, connection: Line) -> Handshake:
        hello = slave_handshake(self._own_id(), wants_last_file=self._wants_last_file, is_learner=self._is_learner)
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            await send_all(connection, hello)
            header = await _receive(connection, MASTER_HANDSHAKE.size)
            return read_handshake(header, await _receive(connection, handshake_body_bytes(header)))

    async def _agree(self, copy: CopiedLog, theirs: Handshake, master_address: str) -> None:
        """Cut this log to where it is the same as the master's."""
        store, epochs = self._store, self.epochs
        self.master_end = theirs.end
        epochs.cut(int(copy.end))
        if copy.is_empty or not epochs.epochs:
            if not copy.is_empty:
                raise StoreError(
                    f"this store has messages up to {copy.end} but no epochs: it was no broker under a controller. "
                    "Delete it and start again, or let it be the first broker of its set, which becomes master"
                )
            return
        if theirs.last_epoch < epochs.last_number:
            raise ProtocolError(
                f"the master is at epoch {theirs.last_epoch} and this log at {epochs.last_number}: it is not the master"
            )
        point = consistent_point(epochs.epochs, int(copy.end), theirs.epochs, theirs.end)
        if point is None:
            raise StoreError(
                "this log and the master's have no epoch in common: delete this store and start again, it is then "
                "copied anew"
            )
        await self._cut_to(copy, point)
        while int(copy.end) > store.min_physical_offset and not await self._ends_like(master_address, theirs):
            epoch = epochs.at(int(copy.end) - 1)
            point = max(store.min_physical_offset, epoch.start if epoch is not None else 0)
            log.warning("the master has other bytes in epoch %s: cut to %d", epoch, point)
            await self._cut_to(copy, point)

    async def _ends_like(self, master_address: str, theirs: Handshake) -> bool:
        if int(self._store.appended) > theirs.end:
            return True  # it was cut to no more than that
        try:
            await master_check.compare(self._store, self._remoting, master_address, 0)
        except master_check.NotAPart:
            return False
        return True

    async def _cut_to(self, copy: CopiedLog, point: int) -> None:
        end = int(copy.end)
        if end <= point:
            return
        tail = truncation.put_aside(self._store, self._store.root, point, self.epochs.last_number)
        truncation.cut(self._store, point)
        copy.dispatched = min(copy.dispatched, point)
        self.epochs.cut(point)
        await asyncio.get_running_loop().run_in_executor(None, self._store.disk.force_all, self._store.root)
        self.last_cut = tail
        log.warning(
            "log cut at=%d bytes=%d put_aside=%s: the master of a later epoch does not have them",
            point,
            end - point,
            tail.path if tail is not None else Path("-"),
        )

    def took(self, session: EpochSlaveSession) -> None:
        """The header of a packet: its epoch, and what is confirmed."""
        if session.epoch.number >= 0 and session.epoch.number > self.epochs.last_number:
            self.epochs.append(*session.epoch)
        self._store.positions.members_have(min(session.confirmed, int(self._store.appended)))


class ControlledCopying(Copying):
    def __init__(self, follower: ControlledFollower, connection: Line, copy: CopiedLog) -> None:
        super().__init__(follower, connection, copy, None)
        self._controlled = follower
        self._epochs_session = EpochSlaveSession(follower._store.commit_log.file_bytes)
        self._session = self._epochs_session  # type: ignore[assignment]
        self._header = bytearray(self._epochs_session.header_bytes)

    def _ask(self) -> None:
        self._say(int(self._copy.end))

    def _take_header(self) -> None:
        packet = self._epochs_session.packet(self._header)
        if packet.size and self._copy.is_empty and packet.offset != self._copy.end:
            self._copy.begin_at(packet.offset)
        if packet.size and packet.offset != self._copy.end:
            raise ProtocolError(f"the master sends from {packet.offset}, and this log ends at {self._copy.end}")
        self._controlled.took(self._epochs_session)
        if packet.size:
            self._left = Packet(packet.offset, packet.size)


async def _receive(connection: Line, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await receive(connection, size - len(data))
        if not piece:
            raise EOFError("the master hung up amid the handshake")
        data += piece
    return data


def _close(connection: Line | None) -> None:
    if connection is not None:
        connection.close()
