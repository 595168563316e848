"""Dead letters sent again in bulk: filtered, edited, at a rate, stopped, gone on, killed; each exactly once.

`ARROWMQ_LETTERS=10000` plays the same with as many (`make console-test` does).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import httpx
from scene import bury
from visiting import Visitor, options_of

from arrowmq import Admin
from arrowmq.client.errors import TimedOut
from arrowmq.console.jobs.record import SENDING
from arrowmq.console.server import ConsoleServer
from arrowmq.testing import LocalBroker
from waiting import until

COUNT = int(os.environ.get("ARROWMQ_LETTERS", "600"))
RATE = 500


async def graveyard(broker: LocalBroker, visitor: Visitor, group: str, count: int = COUNT) -> None:
    """A group with letters of three reasons."""
    async with Admin(broker.namesrv) as admin:
        await admin.create_topic("orders", queues=4)
        await admin.create_group(group)
        third = count // 3
        await bury(admin, group, "orders", [b"exhausted %d" % each for each in range(count - 2 * third)])
        await bury(admin, group, "orders", [b"rejected %d" % each for each in range(third)], tries=1)
        await bury(admin, group, "orders", [b"poison %d" % each for each in range(third)], reason="schema mismatch")
    assert visitor.server.console is not None
    await visitor.server.console.gatherer.survey()


async def bodies(broker: LocalBroker) -> Counter[bytes]:
    async with Admin(broker.namesrv) as admin:
        return Counter([message.body async for message in admin.read("orders")])


async def ended(visitor: Visitor, job: int) -> dict[str, object]:
    row: dict[str, object] = {}

    async def is_over() -> bool:
        nonlocal row
        row = await visitor.get(f"/api/jobs/{job}")
        return row["state"] not in ("running", "selecting")

    await until(is_over, 110)
    return row


async def test_many_letters_stopped_half_way_and_gone_on_are_each_sent_once(
    visitor: Visitor, broker: LocalBroker, name: str
) -> None:
    await graveyard(broker, visitor, name)
    answer = await visitor.get(f"/api/letters/{name}")
    third = COUNT // 3
    assert {"exhausted": COUNT - 2 * third, "rejected": third, "schema mismatch": third} == {
        share["name"]: share["count"] for share in answer["reasons"]
    }
    chosen = await visitor.get(f"/api/letters/{name}", reason="schema mismatch", q="poison 1")
    assert 0 < chosen["total"] < third
    # One is edited by hand; no job sends it again.
    place = chosen["rows"][0]["place"]
    edit = {"body": "cured", "tag": "edited"}
    await visitor.change("POST", f"/api/letters/{name}/{place}/resend", edit)
    refused = await visitor.change("POST", f"/api/letters/{name}/{place}/resend", edit, status=409)
    assert "was sent again" in refused["error"]

    began = time.monotonic()
    job = (await visitor.change("POST", f"/api/letters/{name}/jobs", {"rate": RATE}))["id"]

    async def is_half_way() -> bool:
        return (await visitor.get(f"/api/jobs/{job}"))["sent"] >= COUNT // 2

    await until(is_half_way, 110)
    stopped = await visitor.change("POST", f"/api/jobs/{job}/stop")
    assert "stopped" == stopped["state"]
    assert 0 < stopped["waiting"] < COUNT
    before = await bodies(broker)
    assert stopped["sent"] == sum(before.values()) - 1
    await visitor.change("POST", f"/api/jobs/{job}/go-on", {"rate": RATE})
    row = await ended(visitor, job)
    took_s = time.monotonic() - began
    assert ("done", COUNT - 1, 1, 0, 0) == tuple(row[key] for key in ("state", "sent", "skipped", "failed", "waiting"))
    assert took_s > (COUNT - 1) / RATE * 0.8
    found = await bodies(broker)
    assert COUNT == sum(found.values())
    assert {1} == set(found.values())
    assert 1 == found[b"cured"]
    # The record says of each letter as which message it was sent, and that message is there.
    results = await visitor.get(f"/api/jobs/{job}/letters", state="sent", size=50)
    for result in results["rows"][:5]:
        await visitor.get(f"/api/messages/{result['newId']}", topic="orders")
    # A second job finds that all of it was sent.
    again = (await visitor.change("POST", f"/api/letters/{name}/jobs", {"rate": 5000}))["id"]
    assert COUNT == (await ended(visitor, again))["skipped"]
    assert COUNT == sum((await bodies(broker)).values())


async def test_a_console_that_dies_in_the_middle_goes_on_without_sending_anything_twice(
    visitor: Visitor, broker: LocalBroker, name: str, tmp_path: Path
) -> None:
    """Killed between a send and its record: what the record does not know, the topic is asked for."""
    await graveyard(broker, visitor, name, 120)
    first = ConsoleServer(options_of(broker, tmp_path / "mortal"))
    await first.start()
    assert first.console is not None
    record = first.console.jobs.record
    is_dead = False
    write = record.ended

    def ended_or_dead(*arguments: object) -> None:
        nonlocal is_dead
        row = record.jobs(None, 1)[0]
        if row.sent >= 40:
            is_dead = True
            raise SystemError("killed")
        write(*arguments)  # type: ignore[arg-type]

    record.ended = ended_or_dead  # type: ignore[method-assign]
    async with httpx.AsyncClient(base_url=first.address, timeout=30) as http:
        await Visitor(http, first).change("POST", f"/api/letters/{name}/jobs", {"rate": 400})
        await until(lambda: is_dead, 30)
    await until(lambda: not first.console.jobs._running if first.console else True, 10)
    assert record.letters(1, (SENDING,), 100)
    await first.stop()

    second = ConsoleServer(options_of(broker, tmp_path / "mortal"))
    await second.start()
    try:
        async with httpx.AsyncClient(base_url=second.address, timeout=30) as http:
            other = Visitor(http, second)
            await other.change("POST", "/api/jobs/1/go-on", {})
            row = await ended(other, 1)
        assert ("done", 120, 0) == (row["state"], row["sent"], row["failed"])
        found = await bodies(broker)
        assert 120 == sum(found.values())
        assert {1} == set(found.values())
    finally:
        await second.stop()


async def test_a_send_without_an_answer_is_looked_for_before_it_is_repeated(
    visitor: Visitor, broker: LocalBroker, name: str
) -> None:
    await graveyard(broker, visitor, name, 9)
    console = visitor.server.console
    assert console is not None
    send = console.admin.resend_dead_letter
    lost = 0

    async def unlucky(letter: object, **options: object) -> object:
        nonlocal lost
        receipt = await send(letter, **options)  # type: ignore[arg-type]
        lost += 1
        if lost <= 3:
            raise TimedOut("sending", "broker", 3.0)
        return receipt

    console.admin.resend_dead_letter = unlucky  # type: ignore[method-assign, assignment]
    job = (await visitor.change("POST", f"/api/letters/{name}/jobs", {"rate": 100}))["id"]
    row = await ended(visitor, job)
    assert ("done", 9) == (row["state"], row["sent"])
    assert {1} == set((await bodies(broker)).values())


async def test_a_letter_whose_topic_is_gone_fails_with_a_reason_and_can_be_tried_again(
    visitor: Visitor, broker: LocalBroker, name: str
) -> None:
    await graveyard(broker, visitor, name, 6)
    async with Admin(broker.namesrv) as admin:
        await admin.delete_topic("orders")
        job = (await visitor.change("POST", f"/api/letters/{name}/jobs", {"rate": 100}))["id"]
        row = await ended(visitor, job)
        assert (0, 6) == (row["sent"], row["failed"])
        (first, *_) = (await visitor.get(f"/api/jobs/{job}/letters", state="failed"))["rows"]
        assert "orders" in first["error"]
        await admin.create_topic("orders", queues=1)
    await visitor.change("POST", f"/api/jobs/{job}/go-on", {})
    row = await ended(visitor, job)
    assert ("done", 6, 0) == (row["state"], row["sent"], row["failed"])


async def test_only_the_letters_that_were_chosen_are_sent(visitor: Visitor, broker: LocalBroker, name: str) -> None:
    await graveyard(broker, visitor, name, 9)
    rows = (await visitor.get(f"/api/letters/{name}"))["rows"]
    chosen = {"filter": {"places": [rows[0]["place"], rows[4]["place"]]}, "rate": 100}
    job = (await visitor.change("POST", f"/api/letters/{name}/jobs", chosen))["id"]
    assert 2 == (await ended(visitor, job))["sent"]
    marked = [row for row in (await visitor.get(f"/api/letters/{name}"))["rows"] if row["resentAs"]]
    assert {rows[0]["place"], rows[4]["place"]} == {row["place"] for row in marked}
    page = await visitor.page(f"/jobs/{job}")
    assert "done" in page
    await visitor.change("POST", f"/api/letters/{name}/jobs", {"rate": 0}, status=400)
    await visitor.change("POST", "/api/letters/nosuch/jobs", {"rate": 1}, status=404)
    await visitor.change("POST", "/api/jobs/999/stop", status=404)
    await visitor.change("POST", f"/api/jobs/{job}/stop", status=409)
    await visitor.change("POST", f"/api/jobs/{job}/go-on", {}, status=409)
