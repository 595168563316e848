"""What is fuzzed: each target takes bytes from a peer or a disk, and may answer with its own errors alone.

A target's module is imported when it is asked for: a fuzzer that instruments what is imported would instrument all of
the broker before it looks at a frame.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from target import Target

PLACES = {
    "serving": ("requests",),
    "wire_targets": (
        "frames", "headers", "json", "records", "properties", "decompress", "sql92", "greeting", "ids",
    ),
    "store_targets": ("store", "batch", "config file", "settings"),
    "replica_targets": ("replication", "epoch file"),
    "access_targets": (
        "signed frames", "policies", "user names", "accounts file", "plain_acl.yml", "gRPC authorization", "PEM files",
    ),
    "proxy_targets": ("HTTP2", "gRPC messages"),
}  # fmt: skip


class Targets(Mapping[str, Target]):
    def __init__(self) -> None:
        self._modules = {name: module for module, names in PLACES.items() for name in names}

    def __getitem__(self, name: str) -> Target:
        found: Target = importlib.import_module(self._modules[name]).TARGETS[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


TARGETS = Targets()
