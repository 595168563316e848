"""The face of the tails: the native form where it is compiled, else the pure-Python reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native

if TYPE_CHECKING:
    from arrowmq.store.append import _append_plain as _append
    from arrowmq.store.append import _tail_plain as _tail
else:
    _append = native.load("arrowmq.store.append._append")
    _tail = native.load("arrowmq.store.append._tail")

LogTail = _tail.LogTail
QueueTail = _tail.QueueTail
IndexTail = _tail.IndexTail
append = _append.append
append_batch = _append.append_batch
append_client_batch = _append.append_client_batch
put_entry = _tail.put_entry
put_key = _tail.put_key
has_index_room = _tail.has_index_room
write_index_header = _tail.write_index_header
text_hash = _tail.text_hash
key_hash = _tail.key_hash
dispatch_facts = _tail.dispatch_facts
index_keys = _tail.index_keys
tags_code = _tail.tags_code
delivery_time = _tail.delivery_time

NEEDS_SEGMENT: int = _tail.NEEDS_SEGMENT
NEEDS_QUEUE_ROOM: int = _tail.NEEDS_QUEUE_ROOM
NEEDS_INDEX_ROOM: int = _tail.NEEDS_INDEX_ROOM
