"""Free memory, made ready before a measurement.

The host of a virtual machine takes back memory that lies idle, and gives it again at the first touch: about 9 µs a page
where a page that was touched before costs 1. Whichever broker happens to be handed such pages pays for them, in its own
CPU time. So before a measurement some of the free memory is touched once, by this process, for each system alike.

The host is told of large free blocks only (2 MiB), a second or two after they become free. So of what was touched one
page in every `_KEPT_EVERY` stays taken until the next measurement: the rest is free, but in small blocks.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it
_PIECE = 256 << 20
_KEPT_EVERY = 1 << 20
_LEFT_ALONE = 1 << 30
_ENOUGH = 3 << 30  # most measurements write less
_FILE_ORDERS = (7, 8)  # such blocks: 512 KiB and 1 MiB, as powers of two of a page
_LARGE_ORDER = 9  # 2 MiB

_kept: list[mmap.mmap] = []


def free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0


def free_by_order() -> list[int]:
    """Free bytes in blocks of one page, two, four and so on."""
    zones = [zone.split()[4:] for zone in Path("/proc/buddyinfo").read_text().splitlines()]
    return [sum(map(int, counts)) * mmap.PAGESIZE << order for order, counts in enumerate(zip(*zones, strict=True))]


def touch_free_memory(enough: int = _ENOUGH) -> int:
    """Touch twice what a measurement may need, and give nearly all of it back; how many bytes that were:
    none if there is still `enough` from the last time, in blocks in which files are written."""
    free = free_by_order()
    if sum(free[order] for order in _FILE_ORDERS) >= enough:
        return 0
    # What is free in small blocks is handed out first, and was touched before.
    wanted = sum(free[:_LARGE_ORDER]) + 2 * enough
    pieces: list[mmap.mmap] = []
    try:
        for _ in range(max(0, min(free_bytes() - _LEFT_ALONE, wanted)) // _PIECE):
            piece = mmap.mmap(-1, _PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            pieces.append(piece)
            piece.madvise(mmap.MADV_NOHUGEPAGE)
            piece.madvise(_MADV_POPULATE_WRITE)
    except OSError:  # an older kernel, or less memory than there seemed to be: then it is measured as it is
        for piece in pieces:
            piece.close()
        return 0
    for piece in pieces:
        for start in range(0, _PIECE, _KEPT_EVERY):
            piece.madvise(mmap.MADV_DONTNEED, start + mmap.PAGESIZE, _KEPT_EVERY - mmap.PAGESIZE)
    for before in _kept:
        before.close()
    _kept[:] = pieces
    return len(pieces) * _PIECE
