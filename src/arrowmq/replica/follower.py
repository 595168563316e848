"""The slave's side: one connection to the master, whose log is received piece by piece and written into this one's.

    waiting     no master is known; the NameServers are asked again
    checking    is this log a part of the master's? (`master_check`)
    copying     connected; bytes come, whole records are dispatched, the end is reported
    refused     it is not; the reason stands in `reason`, and is looked at again every few seconds

What is reported is what this broker keeps: under SYNC_FLUSH the part of its log that is on disk, else what is in its
log. A packet that does not fit ends the connection, and what is no whole record is cut off before the next.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.remoting.address import AddressError, parse_address
from arrowmq.replica import master_check
from arrowmq.replica.encrypted import HaTls, Line, encrypt, has_more
from arrowmq.replica.hello import READER, Hello, hello_for
from arrowmq.replica.protocol import Packet, ProtocolError, SlaveSession
from arrowmq.store.copied_log import CopiedLog, CopyRefused
from arrowmq.store.errors import StoreError
from arrowmq.store.positions import FLUSHED, Missed

if TYPE_CHECKING:
    from arrowmq.broker.role import Master
    from arrowmq.clock import Clock, Timer
    from arrowmq.remoting.client import RemotingClient
    from arrowmq.store import MessageStore

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
SOONEST_RETRY_S = 0.2
LATEST_RETRY_S = 5.0
BYTES_AN_ITERATION = 1 << 20
MOST_AWAITED_BYTES = 256 << 10
SECOND_S = 1.0

WAITING, CHECKING, COPYING, REFUSED = "waiting", "checking", "copying", "refused"


class Follower:
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
        checks_crc: bool = True,
        wants_whole_log: bool = True,
    ) -> None:
        self._store = store
        self._remoting = remoting
        self._clock = clock
        self._find_master = find_master
        self._ask_for_master = ask_for_master
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._checks_crc = checks_crc
        self._wants_whole_log = wants_whole_log
        self._task: asyncio.Task[None] | None = None
        self.copy: CopiedLog | None = None
        self.state = WAITING
        self.reason = ""
        self.master_ha_address = ""
        self.since_ms = clock.now_ms()  # of the state
        self.received_ms = self.reported_ms = 0
        self.received_bytes = 0
        self.master_end = 0  # as far as it is known
        self.hello_id: Callable[[], int] = lambda: READER  # the broker id under which it greets
        self.tls: HaTls | None = None
        self.on_state: list[Callable[[], object]] = []

    # Life

    def start(self) -> None:
        if self._task is None:
            self.copy = CopiedLog(self._store, checks_crc=self._checks_crc)
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Hang up, and leave the log with whole records alone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.copy is not None:
            self._cut(self.copy)
            self.copy = None
        self._become(WAITING)

    def _become(self, state: str, reason: str = "") -> None:
        if state != self.state:
            self.state, self.since_ms = state, self._clock.now_ms()
        self.reason = reason
        for listener in self.on_state:
            listener()

    @staticmethod
    def _cut(copy: CopiedLog) -> None:
        dropped = copy.cut()
        if dropped:
            log.info("copy cut at=%d bytes=%d: the record was not whole", copy.dispatched, dropped)

    async def _run(self) -> None:
        assert self.copy is not None
        retry_s = SOONEST_RETRY_S
        said = ""
        while True:
            reason = await self._follow(self.copy)
            if self.received_ms >= self.since_ms and self.state == COPYING:
                retry_s, said = SOONEST_RETRY_S, ""
            if reason != said:
                said = reason
                log.warning("not following a master state=%s reason=%s", self.state, reason)
            if self.state == COPYING:
                self._become(WAITING, reason)
            self._cut(self.copy)
            self._ask_for_master()
            await self._clock.sleep(retry_s)
            retry_s = min(retry_s * 2, LATEST_RETRY_S)

    async def _follow(self, copy: CopiedLog) -> str:
        """One try, until it ends; why it ended."""
        master = self._find_master()
        if not master.ha_address:
            self._become(WAITING, "no master is known")
            return self.reason
        self.master_ha_address = master.ha_address
        if self.state != REFUSED:
            self._become(CHECKING)
        try:
            host, port = parse_address(master.ha_address)
            begin: int | None = None
            if master.address:
                theirs = await master_check.check(self._store, self._remoting, master.address)
                self.master_end = theirs.end
                begin = theirs.begin if self._wants_whole_log and theirs.end > self._file_bytes else None
            connection = await self._connect(host, port)
        except master_check.NotAPart as fault:
            self._become(REFUSED, str(fault))
            return str(fault)
        except (master_check.NotAnswered, AddressError, OSError, TimeoutError) as failure:
            self._become(WAITING, f"{master.ha_address}: {failure or 'it does not answer'}")
            return self.reason
        self._become(COPYING)
        log.info("following master=%s offset=%d", master.ha_address, copy.end)
        return await Copying(self, connection, copy, begin).ended()

    @property
    def _file_bytes(self) -> int:
        return self._store.commit_log.file_bytes

    async def _connect(self, host: str, port: int) -> Line:
        loop = asyncio.get_running_loop()
        master = self._find_master().address
        hello = await hello_for(self._remoting, master, self.hello_id()) if master else Hello()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.sock_connect(connection, address)
        except BaseException:
            connection.close()
            raise
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line: Line = connection
        if self.tls is not None and (self.tls.is_enforced or hello.has_tls):
            line = await encrypt(connection, self.tls.client.context, server_side=False, host=host)
        if hello.data:
            line.send(hello.data)  # so few bytes fit into what a new connection buffers
        return line


class Copying:
    """One connection to a master."""

    def __init__(self, follower: Follower, connection: Line, copy: CopiedLog, begin: int | None) -> None:
        self._follower = follower
        self._socket = connection
        self._copy = copy
        self._store = follower._store
        self._clock = follower._clock
        self._loop = asyncio.get_running_loop()
        self._session = SlaveSession(self._store.commit_log.file_bytes)
        self._header = bytearray(self._session.header_bytes)
        self._header_filled = 0
        self._left = Packet(0, 0)
        # Another layer may have read more from the socket than it handed on: there nothing can be said of what is left.
        self._is_plain = type(connection) is socket.socket
        self._awaited_bytes = 1
        self._unsent = b""
        self._reported = -1
        self._is_flush_awaited = False
        self._received_s = self._sent_s = self._clock.monotonic()
        self._done: asyncio.Future[str] = self._loop.create_future()
        self._timer: Timer | None = None
        self._begin = begin

    async def ended(self) -> str:
        """Copies until the connection ends; why it did."""
        self._loop.add_reader(self._socket.fileno(), self._readable)
        try:
            self._ask()
            self._second()
            return await self._done
        finally:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            if self._timer is not None:
                self._timer.cancel()

    def _end(self, why: str) -> None:
        if not self._done.done():
            self._done.set_result(why)

    # What is said

    def _ask(self) -> None:
        """The first report says where to begin. To one at 0 a master sends its last file only; so who wants all asks
        for the first that is there. If that is 0 itself, for the byte behind it: the first byte of a log is that of
        a record's size, which is 0."""
        copy, begin = self._copy, self._begin
        if begin is not None and copy.is_empty:
            if begin == 0:
                copy.place(0, 1)[0] = 0
                copy.received(1)
            else:
                copy.begin_at(begin)
        self._say(int(copy.end))

    def _report(self) -> None:
        """Say how much is kept, if that is more than was said."""
        end = int(self._copy.end)
        if self._store.config.is_sync_flush:
            flushed = int(self._store.flushed_position)
            if flushed < end and not self._is_flush_awaited:
                self._is_flush_awaited = True
                self._store.positions.when(end, FLUSHED, self._flushed)
            end = min(end, flushed)
        if end > self._reported:
            self._say(end)

    def _flushed(self, missed: Missed) -> None:
        self._is_flush_awaited = False
        if not self._done.done():
            self._report()

    def _say(self, end: int) -> None:
        if self._done.done():
            return
        data = self._unsent + self._session.report(end) if len(self._unsent) < 8 else self._unsent
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as problem:
            self._end(f"the connection broke: {problem.strerror}")
            return
        self._unsent = data[sent:]
        self._reported = end
        self._sent_s = self._clock.monotonic()
        self._follower.reported_ms = self._clock.now_ms()

    def _second(self) -> None:
        now = self._clock.monotonic()
        if now - self._received_s > self._follower._silence_s:
            self._end(f"the master said nothing for {now - self._received_s:.0f} s")
            return
        if now - self._sent_s >= self._follower._heartbeat_s:
            self._say(max(self._reported, 0))
        self._timer = self._clock.call_later(min(SECOND_S, self._follower._heartbeat_s), self._second)

    # What is heard

    def _readable(self) -> None:
        try:
            is_over = self._receive(BYTES_AN_ITERATION)
            self._copy.dispatch()
            self._report()
        except (ProtocolError, CopyRefused) as fault:
            self._end(str(fault))
        except StoreError as fault:
            self._end(f"the copy cannot be written: {fault}")
        except OSError as problem:
            self._end(f"the connection broke: {problem.strerror}")
        else:
            if is_over:
                self._end("the master hung up")
            elif has_more(self._socket):
                self._loop.call_soon(self._more)

    def _more(self) -> None:
        if not self._done.done():
            self._readable()

    def _receive(self, budget: int) -> bool:
        """Take what is there, so much at most; whether the master hung up."""
        is_all = False
        while budget > 0 and not is_all:
            try:
                count, is_all = self._receive_some()
            except BlockingIOError:
                break
            if count == 0:
                return True
            budget -= count
        self._await_bytes()
        return False

    def _await_bytes(self) -> None:
        """Be woken when the rest of a packet is there, or much of it, or when the connection ends: it comes in many
        pieces, and none of them is worth a wake-up."""
        wanted = min(max(1, self._left.size), MOST_AWAITED_BYTES)
        if self._is_plain and wanted != self._awaited_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._awaited_bytes = wanted

    def _receive_some(self) -> tuple[int, bool]:
        """How many bytes came, and whether that was all there were."""
        if self._left.size == 0:
            asked = len(self._header) - self._header_filled
            count = self._socket.recv_into(memoryview(self._header)[self._header_filled :])
            self._heard(0)
            self._header_filled += count
        else:
            # The rest of the packet goes where the copy takes it, and the header behind it comes along.
            place = self._copy.place(self._left.offset, self._left.size)
            places: list[memoryview | bytearray] = [place, self._header] if len(place) == self._left.size else [place]
            asked = sum(map(len, places))
            count = self._socket.recvmsg_into(places)[0]
            body = min(count, self._left.size)
            self._copy.received(body)
            self._heard(body)
            self._left = Packet(self._left.offset + body, self._left.size - body)
            self._header_filled = count - body
        if self._header_filled == len(self._header):
            self._header_filled = 0
            self._take_header()
            return count, False
        return count, self._is_plain and count < asked

    def _heard(self, body: int) -> None:
        self._received_s = self._clock.monotonic()
        follower = self._follower
        follower.received_ms = self._clock.now_ms()
        follower.received_bytes += body
        follower.master_end = max(follower.master_end, int(self._copy.end))

    def _take_header(self) -> None:
        packet = self._session.packet(self._header)
        if packet.size == 0:
            return
        if not self._copy.is_empty and packet.offset != self._copy.end:
            raise ProtocolError(f"the master sends from {packet.offset}, and this log ends at {self._copy.end}")
        self._left = packet
