"""Registered filters: written as Apache writes them, marked when their group is gone, forgotten after a day."""

from __future__ import annotations

import json
from typing import Any

from arrowmq.broker.groups.consumer_filters import ConsumerFilters
from arrowmq.filter.bloom import bloom_positions, bloom_size, murmur3
from arrowmq.wire.codes import RequestCode


def service(node: Any) -> ConsumerFilters:
    return node.broker.services.consumer_filters


async def subscribe(node: Any, expression: str, kind: str = "SQL92", version: int = 7) -> Any:
    client = node.connect()
    subscription = {"topic": "orders", "subString": expression, "expressionType": kind, "subVersion": version}
    consumer = {
        "groupName": "G",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    await client.ask(RequestCode.HEART_BEAT, {}, {"clientID": "c", "consumerDataSet": [consumer]})
    return client


def test_the_bits_of_a_group_are_those_that_apache_wrote() -> None:
    assert bloom_size() == (112, 3)
    assert bloom_positions("GroupSqlFilter", "TopicSqlFilter") == [10, 105, 34]
    assert murmur3(b"") == 0


async def test_a_filter_is_written_down_and_survives_a_restart(node: Any) -> None:
    await subscribe(node, "price > 10")
    service(node).follow()
    entry = service(node).table["orders"]["G"]
    assert (entry["expression"], entry["expressionType"], entry["clientVersion"]) == ("price > 10", "SQL92", 7)
    assert entry["dead"] is False
    await node.restart()
    stored = json.loads((node.root / "config" / "consumerFilter.json").read_text())
    assert stored["filterDataByTopic"]["orders"]["topic"] == "orders"
    (kept,) = stored["filterDataByTopic"]["orders"]["groupFilterData"].values()
    assert kept["bloomFilterData"] == {"bitNum": 112, "bitPos": bloom_positions("G", "orders")}
    loaded = service(node).table["orders"]["G"]
    assert (loaded["expression"], loaded["dead"]) == ("price > 10", True)
    await subscribe(node, "price > 10")
    service(node).follow()
    assert service(node).table["orders"]["G"]["dead"] is False


async def test_a_group_that_leaves_is_dead_and_forgotten_after_a_day(node: Any) -> None:
    client = await subscribe(node, "price > 10")
    service(node).follow()
    await client.close()
    await node.eventually(lambda: "G" not in node.broker.clients.consumers)
    assert service(node).follow()
    assert service(node).table["orders"]["G"]["deadTime"] == node.clock.now_ms()
    node.clock.skip(86_500)
    assert service(node).follow()
    assert service(node).table == {}


async def test_tags_and_broken_expressions_are_not_registered(node: Any) -> None:
    await subscribe(node, "a || b", "TAG")
    assert not service(node).follow()
    await subscribe(node, "price >", version=8)
    service(node).follow()
    assert service(node).table == {}
