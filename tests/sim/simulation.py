"""Machines on a simulated network, with disks that lose power, in one test process and on virtual time.

    with Simulation(seed, folder) as simulation:
        simulation.run(play(simulation))

A machine has an address and a disk; processes run on it one after the other. `kill` is kill -9: what was written is in
the page cache and stays. `lose_power` leaves what the disk had, torn as `simulated_disk` says.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from simulated_disk import PowerCutDisk
from simulated_loop import DISK_DELAY_S, Process, SimulatedClock, SimulatedLoop
from simulated_network import Network, run_in
from simulated_sockets import Sockets
from writing import abandon

# Nodes load these when they are built. What killed processes left may be collected just then, and runs code while a
# module is compiled, which CPython 3.11 does not stand.
import arrowmq.controller.controller
import arrowmq.replica.controlled.replication  # noqa: F401
from arrowmq.server import Node, build_node
from arrowmq.store.disk import DiskUsage
from arrowmq.store.workers import Step

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(64 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 200),
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
    "maxMessageSize": "16384",
    "cleanFileForciblyEnable": "false",
    "metricsExporterType": "DISABLE",
}


class SimulatedWorker:
    """Takes the steps of a worker on the simulation's time; each step takes as long as chance says a disk does."""

    def __init__(self, loop: SimulatedLoop, step: Step, first_s: float | None) -> None:
        self._loop = loop
        self._step = step
        self._timer: asyncio.TimerHandle | None = None
        self._stops = False
        self._schedule(first_s)

    def _schedule(self, wait_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s is not None and not self._stops:
            self._timer = self._loop.call_later(wait_s + self._loop.chance.uniform(*DISK_DELAY_S), self._take)

    def _take(self) -> None:
        self._timer = None
        self._schedule_if_idle(self._step())

    def _schedule_if_idle(self, wait_s: float | None) -> None:
        if self._timer is None:  # the step may have woken its own worker
            self._schedule(wait_s)

    def wake(self) -> None:
        soon = self._loop.time() + DISK_DELAY_S[1]
        if self._timer is None or self._timer.when() > soon:
            self._schedule(0.0)

    def stop(self) -> None:
        self._stops = True
        self._schedule(None)


class MachineDisk(PowerCutDisk):
    """How full the test's own disk is decides nothing."""

    def __init__(self, root: Path, loop: SimulatedLoop) -> None:
        super().__init__(root)
        self._loop = loop

    def start_worker(self, name: str, step: Step, *, first_s: float | None = 0.0) -> SimulatedWorker:
        return SimulatedWorker(self._loop, step, first_s)

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(used=0, usable=1 << 40)


class Machine:
    """Runs one node: a NameServer, a broker, or both. `make` builds it from this machine, each time it starts."""

    def __init__(self, simulation: Simulation, name: str, host: str, make: Callable[[Machine], Node]) -> None:
        self.simulation, self.name, self.host = simulation, name, host
        self._make = make
        self.lives = 0
        self.root = simulation.folder / name / "0"
        self.root.mkdir(parents=True)
        self.disk = MachineDisk(self.root, simulation.loop)
        self.process: Process | None = None
        self.node: Node | None = None
        self.wall_ahead_ms = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def clock(self) -> SimulatedClock:
        assert self.process is not None
        return SimulatedClock(self.simulation.loop, self.process)

    async def start(self) -> None:
        """Returns when the node is in service."""
        self.lives += 1
        self.simulation.network.is_down.discard(self.host)
        process = self.process = Process(f"{self.name}.{self.lives}", self.host)
        process.wall_ahead_ms = self.wall_ahead_ms
        node = self.node = run_in(process, self._make, self)
        await self.simulation.within(process, node.start)

    async def stop(self) -> None:
        """In good order."""
        process, node = self._ended()
        await self.simulation.within(process, node.stop)
        self.simulation.bury(process, silently=False)

    def kill(self) -> None:
        process, node = self._ended()
        self.simulation.bury(process, silently=False)
        self._abandon(node)

    def lose_power(self) -> None:
        process, node = self._ended()
        self.simulation.network.is_down.add(self.host)
        self.simulation.bury(process, silently=True)
        self._abandon(node)
        self.root = self.simulation.folder / self.name / str(self.lives)
        self.disk.cut(self.root, self.simulation.loop.chance)
        shutil.rmtree(self.disk.root)
        self.disk = MachineDisk(self.root, self.simulation.loop)

    def set_clock(self, ahead_ms: int) -> None:
        self.simulation.leaps += 1
        self.wall_ahead_ms = ahead_ms
        if self.process is not None:
            self.process.wall_ahead_ms = ahead_ms

    def _ended(self) -> tuple[Process, Node]:
        process, node, self.process, self.node = self.process, self.node, None, None
        assert process is not None, f"{self.name} does not run"
        assert node is not None
        return process, node

    def _abandon(self, node: Node) -> None:
        if node.broker is not None:
            abandon(node.broker.store)


class Simulation:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.pace = 1.0
        self.leaps = 0  # of wall clocks
        self.loop = SimulatedLoop(seed)
        self.network = self.loop.network = Network(self.loop)
        self.sockets = self.loop.sockets = Sockets(self.loop)
        self.chance = random.Random(seed * 7919 + 1)
        self.machines: dict[str, Machine] = {}
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        """What the code under test asks the machine for by chance comes from the seed; afterwards it is as before."""
        state = random.getstate()
        self._patches.callback(random.setstate, state)
        random.seed(self.seed)
        for module in ("feed", "feeds", "follower"):
            self._patches.enter_context(mock.patch(f"arrowmq.replica.{module}.socket", self.sockets))
        self._patches.enter_context(mock.patch("os.sendfile", self.sockets.sendfile))
        drawn = random.Random(self.seed + 1)
        self._patches.enter_context(mock.patch("os.urandom", drawn.randbytes))
        self._patches.enter_context(mock.patch("os.getpid", return_value=4711))
        self._patches.enter_context(mock.patch.object(uuid, "uuid4", partial(_uuid_from, drawn)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()
        for machine in self.machines.values():
            if machine.node is not None:
                machine.kill()
        # What is left of killed processes would run its `finally` when it is collected: here it does no harm.
        for task in [*self.loop.graveyard, *asyncio.all_tasks(self.loop)]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self.loop.close()
        # Now, and not in the middle of something else: what is collected runs code, which a compiling CPython 3.11 does
        # not stand.
        self.loop.graveyard.clear()
        gc.collect()

    def machine(self, name: str, make: Callable[[Machine], Node], kind: type[Machine] = Machine) -> Machine:
        machine = kind(self, name, f"10.0.0.{len(self.machines) + 1}", make)
        self.machines[name] = machine
        return machine

    def run(self, play: Coroutine[Any, Any, Any], limit_s: float = 36_000.0) -> Any:
        """Runs a play to its end; it, and not the processes, decides how long that takes."""

        async def bounded() -> Any:
            async with asyncio.timeout(limit_s):
                return await play

        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(bounded())
        except BaseException as failure:
            hashing = os.environ.get("PYTHONHASHSEED", "random: a replay in another process may differ")
            failure.add_note(f"seed {self.seed}, at {self.loop.time():.3f} s of the simulation, hash seed {hashing}")
            raise
        finally:
            asyncio.set_event_loop(None)

    async def within(self, process: Process, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something as this process and wait for it; killed in between, it never ends, and this raises."""
        done: asyncio.Future[Any] = self.loop.create_future()

        async def watched() -> None:
            try:
                result = await work()
            except Exception as failure:
                if not done.done():
                    done.set_exception(failure)
            else:
                if not done.done():
                    done.set_result(result)

        run_in(process, lambda: self.loop.create_task(watched()))
        while not done.done():
            if not process.is_alive:
                raise Killed(process.name)
            await asyncio.wait([done], timeout=0.05)
        return done.result()

    async def rest(self, least_s: float, most_s: float) -> None:
        """Between two deeds or two faults; a slow pace gives what happens in the background more time."""
        await asyncio.sleep(self.pace * self.chance.uniform(least_s, most_s))

    def bury(self, process: Process, *, silently: bool) -> None:
        self.loop.bury(process)
        self.network.ended(process, silently=silently)

    @property
    def digest(self) -> str:
        """Of all that went over the network, and when."""
        return self.network.digest.hexdigest()


def _uuid_from(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(bytes=chance.randbytes(16), version=4)


class Killed(Exception):
    """A process was killed while it was waited for."""


def node_maker(settings: Mapping[str, str], **ports: int) -> Callable[[Machine], Node]:
    def make(machine: Machine) -> Node:
        own = {"brokerIP1": machine.host, "bindAddress": machine.host, **SMALL_FILES, **settings}
        return build_node(machine.root, own, clock=machine.clock, disk=machine.disk, **ports)

    return make
