"""One Spark session and one broker for all tests of the pipeline: both are slow to start and easy to share."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from live import Server

GOLDEN = Path(__file__).parents[1] / "golden"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the session run in one process: a second one would start a second Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from arrowmq.spark import session

    # Workers must find failpoints.py as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))

    started = session(
        "tests",
        master="local[2]",
        is_short=True,
        **{
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "1g",
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as started:
        yield started


class Golden:
    """Stores that the Apache broker wrote, unpacked once, and what its own classes said of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, variant: str) -> tuple[Path, dict[str, Any]]:
        archive = "store-clean" if variant == "store-clean" else "store-crashed"
        found = self._folder / variant
        if not found.exists():
            with tarfile.open(GOLDEN / f"{archive}.tar.xz") as tar:
                members = [member for member in tar if member.name.split("/")[0] == variant]
                tar.extractall(self._folder, members=members, filter="data")
        return found / "store", json.loads((found / "expected.json").read_text())


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return Golden(tmp_path_factory.mktemp("golden"))
