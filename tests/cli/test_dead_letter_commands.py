"""`arrowmq dead-letters` against a running server whose clock the tests move."""

from __future__ import annotations

import pytest

from arrowmq import sync

from .conftest import Command


@pytest.fixture
def group(command: Command, name: str) -> str:
    """A group that gave up three messages of a topic of the same name."""
    command("topic", "create", name, "--queues", "1")
    with sync.Producer(command.namesrv) as producer:
        for number in range(3):
            producer.send(name, b"%d" % number, tag="even" if number % 2 == 0 else "odd", keys=[f"key-{number}"])
    with sync.Consumer(command.namesrv, group=name, topic=name, consume_from="first") as consumer:
        messages = iter(consumer)
        for _ in range(3):
            next(messages).nack(delay_level=-1)
    return name


def test_letters_are_listed_and_shown(command: Command, group: str) -> None:
    (row,) = [row for row in command.json("dead-letters", "list") if row["group"] == group]
    assert 3 == row["letters"]
    assert group in command("dead-letters", "list")
    letters = command.json("dead-letters", "list", group)
    assert {"0", "1", "2"} == {letter["body"] for letter in letters}
    assert {group} == {letter["origin"] for letter in letters}
    shown = command.json("dead-letters", "show", group, letters[0]["msgId"])
    assert (f"%DLQ%{group}", letters[0]["body"]) == (shown["topic"], shown["body"])
    assert "1 dead letter (the first 1" in command("dead-letters", "list", group, "--limit", "1")


def test_letters_that_pass_the_filter_are_sent_again(command: Command, group: str) -> None:
    planned = command.json("dead-letters", "resend", group, "--tag", "even", "--dry-run")
    assert (False, 2, []) == (planned["isDone"], len(planned["letters"]), planned["sent"])
    assert "Nothing was sent" in command("dead-letters", "resend", group, "--key", "key-1", "--dry-run")
    done = command.json("dead-letters", "resend", group, "--tag", "even", "--from", "1h", "--rate", "1000", "--yes")
    assert 2 == len(done["sent"])
    bodies = [row["body"] for row in command.json("message", "find", group, "--from", "1h")]
    assert {"0": 2, "1": 1, "2": 2} == {body: bodies.count(body) for body in bodies}
    one = command.json("dead-letters", "resend", group, "--id", planned["letters"][0]["msgId"], "--yes")
    assert 1 == len(one["sent"])
    assert "sent again: 1 message" in command("dead-letters", "resend", group, "--limit", "1", "--yes")


def test_a_limit_that_is_reached_is_said(command: Command, group: str) -> None:
    result = command.run("dead-letters", "resend", group, "--limit", "2", "--dry-run", "--json")
    assert 0 == result.exit_code
    assert "--limit 2 is reached: there may be more" in result.stderr


def test_mistakes_about_dead_letters_are_sentences(command: Command, group: str) -> None:
    assert "does not exist" in command.fails(1, "dead-letters", "list", "nosuch")
    assert "no dead letter" in command.fails(1, "dead-letters", "show", group, "0" * 32)
    assert "no dead letter that fits" in command.fails(1, "dead-letters", "resend", group, "--tag", "none", "--yes")
    assert "no dead letter that fits" in command.fails(1, "dead-letters", "resend", "nosuch", "--yes")
    assert "give --yes" in command.fails(2, "dead-letters", "resend", group)
    assert "--rate" in command.fails(2, "dead-letters", "resend", group, "--rate", "0")


def test_screens_fit_their_width(command: Command, group: str) -> None:
    for columns in (80, 160):
        for words in (["dead-letters", "list"], ["dead-letters", "list", group]):
            assert max(map(len, command(*words, columns=columns).splitlines())) <= columns
