"""Goal: every line of docs/guarantees.md rests on tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_test_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_names_a_test() -> None:
    """Rows of the tables that have a column for it."""
    tables = re.findall(r"\|[^\n]*shown by \|\n\|[-|]+\|\n((?:\|[^\n]*\|\n)+)", PAGE)
    assert len(tables) == 5
    for row in "".join(tables).splitlines():
        assert "::test_" in row, row
