"""The checks of words, of the tree and of native modules in `make check` find what they are made for, and no more."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
words = runpy.run_path(str(ROOT / "tools" / "words"))
layout = runpy.run_path(str(ROOT / "tools" / "layout"))
cimports = runpy.run_path(str(ROOT / "tools" / "cimports"))
native_fields = runpy.run_path(str(ROOT / "tools" / "native_fields"))


@pytest.mark.parametrize(
    "line",
    [
        "the short way of a send",
        "its Python twin",
        "self.paved = 0",
        "queue.let_go()",
        "store.tell(queue)",
        "in the same turn of the loop",
        "requests are worked off",
        "- Mended: a fault",
        "cdef Grant found",
        "count_words(facts)",
        "each room has a docstring",
    ],
)
def test_a_private_word_is_named(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{line}\n")
    assert 1 == words["main"]([str(page)])


@pytest.mark.parametrize(
    "line",
    ["at = file.tell()", "256 sends in flight", "--in-flight 64", "it is refused in words", "no room on the disk"],
)
def test_a_word_of_the_field_passes(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{line}\n")
    assert 0 == words["main"]([str(page)])


def package(folder: Path, text: str, modules: int) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text(f'"""{text}"""\n')
    for number in range(modules):
        (folder / f"module{number}.py").touch()
    return folder


def test_a_package_that_does_not_say_what_comes_in_and_goes_out_is_named(tmp_path: Path) -> None:
    assert [] == layout["faults"](package(tmp_path / "good", "Sends. In: messages. Out: receipts.", 3))
    (fault,) = layout["faults"](package(tmp_path / "mute", "Sends.", 3))
    assert "what comes in" in fault


def test_a_folder_with_more_modules_than_one_look_takes_in_is_named(tmp_path: Path) -> None:
    folder = package(tmp_path / "large", "In: x. Out: y.", 20)
    assert [] == layout["faults"](folder)
    for form in ("_module1_native.pyx", "_module1_native.pxd", "_module1_plain.py"):
        (folder / form).touch()
    assert [] == layout["faults"](folder), "the forms of a module count as one"
    (folder / "one_more.py").touch()
    (fault,) = layout["faults"](folder)
    assert "21 modules" in fault


def test_a_cimport_from_a_higher_package_or_one_beside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    heights = cimports["layers"]()
    path = Path("src/arrowmq/store/append/_example_native.pyx")

    def faults(line: str) -> int:
        return len(cimports["wrong_cimports"](path, f"cdef int x = 0\n{line}\n", heights))

    assert 0 == faults("from arrowmq.wire._bytes cimport get32")
    assert 0 == faults("from arrowmq.store.log._pin_native cimport Pin")
    assert 1 == faults("from arrowmq.broker.fastpath._router_native cimport Router")
    assert 1 == faults("cimport arrowmq.remoting._intake_native")
    assert 0 == cimports["main"]()


def test_the_places_of_header_fields_in_native_code_are_those_of_the_headers() -> None:
    assert 0 == native_fields["main"](["--check"])


NAMED_FILE = re.compile(r"(?<![\w./-])(?:tests|benchmarks|examples|src|tools)/[\w./-]*\w")


def files_named_by_tools() -> list[str]:
    tools = [path for path in sorted((ROOT / "tools").iterdir()) if path.is_file()]
    return sorted({name for path in (ROOT / "Makefile", *tools) for name in NAMED_FILE.findall(path.read_text())})


def test_every_file_that_a_tool_names_is_there() -> None:
    """`make native-fuzz` once compiled a file that only its author had: git ignored it."""
    names = files_named_by_tools()
    assert "tests/fuzz/native/coverage.c" in names
    assert [] == [name for name in names if not (ROOT / name).exists()]
    if (ROOT / ".git").exists():
        asked = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
        assert [] == asked.stdout.splitlines(), "git ignores what a tool needs"
