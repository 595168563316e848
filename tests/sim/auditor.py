"""Holds every acknowledgement, and compares it afterwards with what the brokers have and the consumers got."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

Queue = tuple[str, int]  # broker name, queue id


@dataclass
class Auditor:
    sent: set[bytes] = field(default_factory=set)
    acknowledged: dict[bytes, tuple[Queue, int]] = field(default_factory=dict)
    lanes: dict[str, list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )  # acknowledged, one after the other
    delivered: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    elections: int = 0
    _next: asyncio.Future[str] | None = None

    def acknowledge(self, lane: str, body: bytes, queue: Queue, offset: int) -> None:
        self.acknowledged[body] = (queue, offset)
        self.lanes[lane].append(body)
        self.notify(queue[0])

    def notify(self, broker: str) -> None:
        """A broker has acknowledged something."""
        if self._next is not None and not self._next.done():
            self._next.set_result(broker)

    async def next_acknowledgement(self) -> str:
        """Waits for one; the broker that gave it. What goes wrong just then finds promises given too early."""
        self._next = asyncio.get_running_loop().create_future()
        return await self._next

    @property
    def is_all_delivered(self) -> bool:
        return all(self.delivered[body] for body in self.acknowledged)

    def check_stored(self, found: dict[Queue, list[bytes]]) -> None:
        """`found`: the bodies of each queue from offset 0 on."""
        for body, (queue, offset) in self.acknowledged.items():
            stored = found.get(queue, [])
            assert offset < len(stored), f"{body!r} was acknowledged at {queue} {offset}, which ends at {len(stored)}"
            assert stored[offset] == body, f"{body!r} was acknowledged at {queue} {offset}: there is {stored[offset]!r}"
        for queue, bodies in found.items():
            strange = [body for body in bodies if body not in self.sent]
            assert not strange, f"{queue} has what nobody sent: {strange[:3]}"
        places = {body: (queue, offset) for body, (queue, offset) in self.acknowledged.items()}
        for lane, bodies in self.lanes.items():
            last: dict[Queue, int] = {}
            for body in bodies:
                queue, offset = places[body]
                assert offset > last.get(queue, -1), f"lane {lane}: {body!r} lies before what was sent before it"
                last[queue] = offset

    def check_delivered(self) -> None:
        missing = [body for body in self.acknowledged if not self.delivered[body]]
        assert not missing, f"{len(missing)} acknowledged messages were never delivered, such as {missing[:3]}"
        strange = [body for body in self.delivered if body not in self.sent]
        assert not strange, f"delivered, and never sent: {strange[:3]}"
