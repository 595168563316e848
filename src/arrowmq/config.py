r"""Settings: Java properties files, `key=value` words of the command line, and typed classes that hold them.

Apache's `broker.conf` and `namesrv.conf` are Java properties files, and are read as they are:

    # or ! starts a comment line
    key=value   key:value   key value      blanks around the separator do not count
    a\            a line may go on in the next one
      b
    \t \n \r \f \uXXXX                     escapes; before anything else a backslash vanishes

A class of settings is a dataclass whose fields are Apache's keys in snake_case (`listen_port` is `listenPort`). Where
Apache ignores a value that does not fit its key, `fill` refuses it: a typing error in a port should not start a broker
on another one. Keys that a class does not know are given back to the caller, who tells the operator.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")


class ConfigError(ValueError):
    """A setting that cannot be used; the text names the key or line, what was found and what is expected."""


# --- properties files -----------------------------------------------------------------------------------------------


def read_properties(path: Path | str) -> dict[str, str]:
    """The settings in a file. Raises `ConfigError` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"the configuration file {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what Java assumes always
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """Later lines win over earlier ones with the same key."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split_line(line)
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
        properties[key] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Text that `parse_properties`, and Java, read back to the same settings."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _split_line(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    value = line[position:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:position]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter != "\\" or position == len(text):
            pieces.append(letter)
            continue
        letter = text[position]
        position += 1
        if letter == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                raise ValueError(f"\\u must be followed by four hexadecimal digits, not {digits!r}")
            pieces.append(chr(int(digits, 16)))
            position += 4
        else:
            pieces.append(_ESCAPES.get(letter, letter))
    # Java writes characters beyond the basic plane as two surrogates.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    escaped = escaped.replace("\f", "\\f")
    if is_key:
        return re.sub(r"([=: #!])", r"\\\1", escaped)
    return "\\" + escaped if escaped.startswith(" ") else escaped


# --- the command line -----------------------------------------------------------------------------------------------


def parse_settings(words: Iterable[str]) -> dict[str, str]:
    """`--set key=value` words."""
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            raise ConfigError(f"--set {word}: expected key=value, such as --set autoCreateTopicEnable=false")
        settings[key] = value.strip()
    return settings


# --- names and types ------------------------------------------------------------------------------------------------


def camel_case(name: str) -> str:
    """`listen_port` → `listenPort`: the key in a file of a field in Python."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def to_bool(key: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise ConfigError(f"{key}={text}: expected true or false")


def to_int(key: str, text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text.strip(), re.ASCII):
        return int(text)
    raise ConfigError(f"{key}={text}: expected an integer")


Settings = TypeVar("Settings")


def fill(kind: type[Settings], properties: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """An instance of a dataclass of settings, and the properties it has no field for."""
    values: dict[str, Any] = {}
    unknown = dict(properties)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        key = field.metadata.get("key", camel_case(field.name))
        if key not in unknown:
            continue
        text = unknown.pop(key).strip()
        if field.type in ("bool", bool):
            values[field.name] = to_bool(key, text)
        elif field.type in ("int", int):
            values[field.name] = to_int(key, text)
        else:
            values[field.name] = text
    return kind(**values), unknown


def properties_of(settings: Any) -> dict[str, str]:
    """The settings of a dataclass instance as text, by their keys, sorted."""
    properties: dict[str, str] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        properties[field.metadata.get("key", camel_case(field.name))] = text
    return dict(sorted(properties.items()))
