"""Copies of the stores that the Apache broker wrote, and what its own classes said of them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from arrowmq.store import StoreConfig

GOLDEN = Path(__file__).parents[1] / "golden"
CRASHED = ("plain", "torn", "torn-properties", "bad-crc")
CONFIG = StoreConfig(
    mapped_file_size_commit_log=262_144,
    mapped_file_size_consume_queue=1000,
    max_hash_slot_num=200,
    max_index_num=800,
    max_message_size=131_072,
)


def restore(variant: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A fresh copy of a golden store, and its expected.json."""
    archive = "store-clean" if variant == "store-clean" else "store-crashed"
    with tarfile.open(GOLDEN / f"{archive}.tar.xz") as tar:
        members = [member for member in tar if member.name.split("/")[0] == variant]
        tar.extractall(folder, members=members, filter="data")
    found = folder / variant
    return found / "store", json.loads((found / "expected.json").read_text())
