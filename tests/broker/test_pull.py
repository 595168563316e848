"""Pulls: every outcome with its code, filters, refusals, and what a pull does to offsets."""

from __future__ import annotations

from typing import Any

import pytest

from arrowmq.wire.codes import RequestCode, ResponseCode


async def test_found_messages_come_with_the_offsets_that_clients_compute_with(node: Any) -> None:
    for number in range(3):
        await node.client.send("orders", b"%d" % number)
    answer = await node.client.pull("orders", 1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert node.client.bodies(answer) == [b"1", b"2"]
    assert answer.ext == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3",
        "topicSysFlag": "0", "groupSysFlag": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("queue_id", "offset", "code", "remark", "next_offset"),
    [
        (0, 1, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "1"),
        (0, 9, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "1"),
        (1, 0, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", "0"),
        (1, 5, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", "0"),
    ],
)
async def test_where_nothing_is_the_answer_says_where_to_go_on(
    node: Any, queue_id: int, offset: int, code: ResponseCode, remark: str, next_offset: str
) -> None:
    await node.client.send("orders")
    answer = await node.client.pull("orders", offset, queue_id=queue_id)
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (code, remark, next_offset)


async def test_at_most_32_messages_come_at_once_whatever_is_asked(node: Any) -> None:
    for _ in range(40):
        await node.client.send("orders")
    answer = await node.client.pull("orders", maxMsgNums=1000)
    assert len(node.client.bodies(answer)) == 32
    assert answer.ext["nextBeginOffset"] == "32"


async def test_a_limit_of_bytes_still_lets_one_message_through(node: Any) -> None:
    for _ in range(3):
        await node.client.send("orders", b"x" * 500)
    assert len(node.client.bodies(await node.client.pull("orders", maxMsgBytes=100))) == 1


async def test_tags_choose_and_what_is_skipped_is_not_looked_at_again(node: Any) -> None:
    for number, tag in enumerate(["red", "blue", "red", "green"]):
        await node.client.send("orders", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    red = await node.client.pull("orders", subscription="red || green")
    assert node.client.bodies(red) == [b"0", b"2", b"3"]
    none = await node.client.pull("orders", subscription="black")
    assert (none.code, none.remark, none.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", "4",
    )  # fmt: skip


async def test_sql_needs_the_setting_and_then_filters(make_node: Any) -> None:
    plain = await make_node()
    await plain.client.send("orders")
    refused = await plain.client.pull("orders", expressionType="SQL92", subscription="price > 10")
    assert (refused.code, "enablePropertyFilter" in refused.remark) == (ResponseCode.SYSTEM_ERROR, True)
    node = await make_node(enablePropertyFilter="true")
    for price in (5, 15):
        await node.client.send("orders", b"%d" % price, properties=f"price\x01{price}\x02")
    answer = await node.client.pull("orders", expressionType="SQL92", subscription="price > 10")
    assert node.client.bodies(answer) == [b"15"]
    broken = await node.client.pull("orders", expressionType="SQL92", subscription="price >")
    assert broken.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_push_consumer_is_filtered_by_what_its_heartbeat_said(node: Any) -> None:
    await node.client.send("orders", b"a", properties="TAGS\x01a\x02")
    await node.client.send("orders", b"b", properties="TAGS\x01b\x02")
    await node.client.heartbeat("c1", topics={"orders": "b"})
    answer = await node.client.pull("orders", sysFlag=0, subscription="", subVersion=1)
    assert node.client.bodies(answer) == [b"b"]


async def test_a_push_consumer_without_heartbeat_subscription_or_newest_version_is_told_which(node: Any) -> None:
    await node.client.send("orders")
    unknown = await node.client.pull("orders", sysFlag=0)
    assert (unknown.code, unknown.remark.split("\n")[0]) == (
        ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist",
    )  # fmt: skip
    await node.client.heartbeat("c1", topics={"payments": "*"})
    not_subscribed = await node.client.pull("orders", sysFlag=0)
    assert not_subscribed.remark.startswith("the consumer's subscription not exist")
    await node.client.heartbeat("c1", topics={"orders": "*"})
    too_new = await node.client.pull("orders", sysFlag=0, subVersion=2)
    assert (too_new.code, too_new.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest",
    )  # fmt: skip


async def test_refusals_name_their_kind(make_node: Any) -> None:
    node = await make_node()
    unknown = await node.client.pull("orders")
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    await node.client.send("orders")
    beyond = await node.client.pull("orders", queue_id=4)
    assert (beyond.code, beyond.remark.startswith("queueId[4] is illegal")) == (ResponseCode.INVALID_PARAMETER, True)
    classes = await node.client.pull("orders", sysFlag=12)
    assert (classes.code, "class filter" in classes.remark) == (ResponseCode.SYSTEM_ERROR, True)
    node.broker.groups.get("G").consume_enable = False
    assert (await node.client.pull("orders")).ext == {"forbiddenType": "2"}
    node.broker.topics.get("orders").perm = 2
    assert (await node.client.pull("orders", group="H")).ext == {"forbiddenType": "3"}
    closed = await make_node(brokerPermission="2")
    assert (await closed.client.pull("orders")).ext == {"forbiddenType": "1"}
    strict = await make_node(autoCreateSubscriptionGroup="false")
    await strict.client.send("orders")
    no_group = await strict.client.pull("orders")
    assert no_group.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "autoCreateSubscriptionGroup is false" in no_group.remark


async def test_lite_pull_can_be_switched_off(make_node: Any) -> None:
    node = await make_node(litePullMessageEnable="false")
    await node.client.send("orders")
    answer = await node.client.ask(RequestCode.LITE_PULL_MESSAGE, node.client.pull_header("orders"))
    assert (answer.code, "litePullMessageEnable" in answer.remark) == (ResponseCode.NO_PERMISSION, True)


async def test_a_pull_commits_the_offset_it_brings(node: Any) -> None:
    for _ in range(3):
        await node.client.send("orders")
    await node.client.pull("orders", 2, sysFlag=5, commitOffset=2)
    assert node.broker.offsets.get("G", "orders", 0) == 2
    await node.client.pull("orders", 3, sysFlag=4, commitOffset=3)
    assert node.broker.offsets.get("G", "orders", 0) == 2


async def test_a_reset_offset_is_handed_out_once_and_outlives_commits(node: Any) -> None:
    for _ in range(3):
        await node.client.send("orders")
    await node.client.pull("orders", 3, sysFlag=5, commitOffset=3)
    node.broker.offsets.reset("G", "orders", 0, 1)
    moved = await node.client.pull("orders", 3, sysFlag=5, commitOffset=3)
    assert (moved.code, moved.remark, moved.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", "1",
    )  # fmt: skip
    assert node.broker.offsets.get("G", "orders", 0) == 1
    assert (await node.client.pull("orders", 1)).remark == "FOUND"


async def test_messages_that_retention_deleted_move_the_reader_to_the_first_that_is_there(node: Any) -> None:
    for _ in range(8):
        await node.client.send("orders", b"x" * 200_000)
    node.broker.store.commit_log.detach_first()
    begin = node.broker.store.min_offset("orders", 0)
    assert begin > 0
    answer = await node.client.pull("orders", 0)
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", str(begin),
    )  # fmt: skip
