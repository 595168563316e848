"""The real commands, killed in the middle and started again; the long form is `make pipeline-soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import Server
from pipeline_soak import SETTINGS, Soak

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def test_a_killed_archive_and_a_killed_resend_go_on_and_do_nothing_twice(tmp_path: Path) -> None:
    with Server(tmp_path, *SETTINGS) as server:
        soak = Soak(server, tmp_path, seed=4, most_kills=1)
        assert soak.archive() is None
        assert soak.dead_letters() is None
        assert 2 == soak.kills
