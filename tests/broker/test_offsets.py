"""Offsets: query rules, commits, by time, and what survives a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arrowmq.wire.codes import RequestCode, ResponseCode


async def query(node: Any, **more: Any) -> Any:
    return await node.client.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "orders", "queueId": 0, **more}
    )


async def commit(node: Any, offset: int, **more: Any) -> Any:
    return await node.client.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "G", "topic": "orders", "queueId": 0, "commitOffset": offset, **more},
    )


async def test_a_new_group_starts_at_0_on_a_young_queue_and_is_unknown_on_an_empty_one(node: Any) -> None:
    await node.client.send("orders")
    assert (await query(node)).ext == {"offset": "0"}
    empty = await query(node, queueId=1)
    assert (empty.code, empty.ext) == (ResponseCode.QUERY_NOT_FOUND, {})
    assert (await query(node, setZeroIfNotFound=False)).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_new_group_is_unknown_where_the_first_messages_are_deleted(node: Any) -> None:
    for _ in range(8):
        await node.client.send("orders", b"x" * 200_000)
    node.broker.store.commit_log.detach_first()
    assert (await query(node)).code == ResponseCode.QUERY_NOT_FOUND


async def test_what_was_committed_is_answered_also_after_going_back(node: Any) -> None:
    await node.client.send("orders")
    await node.client.pull("orders")
    for offset in (5, 2):
        assert (await commit(node, offset)).code == ResponseCode.SUCCESS
        assert (await query(node)).ext == {"offset": str(offset)}


async def test_commits_for_what_does_not_exist_are_refused(node: Any) -> None:
    await node.client.send("orders")
    no_group = await commit(node, 1)
    assert (no_group.code, no_group.remark.startswith("Group G not exist!")) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, True,
    )  # fmt: skip
    await node.client.pull("orders")
    no_topic = await commit(node, 1, topic="payments")
    assert (no_topic.code, no_topic.remark.startswith("Topic payments not exist!")) == (
        ResponseCode.TOPIC_NOT_EXIST, True,
    )  # fmt: skip
    assert (await commit(node, -3)).code == ResponseCode.INVALID_PARAMETER


async def test_the_table_takes_no_offsets_of_queues_that_there_are_not(node: Any) -> None:
    """One client could make it grow, in memory and on disk, by as many entries as there are numbers."""
    await node.client.send("orders")
    await node.client.pull("orders")
    assert (await commit(node, 1)).code == ResponseCode.SUCCESS
    for queue_id in range(1000, 1100):
        assert (await commit(node, 1, queueId=queue_id)).code == ResponseCode.INVALID_PARAMETER
    assert {0: 1} == node.broker.offsets.commits_of("G", "orders")


async def test_a_pending_reset_wins_over_commits_and_is_what_queries_see(node: Any) -> None:
    await node.client.send("orders")
    await node.client.pull("orders")
    await commit(node, 1)
    node.broker.offsets.reset("G", "orders", 0, 0)
    late = await commit(node, 1)
    assert (late.code, late.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    assert (await query(node)).ext == {"offset": "0"}


async def test_where_a_queue_begins_and_ends_and_which_offset_belongs_to_a_time(node: Any) -> None:
    times = []
    for _ in range(4):
        times.append(node.clock.now_ms())
        await node.client.send("orders")
        await node.clock.advance(10)
    queue = {"topic": "orders", "queueId": 0}
    assert (await node.client.ask(RequestCode.GET_MAX_OFFSET, queue)).ext == {"offset": "4"}
    smallest = await node.client.ask(RequestCode.GET_MIN_OFFSET, queue)
    assert (smallest.ext, smallest.remark) == ({"offset": "0"}, "")
    earliest = await node.client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert earliest.ext == {"timestamp": str(times[0])}
    for boundary, expected in (("LOWER", "2"), ("upper", "1"), ("", "2")):
        between = {**queue, "timestamp": times[1] + 1, "boundaryType": boundary}
        assert (await node.client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, between)).ext == {"offset": expected}


async def test_offsets_are_written_every_five_seconds_and_only_when_they_changed(node: Any) -> None:
    await node.client.send("orders")
    await node.client.pull("orders")
    await commit(node, 1)
    file = node.root / "config" / "consumerOffset.json"
    await node.clock.advance(9.9)
    assert not file.exists()
    await node.clock.advance(0.2)
    await node.eventually(lambda: node.broker.offsets.file.is_saved)
    assert json.loads(file.read_bytes())["offsetTable"] == {"orders@G": {"0": 1}}
    content, written = file.read_bytes(), file.stat().st_mtime_ns
    await node.clock.advance(30)
    await node.eventually(lambda: node.broker.offsets.file.is_saved)
    # The broker's own readers may have committed where they stand: then there is something new in it.
    assert file.stat().st_mtime_ns == written or file.read_bytes() != content


async def test_a_restart_keeps_offsets_topics_groups_and_messages(node: Any) -> None:
    await node.client.send("orders", b"kept")
    await node.client.pull("orders")
    await commit(node, 1)
    await node.restart()
    assert (await query(node)).ext == {"offset": "1"}
    assert node.broker.topics.get("orders").write_queue_nums == 4
    assert node.broker.groups.get("G") is not None
    assert node.client.bodies(await node.client.pull("orders")) == [b"kept"]


async def test_the_version_of_the_table_advances_every_500_commits(node: Any) -> None:
    offsets = node.broker.offsets
    before = offsets.version.counter
    for number in range(1000):
        offsets.commit("G", "orders", 0, number)
    assert offsets.version.counter == before + 2


async def pull_and_commit(node: Any, offset: int) -> None:
    """As a push consumer does: a pull says how far it has come. Twice, as the first may be looked at closely."""
    for _ in range(2):
        await node.client.pull("orders", sysFlag=4 | 1, commitOffset=offset)


@pytest.mark.parametrize("short", [False, True])
async def test_offsets_that_come_with_pulls_are_written_like_others(make_node: Any, short: bool) -> None:
    node = await make_node(short=short)
    file = node.root / "config" / "consumerOffset.json"
    for _ in range(3):
        await node.client.send("orders")
    for offset in (1, 3, 2):
        await pull_and_commit(node, offset)
        assert (await query(node)).ext == {"offset": str(offset)}
        await node.broker.offsets.persist_if_changed()
        assert json.loads(file.read_bytes())["offsetTable"] == {"orders@G": {"0": offset}}
    await pull_and_commit(node, 3)
    await node.restart()
    assert (await query(node)).ext == {"offset": "3"}


@pytest.mark.parametrize("short", [False, True])
async def test_they_count_for_the_version_of_the_table(make_node: Any, short: bool) -> None:
    node = await make_node(short=short)
    await node.client.send("orders")
    before = node.broker.offsets.as_json()["dataVersion"]["counter"]
    for _ in range(500):
        await pull_and_commit(node, 1)
    assert node.broker.offsets.as_json()["dataVersion"]["counter"] == before + 2


@pytest.mark.parametrize("short", [False, True])
async def test_a_group_whose_offsets_were_deleted_or_cloned_goes_on_with_those(make_node: Any, short: bool) -> None:
    node = await make_node(short=short)
    await node.client.send("orders")
    await pull_and_commit(node, 1)
    node.broker.offsets.remove_group("G")
    await pull_and_commit(node, 1)
    assert (await query(node)).ext == {"offset": "1"}
    node.broker.offsets.commit("Other", "orders", 0, 0)
    node.broker.offsets.clone("Other", "G", "orders")
    await pull_and_commit(node, 1)
    assert (await query(node)).ext == {"offset": "1"}
