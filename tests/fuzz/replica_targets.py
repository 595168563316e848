"""What is fuzzed between masters and slaves: the bytes of the HA port, as each side of both protocols takes them.

The sockets are real, and so are the stores: a false master's bytes are written into a slave's log, and a false slave is
sent a master's.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import scratch
from target import Target
from writing import SMALL, numbered, opened

from arrowmq.broker.role import Master
from arrowmq.clock import SystemClock
from arrowmq.replica.controlled.epochs import Epoch, EpochFile, format_epochs
from arrowmq.replica.controlled.epochs import parse as parse_epochs
from arrowmq.replica.controlled.follower import ControlledFollower
from arrowmq.replica.controlled.protocol import (
    EPOCH_ENTRY,
    MASTER_HANDSHAKE,
    MASTER_TRANSFER,
    SLAVE_HANDSHAKE,
    SLAVE_REPORT,
    EpochMasterSession,
    EpochSlaveSession,
    handshake_body_bytes,
    read_handshake,
)
from arrowmq.replica.feed import Feed
from arrowmq.replica.follower import Copying
from arrowmq.replica.hello import HELLO, TICKET_BYTES, Greeting, Tickets
from arrowmq.replica.protocol import PACKET, REPORT, MasterSession, SlaveSession
from arrowmq.store import MessageStore
from arrowmq.store.copied_log import CopiedLog
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ViewMessage, decode_header
from arrowmq.wire.records import decode_records

WIRE = Path(__file__).parents[1] / "golden" / "wire"
FILE_BYTES = SMALL.mapped_file_size_commit_log
SECOND_EPOCH = 4  # the number of the message it begins with
MOST_ANSWERED = 1 << 20
MOST_SAID = FILE_BYTES + 2000
Found = tuple[str, int, int, bytes]  # topic, queue, queue offset, body
SIDES = "master", "master of epochs", "slave", "slave of epochs"


@cache
def _folder() -> Path:
    return scratch.folder("replica")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: _failures.append(context))
    return loop


_failures: list[dict[str, Any]] = []


def run_replication(data: bytes) -> None:
    """The first byte says who is spoken to, the second into how many pieces the rest is cut."""
    if len(data) < 2:
        return
    side, step = SIDES[data[0] % len(SIDES)], max(1, (len(data) - 2) // (1 + data[1] % 16))
    pieces = [data[start : start + step] for start in range(2, len(data), step)]
    has_epochs = side.endswith("of epochs")
    speak = _speak_to_master if side.startswith("master") else _speak_to_slave
    _failures.clear()
    _loop().run_until_complete(speak(pieces, has_epochs))
    if _failures:
        raise AssertionError(_failures[0]["message"]) from _failures[0].get("exception")


# The master's side


class Line(socket.socket):
    """One end of a pair, which has no address by itself."""

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.7", 1

    def setsockopt(self, level: int, *rest: Any) -> None:
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *rest)


@cache
def _master() -> tuple[MessageStore, EpochFile]:
    store = opened(_folder() / "master")
    epochs = EpochFile(_folder() / "master" / "epochs", store.disk)
    epochs.append(1, 0)
    for number in range(120):
        place = store.put(numbered(number)).physical_offset
        if number == SECOND_EPOCH:
            epochs.append(3, place)
    return store, epochs


async def _speak_to_master(pieces: list[bytes], has_epochs: bool) -> None:
    store, epochs = _master()
    session = EpochMasterSession(epochs, lambda: int(store.appended)) if has_epochs else MasterSession()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    answers = bytearray()
    feed = Feed(
        Line(fileno=theirs.detach()), store, SystemClock(), batch_bytes=32768, session=session,
        on_moved=lambda _: None, on_closed=lambda *_: None, greeting=Greeting(Tickets(SystemClock())),
        why_refused=lambda feed: "forged" if feed.greeting.is_forged else None,
    )  # fmt: skip
    for piece in [*pieces, b""]:
        if feed.is_closed:
            break
        ours.send(piece)
        for _ in range(4):
            await asyncio.sleep(0)
            answers += _waiting_in(ours)
        assert len(answers) < MOST_ANSWERED + 40 * sum(map(len, pieces)), "it gives more than its log"
    feed.heartbeat()
    assert feed.acknowledged <= max(0, session.next_offset)
    feed.close("over")
    answers += _waiting_in(ours)
    ours.close()
    _check_answers(bytes(answers), has_epochs)


def _waiting_in(line: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            piece = line.recv(1 << 16)
        except (BlockingIOError, ConnectionResetError):
            return found
        if not piece:
            return found
        found += piece


def _check_answers(answers: bytes, has_epochs: bool) -> None:
    """As a slave reads them: bytes of the log at their place, and no others."""
    at = 0
    while has_epochs and answers[at : at + 4] == struct.pack(">i", 1):
        header = answers[at : at + MASTER_HANDSHAKE.size]
        at += len(header)
        size = handshake_body_bytes(header)
        assert 2 == len(read_handshake(header, answers[at : at + size]).epochs)
        at += size
    slave = EpochSlaveSession(FILE_BYTES) if has_epochs else SlaveSession(FILE_BYTES)
    while at + slave.header_bytes <= len(answers):
        packet = slave.packet(answers[at : at + slave.header_bytes])
        at += slave.header_bytes
        body = answers[at : at + packet.size]
        at += packet.size
        assert not body or body == _log_bytes(packet.offset, packet.offset + len(body))


# The slave's side


class Asked:
    """Answers a slave's question about a record as the master does whose log this is."""

    async def invoke(self, _address: str, command: Command, _timeout_s: float) -> Command:
        found = _master()[0].record_bytes_at(decode_header(ViewMessage, command.ext).offset)
        if found is None:
            return command.answer(ResponseCode.SYSTEM_ERROR)
        return command.answer(body=bytes(found))


class FedFollower(ControlledFollower):
    """Its connection is the one it is given."""

    def __init__(self, line: socket.socket, store: MessageStore, epochs: EpochFile, master: Master) -> None:
        super().__init__(
            store, Asked(), SystemClock(), find_master=lambda: master, ask_for_master=lambda: None,
            heartbeat_s=5.0, silence_s=20.0, checks_crc=True, epochs=epochs, own_id=lambda: 2, is_learner=False,
            wants_last_file=False, find_ha_address=lambda _: None,
        )  # type: ignore[arg-type] # fmt: skip
        self._line = line

    async def _connect(self, host: str, port: int) -> socket.socket:
        return self._line


@cache
def _slave_folder(has_epochs: bool) -> Path:
    """Without epochs nothing; with them a log that went the master's way for some messages."""
    folder = _folder() / f"slave-{has_epochs}"
    store = opened(folder)
    if has_epochs:
        theirs = _master()[1].epochs[1].start
        copy, data = CopiedLog(store), _log_bytes(0, theirs)
        copy.place(0, len(data))[:] = data
        copy.received(len(data))
        copy.dispatch()
        epochs = EpochFile(folder / "epochs", store.disk)
        epochs.append(1, 0)
        epochs.append(2, theirs)
        store.put(numbered(SECOND_EPOCH))
    store.close()
    return folder


async def _speak_to_slave(pieces: list[bytes], has_epochs: bool) -> None:
    folder = _folder() / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_slave_folder(has_epochs), folder)
    store = opened(folder)
    epochs = EpochFile(folder / "epochs", store.disk)
    epochs.load()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    copy = CopiedLog(store)
    follower = FedFollower(theirs, store, epochs, Master("192.0.2.7:1", "192.0.2.7:2"))
    work = follower._follow(copy) if has_epochs else Copying(follower, theirs, copy, None).ended()
    task = asyncio.ensure_future(work)
    for piece in pieces:
        await asyncio.sleep(0)
        if task.done():
            break
        _send(ours, piece)
        _waiting_in(ours)
    ours.close()
    async with asyncio.timeout(15.0):
        await task
    follower._cut(copy)
    assert copy.dispatched == copy.end
    kept, odd = _read(store), _read(store, only_with_zeros=True)
    store.close()
    store = opened(folder)
    again = _read(store)
    store.close()
    _check_restarted(kept, again, odd)


def _check_restarted(kept: list[Found], again: list[Found], odd: list[Found]) -> None:
    """Where the last record has zeros as a torn one has, it is damaged or cut, and before damage such records are left
    out. If it was the first of a topic made anew, its queue has what it had before, until then."""
    missing = [record for record in kept if record not in again]
    returned = [record for record in again if record not in kept]
    assert len(missing) <= 1 or all(record in odd for record in missing), "a slave that is started again lacks messages"
    assert [record for record in kept if record in again] == [record for record in again if record in kept]
    assert {(*record[:2], 0) for record in returned} <= {record[:3] for record in missing}


def _send(line: socket.socket, piece: bytes) -> None:
    try:
        line.send(piece)
    except (BrokenPipeError, ConnectionResetError):
        return


def _read(store: MessageStore, *, only_with_zeros: bool = False) -> list[Found]:
    return [
        (topic, queue_id, record.queue_offset, record.body)
        for topic, queue_ids in sorted(store.queues().items())
        for queue_id in sorted(queue_ids)
        for record in _records(store, topic, queue_id)
        if not only_with_zeros or b"\0" in record.properties_raw
    ]


def _records(store: MessageStore, topic: str, queue_id: int) -> Iterator[Any]:
    offset = store.min_offset(topic, queue_id)
    for _ in range(200):
        if offset >= store.max_offset(topic, queue_id):
            return
        got = store.get(topic, queue_id, offset, 32)
        yield from decode_records(got.body(), check_crc=True)
        offset = max(got.next_offset, offset + 1)


# What is recorded, and what we send ourselves


def replication_corpus() -> list[bytes]:
    return [
        *(b"\x00\x00" + said for said in _recorded("client")),
        *(b"\x02\x00" + said for said in _recorded("server")),
        b"\x00\x01" + HELLO + bytes(TICKET_BYTES) + REPORT.pack(0),
        b"\x00\x02" + REPORT.pack(0) + REPORT.pack(1 << 14) + REPORT.pack(1 << 62),
        b"\x01\x00" + SLAVE_HANDSHAKE.pack(1, 0, 0, 2) + SLAVE_REPORT.pack(2, 0) + SLAVE_REPORT.pack(2, 300),
        b"\x01\x03" + SLAVE_HANDSHAKE.pack(1, 1, 1, 9) * 3 + SLAVE_REPORT.pack(2, 0),
        *(b"\x02\x00" + _packets(size) for size in (100, 4096, FILE_BYTES)),
        *(b"\x03\x00" + _handshake() + _packets(size, has_epochs=True) for size in (100, FILE_BYTES)),
    ]


def _recorded(side: str) -> list[bytes]:
    """What one side said on each recorded connection."""
    found: dict[tuple[str, int], bytes] = {}
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                frame = json.loads(line)
                if frame["link"] == "slave-master-ha" and frame["from"] == side:
                    key = path.name, frame["conn"]
                    found[key] = found.get(key, b"") + bytes.fromhex(frame["hex"])
    return list(found.values())


def _handshake() -> bytes:
    store, epochs = _master()
    entries = b"".join(EPOCH_ENTRY.pack(*epoch) for epoch in epochs.epochs)
    return MASTER_HANDSHAKE.pack(1, len(entries), int(store.appended), epochs.last_number) + entries


def _packets(most: int, *, has_epochs: bool = False) -> bytes:
    """Some thousand bytes of a master's log, from where the slave's agrees with it."""
    store, epochs = _master()
    at, end, said = epochs.epochs[1].start if has_epochs else 0, int(store.appended), b""
    while at < end and len(said) < MOST_SAID:
        size = min(most, FILE_BYTES - at % FILE_BYTES, end - at)
        said += MASTER_TRANSFER.pack(2, size, at, *epochs.epochs[1], end) if has_epochs else PACKET.pack(at, size)
        said += _log_bytes(at, at + size)
        at += size
    return said


def _log_bytes(start: int, end: int) -> bytes:
    """Of the master, within one file."""
    segment = _master()[0].commit_log.segment_at(start)
    assert segment
    return bytes(segment.view[start - segment.start : end - segment.start])


def run_epochs(data: bytes) -> None:
    try:
        epochs = parse_epochs(data)
    except ValueError:
        return
    assert parse_epochs(format_epochs(epochs)) == epochs


TARGETS = {
    "replication": Target(replication_corpus, run_replication),
    "epoch file": Target(lambda: [format_epochs([Epoch(1, 0), Epoch(2, 4096)]), b"0\n0\n"], run_epochs),
}
