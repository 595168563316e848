"""A target of the fuzzers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Target(NamedTuple):
    """A corpus of real inputs (recorded frames, stores) from which others are made, and a function that raises only
    what is a fault of ours: an exception that is not the target's own, an assertion."""

    corpus: Callable[[], list[bytes]]
    run: Callable[[bytes], object]
