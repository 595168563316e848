"""The clusters that the client's tests run against.

`cluster` is the NameServer address of ArrowMQ in this process, or of the cluster that ARROWMQ_TEST_NAMESRV names: the
tests are the same for both. Where that is the port of a proxy, ARROWMQ_TEST_ADMIN names the NameServer behind it, for
administrators. Tests that stop and break servers have a broker of their own (`arrowmq_broker`).
"""

from __future__ import annotations

import asyncio
import functools
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import arrowmq
from arrowmq.testing import BrokerThread
from arrowmq.testing.plugin import arrowmq_broker, arrowmq_settings

__all__ = ["arrowmq_broker", "arrowmq_settings"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    external = os.environ.get("ARROWMQ_TEST_NAMESRV")
    if external:
        yield external
        return
    with BrokerThread(settings={"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}) as broker:
        yield broker.namesrv


@pytest.fixture(scope="session", autouse=True)
def administrators_go_to_the_name_server() -> Iterator[None]:
    """A proxy passes on what producers and consumers ask, and nothing else."""
    proxy, behind = os.environ.get("ARROWMQ_TEST_NAMESRV"), os.environ.get("ARROWMQ_TEST_ADMIN")
    with pytest.MonkeyPatch.context() as patch:
        if proxy and behind:
            start = arrowmq.Admin.__init__

            @functools.wraps(start)
            def started(self: arrowmq.Admin, namesrv: Any = None, **options: Any) -> None:
                start(self, behind if namesrv == proxy else namesrv, **options)

            patch.setattr(arrowmq.Admin, "__init__", started)
        yield


@pytest.fixture
async def is_version_4(cluster: str) -> bool:
    """Whether the cluster is older than RocketMQ 5, which lacks some things: tests say there what happens instead."""
    async with arrowmq.Admin(cluster) as admin:
        address = next(iter((await admin.masters()).values()))
        return (await admin.broker_runtime(address))["brokerVersionDesc"].startswith("V4")


@pytest.fixture
def topic() -> str:
    return f"client_test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    return f"client_group_{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    """After a test no task of it runs on: a leaked one would work on in the user's program."""
    before = asyncio.all_tasks()
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()]
    assert [] == [task.get_name() for task in left]
