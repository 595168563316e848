"""A mapped file for a reader that comes back to it: the pure-Python reference.

A view would keep the file mapped, and its blocks on disk, for as long as the reader remembers it. A pin belongs to the
file instead: when that is unmapped or deleted, every reader finds its pin dropped and looks the file up again.
"""

from __future__ import annotations


class Pin:
    __slots__ = ("size", "start", "view")

    def __init__(self, view: memoryview, start: int) -> None:
        self.view: memoryview | None = view
        self.start = start
        self.size = len(view)

    def drop(self) -> None:
        self.view = None
        self.size = 0
