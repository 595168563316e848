"""Text of others made harmless to look at.

Escaping keeps it from being markup. Beyond that, what has no shape of its own, or turns the direction of what follows,
is shown by a sign, so that a message cannot look like something else.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    return _HIDDEN.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code == 0x0D:
        return "␍"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩"
