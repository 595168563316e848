"""What time it is at a broker."""

from __future__ import annotations

import re

SKEW_MS = 3_000  # less than this is the rounding of what brokers tell, and the way of the answer
_DURATION = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


def clock_skew_ms(runtime: dict[str, str], now_ms: float) -> int | None:
    """A broker does not tell its time, but since when and for how long it runs, to the second."""
    since, running = runtime.get("bootTimestamp", ""), _DURATION.search(runtime.get("runtime", ""))
    if not since.isdigit() or running is None:
        return None
    days, hours, minutes, seconds = (int(word) for word in running.groups())
    broker_ms = int(since) + 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return round(broker_ms + 500 - now_ms)
