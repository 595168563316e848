"""Where the browser is, asked before anything of Playwright is imported."""

from __future__ import annotations

import shutil
from importlib.util import find_spec


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def has_browser() -> bool:
    return find_spec("playwright") is not None and chromium() is not None
