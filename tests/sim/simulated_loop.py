"""An event loop on virtual time, in which several processes live that can be killed.

Nothing here waits: when no callback is ready, time jumps to the next timer. What would make two runs of one seed differ
is taken away:

  threads        work for other threads is done on the loop, after a delay that chance chooses
  clocks         `time()` is the simulation's; each process has a wall clock of its own, which may be wrong
  sockets        `create_server` and `create_connection` go to the simulated network
  hash order     sets of text are ordered by PYTHONHASHSEED (`make sim` sets it); none of objects is iterated
  other chance   the global `random`, `os.urandom`, `uuid4` and process ids come from the seed (see `simulation.py`)

A process is a value in the context of everything that it starts. Callbacks of a process that was killed never run.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from arrowmq.clock import Timer

if TYPE_CHECKING:
    from simulated_network import Network
    from simulated_sockets import Sockets

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
START_MS = 1_760_000_000_000
DISK_DELAY_S = (0.0002, 0.02)


class Process:
    """Something that is started on a host and ends, in good order or not."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.is_alive = True
        self.wall_ahead_ms = 0
        self.tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<{self.name} at {self.host}{'' if self.is_alive else ', dead'}>"


class StandsStill(Exception):
    """Nothing is due any more, and somebody still waits."""


class _NoSelector:
    """Where a real loop waits for sockets, this one moves time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise StandsStill("nothing is due any more: the simulation waits for itself")
        if timeout > 0:
            self._loop.skip_to_next()
        return []

    def close(self) -> None:
        pass


class SimulatedLoop(asyncio.BaseEventLoop):
    network: Network
    sockets: Sockets

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self._selector = _NoSelector(self)
        self._now_s = 0.0
        self._clock_resolution = 1e-9
        self.graveyard: list[asyncio.Task[Any]] = []  # of killed processes: closing them would run their code
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now_s

    def skip_to_next(self) -> None:
        self._now_s = max(self._now_s, self._scheduled[0]._when)  # type: ignore[attr-defined]

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # Callbacks belong to a process

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(_if_alive, process, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, _if_alive, process, callback, *args, context=context)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
        process = PROCESS.get()
        if process is not None:
            process.tasks.append(task)
            task.add_done_callback(process.tasks.remove)
        return task

    def bury(self, process: Process) -> None:
        """The process runs no further line."""
        process.is_alive = False
        for task in process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.graveyard.append(task)
        process.tasks = []

    # Other threads

    def run_in_executor(self, executor: object, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(work(*args))
            except Exception as failure:
                done.set_exception(failure)

        self.call_later(self.chance.uniform(*DISK_DELAY_S), run)
        return done

    # The network

    def add_reader(self, descriptor: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        one = self.sockets.find(descriptor)
        one.reader = partial(callback, *args)
        one.wake()

    def remove_reader(self, descriptor: Any) -> bool:
        self.sockets.find(descriptor).reader = None
        return True

    async def sock_connect(self, one: Any, address: Any) -> None:  # type: ignore[override]
        await self.network.connect(current_process(), lambda: one, *address)

    async def sock_sendall(self, one: Any, data: Any) -> None:
        one.send(bytes(data))

    async def sock_recv(self, one: Any, most: int) -> bytes:
        """Only where nobody reads by callback at the same time."""
        arrived = self.create_future()
        self.add_reader(one.fileno(), lambda: arrived.done() or arrived.set_result(None))
        try:
            await arrived
        finally:
            self.remove_reader(one.fileno())
        return bytes(one.recv(most))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        return [(2, 1, 0, "", (host, port))]

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert options.get("start_serving") is False, "somebody could connect before the listener is known"
        return self.network.listen(current_process(), factory, int(port))

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(current_process(), factory, str(host), int(port))


def current_process() -> Process:
    process = PROCESS.get()
    assert process is not None, "only processes have sockets"
    return process


def _if_alive(process: Process, callback: Callable[..., object], *args: object) -> None:
    if process.is_alive:
        callback(*args)


class SimulatedClock:
    """The clock of one process: time goes on as the simulation's does, the wall clock may be set otherwise."""

    def __init__(self, loop: SimulatedLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000) + self._process.wall_ahead_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(0.0, delay_s), callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
