"""A table of the broker on disk, written in a thread because nobody's request should wait for another's fsync.

Changes that came about by themselves are written a moment later, many at once. Who must not be answered before a change
is on disk awaits `saved()`, and shares its write with others who do. An older state never lands on top of a newer one:
the file sees to that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from arrowmq.clock import Clock, Timer
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.errors import StoreError

log = logging.getLogger(__name__)

TOGETHER_S = 0.05


class TableFile:
    def __init__(self, file: JsonConfigFile, clock: Clock, encode: Callable[[], bytes]) -> None:
        self.file = file
        self.clock = clock
        self.encode = encode
        self.barrier: Callable[[], Awaitable[bool]] | None = None  # what the table says must be on disk before it is
        self._state = 0
        self._written = 0
        self._timer: Timer | None = None
        self._saving: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    @property
    def state(self) -> int:
        """The number of the table's last change; `has_written` tells whether it is on disk."""
        return self._state

    def has_written(self, state: int) -> bool:
        return self._written >= state

    @property
    def is_saved(self) -> bool:
        return self._written >= self._state

    def changed(self, *, soon: bool = True) -> None:
        """The table is no longer as on disk. `soon` has it written by itself; else the owner asks for it."""
        self._state += 1
        if soon and self._timer is None:
            self._timer = self.clock.call_later(TOGETHER_S, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_changes())

    async def _save_changes(self) -> None:
        while not self.is_saved:
            try:
                await self.saved()
            except StoreError as problem:
                # The table in memory is right; the next change, or the end, tries again.
                log.error("%s was not written: %s", self.file.path, problem)
                return

    async def saved(self) -> None:
        """Returns when the table as it is now is on disk. Raises `StoreError` if the disk refuses.

        While one write is under way those who ask wait for the next together: of a table of ten thousand topics each
        write costs milliseconds.
        """
        wanted = self._state
        while self._written < wanted:
            if self._writing is None or self._writing.done():
                write = self.file.writing(self.encode())
                self._writing = asyncio.ensure_future(self._write_behind(self._state, write))
            await asyncio.shield(self._writing)

    async def _write_behind(self, state: int, write: Callable[[], None]) -> None:
        while self.barrier is not None and not await self.barrier():
            log.debug("%s waits for the log to be on disk", self.file.path)
        await asyncio.to_thread(write)
        self._written = max(self._written, state)

    def save(self) -> None:
        """The same, now and in this thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.is_saved or not self.file.path.exists():
            self.file.persist(self.encode())
            self._written = self._state
