"""A set of offsets from a moving base upwards, one bit each: a million ended transactions are 125 kB.

The fast path of transactions asks and fills the same set as the general path, so it has a native form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq import native

if TYPE_CHECKING:
    from arrowmq.broker.transactions import _offset_set_plain as _offset_set
else:
    _offset_set = native.load("arrowmq.broker.transactions._offset_set")

OffsetSet = _offset_set.OffsetSet
