"""The console on our cluster and on Apache's, with a real Java consumer: the same pages and actions, in a browser."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from browsing_tools import chromium
from consoles import console_running
from oracle import hands
from oracle.scene import Scene
from oracle.target import BROKERS, CONFIG, Target
from scene import Furnished, furnish

from waiting import block_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]
SETTINGS = {**CONFIG, "traceTopicEnable": True, "recallMessageEnable": True, "autoCreateTopicEnable": False}


@pytest.mark.parametrize("kind", BROKERS)
def test_the_console_shows_and_repairs_either_cluster(kind: str, tmp_path: Path) -> None:
    with Target(kind, tmp_path / "cluster", **SETTINGS) as target:
        found = asyncio.run(furnish(target.namesrv, letters=30))
        with (
            hands.start("java-5.5-json", target.namesrv, target.broker, tmp_path) as hand,
            Scene(hand, "console") as scene,
            console_running(target.namesrv, tmp_path / "console", "--timeout", "10") as address,
            httpx.Client(base_url=address, timeout=60) as http,
        ):
            listener = scene.listener(hand, found.orders, found.group)
            assert listener.holds(4)
            csrf = http.get("/api/session").json()["csrf"]
            http.headers["X-CSRF-Token"] = csrf
            _look(http, found, listener.client_id)
            _say_what_is_lacking(http, found, is_ours=kind == "arrowmq")
            _repair(http, found)
            if chromium():
                _browse(address, found, listener.client_id, kind)


def _look(http: httpx.Client, found: Furnished, client_id: str) -> None:
    def is_held() -> bool:
        rows = http.get(f"/api/groups/{found.group}").json().get("queues", [])
        return sum(row["holder"] == client_id for row in rows if row["topic"] == found.orders) == 4

    block_until(is_held, 60)
    member = http.get(f"/api/clients/{found.group}/{quote(client_id, safe='')}").json()
    assert {found.orders} <= set(member["subscriptions"])
    assert 4 == len([row for row in member["queues"] if row["topic"] == found.orders])
    life = http.get(f"/api/messages/{found.order_id}/life", params={"topic": found.orders}).json()
    assert ["born", "stored"] == [stage["name"] for stage in life["trunk"]][:2]
    assert found.group in {branch["group"] for branch in life["branches"]}
    waiting = http.get("/api/scheduled").json()
    kinds = [row["kind"] for row in waiting["rows"]]
    assert (6, 1) == (kinds.count("timer"), kinds.count("level"))
    assert [found.half_id] == [row["msgId"] for row in http.get("/api/transactions").json()["rows"]]
    assert "sent" in {row["kind"] for row in http.get("/api/trace", params={"id": found.traced_id}).json()["rows"]}
    letters = http.get(f"/api/letters/{found.dying}").json()
    assert {"exhausted": 30, "rejected": 15, "schema mismatch": 10} == {
        share["name"]: share["count"] for share in letters["reasons"] if "<" not in share["name"]
    }
    settings = {row["key"]: row for row in http.get("/api/settings?size=1000").json()["rows"]}
    assert "false" == settings["autoCreateTopicEnable"]["value"]
    cluster = http.get("/api/cluster").json()["rows"][0]
    assert "controller" in cluster["lacks"]
    assert http.post("/api/doctor").status_code == 200


def _say_what_is_lacking(http: httpx.Client, found: Furnished, *, is_ours: bool) -> None:
    """What an Apache broker does not tell is said, not shown empty."""
    popping = http.get(f"/api/groups/{found.popping}").json()
    counts = {row["key"]: row["counts"] for row in http.get("/api/settings?size=1000").json()["rows"]}
    lack = "Its brokers do not tell what is popped"
    assert is_ours == (lack not in http.get(f"/groups/{found.popping}").text)
    assert is_ours == (popping["poppedTotal"] is not None)
    assert is_ours == ("now" == counts["autoCreateTopicEnable"])


def _repair(http: httpx.Client, found: Furnished) -> None:
    job = http.post(f"/api/letters/{found.dying}/jobs", json={"rate": 500}).json()["id"]
    block_until(lambda: http.get(f"/api/jobs/{job}").json()["state"] == "done", 60)
    row = http.get(f"/api/jobs/{job}").json()
    assert (56, 0) == (row["sent"], row["failed"])
    again = http.post(f"/api/letters/{found.dying}/jobs", json={"rate": 500}).json()["id"]
    block_until(lambda: http.get(f"/api/jobs/{again}").json()["state"] == "done", 60)
    assert 56 == http.get(f"/api/jobs/{again}").json()["skipped"]
    consumed = http.post(
        f"/api/messages/{found.order_id}/consume", params={"topic": found.orders}, json={"group": found.group}
    )
    assert "CR_SUCCESS" == consumed.json()["result"], consumed.text
    recalled = http.post("/api/scheduled/recall", json={"ids": [found.timer_id]})
    assert "1 of 1" in recalled.json()["done"], recalled.text
    topic = {"topic": "made_here", "writeQueues": 2, "readQueues": 2}
    assert 200 == http.post("/api/topics", json=topic).status_code
    plan = {"group": found.group, "topic": found.orders, "to": "first"}
    rows = http.post("/api/offsets/plan", json=plan).json()["rows"]
    steps = [{"broker": each["broker"], "queueId": each["queueId"], "target": each["target"]} for each in rows]
    reset = http.post("/api/offsets/reset", json={"group": found.group, "topic": found.orders, "steps": steps})
    assert 200 == reset.status_code, reset.text
    clone = http.post(
        "/api/offsets/clone", json={"source": found.group, "target": found.lagging, "topic": found.orders}
    )
    assert 200 == clone.status_code, clone.text
    change = {"broker": "", "key": "autoCreateTopicEnable", "value": "true"}
    change["broker"] = http.get("/api/settings").json()["address"]
    assert 200 == http.put("/api/settings", json=change).status_code
    deleted = http.delete("/api/topics/made_here", params={"confirm": "made_here"})
    assert 200 == deleted.status_code, deleted.text


def _browse(address: str, found: Furnished, client_id: str, kind: str) -> None:
    """`ARROWMQ_SHOTS=FOLDER` keeps a picture of every page, to be looked at."""
    from browsing import browser_running, paths_of, shoot, tab

    shots = os.environ.get("ARROWMQ_SHOTS")

    with browser_running() as browser:
        for language, narrow in (("en", False), ("zh", True)):
            with tab(browser, address, language=language, narrow=narrow) as opened:
                for name, path in paths_of(found, (found.group, client_id)).items():
                    opened.open(path)
                    opened.look()
                    if shots:
                        shoot(opened, f"{kind}-{language}-{name}", Path(shots))
