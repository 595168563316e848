"""The memory a container or a unit was given is found, and sends stop before it is used up."""

from __future__ import annotations

from pathlib import Path

import pytest

from arrowmq.broker.runtime.memory_limit import allowed_bytes, group_limit_bytes

MIB = 1 << 20


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_inside_a_container_the_root_of_the_tree_is_the_containers_own(tmp_path: Path) -> None:
    write(tmp_path / "groups" / "memory.max", f"{512 * MIB}\n")
    own = write(tmp_path / "own", "0::/\n")
    assert 512 * MIB == group_limit_bytes(tmp_path / "groups", own)


def test_of_a_unit_inside_a_slice_the_smaller_limit_counts(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    write(groups / "system.slice" / "memory.max", f"{700 * MIB}\n")
    write(groups / "system.slice" / "arrowmq.service" / "memory.max", f"{900 * MIB}\n")
    own = write(tmp_path / "own", "0::/system.slice/arrowmq.service\n")
    assert 700 * MIB == group_limit_bytes(groups, own)


def test_version_1_keeps_memory_in_a_tree_of_its_own(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    write(groups / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    write(groups / "memory" / "docker" / "abc" / "memory.limit_in_bytes", f"{256 * MIB}\n")
    own = write(tmp_path / "own", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n")
    assert 256 * MIB == group_limit_bytes(groups, own)


@pytest.mark.parametrize("text", ["max", "9223372036854771712", "nonsense", ""])
def test_no_limit_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "groups" / "memory.max", text)
    own = write(tmp_path / "own", "0::/\n")
    assert group_limit_bytes(tmp_path / "groups", own) == 0


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert group_limit_bytes(tmp_path / "groups", tmp_path / "own") == 0


def test_the_setting_wins_over_the_group_and_can_switch_it_off() -> None:
    assert allowed_bytes(100, 1000) == 100
    assert allowed_bytes(0, 1000) == 800
    assert allowed_bytes(0, 0) == 0
    assert allowed_bytes(-1, 1000) == 0
