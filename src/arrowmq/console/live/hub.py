"""Server-sent events: what happened goes to every open page; a page that does not read loses the oldest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

MOST_PAGES = 256
BACKLOG = 16
PING_S = 15.0


class Full(Exception):
    """So many pages are open that no more are served."""


class Hub:
    def __init__(self) -> None:
        self._pages: set[asyncio.Queue[bytes | None]] = set()
        self._last: dict[str, bytes] = {}
        self._is_closed = False

    @property
    def watchers(self) -> int:
        return len(self._pages)

    def publish(self, kind: str, value: Any) -> None:
        event = b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
        if kind != "job":
            self._last[kind] = event
        for page in self._pages:
            if page.full():
                with suppress(asyncio.QueueEmpty):
                    page.get_nowait()
            page.put_nowait(event)

    def close(self) -> None:
        """Ends every stream: a console that stops does not wait for its readers."""
        self._is_closed = True
        for page in self._pages:
            while page.full():
                page.get_nowait()
            page.put_nowait(None)

    async def stream(self) -> AsyncIterator[bytes]:
        """The newest event of each kind at once, then all as they come."""
        if len(self._pages) >= MOST_PAGES:
            raise Full
        page: asyncio.Queue[bytes | None] = asyncio.Queue(BACKLOG)
        self._pages.add(page)
        try:
            yield b"retry: 3000\n\n"
            for event in list(self._last.values()):
                yield event
            while not self._is_closed:
                try:
                    async with asyncio.timeout(PING_S):
                        arrived = await page.get()
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if arrived is None:
                    return
                yield arrived
        finally:
            self._pages.discard(page)
