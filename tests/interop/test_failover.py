"""A trio of brokers under a controller loses its master: another is elected, nothing acknowledged is lost, and the old
one comes back with a log that ends byte-identical.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import hands
from oracle.scene import Scene
from oracle.trio import JAVA, Trio

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_java_brokers_obey_our_controller(tmp_path: Path) -> None:
    with (
        Trio(tmp_path, [JAVA, JAVA, JAVA]) as trio,
        hands.start("java-5.5-json", trio.names.address, trio.brokers[1].address, tmp_path / "hand") as hand,
        Scene(hand, "java_trio") as scene,
    ):
        assert 1 == trio.master()
        trio.wait_route(1)
        topic = scene.topic(queues=4)
        trio.wait_topic(topic)
        producer = scene.producer(hand, timeout=3000, retries=5)
        acknowledged = {f"first {i}" for i in range(50)}
        receipts = producer.send(topic, [{"body": body} for body in sorted(acknowledged)])
        assert {"SEND_OK"} == {receipt["status"] for receipt in receipts}
        trio.kill(1)
        master = trio.new_master(other_than=1)
        trio.wait_route(master)
        after = {f"second {i}" for i in range(50)}
        sent = producer.send(topic, [{"body": body} for body in sorted(after)])
        acknowledged |= {body for body, receipt in zip(sorted(after), sent, strict=True) if receipt.get("status")}
        assert acknowledged >= {"second 49"}, sent[-1]
        trio.start(1)
        trio.wait("the old master is back in sync", lambda: trio.in_sync() == {1, 2, 3})
        assert acknowledged <= {record["body"] for record in scene.listener(hand, topic).until(acknowledged)}
        assert trio.log(1) == trio.log(2) == trio.log(3)
        assert trio.epochs(1) == trio.epochs(2) == trio.epochs(3)
