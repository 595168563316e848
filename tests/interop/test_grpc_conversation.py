"""The same calls to Apache's proxy and to ours, before the same broker: the answers are compared field by field."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from grpc_conversation import GROUPS, TOPICS, hold
from oracle import arrow, grpc5
from oracle.ports import HOST, broker_port, free_port

from arrowmq.client.admin import Admin

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SIDES = {"a": "apache", "b": "cluster", "c": "local"}
#: Steps whose answers differ, and why; docs/proxy.md lists them for users
KNOWN: dict[str, str] = {
    "settings of an unknown group": "Apache's proxy refuses; here the broker decides when messages are asked for",
    "send two": "Apache's proxy makes a batch of them and answers with one entry; clients expect one for each",
    "send to nowhere": "Apache's proxy finds the type of no topic to be UNSPECIFIED; here it says what is wrong",
    "receive with bad SQL": "Apache's proxy leaves it to the broker and calls it an internal error",
    "receive of a stranger": "a NullPointerException there; here a client need not have told its settings",
    "change too late": "clients put the handle that they get into their message, so they get theirs back",
}

Heard = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heard]:
    folder = tmp_path_factory.mktemp("conversation")
    namesrv_port, port, local_port = free_port(), broker_port(), free_port()
    namesrv = f"{HOST}:{namesrv_port}"
    config = {"recallMessageEnable": True, "autoCreateTopicEnable": False, "enablePropertyFilter": True}
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(arrow.server(folder / "s", namesrv_port, port, proxy_port=local_port, **config))
        asyncio.run(_create(namesrv))
        proxies = {
            "a": enter(grpc5.apache_proxy(folder / "a", namesrv)).address,
            "b": enter(grpc5.arrow_proxy(folder / "b", namesrv)).address,
            "c": f"{HOST}:{local_port}",
        }
        with ThreadPoolExecutor(len(SIDES)) as pool:
            futures = {SIDES[side]: pool.submit(hold, address, side) for side, address in proxies.items()}
            yield {name: future.result() for name, future in futures.items()}


async def _create(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        for side in SIDES:
            for topic, kind in TOPICS.items():
                await admin.create_topic(f"{side}-{topic}", queues=1, attributes={"message.type": kind})
            for group, is_ordered in GROUPS.items():
                await admin.create_group(f"{side}-{group}", consume_message_orderly=is_ordered)


@pytest.mark.parametrize("kind", ["cluster", "local"])
def test_both_proxies_answer_the_same(heard: Heard, kind: str) -> None:
    apache, ours = heard["apache"], heard[kind]
    differences = {
        step: {"apache": apache[step], "ours": ours[step]}
        for step in apache
        if apache[step] != ours[step] and step not in KNOWN
    }
    assert {} == differences


@pytest.mark.parametrize("step", KNOWN)
def test_what_is_known_to_differ_still_differs(heard: Heard, step: str) -> None:
    assert any(heard["apache"][step] != heard[kind][step] for kind in ("cluster", "local"))
