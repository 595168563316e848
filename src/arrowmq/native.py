"""Chooses between a native module and its pure-Python reference, in one place.

A hot module comes in two forms with one interface: `_name_native.pyx`, compiled with Cython, and `_name_plain.py`,
which defines what is right and serves where no compiler was to be had. `ARROWMQ_PURE_PYTHON=1` in the environment asks
for the references even where the native modules are compiled; the tests run both ways.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

WANTS_PURE_PYTHON = os.environ.get("ARROWMQ_PURE_PYTHON", "") not in ("", "0")


def load(name: str) -> ModuleType:
    """The native form of `name` (such as `arrowmq.wire.frames._frames`) if compiled and wanted, else the plain one."""
    if not WANTS_PURE_PYTHON:
        try:
            return importlib.import_module(f"{name}_native")
        except ModuleNotFoundError as missing:
            if missing.name != f"{name}_native":
                raise
    return importlib.import_module(f"{name}_plain")


def is_native(module: ModuleType) -> bool:
    return module.__name__.endswith("_native")
