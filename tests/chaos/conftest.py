"""Scenes in which a broker process is killed; see `killing.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from killing import SEEDS, BrokerProcess


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed{seed}")
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", request.param)
    process.start()
    yield process
    await process.client.close()
    process.kill()
