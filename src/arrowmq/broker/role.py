"""What a broker is to the others of its name, and the one place where that changes while it runs.

    ASYNC_MASTER   takes messages
    SYNC_MASTER    takes messages, and promises that replicas have them
    SLAVE          copies its master's log; refuses puts; delivers, checks and revives nothing by itself
    acting         a slave that does the master's duties while there is none (slave acting master)

How to use it:

    await broker.role.become(Role.SLAVE, broker_id=2, epoch=7, master=Master(address, ha_address))
    await broker.role.become(Role.SYNC_MASTER, broker_id=0, epoch=8)
    await broker.role.act(True)           # of a slave: begin the duties of the master that is gone

`become` returns when the change is complete. In this order, going down: puts are refused (by the store, so also for the
native fast path, which asks it), duties are suspended, who listens leaves the old role and enters the new one, every
NameServer hears of it. Going up: who listens leaves the old role (a follower stops, and cuts what is not a whole
record), puts are taken, who listens enters the new one, duties are resumed, NameServers hear of it. An epoch lower than
the last is refused with `StaleEpoch`: an order that was overtaken changes nothing. Changes run one at a time.

What takes part:

- A service whose work is a master's alone (delay levels, timers, checks of transactions, revival of popped messages)
  has `resume()` and `async suspend()` (`Duty`), and does nothing before the first `resume`. Nothing else is needed: the
  fields of `services.py` are looked through.
- Who has to do something at a change (replication, epochs of a controller) adds to `on_leave` and `on_enter`; both get
  the role that is left or entered and may be coroutine functions. They run in the order in which they were added.
- Who only wants to know asks `is_slave`, `is_master`, `does_duties`, `epoch`, `master`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from arrowmq.store import Put, PutStatus

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker
    from arrowmq.wire.records import Record

log = logging.getLogger(__name__)

MASTER_ID = 0


class Role(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class Master(NamedTuple):
    """Whom a slave follows; empty texts where that is not known yet."""

    address: str = ""
    ha_address: str = ""


class StaleEpoch(Exception):
    """An order to change the role that a later one has overtaken."""


@runtime_checkable
class Duty(Protocol):
    """Work of a master alone. `resume` starts it from what the store and the tables say now."""

    def resume(self) -> None: ...

    async def suspend(self) -> None: ...


@runtime_checkable
class Escapes(Duty, Protocol):
    """A duty that an acting master does too: all it writes are messages to topics, which other brokers may take."""

    writes_topics_only: bool


Hook = Callable[[Role], Awaitable[object] | object]

A_SLAVE = Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="this broker is a slave, send to its master")


class BrokerRole:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.current = Role(broker.config.broker_role)
        self.epoch = 0
        self.master = Master()
        self.master_is_there = False  # of a slave: it copies from its master now
        self.is_acting = False
        self.since_ms = broker.clock.now_ms()
        self.on_leave: list[Hook] = []
        self.on_enter: list[Hook] = []
        self._lock = asyncio.Lock()
        self._is_started = False
        self._does_duties = False
        self.escape: Callable[[Record], Put] | None = None  # takes what an acting master has to write
        if self.is_slave:
            broker.store.refuse(A_SLAVE)

    @property
    def is_slave(self) -> bool:
        return self.current is Role.SLAVE

    @property
    def is_master(self) -> bool:
        return self.current is not Role.SLAVE

    @property
    def redirects(self) -> bool:
        """Whether readers who have caught up are sent on to the master: it is there, and has the newest messages."""
        return self.is_slave and self.master_is_there

    @property
    def does_duties(self) -> bool:
        """Whether what a master alone does is done here now."""
        return self._does_duties

    # Life

    async def start(self) -> None:
        """The broker has started its services: take up the role of the settings."""
        self._is_started = True
        await self._call(self.on_enter, self.current)
        if self.is_master:
            self._resume()

    async def stop(self) -> None:
        self._is_started = False
        await self._suspend()
        await self._call(self.on_leave, self.current)

    # Changing

    async def become(
        self, role: Role, *, broker_id: int | None = None, epoch: int | None = None, master: Master | None = None
    ) -> None:
        """Take another role, or the same one under a later epoch; a slave may get another master this way."""
        async with self._lock:
            if epoch is not None and epoch < self.epoch:
                raise StaleEpoch(f"epoch {epoch} is over, this broker is {self.current} since epoch {self.epoch}")
            if broker_id is None:
                broker_id = self._broker.config.broker_id if role is Role.SLAVE else MASTER_ID
            log.info("role changes from=%s to=%s brokerId=%d epoch=%s", self.current, role, broker_id, epoch)
            if epoch is not None:
                self.epoch = epoch
            if role is Role.SLAVE:
                self._broker.store.refuse(A_SLAVE)
            await self._suspend()
            self._broker.store.escape = None
            await self._call(self.on_leave, self.current)
            self.current, self.is_acting = role, False
            self.since_ms = self._broker.clock.now_ms()
            self.master = (master or Master()) if role is Role.SLAVE else Master()
            config = self._broker.config
            config.broker_role, config.broker_id = role.value, broker_id
            if role is not Role.SLAVE:
                self._broker.store.refuse(None)  # before the others: replicas may be too few, which they refuse by
            await self._call(self.on_enter, role)
            if role is not Role.SLAVE:
                self._resume()
            self._broker.permit.changed()
            self._broker.registration.register_soon()

    async def pause(self, is_paused: bool) -> None:
        """Of a slave that acts: leave the duties alone for a while, because the master is about to take them back."""
        async with self._lock:
            if is_paused:
                await self._suspend()
            elif self.is_acting and self.escape is not None:
                self._resume()

    async def act(self, acting: bool) -> None:
        """Of a slave: do the duties of a master that is gone, or stop doing them because it is back."""
        async with self._lock:
            if not self.is_slave or acting == self.is_acting:
                return
            self.is_acting = acting
            log.info("this slave %s its master's duties", "takes over" if acting else "hands back")
            if acting and self.escape is not None:
                self._broker.store.escape = self.escape
                self._resume()
            elif not acting:
                await self._suspend()
                self._broker.store.escape = None

    def follow(self, master: Master) -> None:
        """Of a slave: its master is known now, or is another one."""
        if self.is_slave and master != self.master:
            self.master = master

    # Duties

    def _duties(self) -> list[Duty]:
        kind = Escapes if self.is_slave else Duty
        return [service for service in self._broker.services if isinstance(service, kind)]

    def _resume(self) -> None:
        if self._is_started and not self._does_duties:
            self._does_duties = True
            for duty in self._duties():
                duty.resume()

    async def _suspend(self) -> None:
        if self._does_duties:
            self._does_duties = False
            for duty in reversed(self._duties()):
                await duty.suspend()

    @staticmethod
    async def _call(hooks: list[Hook], role: Role) -> None:
        for hook in hooks:
            outcome = hook(role)
            if inspect.isawaitable(outcome):
                await outcome
