"""Every example on the client's pages runs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import arrowmq
import arrowmq.sync
from arrowmq.testing import BrokerThread

PAGES = Path(__file__).resolve().parents[2] / "docs" / "client"
BLOCK = re.compile(r"^```python(?P<kind>[ a-z]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[Any]:
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            if match["kind"].strip() == kind:
                found.append(pytest.param(match["code"], id=f"{page.stem}-{number}"))
    return found


async def run(code: str, names: dict[str, Any]) -> None:
    compiled = compile(code, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("code", blocks(""))
async def test_an_example_runs(code: str, arrowmq_broker: BrokerThread) -> None:
    await prepare(arrowmq_broker.namesrv)
    await run(code.replace("localhost:9876", arrowmq_broker.namesrv), {"arrowmq": arrowmq})


async def prepare(namesrv: str) -> None:
    """What the pages have sent before."""
    async with arrowmq.Admin(namesrv) as admin, arrowmq.Producer(namesrv) as producer:
        await admin.create_topic("orders", queues=1)
        await admin.create_topic("ping", queues=1)
        await producer.send("orders", b"earlier")
        for step in (b"created", b"paid", b"shipped"):
            await producer.send("order-steps", step, order_key="order-17")


@pytest.mark.parametrize("code", blocks("sync"))
def test_a_script_runs(code: str, arrowmq_broker: BrokerThread) -> None:
    exec(code.replace("localhost:9876", arrowmq_broker.namesrv), {"arrowmq": arrowmq})


@pytest.mark.parametrize("code", blocks("test"))
async def test_a_test_of_the_page_passes(code: str, arrowmq_broker: BrokerThread) -> None:
    names: dict[str, Any] = {"arrowmq": arrowmq}
    exec(code, names)
    (function,) = (value for name, value in names.items() if name.startswith("test_"))
    result = function(arrowmq_broker)
    if inspect.isawaitable(result):
        await result


def test_the_example_of_the_readme_runs(arrowmq_broker: BrokerThread, capsys: pytest.CaptureFixture[str]) -> None:
    code = next(match["code"] for match in BLOCK.finditer((PAGES.parents[1] / "README.md").read_text()))
    exec(code.replace("localhost:9876", arrowmq_broker.namesrv), {})
    assert "orders created b'hello'" in capsys.readouterr().out


def test_every_page_is_in_the_list() -> None:
    listed = set(re.findall(r"\]\((\w+)\.md\)", (PAGES / "README.md").read_text()))
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == listed


def test_the_order_service_example_runs_to_its_end(arrowmq_broker: BrokerThread) -> None:
    script = PAGES.parents[1] / "examples" / "order_service.py"
    done = subprocess.run(
        [sys.executable, script, arrowmq_broker.namesrv], capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == done.returncode, done.stderr
    assert ["billed 20 orders", "followed 20 orders, each in order"] == sorted(done.stdout.splitlines())
