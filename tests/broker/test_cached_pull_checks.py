"""The fast path caches what the general path has checked of a reader: within a bound, and only while it is true."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from talking import has_fast_path, taken_by_fast_path

from arrowmq.broker.fastpath import pulls
from arrowmq.broker.settings.config import WRITE
from arrowmq.wire.codes import RequestCode, ResponseCode

TOPIC = "orders"
FAST = int(has_fast_path())  # without native modules nothing is cached, and all else is the same


def cached(node: Any) -> int:
    """How many there are once the statistics were asked, which drops what is not true any more."""
    node.broker.stats.gather()
    count: int = node.broker.fast_path.handlers["pulls"].cached_checks if FAST else 0
    return count


def deleted_and_mapped(root: Path) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(root) in line and "deleted" in line]


async def send(node: Any, count: int = 1, size: int = 4) -> None:
    for _ in range(count):
        await node.client.send(TOPIC, b"b" * size, properties="UNIQ_KEY\x01first\x02")


async def pull(node: Any, group: str = "G", **more: Any) -> int:
    """How many messages the fast path read for it."""
    before = taken_by_fast_path(node.broker)["pulled"]
    await node.client.pull(TOPIC, 0, group=group, maxMsgNums=1, **more)
    return taken_by_fast_path(node.broker)["pulled"] - before


async def test_how_many_are_cached_is_bounded_and_what_was_counted_is_not_lost(
    make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty groups in turn where eight have room; one that reads all the time stays."""
    monkeypatch.setattr(pulls, "MOST_CACHED_CHECKS", 8)
    node = await make_node(short=True)
    await send(node)
    asked: list[str] = []
    check = node.broker.services.pull.check

    def counting(request: Any, connection: Any) -> Any:
        asked.append(request.consumer_group)
        return check(request, connection)

    groups = ["steady", *(f"G{number}" for number in range(19))]
    for group in groups:
        node.broker.groups.find(group)  # a group that is made changes the table
    monkeypatch.setattr(node.broker.services.pull, "check", counting)
    for group in groups * 3:
        assert FAST == await pull(node, group)
        assert FAST == await pull(node, "steady")
    assert 8 * FAST == cached(node)
    assert not FAST or asked.count("steady") < len(asked) // 20
    counts = {key: item.times for key, item in node.broker.stats.items["GROUP_GET_NUMS"].items()}
    assert 3 == counts[f"{TOPIC}@G7"]
    assert 3 + 60 == counts[f"{TOPIC}@steady"]


async def change_topic(node: Any) -> None:
    node.broker.topics.create_by_message("another", "TBW102", 1, unit=False)


async def change_group(node: Any) -> None:
    node.broker.groups.find("another")


async def change_subscription(node: Any) -> None:
    await node.client.heartbeat("client", group="G", topics={TOPIC: "tag"})


async def change_setting(node: Any) -> None:
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"slaveReadEnable=true")


@pytest.mark.parametrize("change", [change_topic, change_group, change_subscription, change_setting])
async def test_they_are_dropped_when_what_they_rest_on_changes(make_node: Any, change: Any) -> None:
    node = await make_node(short=True)
    await send(node)
    await pull(node)
    assert FAST == cached(node)
    await change(node)
    assert 0 == cached(node)


async def test_a_permission_that_is_taken_away_counts_for_the_next_pull(make_node: Any) -> None:
    node = await make_node(short=True)
    await send(node)
    assert FAST == await pull(node)
    node.broker.config.apply({"brokerPermission": str(WRITE)})
    node.broker.config_changed({"brokerPermission": str(WRITE)})
    answer = await node.client.pull(TOPIC, 0)
    assert ResponseCode.NO_PERMISSION == answer.code


async def test_none_keeps_a_file_mapped_that_retention_has_deleted(make_node: Any) -> None:
    """Two of the log's files are kept; the reader has its cursor in the first, and in the first of the queue."""
    node = await make_node(short=True, mappedFileSizeCommitLog=str(1 << 16), commitLogMaxBytes=str(2 << 16))
    await send(node, 300, 1000)
    assert FAST == await pull(node)
    assert node.broker.store.retention.run_once() > 0
    gc.collect()
    assert FAST == cached(node)
    assert [] == deleted_and_mapped(node.root)
    assert ResponseCode.PULL_OFFSET_MOVED == (await node.client.pull(TOPIC, 0)).code


async def test_a_pull_that_is_declined_is_looked_at_once(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQL filter has to see the records. The fast path asks who reads; then the general path, for itself."""
    node = await make_node(short=True, enablePropertyFilter="true")
    await send(node)
    asked: list[str] = []
    check = node.broker.services.pull.check

    def counting(request: Any, connection: Any) -> Any:
        asked.append(request.consumer_group)
        return check(request, connection)

    await pull(node, expressionType="SQL92", subscription="a = 1 OR TRUE")
    monkeypatch.setattr(node.broker.services.pull, "check", counting)
    assert 0 == await pull(node, expressionType="SQL92", subscription="a = 1 OR TRUE")
    assert ["G"] * (1 + FAST) == asked
