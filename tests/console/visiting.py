"""A real broker, a real console in front of it, and a visitor with an HTTP client."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from arrowmq.console.options import ConsoleOptions
from arrowmq.console.server import ConsoleServer
from arrowmq.testing import LocalBroker


class Visitor:
    """A program that uses the API, with the token that changes need."""

    def __init__(self, http: httpx.AsyncClient, server: ConsoleServer) -> None:
        self.http = http
        self.server = server
        self.csrf = ""

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def page(self, path: str, status: int = 200, **headers: str) -> str:
        answer = await self.http.get(path, headers=headers)
        said = answer.text.partition('data-test="problem">')[2].partition("<")[0]
        assert (status, path) == (answer.status_code, path), said
        assert answer.headers["content-type"].startswith("text/html")
        return answer.text

    async def change(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        if not self.csrf:
            self.csrf = (await self.get("/api/session"))["csrf"]
        headers = {"X-CSRF-Token": self.csrf}
        answer = await self.http.request(method, path, json=body, params=query, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(settings={"autoCreateTopicEnable": "false"}) as local:
        yield local


def options_of(broker: LocalBroker, folder: Path, **changes: Any) -> ConsoleOptions:
    return ConsoleOptions(namesrv=broker.namesrv, port=0, directory=folder, **changes)


@pytest.fixture
async def visitor(broker: LocalBroker, tmp_path: Path) -> AsyncIterator[Visitor]:
    server = ConsoleServer(options_of(broker, tmp_path / "console"))
    await server.start()
    async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
        yield Visitor(http, server)
    await server.stop()


@pytest.fixture
def name() -> str:
    return f"console_{uuid.uuid4().hex[:10]}"
