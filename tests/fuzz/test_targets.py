"""Goal: bytes from a peer or a disk are answered with an error of their own kind, never with another, nor a crash.

The short form; `make fuzz` gives each target minutes under a coverage-guided fuzzer. ARROWMQ_FUZZ_INPUTS says how many
inputs each target gets here.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import serving
from mutating import mutated
from targets import TARGETS

INPUTS = int(os.environ.get("ARROWMQ_FUZZ_INPUTS", "1500"))
SLOW = {"store": 60, "config file": 30, "replication": 20, "requests": 3}  # times dearer than the others
FOUND = Path(__file__).parent / "found"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    audit = logging.getLogger("arrowmq.audit")  # a target silences it
    level = audit.level
    yield
    audit.setLevel(level)
    serving.close()


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_it(name: str) -> None:
    target, chance = TARGETS[name], random.Random(7)
    corpus = target.corpus()
    assert corpus
    for data in corpus:
        target.run(data)
    for number in range(INPUTS // SLOW.get(name, 1)):
        data = mutated(chance, corpus)
        try:
            target.run(data)
        except BaseException as failure:
            failure.add_note(f"input {number} of {name}: {data[:2000].hex()}")
            raise


def test_what_a_fuzzer_once_found_breaks_nothing_any_more() -> None:
    """`found/TARGET/*`: inputs that broke a target once."""
    for path in sorted(FOUND.glob("*/*")):
        TARGETS[path.parent.name].run(path.read_bytes())
    assert {path.name for path in FOUND.glob("*")} <= set(TARGETS)
