"""Checks of the doctor that need facts which a test machine does not have: full disks, old versions, lost messages."""

from __future__ import annotations

import pytest

from arrowmq.client.admin.controlled import ControlledSet
from arrowmq.inspect.doctor import examine
from arrowmq.inspect.doctor.facts import (
    BrokerFacts,
    Facts,
    Finding,
    GroupFacts,
    Held,
    MachineFacts,
    MemberFacts,
    NamesrvFacts,
    TopicFacts,
)
from arrowmq.wire.bodies import BrokerReplicas, OffsetWrapper, ReplicaIdentity, TopicOffset, TopicRouteData
from arrowmq.wire.message_queue import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


def healthy() -> Facts:
    broker = BrokerFacts(
        "broker-a", "East", 0, "127.0.0.1:10911", runtime={"commitLogDiskRatio": "0.40"}, clock_skew_ms=200
    )
    namesrv = NamesrvFacts("127.0.0.1:9876", brokers={"broker-a": {0: broker.address}})
    return Facts(now_ms=1_000_000, watched_s=2, namesrvs=[namesrv], brokers=[broker])


def found(facts: Facts) -> dict[str, Finding]:
    return {each.name: each for findings in examine(facts).values() for each in findings}


def test_healthy_facts_have_no_findings() -> None:
    assert {} == found(healthy())


@pytest.mark.parametrize(
    ("ratio", "settings", "name"),
    [
        ("0.95", {}, "disk-full"),
        ("0.87", {}, "disk-nearly-full"),
        ("0.80", {}, "disk-filling"),
        ("0.60", {"diskSpaceWarningLevelRatio": "50"}, "disk-full"),
        ("0.60", {"diskMaxUsedSpaceRatio": "50"}, "disk-filling"),
    ],
)
def test_a_disk_is_judged_by_the_brokers_own_limits(ratio: str, settings: dict[str, str], name: str) -> None:
    facts = healthy()
    facts.brokers[0].runtime["commitLogDiskRatio"] = ratio
    facts.brokers[0].config = settings
    assert {name} == set(found(facts))


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("remainHowManyDataToFlush", f"{1 << 30} B", "flush-behind"),
        ("dispatchBehindBytes", str(1 << 30), "dispatch-behind"),
        ("putMessageFailedTimes", "3", "puts-failed"),
        ("brokerVersionDesc", "V4_2_0", "version-old"),
    ],
)
def test_what_a_broker_tells_of_itself_is_judged(key: str, value: str, name: str) -> None:
    facts = healthy()
    facts.brokers[0].runtime[key] = value
    assert {name} == set(found(facts))


def test_a_broker_that_advertises_the_loopback_to_other_machines_is_found() -> None:
    facts = healthy()
    facts.namesrvs[0].address = "10.0.0.5:9876"
    assert {"loopback-advertised"} == set(found(facts))


def test_slaves_without_a_master_are_found() -> None:
    facts = healthy()
    facts.brokers[0].broker_id = 1
    assert {"no-master"} == set(found(facts))


def test_brokers_of_different_versions_are_found() -> None:
    facts = healthy()
    facts.brokers[0].runtime["brokerVersionDesc"] = "V5_3_3"
    facts.brokers.append(BrokerFacts("broker-b", "East", 0, "127.0.0.1:1", runtime={"brokerVersionDesc": "V4_9_8"}))
    assert {"versions-differ"} == set(found(facts))


def test_messages_that_were_deleted_before_a_group_got_there_are_found() -> None:
    facts = healthy()
    facts.topics = [TopicFacts("orders", TopicRouteData(), {QUEUE: TopicOffset(min_offset=100, max_offset=200)})]
    progress = OffsetWrapper(broker_offset=200, consumer_offset=40)
    member = MemberFacts("c", subscriptions={"orders": "*"}, held={QUEUE: Held(0, 0)})
    facts.groups = [GroupFacts("g", [member], progress={QUEUE: progress})]
    assert {"messages-missed"} == set(found(facts))
    assert "missed 60 messages of orders" in found(facts)["messages-missed"].what


def test_a_queue_that_no_member_holds_and_a_member_without_queues_are_found() -> None:
    facts = healthy()
    held = MessageQueue("orders", "broker-a", 1)
    busy = MemberFacts("busy", subscriptions={"orders": "*"}, held={held: Held(0, 0)})
    idle = MemberFacts("idle", subscriptions={"orders": "*"})
    facts.groups = [GroupFacts("g", [busy, idle], progress={QUEUE: OffsetWrapper(broker_offset=5)})]
    assert {"queue-not-held", "members-idle"} == set(found(facts))


def test_a_queue_that_moves_is_not_stuck() -> None:
    facts = healthy()
    member = MemberFacts("c", subscriptions={"orders": "*"}, held={QUEUE: Held(3, 10)}, held_later={QUEUE: Held(3, 11)})
    facts.groups = [GroupFacts("g", [member])]
    assert {} == found(facts)
    member.held_later[QUEUE] = Held(5, 10)
    assert {"queue-stuck"} == set(found(facts))


def test_a_machine_that_is_too_small_is_found() -> None:
    facts = healthy()
    facts.machine = MachineFacts(
        memory_limit_bytes=128 << 20, open_files_hard=1024, max_map_count=1000, is_native=False, directory_free_bytes=1
    )
    assert {"memory-limit", "open-files", "map-count", "no-native", "directory-small"} == set(found(facts))


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({"bindAddress": "0.0.0.0", "authenticationEnabled": "false"}, True),
        ({"bindAddress": "0.0.0.0", "authenticationEnabled": "true"}, False),
        ({"bindAddress": "127.0.0.1", "authenticationEnabled": "false"}, False),
    ],
)
def test_a_broker_that_everybody_may_use_is_told(settings: dict[str, str], is_open: bool) -> None:
    facts = healthy()
    facts.brokers[0].config = settings
    assert is_open == ("broker-open" in found(facts))


# -- under a controller


def under_a_controller(replicas: BrokerReplicas) -> Facts:
    facts = healthy()
    facts.brokers[0].config = {
        "enableControllerMode": "true",
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": "2",
        "brokerRole": "SYNC_MASTER",
    }
    facts.controlled["broker-a"] = ControlledSet(
        "broker-a", "East", "n0", "10.0.0.1:9878", ("n0:10.0.0.1:9878",), replicas
    )
    return facts


def replica(broker_id: int, *, alive: bool = True, since: int | None = None) -> ReplicaIdentity:
    return ReplicaIdentity(
        alive=alive, broker_address=f"10.0.0.{broker_id}:10911", broker_id=broker_id, out_of_sync_since=since
    )


def test_a_set_in_which_all_are_in_sync_is_fine() -> None:
    replicas = BrokerReplicas(in_sync_replicas=[replica(1), replica(2)], master_broker_id=1)
    assert {} == found(under_a_controller(replicas))


def test_nobody_leads_the_controllers() -> None:
    facts = under_a_controller(BrokerReplicas())
    facts.controlled["broker-a"] = "no controller leads: 10.0.0.1:9878 knows of no leader"
    finding = found(facts)["no-controller-leads"]
    assert "knows of no leader" in finding.what
    assert "etcd" in finding.advice


def test_a_set_without_a_master_names_who_could_become_it() -> None:
    replicas = BrokerReplicas(in_sync_replicas=[replica(2, alive=False)], not_in_sync_replicas=[replica(1)])
    finding = found(under_a_controller(replicas))["set-without-master"]
    assert "(2)" in finding.what


@pytest.mark.parametrize(
    ("late", "names"),
    [
        (replica(2, alive=False, since=990_000), {"member-gone"}),
        (replica(2, since=1_000), {"member-out-of-sync"}),
        (replica(2, since=990_000), set()),  # for ten seconds: it catches up
        (replica(2), set()),  # Apache's controller does not tell since when
    ],
)
def test_members_out_of_the_sync_state_set(late: ReplicaIdentity, names: set[str]) -> None:
    replicas = BrokerReplicas(in_sync_replicas=[replica(1)], not_in_sync_replicas=[late], master_broker_id=1)
    assert names == set(found(under_a_controller(replicas)))


@pytest.mark.parametrize("change", [{"allAckInSyncStateSet": "false"}, {"minInSyncReplicas": "1"}])
def test_settings_under_which_a_failover_loses_messages_are_noted(change: dict[str, str]) -> None:
    facts = under_a_controller(BrokerReplicas(in_sync_replicas=[replica(1), replica(2)], master_broker_id=1))
    facts.brokers[0].config |= change
    assert {"failover-may-lose"} == set(found(facts))


def test_a_tail_that_was_cut_is_told_with_the_place_of_its_bytes() -> None:
    facts = under_a_controller(BrokerReplicas(in_sync_replicas=[replica(1), replica(2)], master_broker_id=1))
    facts.brokers[0].runtime |= {
        "haCutTails": "2", "haCutBytes": "4096", "haLastCutAt": "900000", "haLastCut": "/data/cut/1-2-epoch-3.log",
    }  # fmt: skip
    finding = found(facts)["tail-was-cut"]
    assert "2 times" in finding.what
    assert "/data/cut/1-2-epoch-3.log" in finding.advice
