"""A reader of the pages gets everywhere: links lead somewhere, every page is reached, files that are named exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"`((?:src|tests|benchmarks|docs|examples|tools|packaging)/[\w./-]+)`")

PACKAGES = "|".join(
    sorted(path.name for path in (ROOT / "src" / "arrowmq").iterdir() if (path / "__init__.py").exists())
)
NAMED_MODULE = re.compile(rf"`((?:{PACKAGES})/[\w./]+)`")


def text_of(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def links_of(page: Path) -> list[Path]:
    return [(page.parent / link).resolve() for link in LINK.findall(text_of(page)) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_that_a_page_names_are_there(page: Path) -> None:
    named = [ROOT / name for name in NAMED_FILE.findall(text_of(page))]
    named += [ROOT / "src" / "arrowmq" / name for name in NAMED_MODULE.findall(text_of(page))]
    assert [] == [str(path.relative_to(ROOT)) for path in [*links_of(page), *named] if not path.exists()]


def test_every_page_is_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            ahead += links_of(page)
    assert set() == set(PAGES) - reached
