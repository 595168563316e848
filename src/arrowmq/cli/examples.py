"""Examples at the foot of a command's help, one a line."""

from __future__ import annotations


def examples(*lines: str) -> str:
    # \b keeps click from joining the lines.
    return "\b\n" + "\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)])
