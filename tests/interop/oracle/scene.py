"""What a scene needs: names of its own, and producers and consumers that end with it."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

from oracle.hand import Hand
from oracle.toolchain import OracleError

#: ARROWMQ_SOAK=1 plays the long forms: more messages, and scenes in which a client lets half a minute pass by itself.
SOAK = bool(os.environ.get("ARROWMQ_SOAK"))
Record = dict[str, Any]
_numbers = itertools.count(1)


class Producer:
    def __init__(self, hand: Hand, name: str, group: str, **options: Any) -> None:
        self.hand, self.name, self.group = hand, name, group
        self.client_id = hand.do("producer", name=name, group=group, **options)

    def send(self, topic: str, messages: Iterable[Record], how: str = "sync") -> Any:
        return self.hand.do("send", producer=self.name, topic=topic, messages=list(messages), how=how)

    def stop(self) -> None:
        self.hand.do("stop-producer", name=self.name)


class Listener:
    def __init__(self, hand: Hand, name: str, group: str, topic: str, **options: Any) -> None:
        self.hand, self.name, self.group, self.topic = hand, name, group, topic
        self.client_id = hand.do("listen", name=name, group=group, topic=topic, **options)

    def seen(self, at_least: int = 0, timeout_s: float = 30) -> list[Any]:
        """What was delivered so far, after waiting for so many; with fewer after the time the caller judges."""
        found: list[Any] = self.hand.do("seen", name=self.name, atLeast=at_least, timeout=int(timeout_s * 1000))
        return found

    def saw(self, at_least: int, timeout_s: float = 60) -> bool:
        """Waits until so many were delivered, without handing them over."""
        wait = {"atLeast": at_least, "timeout": int(timeout_s * 1000), "from": at_least - 1}
        return bool(self.hand.do("seen", name=self.name, **wait))

    def quiet(self, expected: int, linger_s: float = 1.0, timeout_s: float = 30) -> list[Any]:
        """Waits for the expected number, then a little longer for what should not come."""
        found = self.seen(expected, timeout_s)
        return self.seen(len(found) + 1, linger_s)

    def until(self, bodies: set[str], timeout_s: float = 60) -> list[Any]:
        """Waits until messages with all of these bodies were seen, however many others come with them."""
        deadline = time.monotonic() + timeout_s
        found = self.seen()
        while not bodies <= {record["body"] for record in found} and time.monotonic() < deadline:
            found = self.seen(len(found) + 1, 2)
        return found

    def holds(self, count: int = -1, timeout_s: float = 30) -> list[str]:
        """The queues held, after waiting until they are so many."""
        queues: list[str] = self.hand.do(
            "holds", name=self.name, topic=self.topic, count=count, timeout=int(timeout_s * 1000)
        )
        return queues

    def stop(self) -> list[Any]:
        """Leaves the group (and stores its offsets); says all that it saw."""
        seen: list[Any] = self.hand.do("stop-listening", name=self.name)
        return seen


class Scene:
    def __init__(self, admin: Hand, title: str) -> None:
        self.admin = admin
        self.title = re.sub(r"[^A-Za-z0-9]+", "_", title).strip("_")[-60:]
        self._stack = ExitStack()

    def name(self, label: str = "") -> str:
        """A name that no other scene has."""
        return f"{self.title}_{label}{os.getpid()}_{next(_numbers)}"

    def topic(self, queues: int = 4, label: str = "t", **options: Any) -> str:
        name = self.name(label)
        self.admin.do("create-topic", topic=name, queues=queues, **options)
        return name

    def producer(self, hand: Hand, **options: Any) -> Producer:
        options = {"group": self.name("p"), **options}
        producer = Producer(hand, self.name("producer"), **options)
        self._at_end(hand, "stop-producer", producer.name)
        return producer

    def listener(self, hand: Hand, topic: str, group: str = "", **options: Any) -> Listener:
        listener = Listener(hand, self.name("listener"), group or self.name("g"), topic, **options)
        self._at_end(hand, "stop-listening", listener.name)
        return listener

    def _at_end(self, hand: Hand, deed: str, name: str) -> None:
        """Nobody waits for a client to leave: no other scene knows its names."""

        def leave() -> None:
            with suppress(OracleError):  # the scene has killed the hand
                hand.begin(deed, name=name)

        self._stack.callback(leave)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
