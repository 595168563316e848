"""A controller that can be stopped and started again, and brokers that talk to it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from played_broker import PlayedBroker

from arrowmq.clock import Clock
from arrowmq.controller.config import ControllerConfig
from arrowmq.controller.controller import Controller


class Stage:
    """One controller in its directory, which can be stopped and started again, and brokers that talk to it."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.controller: Controller | None = None
        self._stack = stack

    async def start(self, clock: Clock | None = None, **settings: str) -> Controller:
        properties = {"bindAddress": "127.0.0.1", "listenPort": "0", **settings}
        config, unknown = ControllerConfig.from_properties(properties)
        assert not unknown
        controller = Controller(config, self.directory, clock)
        await controller.start()
        self.controller = controller
        self._stack.push_async_callback(self._stop, controller)
        return controller

    async def _stop(self, controller: Controller) -> None:
        if self.controller is controller:
            await self.stop()

    async def stop(self) -> None:
        assert self.controller is not None
        controller, self.controller = self.controller, None
        await controller.stop()

    async def broker(self, name: str = "b", **options: object) -> PlayedBroker:
        assert self.controller is not None
        broker = PlayedBroker(name, self.controller.address, **options)  # type: ignore[arg-type]
        await broker.start()
        self._stack.push_async_callback(broker.stop)
        return broker
