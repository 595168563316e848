"""Compiles every `*_native.pyx` of the package; without a C compiler the Python twins do the same work.

Everything else about the package is in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCE = Path("src")
# Checks on every index, for a run under a sanitizer or in doubt: ARROWMQ_CHECKED=1 make native
CHECKED = bool(os.environ.get("ARROWMQ_CHECKED"))


def extensions() -> list[Extension]:
    if os.environ.get("ARROWMQ_NO_NATIVE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    found = [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [str(path)],
            include_dirs=[str(SOURCE)],
            extra_compile_args=["-O3", "-g0", *os.environ.get("ARROWMQ_CFLAGS", "").split()],
            extra_link_args=os.environ.get("ARROWMQ_LDFLAGS", "").split(),
            optional=True,
        )
        for path in sorted(SOURCE.rglob("*_native.pyx"))
    ]
    return cythonize(
        found,
        build_dir="build/cython",
        include_path=[str(SOURCE)],
        compiler_directives={
            "language_level": 3,
            "boundscheck": CHECKED,
            "wraparound": False,
            "initializedcheck": CHECKED,
            "cdivision": True,
            "freethreading_compatible": False,
        },
    )


setup(ext_modules=extensions())
