"""Fixtures of `visiting`, for every test of the console; the browser's part is taken where there is a browser."""

from __future__ import annotations

from browsing_tools import has_browser
from visiting import broker, name, visitor

__all__ = ["broker", "name", "visitor"]

collect_ignore = [] if has_browser() else ["test_browser.py"]
