"""The recorded shape of Apache's metrics page is what its broker really shows; tests/metrics holds ours to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import metered
import pytest
from oracle.ports import free_port
from oracle.target import CONFIG, Target

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_apaches_page_has_the_recorded_shape(tmp_path: Path) -> None:
    port = free_port()
    with Target("apache", tmp_path, **{**CONFIG, **metered.settings(port)}) as target:
        assert metered.recorded() == metered.shape(asyncio.run(metered.play(target.namesrv, port)))
