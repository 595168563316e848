"""Fixtures of `visiting`, for every test of the console; the browser's part is taken where there is a browser."""

from __future__ import annotations

from importlib.util import find_spec

from browsing_tools import chromium
from visiting import broker, name, visitor

__all__ = ["broker", "name", "visitor"]

collect_ignore = [] if find_spec("playwright") and chromium() else ["test_browser.py"]
