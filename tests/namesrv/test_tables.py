"""Goal: the route tables change by Apache's rules, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from arrowmq.clock import VirtualClock
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.departures import REMEMBERED
from arrowmq.namesrv.kvconfig import KvConfig
from arrowmq.namesrv.routes import explain_no_route, find_route, keep_zone
from arrowmq.namesrv.tables import BrokerKey, NotRegistered, Registration, RouteTables
from arrowmq.wire.bodies import DataVersion, QueueData, TopicConfig, TopicRouteData

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def topics(*names: str, perm: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {n: TopicConfig(topic_name=n, perm=perm, read_queue_nums=queues, write_queue_nums=queues) for n in names}


class House:
    """Tables on a virtual clock, and a quick way to register."""

    def __init__(self, **config: Any) -> None:
        self.clock = VirtualClock()
        self.tables = RouteTables(NamesrvConfig(**config), self.clock)

    def register(self, name: str, address: str, broker_id: int = 0, *named: str, version: int = 1, **more: Any) -> Any:
        more.setdefault("topics", topics(*(named or ("TopicA", "TopicB"))))
        more.setdefault("data_version", DataVersion(counter=version, state_version=0, timestamp=1))
        more.setdefault("ha_address", address.replace("10911", "10912"))
        return self.tables.register(Registration("C", name, broker_id, address, **more))

    def route(self, topic: str, *, acting_masters: bool = False) -> TopicRouteData | None:
        kv_config = KvConfig.__new__(KvConfig)
        return find_route(self.tables, kv_config, topic, acting_masters=acting_masters, with_order=False)


def test_a_registered_broker_is_in_the_route_of_its_topics() -> None:
    house = House()
    house.register("broker-a", A)
    house.register("broker-b", B, 0, "TopicB", "TopicC")
    route = house.route("TopicB")
    assert route is not None
    assert [broker.broker_addrs for broker in route.broker_datas] == [{0: A}, {0: B}]
    assert [(data.broker_name, data.read_queue_nums, data.perm) for data in route.queue_datas] == [
        ("broker-a", 4, 6),
        ("broker-b", 4, 6),
    ]
    assert house.tables.clusters == {"C": {"broker-a", "broker-b"}}
    assert house.route("TopicD") is None


def test_a_first_registration_with_a_single_topic_is_refused_and_leaves_nothing() -> None:
    house = House()
    with pytest.raises(NotRegistered, match="broker-a"):
        house.register("broker-a", A, 0, "Only")
    assert (house.tables.brokers, house.tables.clusters, house.tables.live) == ({}, {}, {})
    house.register("broker-a", A)
    house.register("broker-a", A, 0, "Only", version=2)
    assert house.route("Only") is not None


def test_topics_missing_from_a_later_registration_stay_unless_configured_otherwise() -> None:
    for is_deleted in (False, True):
        house = House(delete_topic_with_broker_registration=is_deleted)
        house.register("broker-a", A)
        house.register("broker-a", A, 0, "TopicA", "TopicC", version=2)
        assert (house.route("TopicB") is None) == is_deleted


def test_queues_are_rewritten_only_when_the_data_version_changed() -> None:
    house = House()
    house.register("broker-a", A)
    assert house.tables.set_write_perm("broker-a", False) == 2
    house.register("broker-a", A)
    assert house.tables.topic_queues["TopicA"]["broker-a"].perm == 4
    house.register("broker-a", A, version=2)
    assert house.tables.topic_queues["TopicA"]["broker-a"].perm == 6


def test_write_permission_comes_back_even_where_it_never_was() -> None:
    house = House()
    house.register("broker-a", A, topics=topics("TopicA", "TopicB", perm=4))
    assert house.tables.set_write_perm("broker-a", True) == 2
    assert house.tables.topic_queues["TopicA"]["broker-a"].perm == 6
    assert house.tables.set_write_perm("unknown", True) == 0


def test_a_slave_learns_its_master_and_its_topics_do_not_count() -> None:
    house = House()
    slave = house.register("broker-a", B, 1, "SlaveOnly", "TopicB", enable_acting_master=None)
    assert (slave.master_address, slave.ha_address) == (None, None)
    assert house.route("SlaveOnly") is None
    master = house.register("broker-a", A)
    assert (master.master_address, master.ha_address) == (None, None)
    slave = house.register("broker-a", B, 1)
    assert (slave.master_address, slave.ha_address) == (A, "10.0.0.1:10912")
    route = house.route("TopicA")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: A, 1: B}


def test_an_address_has_one_id_when_a_slave_becomes_master() -> None:
    house = House()
    house.register("broker-a", A, 1)
    house.register("broker-a", A, 0)
    assert house.tables.brokers["broker-a"].broker_addrs == {0: A}


def test_an_old_master_does_not_push_out_a_newer_one() -> None:
    house = House()
    house.register("broker-a", B, data_version=DataVersion(counter=1, state_version=5, timestamp=1))
    answer = house.register("broker-a", A, data_version=DataVersion(counter=9, state_version=4, timestamp=9))
    assert tuple(answer) == (None, None, None)
    assert house.tables.brokers["broker-a"].broker_addrs == {0: B}
    assert BrokerKey("C", A) not in house.tables.live
    house.register("broker-a", A, data_version=DataVersion(counter=9, state_version=6, timestamp=9))
    assert house.tables.brokers["broker-a"].broker_addrs == {0: A}


def test_a_leaving_broker_takes_the_topics_that_only_it_had() -> None:
    house = House()
    house.register("broker-a", A)
    house.register("broker-b", B, 0, "TopicB", "TopicC")
    house.tables.unregister([BrokerKey("C", A)], "stopped")
    assert set(house.tables.topic_queues) == {"TopicB", "TopicC"}
    assert list(house.tables.topic_queues["TopicB"]) == ["broker-b"]
    house.tables.unregister_named("C", B, "broker-b", "stopped")
    tables = house.tables
    assert (tables.topic_queues, tables.brokers, tables.clusters, tables.live) == ({}, {}, {}, {})


def test_unregistering_somebody_unknown_changes_nothing() -> None:
    house = House()
    house.register("broker-a", A)
    assert house.tables.unregister_named("C", B, "broker-a", "stopped") == []
    assert house.tables.unregister_named("Other", A, "broker-a", "stopped") == []
    assert house.route("TopicA") is not None


def test_only_the_connection_of_the_last_registration_matters() -> None:
    house = House()
    old, new = object(), object()
    house.register("broker-a", A, connection=old)
    house.register("broker-a", A, connection=new)
    house.tables.unregister_connection(old)
    assert house.route("TopicA") is not None
    house.tables.unregister_connection(new)
    assert house.route("TopicA") is None


async def test_a_broker_expires_after_the_time_it_promised() -> None:
    house = House()
    house.register("broker-a", A)
    house.register("broker-b", B, heartbeat_timeout_ms=10_000)
    await house.clock.advance(10)
    assert house.tables.expired() == []
    await house.clock.advance(0.01)
    assert [key.address for key, _ in house.tables.expired()] == [B]
    house.tables.heard("C", B)
    assert house.tables.expired() == []
    await house.clock.advance(110)
    assert [key.address for key, _ in house.tables.expired()] == [A, B]


def test_data_versions_are_equal_only_as_a_whole() -> None:
    house = House()
    house.register("broker-a", A, data_version=DataVersion(counter=1, state_version=2, timestamp=3))
    assert not house.tables.is_changed("C", A, DataVersion(counter=1, state_version=2, timestamp=3))
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        version = DataVersion(counter=other[0], state_version=other[1], timestamp=other[2])
        assert house.tables.is_changed("C", A, version)
    assert house.tables.is_changed("C", B, DataVersion())


def test_a_slave_stands_in_for_a_lost_master_for_readers_only() -> None:
    house = House(support_acting_master=True)
    house.register("broker-a", A, 0, enable_acting_master=True)
    house.register("broker-a", B, 1, enable_acting_master=True)
    house.register("broker-a", C, 2, enable_acting_master=True)
    house.tables.unregister([BrokerKey("C", A)], "was lost")
    route = house.route("TopicA", acting_masters=True)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: B, 2: C}
    assert route.queue_datas[0].perm == 4
    plain = house.route("TopicA", acting_masters=False)
    assert plain is not None
    assert plain.broker_datas[0].broker_addrs == {1: B, 2: C}
    house.register("broker-a", B, 1, enable_acting_master=True, version=2)
    assert house.tables.topic_queues["TopicA"]["broker-a"].perm == 4


def test_members_learn_of_a_new_lowest_id() -> None:
    house = House(notify_min_broker_id_changed=True)
    first = house.register("broker-a", B, 1, enable_acting_master=True)
    assert first.change is None  # for the very first broker nothing changed
    change = house.register("broker-a", A, 0, enable_acting_master=True).change
    assert (change.min_broker_id, change.min_broker_address, change.notify) == (0, A, [B])
    assert (change.offline_address, change.ha_address) == (None, "10.0.0.1:10912")
    (change,) = house.tables.unregister([BrokerKey("C", A)], "was lost")
    assert (change.min_broker_id, change.offline_address, change.ha_address, change.notify) == (
        1,
        A,
        "10.0.0.2:10912",
        [B],
    )


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    house = House()
    house.register("broker-a", A)
    house.tables.register(Registration("D", "broker-d", 0, B, topics=topics("TopicA", "TopicB")))
    house.tables.delete_topic("TopicA", "D")
    assert list(house.tables.topic_queues["TopicA"]) == ["broker-a"]
    house.tables.delete_topic("TopicA", "C")
    assert "TopicA" not in house.tables.topic_queues
    house.tables.delete_topic("TopicB", None)
    house.tables.delete_topic("TopicB", "nowhere")
    assert house.tables.topic_queues == {}


def test_a_topic_is_added_only_for_known_brokers() -> None:
    house = House()
    house.register("broker-a", A)
    assert not house.tables.add_topic("New", [QueueData(broker_name="broker-x")])
    assert house.tables.add_topic("New", [QueueData(broker_name="broker-a", perm=6, read_queue_nums=2)])
    assert house.route("New") is not None


def test_a_zone_keeps_its_own_brokers_and_those_without_a_master() -> None:
    house = House()
    house.register("near", A, zone_name="East")
    house.register("far", B, zone_name="west")
    house.register("orphan", C, 1, zone_name="west", enable_acting_master=True)
    route = house.route("TopicA")
    assert route is not None
    keep_zone(route, "EAST")
    assert [broker.broker_name for broker in route.broker_datas] == ["near", "orphan"]
    assert [data.broker_name for data in route.queue_datas] == ["near", "orphan"]


async def test_no_route_says_which_cause_it_was() -> None:
    house = House()
    say = lambda topic: explain_no_route(house.tables, topic, house.clock.now_ms())  # noqa: E731
    apaches = "No topic route info in name server for the topic: TopicA\nSee https://rocketmq.apache.org/docs/"
    assert say("TopicA").startswith(apaches)
    assert "no broker is registered with this NameServer. Remedy: start a broker" in say("TopicA")
    house.register("broker-a", A)
    assert "1 broker(s) are registered (broker-a) and none has this topic" in say("TopicX")
    assert "arrowmq topic create TopicX" in say("TopicX")
    house.tables.unregister([BrokerKey("C", A)], "was not heard for 120 s and was taken out")
    await house.clock.advance(37)
    assert f"broker broker-a ({A}) was not heard for 120 s and was taken out 37 s ago" in say("TopicA")
    assert f"the last one, broker-a ({A}), was not heard" in say("TopicX")
    house.register("broker-a", A)
    assert "none has this topic" in say("TopicX")


def test_the_memory_of_departed_brokers_is_bounded() -> None:
    house = House()
    for number in range(REMEMBERED + 10):
        house.register(f"broker-{number}", A)
        house.tables.unregister([BrokerKey("C", A)], "stopped")
    assert len(house.tables.departures.of_topic("TopicA")) == REMEMBERED
