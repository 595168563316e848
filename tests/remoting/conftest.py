"""Remoting is tested on uvloop, as the server runs, and on asyncio's own loop, which serves where uvloop is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import HandlerTable
from arrowmq.remoting.server import RemotingServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The successor of this fixture is a hook, and a hook in this folder would reach the tests of every other one.
    quiet = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(quiet)


StartServer = Callable[..., Awaitable[tuple[RemotingServer, str]]]


@pytest.fixture(params=["uvloop", "asyncio"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Starts servers on free ports of the loopback; all end with the test."""
    servers: list[RemotingServer] = []

    async def start(*services: object, **options: Any) -> tuple[RemotingServer, str]:
        server = RemotingServer(HandlerTable(*services), **options)
        servers.append(server)
        port = await server.start("127.0.0.1", 0)
        return server, f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.close(grace_s=0.1)


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()
