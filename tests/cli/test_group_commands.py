"""`arrowmq group` and `arrowmq offset` against a running server."""

from __future__ import annotations

from datetime import datetime

import pytest

from arrowmq import sync

from .conftest import Command


@pytest.fixture
def group(command: Command, name: str) -> str:
    """A group that has consumed 3 of the 5 messages of the one queue of a topic of the same name."""
    command("topic", "create", name, "--queues", "1")
    with sync.Producer(command.namesrv) as producer:
        for number in range(5):
            producer.send(name, b"%d" % number)
    with sync.Consumer(command.namesrv, group=name, topic=name, consume_from="first") as consumer:
        messages = iter(consumer)
        for _ in range(3):
            next(messages).ack()
    return name


def lag(command: Command, group: str) -> int:
    found: int = command.json("group", "show", group, "--topic", group)["lag"]
    return found


def test_a_group_is_created_listed_shown_and_deleted(command: Command, name: str) -> None:
    assert "3 tries" in command("group", "create", name, "--retries", "3", "--no-broadcast")
    assert name in command("group", "list")
    shown = command.json("group", "show", name)["settings"]["broker-a"]
    assert (3, False) == (shown["retryMaxTimes"], shown["broadcastEnable"])
    assert "Nobody of this group is online" in command("group", "show", name)
    assert "its offsets are lost" in command("group", "delete", name, "--yes")
    assert name not in command("group", "list")


def test_lag_is_what_has_not_been_consumed(command: Command, group: str) -> None:
    (row,) = [row for row in command.json("group", "list") if row["group"] == group]
    assert (2, 0, [group]) == (row["lag"], row["members"], row["topics"])
    assert "lag: 2 messages in 1 queue" in command("group", "show", group, "--topic", group)
    (queue,) = command.json("offset", "show", group, "--topic", group)
    assert (5, 3, 2) == (queue["maxOffset"], queue["consumed"], queue["lag"])
    assert "lag: 2 messages" in command("offset", "show", group, "--topic", group)


def test_members_and_subscriptions_are_shown(command: Command, group: str) -> None:
    with sync.Consumer(command.namesrv, group=group, topic=group, tags="a") as consumer:
        shown = command.json("group", "show", group)
        assert [consumer.client_id] == [member["clientId"] for member in shown["members"]]
        assert {"topic": group, "type": "TAG", "expression": "a"} in shown["subscriptions"]
        assert consumer.client_id in command("group", "show", group).replace("\n", "")
        assert "members online" in command.fails(1, "group", "delete", group, "--yes")


@pytest.mark.parametrize(
    ("words", "target"),
    [(["--to-begin"], 0), (["--to-end"], 5), (["--to-offset", "1"], 1), (["--to-offset", "99"], 5)],
)
def test_a_reset_is_planned_first_and_then_done(command: Command, group: str, words: list[str], target: int) -> None:
    plan = command.json("offset", "reset", group, group, *words, "--dry-run")
    assert (False, [(3, target, target - 3)]) == (
        plan["isDone"],
        [(row["current"], row["target"], row["moves"]) for row in plan["queues"]],
    )
    assert 2 == lag(command, group)
    assert "Nothing was changed" in command("offset", "reset", group, group, *words, "--dry-run")
    assert "is reset" in command("offset", "reset", group, group, *words, "--yes")
    assert 5 - target == lag(command, group)


def test_a_reset_to_a_time_goes_to_the_first_message_after_it(command: Command, group: str) -> None:
    stored = [row["stored"] for row in command.json("message", "find", group, "--from", "1h")]
    plan = command.json("offset", "reset", group, group, "--to-time", str(stored[1]), "--yes")
    assert stored.index(stored[1]) == plan["queues"][0]["target"]
    before = datetime.fromtimestamp(stored[0] / 1000 - 3600).isoformat()
    command("offset", "reset", group, group, "--to-time", before, "--yes")
    assert 5 == lag(command, group)
    command("offset", "reset", group, group, "--to-time", "now", "--yes")
    assert 0 == lag(command, group)


def test_a_reset_is_what_the_next_consumer_goes_on_from(command: Command, group: str) -> None:
    command("offset", "reset", group, group, "--to-offset", "1", "--queue", "broker-a:0", "--yes")
    with sync.Consumer(command.namesrv, group=group, topic=group) as consumer:
        assert b"1" == next(iter(consumer)).body


def test_mistakes_about_groups_and_offsets_are_sentences(command: Command, group: str) -> None:
    assert "does not exist" in command.fails(1, "group", "show", "nosuch")
    assert "does not exist" in command.fails(1, "group", "delete", "nosuch", "--yes")
    assert "does not exist" in command.fails(1, "offset", "show", "nosuch")
    assert "nosuch" in command.fails(1, "offset", "show", group, "--topic", "nosuch")
    assert "nosuch" in command.fails(1, "offset", "reset", group, "nosuch", "--to-end", "--yes")
    assert "does not exist" in command.fails(1, "offset", "reset", "nosuch", group, "--to-end", "--yes")
    assert "exactly one of" in command.fails(2, "offset", "reset", group, group)
    assert "exactly one of" in command.fails(2, "offset", "reset", group, group, "--to-end", "--to-begin")
    assert "is no time" in command.fails(2, "offset", "reset", group, group, "--to-time", "yesterday")
    assert "is no queue" in command.fails(2, "offset", "reset", group, group, "--to-end", "--queue", "zero")
    assert "no such queue" in command.fails(1, "offset", "reset", group, group, "--to-end", "--queue", "broker-a:7")
    assert "give --yes" in command.fails(2, "offset", "reset", group, group, "--to-end")
    assert "placeholder" in command.fails(2, "group", "create", "DEFAULT_CONSUMER")
    assert 2 == lag(command, group)


def test_screens_fit_their_width(command: Command, group: str) -> None:
    with sync.Consumer(command.namesrv, group=group, topic=group):
        for columns in (80, 160):
            for words in (
                ["group", "list"],
                ["group", "show", group],
                ["offset", "show", group],
                ["client", "list"],
                ["offset", "reset", group, group, "--to-begin", "--dry-run"],
            ):
                assert max(map(len, command(*words, columns=columns).splitlines())) <= columns, words
