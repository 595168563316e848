"""JSON as fastjson writes and reads it, and as every client reads it.

Reading: standard JSON goes through msgspec. What is not standard is read by the parser here: bare number keys
(`{0:"a"}`), objects as keys (`{{"brokerName":"b","queueId":0,"topic":"T"}:5}`), strings holding such an object as
keys, single quotes, bare names, stray commas, and references (`{"$ref":"$.path"}`).

Writing: compact, members sorted by name, nulls left out. Number keys are quoted, because Go and Node read nothing else
and Java reads both; a `MessageQueue` as a key is written as a nested object, the one form that every Java client reads.
"""

from __future__ import annotations

import base64
import enum
import math
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, TypeVar, overload

import msgspec

from arrowmq.wire.errors import BodyError
from arrowmq.wire.fastjson_reader import parse, parse_quickly
from arrowmq.wire.message_queue import MessageQueue

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def loads(data: bytes | bytearray | memoryview | str) -> Any: ...
@overload
def loads(data: bytes | bytearray | memoryview | str, type: type[T]) -> T: ...
def loads(data: bytes | bytearray | memoryview | str, type: Any = Any) -> Any:
    """The value in `data`, as a `type` if one is given. Raises `BodyError`."""
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type, strict=False)
    try:
        if not _has_reference(data):
            return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # not standard JSON, or it needs fastjson's leniency: the general path decides
    value = parse_quickly(data)
    if value is None:
        value = parse(data)
    if type is Any:
        return value
    return as_type(value, type)


def _has_reference(data: bytes | bytearray | memoryview | str) -> bool:
    if isinstance(data, str):
        return '"$ref"' in data
    return b'"$ref"' in (bytes(data) if isinstance(data, memoryview) else data)


def as_type(value: Any, type: Any) -> Any:
    """A parsed value as a `type`, with fastjson's leniency about numbers and booleans given as text."""
    try:
        return msgspec.convert(_without_nulls(value), type, strict=False, str_keys=True)
    except msgspec.ValidationError as wrong:
        raise BodyError(f"the body is not what it must be: {wrong}") from wrong
    except RecursionError:
        raise BodyError("the body is nested too deeply") from None


def _without_nulls(value: Any) -> Any:
    """Null members count as absent: Go writes null for an empty list where Java leaves the member out."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def dumps(value: Any, *, ascii_only: bool = False) -> bytes:
    """The compact text of `value`: structs, dicts, lists, sets, text, numbers, booleans, enums, bytes (as base64)."""
    quote = encode_basestring_ascii if ascii_only else encode_basestring
    pieces: list[str] = []
    _write(value, pieces.append, quote)
    return "".join(pieces).encode("utf-8", "replace")


_members: dict[type, tuple[tuple[str, str], ...]] = {}


def _members_of(cls: type) -> tuple[tuple[str, str], ...]:
    found = _members.get(cls)
    if found is None:
        fields = sorted(msgspec.structs.fields(cls), key=lambda field: field.encode_name)
        found = _members[cls] = tuple((field.name, f'"{field.encode_name}":') for field in fields)
    return found


def _write(value: Any, emit: Any, quote: Any) -> None:
    if value is None:
        emit("null")
    elif value is True:
        emit("true")
    elif value is False:
        emit("false")
    elif isinstance(value, enum.Enum):
        emit(quote(value.name))
    elif isinstance(value, str):
        emit(quote(value))
    elif isinstance(value, int):
        emit(str(value))
    elif isinstance(value, float):
        emit(_double(value))
    elif isinstance(value, msgspec.Struct):
        _write_struct(value, emit, quote)
    elif isinstance(value, dict):
        _write_map(value, emit, quote)
    elif isinstance(value, (set, frozenset)):
        _write_items(sorted(value), emit, quote)
    elif isinstance(value, (list, tuple)):
        _write_items(value, emit, quote)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        emit(f'"{base64.b64encode(value).decode()}"')
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _double(value: float) -> str:
    # Java has no infinity in JSON; and a double always shows its fraction.
    return repr(value) if math.isfinite(value) else "null"


def _write_struct(value: msgspec.Struct, emit: Any, quote: Any) -> None:
    separator = "{"
    for name, key in _members_of(type(value)):
        member = getattr(value, name)
        if member is not None:
            emit(separator)
            emit(key)
            _write(member, emit, quote)
            separator = ","
    emit("{}" if separator == "{" else "}")


def _write_map(value: dict[Any, Any], emit: Any, quote: Any) -> None:
    separator = "{"
    for key in _sorted_keys(value):
        member = value[key]
        if member is None:
            continue
        emit(separator)
        if isinstance(key, MessageQueue):
            _write_struct(key, emit, quote)
        else:
            emit(quote(key if isinstance(key, str) else key.name if isinstance(key, enum.Enum) else str(key)))
        emit(":")
        _write(member, emit, quote)
        separator = ","
    emit("{}" if separator == "{" else "}")


def _sorted_keys(value: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:  # keys of several kinds
        return sorted(value, key=str)


def _write_items(values: Any, emit: Any, quote: Any) -> None:
    separator = "["
    for item in values:
        emit(separator)
        _write(item, emit, quote)
        separator = ","
    emit("[]" if separator == "[" else "]")
