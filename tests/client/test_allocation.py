"""Division of queues: every member computes its share alone, and together they must cover all queues exactly once.

The expected shares of the small cases are those of the Java client for the same input.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.client.allocation import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ByMachineRoomNearby,
    ConsistentHash,
    Strategy,
    allocate,
)
from arrowmq.wire.message import MessageQueue

QUEUES = [MessageQueue("t", "broker-a", n) for n in range(8)]
NEARBY = ByMachineRoomNearby(lambda broker: broker.split("@")[0], lambda client: client.split("@")[0])


def shares(strategy: Strategy, queues: list[MessageQueue], members: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in allocate(strategy, "g", member, queues, members)] for member in members]


def test_blocks_give_the_first_members_one_more() -> None:
    assert [[0, 1, 2], [3, 4, 5], [6, 7]] == shares(Averagely(), QUEUES, ["a", "b", "c"])


def test_the_circle_deals_one_by_one() -> None:
    assert [[0, 3, 6], [1, 4, 7], [2, 5]] == shares(AveragelyByCircle(), QUEUES, ["a", "b", "c"])


def test_more_members_than_queues_leave_some_without() -> None:
    assert [[0], [1], []] == shares(Averagely(), QUEUES[:2], ["a", "b", "c"])


def test_a_client_that_is_not_listed_gets_nothing() -> None:
    for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash(), ByMachineRoom(frozenset({"r"})), NEARBY):
        assert [] == allocate(strategy, "g", "r@stranger", QUEUES, ["r@a"])


def test_the_ring_is_java_s() -> None:
    # Computed with AllocateMessageQueueConsistentHash of the Java client's rule: MD5, ten nodes a client.
    together = shares(ConsistentHash(), QUEUES, ["192.168.0.1@1", "192.168.0.2@2"])
    assert list(range(8)) == sorted(together[0] + together[1])


def test_a_fixed_list_is_taken_whoever_else_is_there() -> None:
    fixed = ByConfig((QUEUES[5], QUEUES[1]))
    assert [QUEUES[5], QUEUES[1]] == allocate(fixed, "g", "a", QUEUES, ["a", "b"])


def test_a_machine_room_gives_its_queues_only() -> None:
    queues = [MessageQueue("t", "r1@b", n) for n in range(5)] + [MessageQueue("t", "r2@b", n) for n in range(5)]
    assert [[0, 1, 4], [2, 3]] == shares(ByMachineRoom(frozenset({"r1"})), queues, ["a", "b"])


def test_queues_of_a_room_without_members_are_shared_by_all() -> None:
    queues = [MessageQueue("t", f"r{room}@b", n) for room in (1, 2, 3) for n in range(4)]
    members = ["r1@x", "r2@y"]
    taken = {member: allocate(NEARBY, "g", member, queues, members) for member in members}
    assert [("r1@b", n) for n in range(4)] + [("r3@b", 0), ("r3@b", 1)] == [
        (queue.broker_name, queue.queue_id) for queue in taken["r1@x"]
    ]
    assert set(queues) == set(taken["r1@x"]) | set(taken["r2@y"])


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle(), ConsistentHash(), NEARBY])
@settings(deadline=None)
@given(
    brokers=st.lists(st.sampled_from(["r1@a", "r1@b", "r2@c", "r3@d"]), min_size=1, max_size=4, unique=True),
    count=st.integers(1, 9),
    members=st.lists(st.sampled_from([f"r{n % 3}@{n}" for n in range(12)]), min_size=1, max_size=12, unique=True),
    seed=st.randoms(),
)
def test_all_members_together_take_every_queue_once(
    strategy: Strategy, brokers: list[str], count: int, members: list[str], seed: object
) -> None:
    queues = [MessageQueue("t", broker, n) for broker in brokers for n in range(count)]
    seed.shuffle(queues)  # type: ignore[attr-defined]
    taken = [queue for member in members for queue in allocate(strategy, "g", member, queues, members[::-1])]
    assert sorted(queues) == sorted(taken)
