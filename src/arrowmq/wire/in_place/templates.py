"""Answers as templates: what the general encoder writes, cut at the places where one answer differs from the next."""

from __future__ import annotations

from arrowmq.wire.frames import Command, encode_frame
from arrowmq.wire.in_place.fields import NativeFields

_OPAQUE = 1987654321  # stands for the opaque, as a name between @ does for a field's value
_OPAQUE_PLACE = -1
_BINARY_START = slice(8, 13)  # of a frame: code, language, version

Template = tuple[list[bytes], list[int], bytes, bytes, bytes, list[bytes], list[int]]
"""What an `AnswerTemplate` of `_answer_native.pyx` is made of."""


def answer_template(
    code: int, header: NativeFields, placeholders: tuple[str, ...], fixed: dict[str, str], remark: str | None = None
) -> Template:
    """The answers of success to requests of a code: fields that are always the same, then those that are not."""
    marks = {header.wire_names.index(name): f"@{name}@".encode() for name in placeholders}
    marks[_OPAQUE_PLACE] = str(_OPAQUE).encode()
    ext = {**fixed, **{name: f"@{name}@" for name in placeholders}}
    request = Command(code, opaque=_OPAQUE)
    whole = encode_frame(request.answer(0, ext, remark=remark))[8:]
    places = sorted(marks, key=lambda place: whole.index(marks[place]))
    parts: list[bytes] = []
    at = 0
    for place in places:
        found = whole.index(marks[place])
        parts.append(whole[at:found])
        at = found + len(marks[place])
    parts.append(whole[at:])
    request.serialize_type = 1
    return (
        parts,
        places,
        encode_frame(request.answer(0, ext))[_BINARY_START],
        _with_length(remark or "", 4),
        b"".join(_with_length(name, 2) + _with_length(value, 4) for name, value in fixed.items()),
        [_with_length(name, 2) for name in placeholders],
        [header.wire_names.index(name) for name in placeholders],
    )


def _with_length(text: str, size: int) -> bytes:
    data = text.encode()
    return len(data).to_bytes(size, "big") + data
