"""Certificates that are renewed while a server runs: their files are looked at, and taken for new connections.

A change counts when the files have been the same at two looks, so that a certificate and its key, written one after the
other, are taken together. New contexts are made first and exchanged then; what cannot be loaded is refused with a line
in the log, and what was in use stays. Open connections keep what they have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from arrowmq.clock import Clock, Timer
from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import (
    ClientTls,
    ServerTls,
    client_context,
    server_context,
    tls_settings,
    watched_files,
)

log = logging.getLogger(__name__)

LOOK_S = 0.25  # two looks and the loading are done within a second

Seen = tuple[tuple[int, int, int] | None, ...]


class TlsReload:
    """Watches the files of a server's contexts; a component of a node."""

    name = "TLS files"

    def __init__(
        self, properties: Mapping[str, str], server: ServerTls | None, client: ClientTls | None, clock: Clock
    ) -> None:
        self._settings = tls_settings(properties)
        self._server = server
        self._client = client
        self._clock = clock
        self._files = watched_files(self._settings)
        self._loaded = self._last = self._look()
        self._timer: Timer | None = None

    @property
    def is_needed(self) -> bool:
        has_server = self._server is not None and self._server.context is not None
        return bool(self._files) and (has_server or self._client is not None)

    async def start(self) -> None:
        self._timer = self._clock.call_later(LOOK_S, self._turn)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._timer = self._clock.call_later(LOOK_S, self._turn)
        self.check()

    def check(self) -> None:
        """Take the files over if they have changed and have come to rest."""
        now = self._look()
        is_at_rest, self._last = now == self._last, now
        if now == self._loaded or not is_at_rest:
            return
        self._loaded = now  # a bad pair is told once, not at every look
        try:
            server = None if self._server is None or self._server.context is None else server_context(self._settings)
            client = None if self._client is None else client_context(self._settings)
        except ConfigError as fault:
            log.error("TLS files changed and cannot be used, those from before stay in use: %s", fault)
            return
        if self._server is not None and server is not None:
            self._server.context = server
        if self._client is not None and client is not None:
            self._client.context = client
        log.info("TLS files changed, new connections use them: %s", ", ".join(str(path) for path in self._files))

    def _look(self) -> Seen:
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                state = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((state.st_mtime_ns, state.st_size, state.st_ino))
        return tuple(found)
