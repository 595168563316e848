"""`arrowmq topic`, `cluster`, `client` and `broker config` against a running server."""

from __future__ import annotations

from arrowmq import sync
from arrowmq.testing import BrokerThread

from .conftest import Command


def test_a_topic_is_created_listed_shown_changed_and_deleted(command: Command, name: str) -> None:
    assert f"topic {name} is created: 3 queues on each of broker-a\n" == command(
        "topic", "create", name, "--queues", "3"
    )
    assert name in command("topic", "list")
    shown = command("topic", "show", name)
    assert f"{name} on broker-a: 3 write and 3 read queues, RW, NORMAL" in shown
    assert "0 messages; consumed by no group" in shown
    changed = command("topic", "update", name, "--perm", "r", "--write-queues", "2")
    assert f"{name} on broker-a now has 2 write and 3 read queues, R-, NORMAL\n" == changed
    assert "deleted" in command("topic", "delete", name, "--yes")
    assert name not in command("topic", "list")


def test_json_tells_the_same(command: Command, name: str) -> None:
    command("topic", "create", name, "--queues", "2", "--type", "fifo", "--order")
    (row,) = [row for row in command.json("topic", "list") if row["topic"] == name]
    assert ("broker-a", 2, 2, 6, "FIFO", True) == tuple(
        row[key] for key in ("broker", "readQueues", "writeQueues", "perm", "type", "order")
    )
    shown = command.json("topic", "show", name)
    assert [(0, 0, 0), (1, 0, 0)] == [
        (each["queueId"], each["minOffset"], each["maxOffset"]) for each in shown["queues"]
    ]
    assert {"topic": name, "messages": 0} == command.json("topic", "delete", name, "--yes")


def test_what_was_not_named_in_an_update_stays(command: Command, name: str) -> None:
    command("topic", "create", name, "--queues", "4", "--attribute", "message.type=DELAY")
    command("topic", "update", name, "--perm", "w")
    (row,) = command.json("topic", "show", name)["brokers"]
    assert (4, 4, 2, "DELAY") == (row["readQueues"], row["writeQueues"], row["perm"], row["type"])


def test_queues_can_be_taken_out_of_use(command: Command, name: str) -> None:
    command("topic", "create", name, "--queues", "4")
    (row,) = command.json("topic", "update", name, "--write-queues", "0")
    assert (4, 0) == (row["readQueues"], row["writeQueues"])


def test_routes_are_what_the_name_server_tells(command: Command, broker: BrokerThread, name: str) -> None:
    command("topic", "create", name)
    (route,) = command.json("topic", "routes", name)["routes"]
    assert ("broker-a", {"0": broker.broker_address}, 8) == (route["broker"], route["addresses"], route["writeQueues"])
    assert broker.broker_address in command("topic", "routes", name)


def test_system_topics_are_listed_when_asked_for(command: Command) -> None:
    assert "SCHEDULE_TOPIC_XXXX" not in command("topic", "list")
    assert "SCHEDULE_TOPIC_XXXX" in command("topic", "list", "--system")


def test_mistakes_about_topics_are_sentences(command: Command, name: str) -> None:
    command("topic", "create", name)
    assert "exists already" in command.fails(1, "topic", "create", name)
    assert "does not exist" in command.fails(1, "topic", "show", "nosuch")
    assert "does not exist" in command.fails(1, "topic", "update", "nosuch", "--perm", "r")
    assert "does not exist" in command.fails(1, "topic", "delete", "nosuch", "--yes")
    assert "nosuch" in command.fails(1, "topic", "routes", "nosuch")
    assert "nothing to change" in command.fails(2, "topic", "update", name)
    assert "'x' is no permission" in command.fails(2, "topic", "update", name, "--perm", "x")
    assert "characters other than" in command.fails(2, "topic", "create", "a b")
    assert "not in the range" in command.fails(2, "topic", "create", "other", "--queues", "0")
    assert "not KEY=VALUE" in command.fails(2, "topic", "create", "other", "--attribute", "x")
    assert "no cluster East" in command.fails(1, "topic", "create", "other", "--cluster", "East")
    assert "no broker broker-z" in command.fails(1, "topic", "create", "other", "--broker", "broker-z")
    assert "system topic" in command.fails(1, "topic", "delete", "SCHEDULE_TOPIC_XXXX", "--yes")


def test_nothing_is_deleted_where_nobody_can_be_asked(command: Command, name: str) -> None:
    command("topic", "create", name)
    assert "give --yes" in command.fails(2, "topic", "delete", name)
    command("topic", "show", name)


def test_the_cluster_shows_its_brokers(command: Command, broker: BrokerThread) -> None:
    (row,) = command.json("cluster", "show")
    assert ("broker-a", 0, broker.broker_address, None) == (
        row["broker"],
        row["brokerId"],
        row["address"],
        row["problem"],
    )
    assert broker.broker_address in command("cluster", "show")
    assert "no cluster East" in command.fails(1, "cluster", "show", "--cluster", "East")


def test_clients_are_listed_with_their_subscriptions(command: Command, name: str) -> None:
    command("topic", "create", name)
    with (
        sync.Producer(command.namesrv, group=f"{name}_senders") as producer,
        sync.Consumer(command.namesrv, group=f"{name}_group", topic=name, tags="a || b"),
    ):
        producer.send(name, b"x")
        rows = command.json("client", "list")
        told = {row["group"]: row for row in rows}
        consumer = told[f"{name}_group"]
        assert {"topic": name, "type": "TAG", "expression": "a || b"} in consumer["subscriptions"]
        assert ("producer", None) == (told[f"{name}_senders"]["role"], told[f"{name}_senders"]["subscriptions"])
        only = command.json("client", "list", "--group", f"{name}_group", "--role", "consumer")
        assert [consumer["clientId"]] == [row["clientId"] for row in only]
        assert f"{name}: a || b" in " ".join(command("client", "list").split())
    assert "Nobody of group" in command("client", "list", "--group", f"{name}_group")


def test_settings_of_a_broker_are_shown_and_changed(command: Command, broker: BrokerThread) -> None:
    assert {"defaultTopicQueueNums": "8"} == command.json(
        "broker", "config", "show", "broker-a", "defaultTopicQueueNums"
    )
    (row,) = command.json("broker", "config", "set", "broker-a", "defaultTopicQueueNums=5")
    assert ("8", "5") == (row["before"], row["after"])
    assert "5" in command("broker", "config", "show", broker.broker_address, "defaultTopicQueueNums")
    command("broker", "config", "set", "broker-a", "defaultTopicQueueNums=8")


def test_mistakes_about_settings_are_sentences(command: Command) -> None:
    assert "no broker broker-z" in command.fails(1, "broker", "config", "show", "broker-z")
    assert "has no setting nosuch" in command.fails(1, "broker", "config", "show", "broker-a", "nosuch")
    assert "has no setting nosuch" in command.fails(1, "broker", "config", "set", "broker-a", "nosuch=1")
    assert "not KEY=VALUE" in command.fails(2, "broker", "config", "set", "broker-a", "nosuch")
    assert "not a whole number" in command.fails(1, "broker", "config", "set", "broker-a", "defaultTopicQueueNums=many")
    assert "8" == command.json("broker", "config", "show", "broker-a", "defaultTopicQueueNums")["defaultTopicQueueNums"]


def test_tables_fit_the_screen(command: Command, name: str) -> None:
    command("topic", "create", name)
    for columns in (80, 160):
        for words in (["topic", "list"], ["topic", "show", name], ["cluster", "show"], ["topic", "routes", name]):
            lines = command(*words, columns=columns).splitlines()
            assert max(len(line) for line in lines) <= columns, words


def test_lines_of_a_table_in_a_pipe_end_where_their_text_ends(command: Command, name: str) -> None:
    """One long value must not make every other line as long: `| head` on a narrow terminal would wrap them all."""
    command("topic", "create", name)
    for words in (("topic", "list"), ("topic", "show", name), ("broker", "config", "show", "broker-a")):
        lines = command(*words).splitlines()
        assert [] == [line for line in lines if line != line.rstrip()]
