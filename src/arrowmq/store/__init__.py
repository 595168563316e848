"""The commit log and everything derived from it, in a directory that Apache's broker could take over at any time.

In: records (`wire.record`) and the promise the sender asked for.
Out: positions (`Appended`, `Flushed`, `Confirmed`), record bytes by offset, by queue, by time and by key.
Knows nothing of sockets, requests or groups.
"""

from __future__ import annotations

from arrowmq.store.config import StoreConfig
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.errors import OutOfSpace, StoreDamaged, StoreError, StoreLocked, StoreUnwritable
from arrowmq.store.message_store import MessageStore
from arrowmq.store.positions import Appended, Confirmed, Flushed
from arrowmq.store.results import Boundary, Entry, EntryFilter, GetStatus, Got, Put, PutStatus, Recovered

__all__ = [
    "Appended",
    "Boundary",
    "Confirmed",
    "Entry",
    "EntryFilter",
    "Flushed",
    "GetStatus",
    "Got",
    "JsonConfigFile",
    "MessageStore",
    "OutOfSpace",
    "Put",
    "PutStatus",
    "Recovered",
    "StoreConfig",
    "StoreDamaged",
    "StoreError",
    "StoreLocked",
    "StoreUnwritable",
]
