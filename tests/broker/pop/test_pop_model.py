"""Goal: over thousands of random steps, kills among them, pop does what a small model says (`pop_model.py`).

`make pop-soak` plays hundreds of thousands, each time from other seeds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pop_model import play

STEPS = int(os.environ.get("POP_SOAK_STEPS", "1000"))
SEEDS = int(os.environ.get("POP_SOAK_SEEDS", "0"))
FIRST_SEED = int(os.environ.get("POP_SOAK_FIRST_SEED", "0"))


def seeds() -> list[int]:
    return [FIRST_SEED + number for number in range(SEEDS)] if SEEDS else [1, 2]


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("merging", ["false", "true"], ids=["stored", "merged"])
async def test_pop_does_what_the_model_says(tmp_path: Path, merging: str, seed: int) -> None:
    driver = await play(tmp_path, seed, STEPS, enablePopBufferMerge=merging)
    assert SEEDS or {"kill", "restart", "ack_late", "reset"} <= set(driver.steps)
