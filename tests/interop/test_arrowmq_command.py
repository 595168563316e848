"""The `arrowmq` command against the real Apache broker: it is an operator's tool for either kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle.target import CONFIG, Target

from arrowmq import sync

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Command:
    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def __call__(self, *words: str, code: int | None = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", "from arrowmq.cli import main; main()", *words, "--json"],
            env={**os.environ, "ARROWMQ_NAMESRV": self.namesrv},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if code is not None:
            assert (code, "") == (done.returncode, done.stderr if code == 0 else "")
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with Target("apache", Path(tmp_path_factory.mktemp("apache")), **CONFIG) as target:
        yield Command(target.namesrv)


def whats(story: dict[str, Any]) -> list[str]:
    return [event["what"] for event in story["events"]]


def test_topics_groups_offsets_and_messages_are_looked_after(command: Command) -> None:
    command("topic", "create", "orders", "--queues", "1")
    assert ["orders"] == [row["topic"] for row in command("topic", "list")]
    assert 2 == command("topic", "update", "orders", "--queues", "2")[0]["writeQueues"]
    command("topic", "update", "orders", "--queues", "1")
    sent = [command("message", "send", "orders", str(number), "--key", "k") for number in range(3)]
    assert ["0", "1", "2"] == [row["body"] for row in command("message", "find", "orders", "--key", "k")]
    assert "1" == command("message", "show", sent[1]["msgId"])["body"]
    assert "1" == command("message", "show", sent[1]["offsetMsgId"])["body"]
    command("group", "create", "billing")
    plan = command("offset", "reset", "billing", "orders", "--to-offset", "1", "--queue", "broker-a:0", "--yes")
    assert [1] == [row["target"] for row in plan["queues"]]
    with sync.Consumer(command.namesrv, group="billing", topic="orders") as consumer:
        message = next(iter(consumer))
        assert b"1" == message.body
        assert ["billing"] == [row["group"] for row in command("client", "list", "--role", "consumer")]
        message.ack()
    assert [("broker-a", None)] == [(row["broker"], row["problem"]) for row in command("cluster", "show")]
    assert {"flushDiskType": "ASYNC_FLUSH"} == command("broker", "config", "show", "broker-a", "flushDiskType")


def test_a_retry_a_dead_letter_and_a_transaction_are_explained(command: Command) -> None:
    command("topic", "create", "lives", "--queues", "1")
    poison = command("message", "send", "lives", "poison")["msgId"]
    with sync.Consumer(
        command.namesrv, group="tellers", topic="lives", consume_from="first", max_reconsume_times=1
    ) as consumer:
        messages = iter(consumer)
        for _ in range(2):
            next(messages).nack(delay_level=1)
    story = command("message", "explain", poison, "--topic", "lives")
    order = ["born", "stored", "sent back", "retried", "dead letter"]
    assert order == [what for what in whats(story) if what in order]
    assert 1 == len(command("dead-letters", "resend", "tellers", "--yes")["sent"])
    later = command("message", "send", "lives", "later", "--delay-level", "18")["msgId"]
    assert ["born", "delayed", "waiting"] == whats(command("message", "explain", later, "--topic", "lives"))


def test_the_doctor_finds_what_was_injected_and_then_nothing(command: Command) -> None:
    def faults() -> set[str]:
        findings = command("doctor", "--topic", "readonly", "--watch", "0", code=None)["findings"]
        # How full the disk of this machine is, is its own affair.
        names = {each["name"] for each in findings if each["severity"] != "note"}
        return {name for name in names if not name.startswith("disk-")}

    command("topic", "create", "readonly", "--perm", "r")
    assert {"topic-perm"} == faults()
    command("topic", "update", "readonly", "--perm", "rw")
    assert set() == faults()
