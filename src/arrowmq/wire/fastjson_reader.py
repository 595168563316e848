"""The parser for fastjson's dialect: one pass over the text, bounded in depth, errors with their position.

Keys come out as text, also bare numbers; an object as a key comes out as a `MessageQueue`, the only kind of object that
RocketMQ uses so. Text that holds such an object as JSON is taken for one too: that is how newer Java peers write it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from arrowmq.wire.errors import BodyError
from arrowmq.wire.message_queue import MessageQueue

MAX_DEPTH = 64
MAX_REFERENCES = 1000
MAX_NUMBER_DIGITS = 400  # beyond this int() becomes slow, and no Java number is as long

_SPACE = re.compile(r"[ \t\r\n\f\b\v]*")
_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n\f\b\v,]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[^\s\"'{}\[\]:,\x00-\x20]+")
_PLAIN_DOUBLE = re.compile(r'[^"\\]*')
_PLAIN_SINGLE = re.compile(r"[^'\\]*")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_HEX2 = re.compile(r"[0-9a-fA-F]{2}")
_REFERENCE_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")

# A queue as a key, as Java writes it: without blanks, members by name, nothing escaped.
_QUEUE_KEY = re.compile(rb'([{,])(\{"brokerName":"[^"\\{}]*","queueId":[0-9]{1,9},"topic":"[^"\\{}]*"\}):')
_QUEUE_TEXT = re.compile(r'\{"brokerName":"([^"\\{}]*)","queueId":([0-9]{1,9}),"topic":"([^"\\{}]*)"\}')

_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "0": "\0", "1": "\1", "2": "\2", "3": "\3", "4": "\4", "5": "\5", "6": "\6", "7": "\7",
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
# Java type letters behind a number: 5L, 3S, 1B, 2.0F, 2.0D
_NUMBER_SUFFIXES = "LSBFDlsbfd"


def parse(data: bytes | bytearray | memoryview | str) -> Any:
    """The value in `data`; raises `BodyError` with the position of what cannot be read."""
    if isinstance(data, str):
        text = data
    else:
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError as wrong:
            raise BodyError("the text is no UTF-8", wrong.start) from wrong
    reader = _Reader(text.removeprefix("\ufeff"))
    value = reader.value(0)
    reader.end()
    return _resolve(value, value) if reader.references else value


def parse_quickly(data: bytes | bytearray | memoryview | str) -> Any:
    """What `parse` gives, or None where only that can tell: for the tables by queue that brokers answer with.

    Those are standard JSON but for their keys, which are put into quotes here. No text in quotes holds such a key
    unescaped, so what is standard JSON afterwards was meant like this.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if b'"$ref"' in raw:
        return None
    try:
        return _with_queues(msgspec.json.decode(_QUEUE_KEY.sub(_quoted, raw)), 0)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, _TooDeep):
        return None


class _TooDeep(Exception):
    pass


def _quoted(match: re.Match[bytes]) -> bytes:
    return match[1] + b'"' + match[2].replace(b'"', b'\\"') + b'":'


def _with_queues(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _TooDeep
    if isinstance(value, dict):
        return {
            (_queue_key(key) if key[:1] == "{" else key): _with_queues(member, depth + 1)
            if isinstance(member, dict | list)
            else member
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [_with_queues(item, depth + 1) if isinstance(item, dict | list) else item for item in value]
    return value


def _queue_key(key: str) -> MessageQueue | str:
    match = _QUEUE_TEXT.fullmatch(key)
    return MessageQueue(match[3], match[1], int(match[2])) if match is not None else _queue_in(key) or key


class _Reader:
    __slots__ = ("position", "references", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.references = 0

    def fail(self, reason: str) -> BodyError:
        return BodyError(reason, self.position)

    def peek(self) -> str:
        """The next character that is no space, or "" at the end."""
        match = _SPACE.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return self.text[self.position : self.position + 1]

    def end(self) -> None:
        if self.peek():
            raise self.fail(f"unexpected {self.text[self.position : self.position + 10]!r} after the value")

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.fail(f"nested more than {MAX_DEPTH} deep")
        first = self.peek()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first in ('"', "'"):
            return self.string(first)
        if first and first in "+-.0123456789":
            return self.number()
        match = _NAME.match(self.text, self.position)
        if match is not None and match.group() in _WORDS:
            self.position = match.end()
            return _WORDS[match.group()]
        raise self.fail(f"a value must begin here, not {first!r}" if first else "the text ends before a value")

    def object(self, depth: int) -> dict[Any, Any]:
        self.position += 1
        found: dict[Any, Any] = {}
        while True:
            self.skip_commas()
            first = self.peek()
            if first == "}":
                self.position += 1
                return found
            key = self.key(first, depth)
            if self.peek() != ":":
                raise self.fail("a colon must follow the key")
            self.position += 1
            found[key] = self.value(depth + 1)
            if key == "$ref":
                self.references += 1
                if self.references > MAX_REFERENCES:
                    raise self.fail(f"more than {MAX_REFERENCES} references")
            if self.peek() not in (",", "}"):
                raise self.fail(
                    "a comma or the end of the object must follow" if self.peek() else "the object is cut off"
                )

    def key(self, first: str, depth: int) -> str | MessageQueue:
        if first == "{":
            return self.queue_key(self.value(depth + 1))
        if first in ('"', "'"):
            key = self.string(first)
            return _queue_in(key) or key if key.startswith("{") else key
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self.fail(f"a key must begin here, not {first!r}" if first else "the object is cut off")
        self.position = match.end()
        return match.group()

    def queue_key(self, value: Any) -> MessageQueue:
        queue = _as_queue(value)
        if queue is None:
            raise self.fail("an object as a key must have topic, brokerName and queueId")
        return queue

    def array(self, depth: int) -> list[Any]:
        self.position += 1
        found: list[Any] = []
        while True:
            self.skip_commas()
            if self.peek() == "]":
                self.position += 1
                return found
            found.append(self.value(depth + 1))
            if self.peek() not in (",", "]"):
                raise self.fail(
                    "a comma or the end of the array must follow" if self.peek() else "the array is cut off"
                )

    def skip_commas(self) -> None:
        match = _SPACE_AND_COMMAS.match(self.text, self.position)
        if match is not None:
            self.position = match.end()

    def string(self, quote: str) -> str:
        begin = self.position
        plain = _PLAIN_DOUBLE if quote == '"' else _PLAIN_SINGLE
        text = self.text
        position = begin + 1
        pieces: list[str] = []
        while True:
            match = plain.match(text, position)
            assert match is not None  # it matches the empty text as well
            pieces.append(match.group())
            position = match.end()
            if position >= len(text):
                raise self.fail("the text ends inside a string")
            if text[position] == quote:
                self.position = position + 1
                return _joined(pieces)
            piece, position = self.escape(position)
            pieces.append(piece)

    def escape(self, position: int) -> tuple[str, int]:
        letter = self.text[position + 1 : position + 2]
        if letter in ("u", "x"):
            match = (_HEX4 if letter == "u" else _HEX2).match(self.text, position + 2)
            if match is None:
                self.position = position
                raise self.fail(f"\\{letter} needs hexadecimal digits")
            return chr(int(match.group(), 16)), match.end()
        if letter not in _ESCAPES:
            self.position = position
            raise self.fail(f"\\{letter} is no escape")
        return _ESCAPES[letter], position + 2

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.position)
        if match is None:
            raise self.fail("a number must have digits")
        text = match.group()
        if len(text) > MAX_NUMBER_DIGITS:
            raise self.fail(f"a number of {len(text)} characters")
        self.position = match.end()
        suffix = self.text[self.position : self.position + 1]
        if suffix and suffix in _NUMBER_SUFFIXES:
            self.position += 1
        return float(text) if any(letter in text for letter in ".eE") else int(text)


def _joined(pieces: list[str]) -> str:
    text = "".join(pieces)
    if len(pieces) > 1 and any("\ud800" <= character <= "\udfff" for character in text):
        # \uD83D\uDE80 came as two escapes: join them as UTF-16 does; what stays alone becomes U+FFFD.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _queue_in(key: str) -> MessageQueue | None:
    reader = _Reader(key)
    try:
        value = reader.value(MAX_DEPTH - 2)
        reader.end()
    except BodyError:
        return None
    return _as_queue(value)


def _as_queue(value: Any) -> MessageQueue | None:
    if not isinstance(value, dict):
        return None
    topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if isinstance(queue_id, str) and _NUMBER.fullmatch(queue_id) and queue_id.lstrip("+-").isdigit():
        queue_id = int(queue_id)
    if isinstance(queue_id, bool) or not isinstance(queue_id, int):
        return None
    if not isinstance(topic, str) or not isinstance(broker_name, str):
        return None
    return MessageQueue(topic, broker_name, queue_id)


def _resolve(value: Any, root: Any) -> Any:
    """`value` with references put in place: `$.a[0]` is a path from the root. Others become null: a reference to what
    surrounds it would make the value endless, and RocketMQ has no such body."""
    if isinstance(value, dict):
        if set(value) == {"$ref"} and isinstance(value["$ref"], str):
            return _referenced(value["$ref"], root)
        return {key: _resolve(member, root) for key, member in value.items()}
    if isinstance(value, list):
        return [_resolve(item, root) for item in value]
    return value


def _referenced(path: str, root: Any) -> Any:
    if not path.startswith("$."):
        return None
    target, position = root, 1
    while position < len(path):
        match = _REFERENCE_STEP.match(path, position)
        if match is None:
            return None
        name, index = match.groups()
        if name is not None and isinstance(target, dict) and name in target:
            target = target[name]
        elif index is not None and isinstance(target, list) and int(index[:9]) < len(target):
            target = target[int(index[:9])]
        else:
            return None
        position = match.end()
    return None if _has_reference(target) else target


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(_has_reference(member) for member in value.values())
    return isinstance(value, list) and any(_has_reference(item) for item in value)
