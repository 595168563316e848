"""Numbers, times and bytes as people read them."""

from __future__ import annotations

from datetime import datetime


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(timestamp_ms: int) -> str:
    """Local time with milliseconds; what was never, is a dash."""
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


def second_text(timestamp_ms: int) -> str:
    return time_text(timestamp_ms).partition(".")[0]


def duration_text(elapsed_ms: float) -> str:
    if elapsed_ms < 1000:
        return f"{elapsed_ms:.0f} ms"
    seconds = elapsed_ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def perm_text(perm: int) -> str:
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else ''}"


def body_text(body: bytes, limit: int = 0) -> str:
    """Text where it is text, else hexadecimal; cut at `limit` characters if one is given."""
    try:
        text = body.decode()
        if not all(each.isprintable() or each in "\t\n\r" for each in text):
            raise ValueError
    except ValueError:
        text = "0x" + body.hex()
    if limit and len(text) > limit:
        return text[: limit - 1] + "…"
    return text
