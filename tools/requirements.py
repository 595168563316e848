"""Prints what a working copy needs: the package's dependencies, its extras and the development tools."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
wanted = [
    *project["project"]["dependencies"],
    *(name for extra in project["project"]["optional-dependencies"].values() for name in extra),
    *project["dependency-groups"]["dev"],
]
print("\n".join(sorted(set(wanted))))
