"""A node with a proxy in its process, and a client of gRPC's own library to call it with."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from proxy_client import SETTINGS, Clients, Stub

from arrowmq import native
from arrowmq.client.admin import Admin
from arrowmq.server import Node, build_node

# What compares the fast path with the general one needs both.
HAS_FAST_PATH = not native.WANTS_PURE_PYTHON and find_spec("arrowmq.proxy.backs._send_frames_native") is not None
collect_ignore = [] if HAS_FAST_PATH else ["test_fast_sends.py", "test_fast_pops.py"]

TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION", "mixed": "MIXED"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    started = build_node(tmp_path, SETTINGS, namesrv_port=0, broker_port=0, proxy_port=0)
    await started.start()
    try:
        async with Admin(started.namesrv_address) as admin:
            for topic, kind in TOPICS.items():
                await admin.create_topic(topic, queues=2, attributes={"message.type": kind})
            await admin.create_group("group")
            await admin.create_group("ordered", consume_message_orderly=True)
        yield started
    finally:
        await started.stop()


@pytest.fixture
async def clients(node: Node) -> AsyncIterator[Clients]:
    """Makes clients, each with an id and a connection of its own."""
    assert node.proxy is not None
    made = Clients(f"127.0.0.1:{node.proxy.port}")
    yield made
    await made.close()


@pytest.fixture
def client(clients: Clients) -> Stub:
    return clients.new()


@pytest.fixture
def free_ports() -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
