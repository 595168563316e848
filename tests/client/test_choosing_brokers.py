"""Which queue a send takes: round robin, away from brokers that failed or were slow, and never nowhere."""

from __future__ import annotations

import pytest

from arrowmq.client.produce.faults import FaultTable, choose_queue, skipped_for_ms
from arrowmq.client.produce.selectors import hash_index
from arrowmq.client.routes import Route
from arrowmq.clock import VirtualClock
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.message_queue import MessageQueue

QUEUES = [MessageQueue("t", broker, n) for broker in ("a", "b") for n in range(2)]


def test_a_healthy_cluster_is_used_in_turn() -> None:
    faults = FaultTable(VirtualClock())
    assert QUEUES == [choose_queue(QUEUES, turn, faults) for turn in range(4)]


@pytest.mark.parametrize(("latency_ms", "skipped_ms"), [(0, 0), (60, 0), (549, 0), (550, 2000), (20_000, 30_000)])
def test_the_slower_the_longer_it_is_left_alone(latency_ms: float, skipped_ms: int) -> None:
    assert skipped_ms == skipped_for_ms(latency_ms)


async def test_a_failed_broker_is_avoided_for_ten_seconds() -> None:
    clock = VirtualClock()
    faults = FaultTable(clock)
    faults.failed("a", is_reachable=False)
    assert {"b"} == {choose_queue(QUEUES, turn, faults).broker_name for turn in range(8)}
    await clock.advance(10.1)
    assert {"a", "b"} == {choose_queue(QUEUES, turn, faults).broker_name for turn in range(8)}


def test_an_answer_in_time_clears_the_suspicion() -> None:
    faults = FaultTable(VirtualClock())
    faults.failed("a", is_reachable=True)
    faults.answered("a", 3)
    assert not faults


def test_with_every_broker_under_suspicion_the_turn_decides() -> None:
    faults = FaultTable(VirtualClock())
    for broker in ("a", "b"):
        faults.failed(broker, is_reachable=False)
    assert "b" == choose_queue(QUEUES, 0, faults, avoided=["a"]).broker_name
    assert "a" == choose_queue(QUEUES, 0, faults).broker_name


def test_a_retry_goes_to_another_broker_if_there_is_one() -> None:
    assert "b" == choose_queue(QUEUES, 0, None, avoided=["a"]).broker_name
    assert "a" == choose_queue(QUEUES[:2], 0, None, avoided=["a"]).broker_name


def test_hashes_choose_like_the_java_client() -> None:
    # abs(remainder) of a signed hash, also for the smallest of all.
    assert [1, 1, 0] == [hash_index(97, 4), hash_index(-97 & 0xFFFFFFFF, 4), hash_index(1 << 31, 4)]


def test_a_route_tells_queues_and_brokers() -> None:
    data = fastjson.loads(
        b'{"brokerDatas":[{"brokerAddrs":{"0":"1:1","1":"1:2"},"brokerName":"a","cluster":"C"},'
        b'{"brokerAddrs":{"1":"2:2"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"b","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},'
        b'{"brokerName":"a","perm":4,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}',
        TopicRouteData,
    )
    route = Route.from_data("t", data)
    # `a` may not be written to, `b` has no master.
    assert () == route.publish_queues
    assert [("a", 0), ("a", 1), ("b", 0)] == [(queue.broker_name, queue.queue_id) for queue in route.subscribe_queues]
    assert ("1:1", None) == (route.master("a"), route.master("b"))
    assert [(0, "1:1"), (1, "1:2"), (1, "2:2"), None] == [
        route.reader("a"),
        route.reader("a", 1),
        route.reader("b"),
        route.reader("nobody"),
    ]


def test_an_order_configuration_fixes_the_queues() -> None:
    data = fastjson.loads(
        b'{"orderTopicConf":"a:3;b:1","brokerDatas":[{"brokerAddrs":{"0":"1:1"},"brokerName":"a","cluster":"C"}],'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}',
        TopicRouteData,
    )
    queues = Route.from_data("t", data).publish_queues
    assert [("a", 0), ("a", 1), ("a", 2), ("b", 0)] == [(queue.broker_name, queue.queue_id) for queue in queues]
