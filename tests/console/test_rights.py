"""A cluster that knows its users: who logs in as one acts with that user's rights, and is told where they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from guarded_scene import ANN, GUARDED, ROOT, furnish_rights
from visiting import Visitor, options_of

from arrowmq import Admin, Producer
from arrowmq.console.server import ConsoleServer
from arrowmq.testing import LocalBroker
from waiting import until


@pytest.fixture
async def guarded() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(settings=GUARDED) as local:
        await furnish_rights(local.namesrv, local.broker_address)
        yield local


@asynccontextmanager
async def console(broker: LocalBroker, folder: Path, **changes: Any) -> AsyncIterator[ConsoleServer]:
    server = ConsoleServer(options_of(broker, folder, token="sesame", **changes))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def logged_in(server: ConsoleServer, name: str, password: str) -> AsyncIterator[Visitor]:
    async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
        answer = await http.post("/login", json={"username": name, "password": password})
        assert answer.status_code == 200, answer.text
        yield Visitor(http, server)


async def test_a_user_of_the_brokers_logs_in_and_acts_with_its_own_rights(guarded: LocalBroker, tmp_path: Path) -> None:
    async with Producer(guarded.namesrv, credentials=ROOT) as producer:
        secret = (await producer.send("payments", b"secret payment")).msg_id
    async with console(guarded, tmp_path, connect={"credentials": ROOT}) as server, logged_in(server, *ANN) as ann:
        assert "ann" == (await ann.get("/api/session"))["who"]
        sent = await ann.change("POST", "/api/messages", {"topic": "orders", "body": "from ann"})
        assert "from ann" in await ann.page(f"/messages/{sent['msgId']}?topic=orders")
        # What she may not, she is told in the broker's words, on pages and by the API.
        await ann.change("POST", "/api/messages", {"topic": "payments", "body": "x"}, status=403)
        await ann.change("POST", "/api/topics", {"topic": "hers", "writeQueues": 1, "readQueues": 1}, status=403)
        await ann.change("PUT", "/api/settings", {"broker": "broker-a", "key": "x", "value": "y"}, status=403)
        await ann.change("POST", "/api/users", {"username": "eve", "password": "long enough"}, status=403)
        for path in (
            f"/messages/{secret}?topic=payments",
            "/messages?topic=payments",
            "/letters/billing",
            "/scheduled",
            "/settings",
            "/metrics",
            "/users",
        ):
            page = await ann.page(path, 403)
            assert "User:ann" in page, path
            assert "secret payment" not in page, path
        # What the console gathers for everybody is there.
        assert {"orders", "payments"} == {row["topic"] for row in (await ann.get("/api/topics"))["rows"]}
        assert "broker-a" in await ann.page("/")


async def test_a_job_sends_with_the_rights_of_who_began_it(guarded: LocalBroker, tmp_path: Path) -> None:
    async with Admin(guarded.namesrv, credentials=ROOT) as admin:
        # Whoever looks into a queue pulls it as the group of RocketMQ's tools.
        hers = ["Topic:%DLQ%billing", "Group:billing", "Group:TOOLS_CONSUMER"]
        await admin.give_rights(guarded.broker_address, "ann", hers, ["Sub", "Get"])
    async with console(guarded, tmp_path, connect={"credentials": ROOT}) as server:
        async with logged_in(server, *ANN) as ann:
            job = (await ann.change("POST", "/api/letters/billing/jobs", {"rate": 100}))["id"]
            row = await _ended(ann, job)
            assert (0, 1) == (row["sent"], row["failed"])
            (letter,) = (await ann.get(f"/api/jobs/{job}/letters"))["rows"]
            assert "User:ann" in letter["error"]
        async with logged_in(server, *ROOT) as root:
            await root.change("POST", f"/api/jobs/{job}/go-on", {})
            assert 1 == (await _ended(root, job))["sent"]


async def _ended(visitor: Visitor, job: int) -> dict[str, Any]:
    async def is_over() -> bool:
        return (await visitor.get(f"/api/jobs/{job}"))["state"] not in ("running", "selecting")

    await until(is_over, 30)
    row: dict[str, Any] = await visitor.get(f"/api/jobs/{job}")
    return row


async def test_why_something_is_denied_is_told_with_the_policy_that_decides(
    guarded: LocalBroker, tmp_path: Path
) -> None:
    async with console(guarded, tmp_path, connect={"credentials": ROOT}) as server, logged_in(server, *ROOT) as root:
        ask = {"username": "ann", "resource": "Topic:orders", "action": "Pub"}
        answer = await root.get("/api/users/why", **ask)
        assert (True, "policy") == (answer["isAllowed"], answer["why"])
        assert "Topic:orders" in answer["entry"]
        answer = await root.get("/api/users/why", **(ask | {"resource": "Topic:payments"}))
        assert (False, "nopolicy") == (answer["isAllowed"], answer["why"])
        await root.change(
            "POST",
            "/api/policies",
            {"username": "ann", "resource": "Topic:payments", "actions": ["Sub", "Get"], "decision": "Deny"},
        )
        answer = await root.get("/api/users/why", username="ann", resource="Topic:payments", action="Sub")
        assert (False, "policy") == (answer["isAllowed"], answer["why"])
        assert "Topic:payments" in answer["entry"]
        assert (await root.get("/api/users/why", **(ask | {"username": "root"})))["why"] == "super"
        assert (await root.get("/api/users/why", **(ask | {"username": "eve"})))["why"] == "nouser"
        await root.change("PUT", "/api/users/ann", {"isEnabled": False})
        assert (await root.get("/api/users/why", **ask))["why"] == "disabled"
        page = await root.page("/users?username=ann&resource=Topic:orders&action=Pub")
        assert 'data-test="why"' in page
        # Who is disabled is let in no more.
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
            answer_ = await http.post("/login", json={"username": ANN[0], "password": ANN[1]})
            assert (401, True) == (answer_.status_code, "let nobody in" in answer_.text)


async def test_a_wrong_password_opens_nothing_and_users_need_brokers_that_check(
    guarded: LocalBroker, tmp_path: Path
) -> None:
    wrong = {"username": "root", "password": "guessed"}
    async with (
        console(guarded, tmp_path / "a", connect={"credentials": ROOT}) as server,
        httpx.AsyncClient(base_url=server.address, timeout=30) as http,
    ):
        assert 401 == (await http.post("/login", json=wrong)).status_code
        assert 303 == (await http.get("/topics")).status_code
    async with (
        LocalBroker() as open_to_all,
        console(open_to_all, tmp_path / "b") as server,
        httpx.AsyncClient(base_url=server.address, timeout=30) as http,
    ):
        assert 401 == (await http.post("/login", json=wrong)).status_code


async def test_a_console_without_a_user_says_what_it_needs(guarded: LocalBroker, tmp_path: Path) -> None:
    async with console(guarded, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
            await http.post("/login", json={"token": "sesame"})
            page = (await http.get("/")).text
            assert 'data-test="denied"' in page
            assert "--access-key" in page
        async with logged_in(server, *ROOT) as root:
            assert "root" == (await root.get("/api/session"))["who"]
