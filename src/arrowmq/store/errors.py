"""What can be wrong with a store directory or its disk, each as an error that says what to do next."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot do what was asked; the text says why and what would help."""


class StoreLocked(StoreError):
    """Another process, ours or Apache's, works on this directory."""


class StoreDamaged(StoreError):
    """The directory holds something that no broker would have written, and that must not be guessed away."""


class StoreUnwritable(StoreError):
    """The directory cannot be written: permissions, or a read-only file system."""


class OutOfSpace(StoreError):
    """The disk has no room for a file or for more of it; nothing was written."""
