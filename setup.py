"""Compiles every `*_native.pyx` of the package; without a C compiler the Python twins do the same work.

Everything else about the package is in pyproject.toml.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

SOURCE = Path("src")
# Checks on every index, for a run under a sanitizer or in doubt: ARROWMQ_CHECKED=1 make native
CHECKED = bool(os.environ.get("ARROWMQ_CHECKED"))

# What distributions build with; a sanitizer has checks of its own, which these would hide.
IS_HARDENED = sys.platform == "linux" and "-fsanitize" not in os.environ.get("ARROWMQ_CFLAGS", "")
HARDENED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fPIC"] if IS_HARDENED else []
HARDENED_LINK = ["-Wl,-z,relro,-z,now,-z,noexecstack"] if IS_HARDENED else []


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
            extra_compile_args=["-O3", "-g0", *HARDENED, *os.environ.get("ARROWMQ_CFLAGS", "").split()],
            extra_link_args=[*HARDENED_LINK, *os.environ.get("ARROWMQ_LDFLAGS", "").split()],
            depends=["setup.py"],  # other flags, other code
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
