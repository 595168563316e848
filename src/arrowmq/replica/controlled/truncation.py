"""A log is cut where it went another way than its master's. What is cut is put aside first: these messages were never
acknowledged to all that was promised, but an operator may want to look at them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arrowmq.store.integrity.recovery import RecoverySink, known_topics
from arrowmq.store.log.walk import walk

if TYPE_CHECKING:
    from arrowmq.store import MessageStore

log = logging.getLogger(__name__)

FOLDER = "cut"
_PIECE_BYTES = 1 << 20


class CutTail(NamedTuple):
    """What was cut off a log, and where its bytes lie."""

    start: int
    end: int
    path: Path


def put_aside(store: MessageStore, root: Path, start: int, epoch: int) -> CutTail | None:
    """Copy the log from an offset to its end into a file of its own, forced to disk."""
    end = int(store.appended)
    if end <= start:
        return None
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{start:020d}-{end:020d}-epoch-{epoch}.log"
    with path.open("wb") as file:
        at = start
        while at < end:
            segment = store.commit_log.segment_at(at)
            if segment is None:
                break
            stop = min(end, segment.end, at + _PIECE_BYTES)
            file.write(segment.view[at - segment.start : stop - segment.start])
            at = stop
        file.flush()
        store.disk.force(path)
    store.disk.force_folder(folder)
    return CutTail(start, end, path)


def tails(root: Path) -> list[CutTail]:
    """All that was put aside under a store, oldest first."""
    found = []
    for path in sorted((root / FOLDER).glob("*-epoch-*.log")):
        start, end, *_ = path.name.split("-")
        if start.isdigit() and end.isdigit():
            found.append(CutTail(int(start), int(end), path))
    return sorted(found, key=lambda tail: tail.path.stat().st_mtime)


def cut(store: MessageStore, end: int) -> int:
    """Let the log end here, and queues and index with it; how many bytes went."""
    dropped = int(store.appended) - end
    if dropped <= 0:
        return 0
    store.commit_log.drop_spare()
    with store.cutting(end):
        store.commit_log.end_at(end)
        for queue in store.consume_queues:
            queue.truncate(end)
    if store.index.truncate(end):
        _index_again(store, end)
    return dropped


def _index_again(store: MessageStore, end: int) -> None:
    """The index forgets a little more than it must: what is left of the log in its last part is indexed again."""
    sink = RecoverySink(store.commit_log.tail, store.consume_queues, store.index, known_topics(store.root))
    begin = max(store.index.indexed_end, store.min_physical_offset)
    for segment in store.commit_log.segments_between(begin, end):
        stop = min(segment.end, end) - segment.start
        walk(segment.view, 0, stop, segment.start, 0, sink)
