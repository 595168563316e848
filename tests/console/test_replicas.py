"""The *Cluster* page of a trio under a controller: who is master, how far the others are, epochs, and a switch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing_tools import has_browser
from consoles import console_running, trio_running

from waiting import block_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("console_browser")]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with trio_running(tmp_path_factory.mktemp("trio")) as found:
        yield found


def pair_of(http: httpx.Client) -> dict[str, Any]:
    rows: list[dict[str, Any]] = http.get("/api/cluster").json()["rows"]
    return rows[0] if rows else {"replicas": [], "slaves": [], "members": []}


def master_of(pair: dict[str, Any]) -> int | None:
    return next((row["brokerId"] for row in pair["replicas"] if row["isMaster"]), None)


def is_whole(pair: dict[str, Any]) -> bool:
    return 3 == sum(row["isInSync"] for row in pair["replicas"]) and 2 == len(pair["slaves"])


def test_a_trio_is_shown_and_its_master_switched_by_a_button(trio: tuple[str, int], tmp_path: Path) -> None:
    namesrv, _ = trio
    with console_running(namesrv, tmp_path) as address, httpx.Client(base_url=address, timeout=60) as http:
        block_until(lambda: is_whole(pair_of(http)), 60)
        pair = pair_of(http)
        assert {} == pair["lacks"]
        assert pair["logEnd"] is not None
        assert {True} == {row["isInSync"] for row in pair["slaves"]}
        assert [1] == [row["epoch"] for row in pair["epochs"]]
        before = master_of(pair)
        target = next(number for number in (1, 2, 3) if number != before)
        page = http.get("/cluster").text
        assert 3 == page.count('class="mark mark-good"')
        http.headers["X-CSRF-Token"] = http.get("/api/session").json()["csrf"]
        wanted = {"cluster": "DefaultCluster", "broker": "broker-a", "brokerId": target}
        assert 400 == http.post("/api/cluster/switch", json=wanted).status_code
        refused = http.post("/api/cluster/switch", json=wanted | {"brokerId": 9, "confirm": "broker-a"})
        assert refused.status_code in (404, 409), refused.text
        if has_browser():
            switch_by_hand(address, target)
        else:
            assert 200 == http.post("/api/cluster/switch", json=wanted | {"confirm": "broker-a"}).status_code
        block_until(lambda: is_whole(pair_of(http)) and master_of(pair_of(http)) == target, 60)
        assert 2 == pair_of(http)["epochs"][-1]["epoch"] == pair_of(http)["masterEpoch"]


def switch_by_hand(address: str, target: int) -> None:
    from browsing import browser_running, tab

    with browser_running() as browser:
        with tab(browser, address) as opened:
            page = opened.open("/cluster")
            opened.look()
            opened.open_dialog("switch-1")
            opened.fill("switch-1", brokerId=str(target), confirm="broker-a")
            opened.submit("switch-1")
            page.wait_for_event("load")
            opened.look()
        with tab(browser, address, language="zh", narrow=True, dark=True) as opened:
            opened.open("/cluster")
            opened.look()


def test_a_broker_that_is_gone_is_named_on_its_pages(trio: tuple[str, int], tmp_path: Path) -> None:
    namesrv, parent = trio
    console = console_running(namesrv, tmp_path, "--timeout", "2")
    with console as address, httpx.Client(base_url=address, timeout=60) as http:
        block_until(lambda: is_whole(pair_of(http)), 60)
        pair = pair_of(http)
        slave = next(row for row in pair["members"] if row["brokerId"] != 0)
        port = slave["address"].rpartition(":")[2]
        pid = child_with(parent, f"--port {port} ")
        os.kill(pid, signal.SIGSTOP)
        try:
            # It is registered still, and does not answer.
            block_until(lambda: "Does not answer" in http.get("/").text, 60)
            assert slave["address"] in http.get("/").text
            assert "Does not answer" in http.get("/cluster").text
        finally:
            os.kill(pid, signal.SIGCONT)


def child_with(parent: int, words: str) -> int:
    for text in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if words in Path(f"/proc/{text}/cmdline").read_text().replace("\0", " "):
            return int(text)
    raise AssertionError(f"no child of {parent} has {words}")
