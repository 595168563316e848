"""Decisions in a file: they last, one controller at a time has it, and a damaged one is refused with a sentence."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from storage_contract import CHECKS, broker_set

from arrowmq.controller.sqlite_storage import SqliteStorage
from arrowmq.controller.storage import ControllerPeer, Storage, StorageError

OWN = ControllerPeer("n0", "127.0.0.1:9878")


async def ignore(*_: object) -> None:
    return None


async def opened(directory: Path) -> SqliteStorage:
    storage = SqliteStorage(directory, lambda: OWN)
    await storage.open(ignore, lambda *_: None)
    return storage


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    storage = await opened(tmp_path)
    yield storage
    await storage.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: Callable[[Storage], Awaitable[None]], storage: SqliteStorage) -> None:
    await check(storage)


async def test_decisions_are_there_after_a_restart(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.commit("b", 0, broker_set(epoch=4))
    await first.close()
    second = await opened(tmp_path)
    assert 4 == (await second.load())["b"].broker_set.master_epoch
    await second.close()


async def test_a_second_controller_on_the_same_directory_is_refused(storage: SqliteStorage, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="in use by another controller"):
        await opened(tmp_path)


@pytest.mark.parametrize("damage", ["no database", "no broker set"])
async def test_a_damaged_file_is_refused_with_a_sentence(damage: str, tmp_path: Path) -> None:
    storage = await opened(tmp_path)
    await storage.commit("b", 0, broker_set())
    await storage.close()
    if damage == "no database":
        storage.path.write_bytes(os.urandom(4096))
    else:
        with sqlite3.connect(storage.path) as database:
            database.execute("UPDATE broker_sets SET value = x'00'")
    with pytest.raises(StorageError, match="damaged"):
        await (again := SqliteStorage(tmp_path, lambda: OWN)).open(ignore, lambda *_: None) or await again.load()
    await again.close()


KILLED = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from storage_contract import broker_set
from arrowmq.controller.sqlite_storage import SqliteStorage
from arrowmq.controller.storage import ControllerPeer

async def main():
    async def ignore(_): pass
    storage = SqliteStorage(Path(sys.argv[1]), lambda: ControllerPeer("n0", "h:1"))
    await storage.open(ignore, lambda *_: None)
    revision = 0
    for epoch in range(1, 10_000):
        revision = await storage.commit("b", revision, broker_set(epoch=epoch))
        print(epoch, flush=True)

asyncio.run(main())
"""


async def test_what_was_told_is_kept_when_the_controller_is_killed(tmp_path: Path) -> None:
    told = 0
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async for line in process.stdout:
        told = int(line)
        if told == 20:
            process.kill()
    await process.wait()
    storage = await opened(tmp_path)
    assert told <= (await storage.load())["b"].broker_set.master_epoch <= told + 1
    await storage.close()
