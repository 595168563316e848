"""One controller, its decisions in a file of its own: SQLite, forced to disk before anybody knows of them.

The file is locked for as long as the controller runs: a second one on the same directory is refused, or there would be
two that decide. SQLite runs on one thread of its own, because forcing to disk blocks.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from arrowmq.controller.broker_sets import BrokerSet, BrokerSetError, decode, encode
from arrowmq.controller.storage import (
    ControllerPeer,
    Kept,
    Leadership,
    OnChange,
    OnLeadership,
    StaleDecision,
    StorageError,
)

FILE_NAME = "decisions.db"
SCHEMA_VERSION = 1

Result = TypeVar("Result")


class SqliteStorage:
    def __init__(self, directory: Path, own: Callable[[], ControllerPeer]) -> None:
        self.path = directory / FILE_NAME
        self._own = own
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="controller-decisions")
        self._database: sqlite3.Connection | None = None

    async def open(self, on_leadership: OnLeadership, on_change: OnChange) -> None:
        del on_change  # nobody else decides
        await self._run(self._open)
        await on_leadership(True)

    async def close(self) -> None:
        if self._database is not None:
            await self._run(self._database.close)
            self._database = None
        self._thread.shutdown()

    def leadership(self) -> Leadership:
        own = self._own()
        return Leadership(own, self._database is not None, (own,))

    async def load(self) -> dict[str, Kept]:
        return await self._run(self._load)

    async def commit(self, name: str, based_on: int, kept: BrokerSet | None) -> int:
        return await self._run(partial(self._commit, name, based_on, kept))

    async def _run(self, function: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except sqlite3.Error as error:
            raise StorageError(_sentence(self.path, error)) from error
        except OSError as error:
            raise StorageError(f"{self.path} cannot be used: {error.strerror or error}") from error

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
            database.execute("PRAGMA synchronous=EXTRA")  # the folder's entry of the journal as well
            database.execute("BEGIN EXCLUSIVE")  # takes the lock now, and keeps it
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StorageError(f"{self.path} was written by a later version of ArrowMQ: use that one")
            database.execute(
                "CREATE TABLE IF NOT EXISTS broker_sets (name TEXT PRIMARY KEY, revision INTEGER, value BLOB)"
            )
            database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            database.execute("COMMIT")
            damage = database.execute("PRAGMA quick_check").fetchone()[0]
            if damage != "ok":
                raise StorageError(f"{self.path} is damaged ({damage}): restore it from a backup")
        except BaseException:
            database.close()
            raise
        self._database = database

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            raise StaleDecision("this controller has stopped")
        return self._database

    def _load(self) -> dict[str, Kept]:
        sets: dict[str, Kept] = {}
        for name, revision, value in self._opened().execute("SELECT name, revision, value FROM broker_sets"):
            try:
                sets[name] = Kept(decode(value), revision)
            except BrokerSetError as error:
                raise StorageError(f"{self.path} is damaged: {error}. Restore it from a backup") from error
        return sets

    def _commit(self, name: str, based_on: int, kept: BrokerSet | None) -> int:
        database = self._opened()
        database.execute("BEGIN IMMEDIATE")
        try:
            row = database.execute("SELECT revision FROM broker_sets WHERE name = ?", (name,)).fetchone()
            if (0 if row is None else row[0]) != based_on:
                raise StaleDecision(f"broker set {name} has changed since")
            if kept is None:
                database.execute("DELETE FROM broker_sets WHERE name = ?", (name,))
            else:
                database.execute(
                    "INSERT OR REPLACE INTO broker_sets VALUES (?, ?, ?)", (name, based_on + 1, encode(kept))
                )
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        return 0 if kept is None else based_on + 1


def _sentence(path: Path, error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return f"{path} is in use by another controller: stop that one, or give this one a directory of its own"
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return f"{path} is damaged (it is no SQLite file): restore it from a backup"
    return f"{path} cannot be used: {error}"
