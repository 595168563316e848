"""A trio of brokers under a controller loses its master: another is elected, nothing acknowledged is lost, and the old
one comes back with a log that ends byte-identical. Ours, Apache's, and both in one set, under either controller.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import hands, network
from oracle.scene import SOAK, Scene
from oracle.trio import ARROW, JAVA, JAVA_PROPERTIES, Trio

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

OURS = [ARROW, ARROW, ARROW]
SETS = {
    "ours": (OURS, ARROW),
    "ours under Apache's controller": (OURS, JAVA),
    "ours with one of Apache's": ([ARROW, JAVA, ARROW], ARROW),
    "Apache's with one of ours": ([JAVA, ARROW, JAVA], ARROW),
    "Apache's": ([JAVA, JAVA, JAVA], ARROW),
}
HARMS = {"killed": "kill", "stopped": "pause", "cut off": "cut"}
#: The others take half a minute each: ARROWMQ_SOAK=1
SHORT = {
    "ours, killed",
    "ours, cut off",
    "ours under Apache's controller, killed",
    "ours with one of Apache's, killed",
}
PLAYS = {
    f"{name}, {fate}": (kinds, controller, harm)
    for name, (kinds, controller) in SETS.items()
    for fate, harm in HARMS.items()
    if (SOAK or f"{name}, {fate}" in SHORT) and (harm != "cut" or network.can_be_made())
}
# A master that hangs is missed after this, so that nobody waits for 10 seconds; a busy machine is not taken for one.
LEASE = {"controllerHeartBeatTimeoutMills": 4000}


@pytest.mark.parametrize("play", PLAYS)
def test_a_master_is_lost_and_nothing_acknowledged_is(play: str, tmp_path: Path) -> None:
    kinds, controller, harm = PLAYS[play]
    with (
        Trio(tmp_path, kinds, controller, has_cable=harm == "cut", **LEASE) as trio,
        hands.start(
            "java-5.5-json", trio.names.address, trio.brokers[1].address, tmp_path / "hand", jvm=JAVA_PROPERTIES
        ) as hand,
        Scene(hand, "failover") as scene,
    ):
        first = trio.master()
        assert first is not None
        trio.wait_route(first)
        topic = scene.topic(queues=4)
        trio.wait_topic(topic)
        producer = scene.producer(hand, timeout=3000, retries=8)
        bodies = [f"before {number}" for number in range(50)]
        receipts = producer.send(topic, [{"body": body} for body in bodies])
        assert {"SEND_OK"} == {receipt["status"] for receipt in receipts}
        acknowledged = set(bodies)
        # These are under way while the master goes; some may fail.
        during = [f"during {number}" for number in range(200)]
        sending = hand.begin("send", producer=producer.name, topic=topic, messages=[{"body": body} for body in during])
        trio.harm(first, harm)
        second = trio.new_master(other_than=first)
        trio.wait_route(second)
        results = sending.result(120)
        acknowledged |= {
            body for body, receipt in zip(during, results, strict=True) if receipt.get("status") == "SEND_OK"
        }
        after = [f"after {number}" for number in range(50)]
        # A Java producer whose master fell silent keeps the old route until it asks again.
        trio.wait("the producer is back", lambda: bool(producer.send(topic, [{"body": "back"}])[0].get("status")), 60)
        receipts = producer.send(topic, [{"body": body} for body in after])
        assert {"SEND_OK"} == {receipt.get("status") for receipt in receipts}, receipts
        acknowledged |= set(after)
        trio.heal(first, harm)
        trio.wait("the old master is back in sync", lambda: trio.in_sync() == {1, 2, 3})
        seen = {record["body"] for record in scene.listener(hand, topic).until(acknowledged)}
        assert acknowledged <= seen
        trio.wait("all logs are equal", lambda: trio.log(1) == trio.log(2) == trio.log(3), 30)
        assert trio.masters_by_epoch_are_unique()
