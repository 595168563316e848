"""DataVersion: how a NameServer or a replica tells whether its copy of a table is the newest."""

from __future__ import annotations

from arrowmq.wire.bodies import DataVersion


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    return DataVersion(state_version=version.state_version, timestamp=now_ms, counter=version.counter + 1)
