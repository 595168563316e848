"""Division of queues: every member computes its share alone, and together they must cover all queues exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.client.consume.group.allocation import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ByMachineRoomNearby,
    ConsistentHash,
    Strategy,
    allocate,
)
from arrowmq.wire.message_queue import MessageQueue

#  What the strategies of the Java client 5.5.0 gave for these numbers of queues and members: by member, the positions
#  of its queues in the sorted list.
JAVA_S = [
    (8, 3, "AVG", "0,1,2 3,4,5 6,7"),
    (8, 3, "AVG_BY_CIRCLE", "0,3,6 1,4,7 2,5"),
    (8, 3, "CONSISTENT_HASH", "0,1,2,3,4,5,7 6 -"),
    (8, 3, "MACHINE_ROOM", "0,3 1 2"),
    (16, 4, "AVG", "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15"),
    (16, 4, "AVG_BY_CIRCLE", "0,4,8,12 1,5,9,13 2,6,10,14 3,7,11,15"),
    (16, 4, "CONSISTENT_HASH", "0,2,8,9,11,15 10,12,13 6,14 1,3,4,5,7"),
    (16, 4, "MACHINE_ROOM", "0,1 2,3 4,5 6,7"),
    (7, 5, "AVG", "0,1 2,3 4 5 6"),
    (7, 5, "AVG_BY_CIRCLE", "0,5 1,6 2 3 4"),
    (7, 5, "CONSISTENT_HASH", "0,5 6 - 3 1,2,4"),
    (7, 5, "MACHINE_ROOM", "0 1 2 3 -"),
    (4, 6, "AVG", "0 1 2 3 - -"),
    (4, 6, "AVG_BY_CIRCLE", "0 1 2 3 - -"),
    (4, 6, "CONSISTENT_HASH", "0,3 - - - 1 2"),
    (4, 6, "MACHINE_ROOM", "0 1 - - - -"),
    (24, 7, "AVG", "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14 15,16,17 18,19,20 21,22,23"),
    (24, 7, "AVG_BY_CIRCLE", "0,7,14,21 1,8,15,22 2,9,16,23 3,10,17 4,11,18 5,12,19 6,13,20"),
    (24, 7, "CONSISTENT_HASH", "0,10,13,15,19,20 14,16 18 3,7,21,22,23 1,2,4,5,9 6,8,12,17 11"),
    (24, 7, "MACHINE_ROOM", "0,7 1,8 2,9 3,10 4,11 5 6"),
]

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


@pytest.mark.parametrize(("queue_count", "member_count", "name", "expected"), JAVA_S)
def test_shares_are_those_of_the_java_client(queue_count: int, member_count: int, name: str, expected: str) -> None:
    brokers = ("room1@broker-a", "room2@broker-b")
    queues = sorted(MessageQueue("orders", brokers[n % 2], n // 2) for n in range(queue_count))
    members = sorted(f"192.168.0.{10 + n}@{1000 + 7 * n}#{99 * n}" for n in range(member_count))
    strategies = (Averagely(), AveragelyByCircle(), ConsistentHash(), ByMachineRoom(frozenset({"room1"})))
    strategy = next(each for each in strategies if each.name == name)
    shares = []
    for member in members:
        share = allocate(strategy, "g", member, queues, members)
        shares.append(",".join(str(queues.index(queue)) for queue in share) or "-")
    assert expected.split() == shares


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
