"""What mqadmin printed, as named fields, so that two runs can be compared one field at a time."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from arrowmq.wire import fastjson

Fields = dict[str, str]


def lines(text: str) -> Fields:
    """Each word of each line: for sentences, and for output whose order means something."""
    fields: Fields = {}
    for number, line in enumerate(_meaningful(text), 1):
        for place, word in enumerate(line.split(), 1):
            fields[f"line {number} word {place}"] = word
    return fields


def unordered(text: str) -> Fields:
    """Each line as one field, and how often it stands there; Java's hash order does not count."""
    return {" ".join(line.split()): str(times) for line, times in Counter(_meaningful(text)).items()}


def pairs(text: str) -> Fields:
    """`key = value` and `key : value` lines, each of which may begin with the broker it is about."""
    fields: Fields = {}
    for line in _meaningful(text):
        found = re.match(r"\s*(?:<broker>\s+)?([^\s:=]+)\s*[:=]\s*(.*)", line)
        key, value = (found[1], found[2].strip()) if found else (line.strip(), "")
        fields[key] = value
    return fields


def table(text: str) -> Fields:
    """Rows below a line of #headers, sorted; what stands around the table is read as lines."""
    fields: Fields = {}
    headers: list[str] = []
    rows: list[list[str]] = []
    rest: list[str] = []
    for line in _meaningful(text):
        if line.lstrip().startswith("#"):
            headers = [name.strip() for name in re.findall(r"#([^#]+)", line)]
            fields["headers"] = " | ".join(headers)
        elif headers and len(cells := re.split(r"\s{2,}|\t", line.strip())) > 1:
            rows.append(cells)
        else:
            rest.append(line)
    for number, cells in enumerate(sorted(rows), 1):
        named = headers if len(cells) == len(headers) else [f"cell {place}" for place in range(1, len(cells) + 1)]
        for name, cell in zip(named, cells, strict=True):
            fields[f"row {number} {name}"] = cell
    return fields | lines("\n".join(rest))


def keyed(text: str) -> Fields:
    """Rows below a line of #headers, each field named after the row's names (its cells that are no numbers)."""
    fields: Fields = {}
    headers: list[str] = []
    for line in _meaningful(text):
        if line.lstrip().startswith("#"):
            headers = [name.strip() for name in re.findall(r"#([^#]+)", line)]
            fields["headers"] = " | ".join(headers)
            continue
        cells = line.split()
        names = [cell for cell in cells if not re.fullmatch(r"[\d.]+", cell)]
        numbers = [cell for cell in cells if re.fullmatch(r"[\d.]+", cell)]
        for header, number in zip(
            [name for name in headers if name not in ("Topic", "Consumer Group")], numbers, strict=False
        ):
            fields[f"{' '.join(names)}: {header}"] = number
    return fields


def document(text: str) -> Fields:
    """JSON, flattened: every leaf by its path."""
    start = min((place for place in (text.find("{"), text.find("[")) if place >= 0), default=-1)
    if start < 0:
        return lines(text)
    fields: Fields = {}
    end = max(text.rfind("}"), text.rfind("]")) + 1
    _flatten("", fastjson.loads(text[start:end].encode()), fields)
    return fields | lines(text[:start] + text[end:])


def _flatten(path: str, value: Any, fields: Fields) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _flatten(f"{path}.{key}" if path else str(key), inner, fields)
    elif isinstance(value, list) and value:
        if not any(isinstance(inner, dict | list) for inner in value):
            fields.update({f"{path} has {inner}": str(times) for inner, times in Counter(value).items()})
        elif all(isinstance(inner, dict) and len(inner) == 1 for inner in value):
            for inner in value:  # named values in the order of a Java map
                _flatten(path, inner, fields)
        else:
            for place, inner in enumerate(value):
                _flatten(f"{path}[{place}]", inner, fields)
    else:
        fields[path] = str(value)


def _meaningful(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


class Mask:
    """Replaces what must differ between two runs (addresses, times, ids) by what it is."""

    def __init__(self, names: dict[str, str]) -> None:
        known = sorted(names, key=len, reverse=True)
        self._names = names
        self._known = re.compile("|".join(map(re.escape, known)) or "(?!)")

    def __call__(self, text: str) -> str:
        text = self._known.sub(lambda found: self._names[found[0]], text)
        for pattern, name in _CHANGING:
            text = pattern.sub(name, text)
        return text


_CHANGING = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d[,:]\d{3}", "<time>"),
        (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d", "<time>"),
        (r"\b[0-9A-F]{32}\b", "<id>"),
        (r"(?<![\w.])1[6-9]\d{11}\b", "<ms>"),
        (r"127\.0\.0\.1@\d+i\d+(?:@\d+)?(?:#\d+)?", "<client>"),
        (r"[\d.]+@\d+(?:#\d+)", "<tool>"),
        (r"127\.0\.0\.1:\d+", "<client address>"),
    )
)
