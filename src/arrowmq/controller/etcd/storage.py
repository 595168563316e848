"""Leadership, peers and decisions as keys of etcd.

    PREFIX/leader          who leads; bound to its lease, so that etcd deletes it when the lease is over
    PREFIX/members/NAME    the address of a controller; bound to its lease
    PREFIX/sets/NAME       what is decided of a broker set

A decision is one transaction: put the set *if* the leader's key is still the one that this controller created *and* the
set is still at the revision that was judged. So etcd itself refuses what a controller decides that was paused beyond
its lease, or cut off, or overtaken, whatever that one believes.

A lease is taken to end when its time is over since the moment the last renewal was *sent*: here it ends before it ends
at etcd.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable
from contextlib import suppress

import msgspec

from arrowmq.clock import Clock
from arrowmq.controller.broker_sets import BrokerSet, BrokerSetError, decode, encode
from arrowmq.controller.etcd.client import (
    EtcdClient,
    Event,
    KeyValue,
    Lease,
    delete,
    if_changed_at,
    if_created_at,
    put,
)
from arrowmq.controller.storage import (
    ControllerPeer,
    Kept,
    Leadership,
    OnChange,
    OnLeadership,
    StaleDecision,
    StorageError,
    StorageUnreachable,
)

log = logging.getLogger(__name__)

RETRY_S = 0.3
RENEWALS_A_LEASE = 4


class EtcdStorage:
    def __init__(
        self, client: EtcdClient, prefix: str, lease_ms: int, own: Callable[[], ControllerPeer], clock: Clock
    ) -> None:
        self._client = client
        self._prefix = prefix.rstrip("/")
        self._lease_s = math.ceil(lease_ms / 1000)
        self._own = own
        self._clock = clock
        self._leader_key = f"{self._prefix}/leader"
        self._members = f"{self._prefix}/members/"
        self._sets = f"{self._prefix}/sets/"
        self._on_leadership: OnLeadership | None = None
        self._on_change: OnChange = lambda name, kept: None
        self._lease: Lease | None = None
        self._lease_until_s = 0.0
        self._leader: KeyValue | None = None
        self._own_leader_revision = 0  # where our leader's key was created; 0 if we do not lead
        self._peers: dict[str, ControllerPeer] = {}
        self._is_announced = False  # that we lead
        self._task: asyncio.Task[None] | None = None

    # --- Storage ------------------------------------------------------------------------------------------------------

    async def open(self, on_leadership: OnLeadership, on_change: OnChange) -> None:
        self._on_leadership, self._on_change = on_leadership, on_change
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run(began))
        try:
            await began
        except BaseException:
            await self.close()
            raise
        await self._check_version()

    async def _check_version(self) -> None:
        try:
            version = await self._client.version()
        except StorageError:
            return  # it has become unreachable, which is said elsewhere, or does not tell us
        if loses_when_killed(version):
            log.warning("etcd %s may lose what it acknowledged when it is killed: run 3.5.3 or later", version)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(StorageError):
                await self._client.revoke(lease)  # so that another leads at once
        self._client.close()

    def leadership(self) -> Leadership:
        leader = None if self._leader is None else _peer(self._leader)
        return Leadership(leader, self._is_ours(), tuple(peer for _, peer in sorted(self._peers.items())))

    def _is_ours(self) -> bool:
        return bool(self._own_leader_revision) and self._clock.monotonic() < self._lease_until_s

    async def load(self) -> dict[str, Kept]:
        snapshot = await self._client.read(self._sets)
        return {item.key.removeprefix(self._sets): self._kept(item) for item in snapshot.found}

    async def commit(self, name: str, based_on: int, kept: BrokerSet | None) -> int:
        if not self._is_ours():
            raise StaleDecision("this controller does not lead")
        key = f"{self._sets}{name}"
        deed = delete(key) if kept is None else put(key, encode(kept))
        guards = [if_created_at(self._leader_key, self._own_leader_revision), if_changed_at(key, based_on)]
        is_done, revision = await self._client.transact(guards, [deed])
        if not is_done:
            raise StaleDecision("another controller has decided since, or leads now")
        return 0 if kept is None else revision

    def _kept(self, item: KeyValue) -> Kept:
        try:
            return Kept(decode(item.value), item.mod_revision)
        except BrokerSetError as error:
            raise StorageError(f"etcd's key {item.key} is damaged: {error}. Restore it from a backup") from error

    # --- sessions: one a lease ----------------------------------------------------------------------------------------

    async def _run(self, began: asyncio.Future[None]) -> None:
        while True:
            try:
                await self._session(began)
            except (StorageError, BaseExceptionGroup) as failure:
                reason = _first(failure)
                if not began.done():
                    began.set_exception(reason)
                    return
                log.warning("session at etcd ended reason=%s", reason)
            finally:
                self._own_leader_revision = 0
                await self._announce(False)
            await self._clock.sleep(RETRY_S)

    async def _session(self, began: asyncio.Future[None]) -> None:
        sent_s = self._clock.monotonic()
        lease = await self._client.grant(self._lease_s)
        self._lease, self._lease_until_s = lease, sent_s + lease.ttl_s
        try:
            async with asyncio.TaskGroup() as group:
                # From the first on: to find one's name in use by a predecessor can take its whole lease.
                group.create_task(self._renew(lease))
                await self._register(lease)
                group.create_task(self._follow(lease, began))
        finally:
            self._lease = None
            with suppress(StorageError, asyncio.CancelledError):
                await self._client.revoke(lease)

    async def _register(self, lease: Lease) -> None:
        """Take one's name among the controllers; that of a predecessor that was killed is free when its lease ends."""
        own = self._own()
        key = f"{self._members}{own.name}"
        deadline_s = self._clock.monotonic() + 2 * lease.ttl_s
        while True:
            is_done, _ = await self._client.transact([if_created_at(key, 0)], [put(key, _value(own), lease)])
            if is_done:
                return
            if self._clock.monotonic() > deadline_s:
                raise StorageError(
                    f"another controller named {own.name} is at work: give each its own name, "
                    "--set controllerDLegerSelfId=n1"
                )
            await self._clock.sleep(RETRY_S)

    async def _renew(self, lease: Lease) -> None:
        while True:
            await self._clock.sleep(lease.ttl_s / RENEWALS_A_LEASE)
            sent_s = self._clock.monotonic()
            if sent_s >= self._lease_until_s:
                raise StorageError("its lease is over")
            try:
                ttl_s = await self._client.keep_alive(lease, self._lease_until_s - sent_s)
            except StorageUnreachable as failure:
                log.warning("lease not renewed reason=%s", failure)
                continue
            if ttl_s <= 0:
                raise StorageError("its lease is over")
            self._lease_until_s = sent_s + ttl_s

    async def _follow(self, lease: Lease, began: asyncio.Future[None]) -> None:
        """Know who leads and what they decide, by watching; lead when nobody does."""
        while True:
            try:
                snapshot = await self._client.read(f"{self._prefix}/")
                self._peers = {}
                self._leader = None
                for item in snapshot.found:
                    self._take(Event(False, item))
                await self._campaign(lease)
                if not began.done():
                    began.set_result(None)
                async for events in self._client.watch(f"{self._prefix}/", snapshot.revision + 1):
                    for event in events:
                        self._take(event)
                    await self._campaign(lease)
            except StorageUnreachable as failure:
                if not began.done():
                    raise
                log.warning("watch at etcd ended, and begins again reason=%s", failure)
                await self._clock.sleep(RETRY_S)

    def _take(self, event: Event) -> None:
        key = event.item.key
        if key == self._leader_key:
            self._leader = None if event.is_delete else event.item
            if self._leader is None or self._leader.create_revision != self._own_leader_revision:
                self._own_leader_revision = 0
        elif key.startswith(self._members):
            name = key.removeprefix(self._members)
            self._peers.pop(name, None)
            peer = None if event.is_delete else _peer(event.item)
            if peer is not None:
                self._peers[name] = peer
        elif key.startswith(self._sets):
            self._on_change(key.removeprefix(self._sets), None if event.is_delete else self._kept(event.item))

    async def _campaign(self, lease: Lease) -> None:
        if self._leader is not None:
            await self._announce(bool(self._own_leader_revision))
            return
        own = self._own()
        is_done, revision = await self._client.transact(
            [if_created_at(self._leader_key, 0)], [put(self._leader_key, _value(own), lease)]
        )
        if is_done:
            self._leader = KeyValue(self._leader_key, _value(own), revision, revision)
            self._own_leader_revision = revision
        await self._announce(is_done)

    async def _announce(self, is_leading: bool) -> None:
        if is_leading != self._is_announced and self._on_leadership is not None:
            self._is_announced = is_leading
            await self._on_leadership(is_leading)


def loses_when_killed(version: str) -> bool:
    """Members of etcd 3.5.0 to 3.5.2 may miss a transaction when they are back, and then differ from the others."""
    return re.fullmatch(r"3\.5\.[0-2](\D.*)?", version) is not None


def _value(peer: ControllerPeer) -> bytes:
    return msgspec.json.encode({"name": peer.name, "address": peer.address})


def _peer(item: KeyValue) -> ControllerPeer | None:
    try:
        return msgspec.json.decode(item.value, type=ControllerPeer)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
