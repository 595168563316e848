"""Takes decisions one after another, has them kept, and only then answers.

A mirror of what is kept is held in memory; a decision on a set waits for the one before it. If another controller was
faster (`StaleDecision`), what it kept is read, and the request is judged again by that, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.decisions import Decision
from arrowmq.controller.storage import Kept, StaleDecision, Storage, StorageError
from arrowmq.remoting.handlers import Refused
from arrowmq.wire.codes import ResponseCode

log = logging.getLogger(__name__)

Decide = Callable[[BrokerSet | None], Decision]
NOT_LEADER = "The controller is not in leader state"


class Decider:
    def __init__(self, storage: Storage, on_kept: Callable[[BrokerSet | None, BrokerSet | None], None]) -> None:
        """`on_kept` is called with a set before and after each decision that changed it, once it lasts."""
        self._storage = storage
        self._on_kept = on_kept
        self._mirror: dict[str, Kept] = {}
        self._is_loaded = False
        # Weak: names come from requests, and a lock lives as long as somebody waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_leading(self) -> bool:
        return self._is_loaded and self._storage.leadership().is_ours

    def check_leading(self) -> None:
        if not self.is_leading:
            raise Refused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)

    async def load(self) -> None:
        self._mirror = await self._storage.load()
        self._is_loaded = True

    def unload(self) -> None:
        """What is in the mirror may be old from now on."""
        self._is_loaded = False

    def changed_elsewhere(self, name: str, kept: Kept | None) -> None:
        known = self._mirror.get(name)
        if kept is None:
            self._mirror.pop(name, None)
        elif known is None or known.revision < kept.revision:
            self._mirror[name] = kept

    def get(self, name: str | None) -> BrokerSet | None:
        kept = self._mirror.get(name or "")
        return None if kept is None else kept.broker_set

    def all(self) -> Mapping[str, BrokerSet]:
        return {name: kept.broker_set for name, kept in self._mirror.items()}

    async def decide(self, name: str | None, decide: Decide) -> Decision:
        """Judge by the set as it stands and keep what comes of it. Raises `Refused` where this controller does not
        lead."""
        if not name:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "the request names no broker set (brokerName)")
        self.check_leading()
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            try:
                try:
                    return await self._decide(name, decide)
                except StaleDecision:
                    self.check_leading()
                    await self.load()
                    return await self._decide(name, decide)
            except StaleDecision as error:
                raise Refused(ResponseCode.CONTROLLER_NOT_LEADER, f"{NOT_LEADER}: {error}") from error
            except StorageError as error:
                log.error("decision not kept set=%s reason=%s", name, error)
                raise Refused(ResponseCode.SYSTEM_ERROR, f"the decision could not be kept: {error}") from error

    async def _decide(self, name: str, decide: Decide) -> Decision:
        known = self._mirror.get(name)
        before = None if known is None else known.broker_set
        decision = decide(before)
        if decision.kept is before:
            return decision
        revision = await self._storage.commit(name, 0 if known is None else known.revision, decision.kept)
        if decision.kept is None:
            self._mirror.pop(name, None)
        else:
            self._mirror[name] = Kept(decision.kept, revision)
        self._on_kept(before, decision.kept)
        return decision
