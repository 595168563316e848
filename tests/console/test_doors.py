"""Who may come in, and what is refused at the door: each attack that the console must stand, by its name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from visiting import Visitor, options_of

from arrowmq.console import server as server_module
from arrowmq.console.doors import guard
from arrowmq.console.server import ConsoleServer
from arrowmq.testing import LocalBroker

JSON = {"content-type": "application/json"}


@pytest.fixture
async def guarded(broker: LocalBroker, tmp_path: Path) -> AsyncIterator[Visitor]:
    """A console that asks for a log-in."""
    server = ConsoleServer(options_of(broker, tmp_path / "guarded", token="open-sesame"))
    await server.start()
    async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
        yield Visitor(http, server)
    await server.stop()


async def test_a_host_of_another_name_is_refused(visitor: Visitor) -> None:
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8082",
        "a@127.0.0.1",
        "",
        "[::1",
        "127.0.0.1/x",
    ):
        answer = await visitor.http.get("/api/topics", headers={"host": host})
        assert 400 == answer.status_code, host
    assert 200 == (await visitor.http.get("/api/topics", headers={"host": "localhost:1"})).status_code


async def test_every_answer_forbids_foreign_scripts_frames_and_guessing_of_types(visitor: Visitor) -> None:
    for path in ("/", "/api/topics", "/static/console.js", "/nothing", "/api/nothing"):
        headers = (await visitor.http.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "nosniff" == headers["x-content-type-options"]
        assert "DENY" == headers["x-frame-options"]
        assert "server" not in headers


async def test_no_page_has_a_script_or_style_of_its_own(visitor: Visitor) -> None:
    for path in ("/", "/topics", "/groups", "/api", "/login"):
        text = await visitor.page(path)
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "javascript:" not in text
        assert text.count("<script") == text.count("<script src=")
        assert "http://" not in text.replace("http://127.0.0.1:8082", "")
        assert "https://" not in text


async def test_a_change_without_the_pages_token_is_refused(visitor: Visitor) -> None:
    body = {"topic": "forged"}
    for headers in (
        {},
        {"X-CSRF-Token": "guessed"},
        {"X-CSRF-Token": ""},
        {"Cookie": "arrowmq_console=guessed"},
    ):
        answer = await visitor.http.post("/api/topics", json=body, headers=headers)
        assert 403 == answer.status_code, headers
    assert 0 == (await visitor.get("/api/topics"))["total"]


async def test_a_page_of_another_site_changes_nothing_even_with_the_token(visitor: Visitor) -> None:
    token = (await visitor.get("/api/session"))["csrf"]
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = await visitor.http.post(
            "/api/topics", json={"topic": "forged"}, headers={"X-CSRF-Token": token} | headers
        )
        assert 403 == answer.status_code, headers


async def test_a_form_of_another_site_cannot_pass_for_json(visitor: Visitor) -> None:
    headers = {"X-CSRF-Token": (await visitor.get("/api/session"))["csrf"]}
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = await visitor.http.post(
            "/api/topics", content=b'{"topic":"x"}', headers=headers | {"content-type": kind}
        )
        assert 415 == answer.status_code, kind


async def test_nothing_is_changed_by_get(visitor: Visitor) -> None:
    for path in ("/api/offsets/skip", "/api/offsets/reset", "/api/doctor", "/logout", "/api/jobs/1/stop"):
        assert (await visitor.http.get(path)).status_code in (404, 405), path


async def test_a_read_only_console_changes_nothing(broker: LocalBroker, tmp_path: Path) -> None:
    server = ConsoleServer(options_of(broker, tmp_path / "readonly", is_read_only=True))
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=server.address) as http:
            visitor = Visitor(http, server)
            refused = await visitor.change("POST", "/api/topics", {"topic": "orders"}, status=403)
            assert "read-only" in refused["error"]
            await visitor.change("DELETE", "/api/topics/orders", status=403, confirm="orders")
            page = await visitor.page("/topics")
            assert 'data-dialog="new-topic"' not in page
    finally:
        await server.stop()


async def test_beyond_loopback_a_token_is_made_and_asked_for(broker: LocalBroker, tmp_path: Path) -> None:
    options = options_of(broker, tmp_path / "open", bind="0.0.0.0")
    assert options.needs_login
    assert len(options.token) >= 24
    assert not options_of(broker, tmp_path / "closed").needs_login


async def test_who_is_not_logged_in_gets_to_the_log_in_and_nowhere_else(guarded: Visitor) -> None:
    http = guarded.http
    page = await http.get("/topics?q=a b&sort=-topic")
    assert (303, "/login?next=/topics%3Fq%3Da%2520b%26sort%3D-topic") == (page.status_code, page.headers["location"])
    for path in ("/api/topics", "/api/session", "/api/events", "/api/openapi.json", "/api/audit"):
        assert 401 == (await http.get(path)).status_code, path
    assert 401 == (await http.post("/api/topics", json={"topic": "x"})).status_code
    assert 200 == (await http.get("/login")).status_code
    assert 401 == (await http.get("/api/topics", headers={"Authorization": "Bearer wrong"})).status_code


async def test_the_token_opens_a_session_that_a_script_of_the_page_cannot_read(guarded: Visitor) -> None:
    http = guarded.http
    wrong = await http.post("/login", json={"token": "guess"})
    assert 401 == wrong.status_code
    right = await http.post("/login?next=/groups", json={"token": "open-sesame"})
    assert (200, "/groups") == (right.status_code, right.json()["done"])
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "token" == (await guarded.get("/api/session"))["who"]
    await guarded.change("POST", "/api/topics", {"topic": "orders"})
    await guarded.change("POST", "/logout")
    assert 401 == (await http.get("/api/topics")).status_code


async def test_a_script_uses_the_token_as_bearer(guarded: Visitor) -> None:
    headers = {"Authorization": "Bearer open-sesame"}
    assert 200 == (await guarded.http.get("/api/topics", headers=headers)).status_code
    made = await guarded.http.post("/api/topics", json={"topic": "orders"}, headers=headers)
    assert 200 == made.status_code


async def test_after_the_log_in_nobody_is_sent_to_another_site(guarded: Visitor) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "evil"):
        answer = await guarded.http.post("/login", params={"next": target}, json={"token": "open-sesame"})
        assert "/" == answer.json()["done"], target


async def test_tokens_are_not_to_be_guessed_at_any_speed(guarded: Visitor) -> None:
    for _ in range(10):
        await guarded.http.post("/login", json={"token": "guess"})
    assert 429 == (await guarded.http.post("/login", json={"token": "open-sesame"})).status_code


async def test_a_session_of_another_visitor_does_not_share_its_token(guarded: Visitor) -> None:
    await guarded.http.post("/login", json={"token": "open-sesame"})
    first = (await guarded.get("/api/session"))["csrf"]
    await guarded.http.post("/login", json={"token": "open-sesame"})
    answer = await guarded.http.post("/api/topics", json={"topic": "x"}, headers={"X-CSRF-Token": first})
    assert 403 == answer.status_code


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(visitor: Visitor) -> None:
    headers = {"X-CSRF-Token": (await visitor.get("/api/session"))["csrf"], **JSON}
    large = json.dumps({"topic": "x", "body": "a" * (guard.LARGEST_BODY_BYTES + 1)}).encode()
    assert 413 == (await visitor.http.post("/api/messages", content=large, headers=headers)).status_code

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(0, len(large), 1 << 20):
            yield large[: 1 << 20]

    assert 413 == (await visitor.http.post("/api/messages", content=chunks(), headers=headers)).status_code


async def test_a_head_that_is_too_large_is_refused(visitor: Visitor) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", visitor.server.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-large: " + b"a" * (8 * server_module.LARGEST_HEAD_BYTES))
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    assert answer == b"" or b" 400 " in answer.splitlines()[0]
    writer.close()


async def test_a_body_that_never_ends_does_not_wait_for_ever(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_TIMEOUT_S", 0.2)
    token = (await visitor.get("/api/session"))["csrf"]
    reader, writer = await asyncio.open_connection("127.0.0.1", visitor.server.port)
    head = (
        f"POST /api/topics HTTP/1.1\r\nhost: localhost\r\nx-csrf-token: {token}\r\ncontent-type: application/json\r\n"
    )
    writer.write(head.encode() + b"content-length: 100\r\n\r\n{")
    assert b"408" in await reader.readline()
    writer.close()


async def test_a_head_that_never_ends_is_cut_off(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT_S", 0.2)
    server = ConsoleServer(options_of(broker, tmp_path / "slow"))
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        assert b"" == await reader.read()
        writer.close()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2f..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/..%5cserver.py",
        "/static/console.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/style.css%00.py",
    ],
)
async def test_no_path_leads_out_of_the_static_files(visitor: Visitor, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", visitor.server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    assert answer.split(b" ", 2)[1] in (b"404", b"400")
    assert b"import" not in answer
    writer.close()


async def test_a_header_cannot_be_smuggled_into_an_answer(guarded: Visitor) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.server.port)
    writer.write(b"GET /topics?q=%0d%0aset-cookie:%20a=b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    answer = (await reader.read()).lower()
    assert b"303" in answer.splitlines()[0]
    assert b"\r\nset-cookie" not in answer
    writer.close()


async def test_every_change_is_in_the_audit_log_without_secrets_and_bodies(visitor: Visitor, name: str) -> None:
    await visitor.change("POST", "/api/topics", {"topic": name})
    await visitor.change("POST", "/api/messages", {"topic": name, "body": "the secret text"})
    await visitor.change("DELETE", f"/api/topics/{name}", status=400, confirm="wrong")
    rows = (await visitor.get("/api/audit"))["rows"]
    assert ["DELETE /api/topics/{topic}", "POST /api/messages", "POST /api/topics"] == [row["action"] for row in rows]
    assert [400, 200, 200] == [row["status"] for row in rows]
    assert {"local"} == {row["who"] for row in rows}
    console = visitor.server.console
    assert console is not None
    text = console.audit.path.read_text()
    assert "the secret text" not in text
    assert 3 == len(text.splitlines())


async def test_an_id_that_names_another_host_makes_the_console_connect_to_nobody(visitor: Visitor) -> None:
    """A broker's id carries an address: it may be anybody's, also one behind the console's own wall."""
    called = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: (called.set(), writer.close()), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    forged = f"7F000001{port:08X}0000000000000000"
    impossible = "C00002024D46F771E6E456AD518F0001"  # its port would be over two milliards
    for msg_id in (forged, impossible):
        for path in (f"/api/messages/{msg_id}", f"/api/messages/{msg_id}/life"):
            assert 404 == (await visitor.http.get(path)).status_code
        await visitor.change("POST", f"/api/transactions/{msg_id}/check", status=404)
        await visitor.change("POST", f"/api/messages/{msg_id}/resend", {}, status=404)
        await visitor.change("POST", f"/api/messages/{msg_id}/consume", {"group": "g"}, status=404)
    assert not called.is_set()
    server.close()
