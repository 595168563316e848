"""`python -m benchmarks.profile`: where the microseconds of a send and of a pull go, by layer, and what the limit is.

The whole is measured on a running broker under the raw generator, split by the system into user and kernel time. The
native pass is measured alone, by handing it the same bytes without a socket; what then is left of the user time is the
event loop and the Python around the pass. Memory copies and checksums of the same bytes are the physical part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import SystemClock
from arrowmq.wire.checksum import crc32
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, encode_frame
from arrowmq.wire.records import Record
from benchmarks import report
from benchmarks.__main__ import RESULTS
from benchmarks.loads import raw_pull, raw_send
from benchmarks.systems import ArrowMQ, Bare, System

BODY = bytes(1024)
FRAMES = 64  # in one read, as under load
PASSES = 5000  # room for so many is made before
TICKS = os.sysconf("SC_CLK_TCK")


def user_and_kernel_s(system: System) -> tuple[float, float]:
    fields = Path(f"/proc/{system.broker.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def split(system: System, work: Callable[[], float]) -> tuple[float, float]:
    """Microseconds of user and of kernel time a message, while `work` does so many messages."""
    user, kernel = user_and_kernel_s(system)
    messages = work()
    user_after, kernel_after = user_and_kernel_s(system)
    return (user_after - user) / messages * 1e6, (kernel_after - kernel) / messages * 1e6


class Peer:
    """Stands in for a connection where no socket is."""

    def __init__(self) -> None:
        self.peer = ("127.0.0.1", 40000)
        self.attributes: dict[str, object] = {}
        self.peer_bytes: bytes | None = None


def cpu_us(work: Callable[[], object], times: int, each: int) -> tuple[float, float]:
    """Microseconds of user and of kernel time; of work in memory, the kernel's part is page faults."""
    began = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(times):
        work()
    ended = resource.getrusage(resource.RUSAGE_SELF)
    per_message = 1e6 / (times * each)
    return (ended.ru_utime - began.ru_utime) * per_message, (ended.ru_stime - began.ru_stime) * per_message


async def alone(folder: Path) -> dict[str, float]:
    """The native passes and their physical parts, without sockets."""
    config = BrokerConfig.from_properties({"brokerIP1": "127.0.0.1", "brokerName": "profile"})
    broker = Broker(config, folder, SystemClock())
    broker.open()
    await broker.start(10911)
    try:
        broker.topics.create_by_message("Profile", "TBW102", 8, unit=False)
        assert broker.fast_path is not None
        fast, peer = broker.fast_path, Peer()

        def frames(count: int) -> memoryview:
            sends = []
            for number in range(count):
                ext = {
                    "a": "P", "b": "Profile", "c": "TBW102", "d": "8", "e": str(number % 8), "f": "0",
                    "g": "1790000000000", "h": "0", "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02", "j": "0",
                    "k": "false", "m": "false",
                }  # fmt: skip
                command = Command.request(RequestCode.SEND_MESSAGE_V2, ext, BODY)
                command.serialize_type = 1
                sends.append(encode_frame(command))
            return memoryview(b"".join(sends))

        ext = {
            "consumerGroup": "G", "topic": "Profile", "queueId": "0", "queueOffset": "100", "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
        }  # fmt: skip
        pull = memoryview(encode_frame(Command.request(RequestCode.PULL_MESSAGE, ext)))
        many = frames(FRAMES)
        _make_room(broker)
        consumed, _ = fast(peer, many)
        assert consumed == len(many), "the sends went the general path"
        found: dict[str, float] = {}
        cpu_us(lambda: fast(peer, many), 400, FRAMES)
        found["send: native pass"], faults = cpu_us(lambda: fast(peer, many), 2000, FRAMES)
        found["send: page faults of the mapped files (kernel)"] = faults
        broker.store.index.tail.enabled = False
        found["send: native pass without the index"], _ = cpu_us(lambda: fast(peer, many), 2000, FRAMES)
        broker.store.index.tail.enabled = True
        taken, answer = fast(peer, pull)
        assert taken == len(pull), "the pull went the general path"
        assert answer is not None
        found["pull: native pass"], _ = cpu_us(lambda: fast(peer, pull), 5000, 32)
        target = bytearray(64 << 20)
        view, body = memoryview(target), memoryview(BODY)

        def copies() -> None:
            for at in range(0, 1 << 20, 1024):
                view[at : at + 1024] = body

        found["physical: copying 1 KiB"], _ = cpu_us(copies, 20, 1024)
        whole = bytes(1 << 20)
        found["physical: CRC of 1 KiB"], _ = cpu_us(lambda: crc32(whole), 200, 1024)
        return found
    finally:
        await broker.stop()


def _make_room(broker: Broker) -> None:
    """The first message of a queue makes its files, and room is made now and then: that is the general path's work."""
    for queue_id in range(8):
        broker.put(Record(topic="Profile", queue_id=queue_id, body=BODY))
        broker.store.consume_queues.get("Profile", queue_id).reserve(PASSES * FRAMES // 8)
    broker.store.index.make_room(PASSES * FRAMES * 2)


def running(seconds: float, backlog: int) -> dict[str, float]:
    found = {}
    with ArrowMQ() as system:
        raw_send(system, "Profile", seconds=2)

        def sends() -> float:
            return raw_send(system, "Profile", seconds=seconds)["messages"]

        found["send: whole, user"], found["send: whole, kernel"] = split(system, sends)
        raw_send(system, "Backlog", count=backlog)
        raw_pull(system, "Backlog", backlog // 4)

        def pulls() -> float:
            return raw_pull(system, "Backlog", backlog)["messages"]

        found["pull: whole, user"], found["pull: whole, kernel"] = split(system, pulls)
    with Bare() as system:
        raw_send(system, "Profile", seconds=1)
        user, kernel = split(system, lambda: raw_send(system, "Profile", seconds=seconds)["messages"])
        found["bare server: user"], found["bare server: kernel"] = user, kernel
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--backlog", type=int, default=400_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="profile-"))
    try:
        found = asyncio.run(alone(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found |= running(options.seconds, options.backlog)
    for kind in ("send", "pull"):
        found[f"{kind}: event loop and Python around the pass"] = (
            found[f"{kind}: whole, user"] - found[f"{kind}: native pass"]
        )
    about = ", ".join(f"{name} {value}" for name, value in report.machine().items())
    lines = [f"{about}", "", "| layer | µs a message |", "|---|---:|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in sorted(found.items())]
    text = "\n".join(lines)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "profile.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
