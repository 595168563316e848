"""`python -m benchmarks.store [--megabytes N]`: the store beside the bare limit of the machine, in one run.

Appending: records of 1 KiB, one by one and in batches of 64, beside a C loop that copies the same bytes into the same
mapping and takes their CRC. Recovery after a crash and `store check`: beside reading the same files and taking their
CRC. Opening a store of 10,000 queues. Figures are CPU time, so that other work on the machine counts little; each is
the best of several rounds, and rounds of the two sides alternate.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from arrowmq.store import MessageStore, StoreConfig
from arrowmq.store.integrity.check import StoreCheck
from arrowmq.store.integrity.inspection import StoreView
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record

HERE = Path(__file__).resolve().parent
ROUNDS = 4
BATCH = 64
RECORD_BYTES = 1024
HOST = (bytes((127, 0, 0, 1)), 10911)
PROPERTIES = encode_properties({"UNIQ_KEY": "7F000001BA4E18B4AAC22B1C3F5D0000", "TAGS": "TagA", "WAIT": "true"})


def bare_library() -> ctypes.CDLL:
    """The C loop, compiled when it is first needed."""
    source = HERE / "bare_append.c"
    content = source.read_bytes() + (HERE / "crc32.h").read_bytes()
    target = HERE.parent / "build" / "benchmarks" / f"bare_append-{hashlib.sha256(content).hexdigest()[:12]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["cc", "-O2", "-march=native", "-shared", "-fPIC", "-o", str(target), str(source)], check=True, timeout=60
        )
    library = ctypes.CDLL(str(target))
    library.bare_append.restype = library.bare_crc.restype = ctypes.c_uint64
    library.bare_append.argtypes = [ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_size_t] * 3]
    library.bare_crc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def message(body: bytes) -> Record:
    return Record(
        topic="orders", body=body, properties_raw=PROPERTIES, born_timestamp=1, born_host=HOST, store_host=HOST
    )


def body_for(size: int) -> bytes:
    """A body that makes the whole record this large."""
    return os.urandom(size - 91 - len("orders") - len(PROPERTIES))


def timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


class Appending:
    """A store whose one segment is filled again and again; the pages are touched before, so none is a first touch."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.count = megabytes * 1024 // BATCH * BATCH
        size = (megabytes + 2) << 20
        config = StoreConfig(mapped_file_size_commit_log=size, max_hash_slot_num=1 << 20, max_index_num=1 << 25)
        self.store = MessageStore(folder, config)
        self.store.open()
        self.body = body_for(RECORD_BYTES)
        assert RECORD_BYTES == self.store.put(message(self.body)).size
        self.view = self.store.commit_log.segments[0].view
        self.view[:] = bytes(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view))

    def begin(self) -> None:
        self.store.commit_log.tail.position = 0

    def singles(self) -> float:
        self.begin()
        record, put = message(self.body), self.store.put

        def work() -> None:
            for _ in range(self.count):
                put(record)

        return timed(work) / self.count

    def batches(self) -> float:
        self.begin()
        template = message(b"")
        batch = encode_batch([(0, self.body, PROPERTIES)] * BATCH)
        put = self.store.put_client_batch

        def work() -> None:
            for _ in range(self.count // BATCH):
                put(template, batch)

        return timed(work) / self.count

    def record_batches(self) -> float:
        self.begin()
        records = [message(self.body) for _ in range(BATCH)]
        put = self.store.put_batch

        def work() -> None:
            for _ in range(self.count // BATCH):
                put(records)

        return timed(work) / self.count

    def bare(self, library: ctypes.CDLL) -> float:
        records = bytes(self.view[: RECORD_BYTES * BATCH])
        return timed(lambda: library.bare_append(self.address, records, RECORD_BYTES, BATCH, self.count)) / self.count


def measure_appending(folder: Path, library: ctypes.CDLL, megabytes: int) -> None:
    appending = Appending(folder, megabytes)
    rows: dict[str, list[float]] = {"bare": [], "batches of 64": [], "batches of 64 records": [], "one by one": []}
    for _ in range(ROUNDS):
        rows["batches of 64"].append(appending.batches())
        rows["bare"].append(appending.bare(library))
        rows["batches of 64 records"].append(appending.record_batches())
        rows["one by one"].append(appending.singles())
    bare = min(rows["bare"])
    print(f"append 1 KiB, bare memcpy + CRC   {bare * 1e9:8.0f} ns   {RECORD_BYTES / bare / 1e9:6.2f} GB/s")
    for name in ("batches of 64", "batches of 64 records", "one by one"):
        best = min(rows[name])
        speed = f"{RECORD_BYTES / best / 1e9:6.2f} GB/s   {bare / best:5.2f} of bare"
        print(f"append 1 KiB, {name:21}{best * 1e9:8.0f} ns   {speed}")
    appending.store.close()


def fill(folder: Path, megabytes: int) -> StoreConfig:
    """A store with so much in it, its index and queues included, as if its process had been killed."""
    config = StoreConfig(mapped_file_size_commit_log=256 << 20, max_hash_slot_num=1 << 20, max_index_num=1 << 24)
    store = MessageStore(folder, config)
    store.open()
    batch = encode_batch([(0, body_for(RECORD_BYTES), PROPERTIES)] * BATCH)
    for number in range(megabytes * 1024 // BATCH):
        template = message(b"")
        template.queue_id = number % 8
        store.put_client_batch(template, batch)
    store.close()
    return config


def read_and_crc(folder: Path, library: ctypes.CDLL, end: int) -> float:
    buffer = bytearray(1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))

    def work() -> None:
        left = end
        for path in sorted((folder / "commitlog").iterdir()):
            with open(path, "rb", buffering=0) as file:
                while left > 0 and (length := file.readinto(buffer)):
                    library.bare_crc(address, min(length, left))
                    left -= length

    return timed(work)


def measure_recovery(folder: Path, library: ctypes.CDLL, megabytes: int) -> None:
    config = fill(folder, megabytes)
    bare, recovery, check = [], [], []
    end = 0
    for _ in range(ROUNDS):
        (folder / "abort").write_text("1")
        (folder / "checkpoint").unlink()  # without it nothing may be believed: recovery reads everything
        store = MessageStore(folder, config)
        recovery.append(timed(store.open))
        end = store.appended
        store.close()
        bare.append(read_and_crc(folder, library, end))
        view = StoreView(folder, config)
        check.append(timed(StoreCheck(view).run))
    base = min(bare)
    print(f"read the log + CRC                {base * 1e3:8.1f} ms   {end / base / 1e9:6.2f} GB/s")
    for name, rounds in (("recovery after a crash", recovery), ("store check", check)):
        best = min(rounds)
        print(f"{name:34}{best * 1e3:8.1f} ms   {end / best / 1e9:6.2f} GB/s   {base / best:5.2f} of reading + CRC")


def measure_many_queues(folder: Path, count: int) -> None:
    config = replace(StoreConfig(), mapped_file_size_commit_log=64 << 20)
    store = MessageStore(folder, config)
    store.open()
    for number in range(count):
        record = message(b"x")
        record.topic, record.queue_id = f"topic-{number // 8}", number % 8
        assert store.put(record).is_ok
    store.close()
    for kind in ("after a clean stop", "after a crash"):
        if kind == "after a crash":
            (folder / "abort").write_text("1")
        handles = len(os.listdir("/proc/self/fd"))
        store = MessageStore(folder, config)
        took = timed(store.open)
        opened = len(os.listdir("/proc/self/fd")) - handles
        assert count == len(store.consume_queues)
        each = f"{took / count * 1e6:5.1f} µs a queue, {opened} files stay open"
        print(f"open {count} queues {kind:19}{took * 1e3:8.0f} ms   {each}")
        store.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=128, help="of log to append and to recover")
    parser.add_argument("--queues", type=int, default=10_000)
    options = parser.parse_args()
    library = bare_library()
    folder = Path(tempfile.mkdtemp(prefix="arrowmq-bench-store-"))
    try:
        measure_appending(folder / "append", library, options.megabytes)
        measure_recovery(folder / "recovery", library, options.megabytes)
        measure_many_queues(folder / "queues", options.queues)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
