"""ArrowMQ: RocketMQ in Python.

`import arrowmq` gives what a program needs to send and consume; everything is loaded on first use.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        import importlib

        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'arrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
