"""Where the browser is, asked before anything of Playwright is imported."""

from __future__ import annotations

import shutil


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
