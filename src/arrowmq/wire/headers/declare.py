"""How a custom header is declared, read and written.

A header is a class with one field per Java field; on the wire each is text under the Java name:

    integer    decimal digits; 64 bits, or 32 where the field is declared `Int32`
    boolean    `true` or `false`; read as true when it is "true" in any case, and as false otherwise
    None       left out

A field without a default must be there. Text that is empty counts as absent for integers and booleans, because the
binary header cannot tell an empty value from a missing one.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from arrowmq.wire.errors import HeaderError

_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 1 << 63
_INT32 = 1 << 31

Int32 = Annotated[int, "32 bits"]


class Header(msgspec.Struct, kw_only=True, rename="camel"):
    """A custom header. Java name = camel case of the Python name unless `msgspec.field(name=…)` says otherwise."""


class RpcHeader(Header, kw_only=True):
    """What nearly every request to a broker may carry beside its own fields."""

    ns: str | None = None  # namespace
    nsd: bool | None = None  # names in it carry the namespace already
    bname: str | None = None  # the broker meant
    oway: bool | None = None


class TopicHeader(RpcHeader, kw_only=True):
    lo: bool | None = None  # the queue id is a logical one, of a static topic


HeaderType = TypeVar("HeaderType", bound=Header)
_Plan = tuple[tuple[str, str, Any, bool], ...]
_plans: dict[type[Header], _Plan] = {}


def decode_header(cls: type[HeaderType], ext: Mapping[str, str]) -> HeaderType:
    """The typed header in `ext`; unknown fields are left alone."""
    values: dict[str, Any] = {}
    for name, wire_name, kind, is_required in _plans.get(cls) or _plan(cls):
        text = ext.get(wire_name)
        if kind is str:
            if text is not None:
                values[name] = text
                continue
        elif text:
            if kind is bool:
                values[name] = text == "true" or text.lower() == "true"
            else:
                values[name] = _integer(cls, wire_name, text, _INT32 if kind is Int32 else _INT64)
            continue
        if is_required:
            raise HeaderError(f"{cls.__name__} needs the field {wire_name}, and it is missing", wire_name)
    return cls(**values)


def encode_header(header: Header) -> dict[str, str]:
    """The text form of a header: its own fields in the order they are declared, then the inherited ones."""
    cls = type(header)
    ext: dict[str, str] = {}
    for name, wire_name, kind, _ in _plans.get(cls) or _plan(cls):
        value = getattr(header, name)
        if value is None:
            continue
        if kind is str:
            ext[wire_name] = value
        elif kind is bool:
            ext[wire_name] = "true" if value else "false"
        else:
            ext[wire_name] = str(int(value))
    return ext


def wire_names(cls: type[Header]) -> tuple[str, ...]:
    """The Java names of a header's fields, in the order `encode_header` writes them."""
    return tuple(wire_name for _, wire_name, _, _ in _plans.get(cls) or _plan(cls))


def field_names(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    """The same with the Python name of each before its Java name."""
    return tuple((name, wire_name) for name, wire_name, _, _ in _plans.get(cls) or _plan(cls))


def _integer(cls: type[Header], wire_name: str, text: str, bound: int) -> int:
    if _DECIMAL.fullmatch(text):
        number = int(text)
        if -bound <= number < bound:
            return number
    bits = bound.bit_length()
    raise HeaderError(f"{cls.__name__} has {wire_name}={text[:40]!r}, which is no integer of {bits} bits", wire_name)


def _plan(cls: type[Header]) -> _Plan:
    """Works out, once a class, what each field is called and how it is read."""
    inherited = {
        field.name
        for parent in (RpcHeader, TopicHeader)
        if issubclass(cls, parent)
        for field in msgspec.structs.fields(parent)
    }
    hints = get_type_hints(cls, include_extras=True)
    fields = sorted(msgspec.structs.fields(cls), key=lambda field: field.name in inherited)
    plan = tuple((field.name, field.encode_name, _kind(hints[field.name]), field.required) for field in fields)
    _plans[cls] = plan
    return plan


def _kind(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(argument for argument in get_args(hint) if argument is not type(None))
    if hint not in (str, bool, int, Int32):
        raise TypeError(f"a header field is text, an integer or a boolean, not {hint}")
    return hint
