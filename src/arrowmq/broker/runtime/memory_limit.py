"""How much memory the control group of this process allows: what a container or a systemd unit was given.

A process that grows beyond it is killed by the kernel without a word. The broker stops taking messages before that, and
says why.
"""

from __future__ import annotations

from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
# The rest is left to threads, to the interpreter's own growth between two looks, and to pages on their way to the disk.
SHARE = 0.8


def group_limit_bytes(groups: Path = GROUPS, own: Path = OWN) -> int:
    """The smallest limit of the groups this process is in, from its own up to the outermost; 0 if there is none."""
    limits = [limit for folder in _folders(groups, own) if (limit := _limit(folder)) > 0]
    return min(limits, default=0)


def allowed_bytes(configured: int, group_limit: int) -> int:
    """What maxProcessMemoryBytes means: above 0 itself, 0 a share of the group's limit, below 0 no limit."""
    return max(configured, 0) if configured else int(group_limit * SHARE)


def _folders(groups: Path, own: Path) -> list[Path]:
    """Version 2 has one tree; in version 1 memory has a tree of its own. In a container the root is often one's own."""
    found = [groups, groups / "memory"]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            root = groups / "memory" if controllers else groups
            folder = root / path.lstrip("/")
            while folder != root and root in folder.parents:
                found.append(folder)
                folder = folder.parent
    return found


def _limit(folder: Path) -> int:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        # Version 1 writes "no limit" as a number near 2**63.
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return 0
