"""The release that a client says it is: a number in its requests, a name for people."""

from __future__ import annotations

# Each release has a SNAPSHOT before it, so a release is two on from the one before; from 4.0.0 on without gaps.
VERSION_4_0_0, VERSION_5_0_0, PER_MINOR = 213, 413, 20


def version_name(ordinal: int) -> str:
    """As RocketMQ labels it; of releases before 4.0.0 the number alone."""
    for major, first in ((5, VERSION_5_0_0), (4, VERSION_4_0_0)):
        if ordinal >= first - 1:
            minor, rest = divmod(ordinal - first + 1, PER_MINOR)
            return f"v{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_snapshot")
    return f"v{ordinal}"
