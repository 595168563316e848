"""`arrowmq doctor` names faults that are really there, and nothing on a cluster that is well."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arrowmq import sync
from arrowmq.server import Node, build_node
from arrowmq.sync.loop_thread import LoopThread
from arrowmq.testing import BrokerThread
from arrowmq.testing.broker import RoomyDisk
from arrowmq.wire.codes import RequestCode

from .conftest import Command

# What this machine is like is its own affair.
OF_THE_MACHINE = {"open-files", "memory-limit", "map-count", "no-native"}


class Doctor:
    def __init__(self, namesrv: str) -> None:
        self.command = Command(namesrv)

    def examine(self, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the findings by their names."""
        result = self.command.run("doctor", "--watch", "0.1", "--json", *words)
        told = json.loads(result.stdout)
        found = {each["name"]: each for each in told["findings"] if each["name"] not in OF_THE_MACHINE}
        return result.exit_code, found

    def names(self, *words: str) -> set[str]:
        return set(self.examine(*words)[1])


@pytest.fixture
def patient() -> Iterator[BrokerThread]:
    """A cluster of its own, to be made ill."""
    with BrokerThread(settings={"autoCreateTopicEnable": "false"}) as thread:
        yield thread


@pytest.fixture
def doctor(patient: BrokerThread) -> Doctor:
    return Doctor(patient.namesrv)


@contextlib.contextmanager
def running(folder: Path, settings: dict[str, str], **ports: int) -> Iterator[Node]:
    thread = LoopThread("node of a test")
    node = build_node(folder, {"bindAddress": "127.0.0.1", **settings}, **ports, disk=RoomyDisk())
    try:
        thread.call(node.start)
        yield node
    finally:
        thread.call(node.stop)
        thread.stop()


def test_a_cluster_that_is_well_gets_no_findings(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--queues", "1")
    with (
        sync.Producer(doctor.command.namesrv) as producer,
        sync.Consumer(doctor.command.namesrv, group="g", topic="orders", consume_from="first") as consumer,
    ):
        producer.send("orders", b"x")
        next(iter(consumer)).ack()
        consumer.commit()
        code, found = doctor.examine()
        assert (0, {}) == (code, found)
        assert (0, {}) == doctor.examine("--topic", "orders")
    text = doctor.command("doctor", "-v", "--watch", "0")
    said = re.search(r"All (\d+) checks are fine", text)
    assert said is not None
    assert int(said[1]) >= text.count("ok: ")  # the others have a note of the machine
    assert "ok: brokers answer" in text


# -- addresses


def test_nobody_at_the_address_is_found(closed_port: int) -> None:
    code, found = Doctor(f"127.0.0.1:{closed_port}").examine()
    assert (3, {"namesrv-refused"}) == (code, set(found))
    assert "arrowmq server" in found["namesrv-refused"]["advice"]


def test_a_name_that_does_not_resolve_is_found() -> None:
    assert (3, {"namesrv-name"}) == ((seen := Doctor("no-such-host.invalid:9876").examine())[0], set(seen[1]))


def test_a_port_that_speaks_something_else_is_found() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(30)

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    peer.close()

        threading.Thread(target=greet, daemon=True).start()
        code, found = Doctor(f"127.0.0.1:{server.getsockname()[1]}").examine()
    assert (3, {"namesrv-silent"}) == (code, set(found))


def test_a_brokers_port_taken_for_the_name_servers_is_found(patient: BrokerThread) -> None:
    code, found = Doctor(patient.broker_address).examine()
    assert (3, {"namesrv-broker"}) == (code, set(found))
    assert "9876" in found["namesrv-broker"]["advice"]


def test_one_of_two_name_servers_is_down_and_the_rest_is_looked_at(patient: BrokerThread, closed_port: int) -> None:
    code, found = Doctor(f"{patient.namesrv};127.0.0.1:{closed_port}").examine()
    assert (1, {"namesrv-refused"}) == (code, set(found))


def test_name_servers_that_know_different_brokers_are_found(patient: BrokerThread, tmp_path: Path) -> None:
    with running(tmp_path, {}, namesrv_port=0) as other:
        code, found = Doctor(f"{patient.namesrv};{other.namesrv_address}").examine()
    assert (1, {"namesrvs-differ"}) == (code, set(found))
    assert "does not know broker broker-a" in found["namesrvs-differ"]["what"]


def test_a_name_server_without_brokers_is_found(tmp_path: Path) -> None:
    with running(tmp_path, {}, namesrv_port=0) as node:
        assert {"no-broker"} == Doctor(node.namesrv_address).names()
        assert {"no-broker", "route-no-broker"} == Doctor(node.namesrv_address).names("--topic", "orders")


def test_a_broker_that_advertises_where_it_is_not_is_found(tmp_path: Path) -> None:
    settings = {"brokerIP1": "127.0.0.77", "brokerName": "lost"}
    with running(tmp_path, settings, namesrv_port=0, broker_port=0) as node:
        code, found = Doctor(node.namesrv_address).examine()
        routed = Doctor(node.namesrv_address).names("--topic", "orders")
        shown = Command(node.namesrv_address).fails(3, "cluster", "show")
    assert (1, {"broker-unreachable"}) == (code, set(found))
    assert "brokerIP1" in found["broker-unreachable"]["advice"]
    assert "route-broker-down" in routed
    assert "lost: registered, but without an answer" in shown


# -- brokers


def test_a_broker_that_takes_no_messages_is_found(doctor: Doctor) -> None:
    doctor.command("broker", "config", "set", "broker-a", "brokerPermission=4")
    code, found = doctor.examine()
    assert (1, {"broker-no-write"}) == (code, set(found))


def test_a_clock_that_is_an_hour_ahead_is_found(doctor: Doctor, patient: BrokerThread) -> None:
    patient.advance(3600)
    code, found = doctor.examine()
    assert (1, {"clock-skew"}) == (code, set(found))
    assert "60 min ahead" in found["clock-skew"]["what"]


def test_a_store_directory_that_is_none_is_found(doctor: Doctor, tmp_path: Path) -> None:
    assert {"directory"} == doctor.names("--dir", str(tmp_path / "missing"))
    (tmp_path / "file").touch()
    assert {"directory"} == doctor.names("--dir", str(tmp_path / "file"))
    assert set() == doctor.names("--dir", str(tmp_path)) - {"directory-small"}


# -- topics


def test_no_route_because_the_topic_does_not_exist(doctor: Doctor) -> None:
    code, found = doctor.examine("--topic", "orders")
    assert (1, {"route-no-topic"}) == (code, set(found))
    assert "`arrowmq topic create orders`" == found["route-no-topic"]["advice"]


def test_no_route_because_nobody_has_sent_yet(doctor: Doctor) -> None:
    doctor.command("broker", "config", "set", "broker-a", "autoCreateTopicEnable=true")
    assert {"route-no-topic-yet"} == doctor.names("--topic", "orders")


def test_no_route_because_the_name_is_misspelt(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders")
    _, found = doctor.examine("--topic", "Ordres")
    assert {"route-misspelt"} == set(found)
    assert "but orders does" in found["route-misspelt"]["what"]


def test_no_route_because_the_name_server_was_not_told(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders")
    with sync.Admin(doctor.command.namesrv) as admin:
        admin.call(doctor.command.namesrv, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    assert {"route-not-registered"} == doctor.names("--topic", "orders")


def test_a_topic_that_may_not_be_written_is_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--perm", "r")
    _, found = doctor.examine()
    assert {"topic-perm"} == set(found)
    assert "no write permission: senders are refused" in found["topic-perm"]["what"]


def test_a_question_about_one_topic_is_not_answered_with_another(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders")
    doctor.command("topic", "create", "broken", "--perm", "r")
    assert set() == doctor.names("--topic", "orders")
    assert {"topic-perm"} == doctor.names("--topic", "broken")


def test_write_queues_that_nobody_reads_are_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--write-queues", "8", "--read-queues", "2")
    _, found = doctor.examine()
    assert {"queues-unread"} == set(found)
    assert "the last 6 are never consumed" in found["queues-unread"]["what"]


def test_write_permission_wiped_at_the_name_server_is_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders")
    with sync.Admin(doctor.command.namesrv) as admin:
        admin.set_write_permission("broker-a", is_writable=False)
        assert {"write-wiped"} == doctor.names()
        admin.set_write_permission("broker-a", is_writable=True)
        assert set() == doctor.names()


def test_a_topic_on_one_of_two_brokers_is_found(doctor: Doctor, tmp_path: Path) -> None:
    settings = {"brokerName": "broker-b", "namesrvAddr": doctor.command.namesrv}
    with running(tmp_path, settings, broker_port=0):
        doctor.command("topic", "create", "orders", "--broker", "broker-a")
        code, found = doctor.examine()
    assert (0, {"topic-not-spread"}) == (code, set(found))
    assert "not on broker-b" in found["topic-not-spread"]["what"]


# -- groups


def test_members_that_subscribe_differently_are_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--queues", "2")
    with (
        sync.Consumer(doctor.command.namesrv, group="g", topic="orders", tags="a"),
        sync.Consumer(doctor.command.namesrv, group="g", topic="orders", tags="b"),
    ):
        code, found = doctor.examine()
    assert (1, True) == (code, "subscriptions-differ" in found)
    assert "subscribe to orders differently" in found["subscriptions-differ"]["what"]


def test_a_queue_that_is_stuck_in_a_consumer_is_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--queues", "1")
    doctor.command("message", "send", "orders", "x")
    entered, done = threading.Event(), threading.Event()

    def hang(message: object) -> None:
        entered.set()
        done.wait(60)

    with sync.PushConsumer(doctor.command.namesrv, group="g", topic="orders", consume_from="first", handler=hang):
        assert entered.wait(30)
        _, found = doctor.examine()
        done.set()
    assert {"queue-stuck"} == set(found)
    assert "Queue 0 of orders on broker-a is stuck in group g" in found["queue-stuck"]["what"]
    assert "offset 0" in found["queue-stuck"]["what"]


def test_messages_that_nobody_consumes_and_dead_letters_are_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--queues", "1")
    doctor.command("message", "send", "orders", "--lines", "one")
    doctor.command("message", "send", "orders", "--lines", "two")
    with sync.Consumer(doctor.command.namesrv, group="g", topic="orders", consume_from="first") as consumer:
        next(iter(consumer)).nack(delay_level=-1)
    code, found = doctor.examine()
    assert (1, {"nobody-consumes", "dead-letters"}) == (code, set(found))
    assert "1 message wait for it" in found["nobody-consumes"]["what"]
    assert "1 dead letter," in found["dead-letters"]["what"]


def test_a_group_that_may_not_consume_is_found(doctor: Doctor) -> None:
    doctor.command("group", "create", "g", "--no-consume")
    assert {"group-disabled"} == doctor.names()


def test_an_offset_beyond_the_end_is_found(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--queues", "1")
    doctor.command("group", "create", "g")
    with sync.Admin(doctor.command.namesrv) as admin:
        (queue,) = admin.route("orders").subscribe_queues
        admin.set_offset("g", queue, 50)
    _, found = doctor.examine()
    assert {"offset-beyond-end"} == set(found)
    assert "50 messages beyond the end" in found["offset-beyond-end"]["what"]


# -- the screen


def test_findings_are_sentences_with_something_to_do(doctor: Doctor) -> None:
    doctor.command("topic", "create", "orders", "--perm", "r")
    result = doctor.command.run("doctor", "--watch", "0", columns=80)
    assert 1 == result.exit_code
    assert "warning: Topic orders on broker-a has no write permission" in result.stdout
    assert "  to do: `arrowmq topic update orders --perm rw`" in result.stdout
    assert "One finding needs you." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
