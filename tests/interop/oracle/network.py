"""A network of its own for one process, which can be cut: a namespace with one cable to this machine's network.

Cut off, each side takes the other for another machine on the cable (its address in the neighbour table is wrong), and
what it sends is dropped there without a word. A link that is taken down would tell its own side at once.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

NOBODY = "02:00:00:00:00:01"


def can_be_made() -> bool:
    """Whether this process may make namespaces: Linux, as root, with iproute2."""
    if os.geteuid() != 0:
        return False
    name = f"probe{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Cable:
    """`outside` is this machine at one end of the cable, `inside` the namespace at the other."""

    def __init__(self) -> None:
        number = os.getpid() % 60_000
        self._name = f"amq{number}"
        self._ends = (f"amqo{number}", f"amqi{number}")
        subnet = f"10.{200 + number // 16_384}.{number // 64 % 256}"
        base = number % 64 * 4
        self.outside, self.inside = f"{subnet}.{base + 1}", f"{subnet}.{base + 2}"

    def __enter__(self) -> Cable:
        outer, inner = self._ends
        _ip("netns", "add", self._name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", self._name)
        _ip("addr", "add", f"{self.outside}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", self._name, "addr", "add", f"{self.inside}/30", "dev", inner)
        _ip("-n", self._name, "link", "set", inner, "up")
        _ip("-n", self._name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "del", self._name)
        subprocess.run(["ip", "link", "del", self._ends[0]], capture_output=True)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one at the far end."""
        return ["ip", "netns", "exec", self._name, *command]

    def cut(self) -> None:
        """Nothing gets through, and nobody is told."""
        for far, near in self._neighbours():
            _ip(*near[0], "neigh", "replace", far, "lladdr", NOBODY, "dev", near[1], "nud", "permanent")

    def join(self) -> None:
        for far, near in self._neighbours():
            _ip(*near[0], "neigh", "del", far, "dev", near[1])

    def _neighbours(self) -> list[tuple[str, tuple[tuple[str, ...], str]]]:
        """The address at the far end, and the near end: its namespace as words of a command, and its device."""
        outer, inner = self._ends
        return [(self.inside, ((), outer)), (self.outside, (("-n", self._name), inner))]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)
