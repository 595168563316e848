"""`arrowmq message` against a running server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arrowmq import sync

from .conftest import Command


@pytest.fixture
def topic(command: Command, name: str) -> str:
    command("topic", "create", name, "--queues", "2")
    return name


def test_a_message_is_sent_found_shown_and_sent_again(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "hello", "--tag", "t", "--key", "k-1", "--property", "colour=red")
    assert ("SEND_OK", "broker-a") == (sent["status"], sent["broker"])
    shown = command.json("message", "show", sent["msgId"], "--topic", topic)
    assert ("hello", "t", ["k-1"], "red") == (
        shown["body"],
        shown["tag"],
        shown["keys"],
        shown["properties"]["colour"],
    )
    again = command.json("message", "resend", sent["msgId"], "--topic", topic)
    copy = command.json("message", "show", again["msgId"], "--topic", topic)
    assert again["msgId"] != sent["msgId"]
    assert ("hello", "t", ["k-1"], "red") == (copy["body"], copy["tag"], copy["keys"], copy["properties"]["colour"])
    text = command("message", "show", sent["msgId"])
    assert "hello" in text
    assert sent["offsetMsgId"] in text


@pytest.mark.parametrize("kind", ["msgId", "offsetMsgId"])
def test_either_id_finds_a_message_without_its_topic(command: Command, topic: str, kind: str) -> None:
    sent = command.json("message", "send", topic, "x")
    (found,) = command.json("message", "find", "--id", sent[kind])
    assert (sent["msgId"], topic, "broker-a") == (found["msgId"], found["topic"], found["broker"])


def test_messages_are_found_by_key_by_time_and_by_tag(command: Command, topic: str) -> None:
    sent = [
        command.json("message", "send", topic, str(number), "--key", "all", "--tag", f"t{number}")
        for number in range(4)
    ]
    assert ["0", "1", "2", "3"] == [row["body"] for row in command.json("message", "find", topic, "--key", "all")]
    rows = command.json("message", "find", topic, "--from", "1h")
    assert [each["msgId"] for each in sent] == [row["msgId"] for row in rows]
    from_second = command.json("message", "find", topic, "--from", str(rows[1]["stored"]), "--to", "now")
    assert rows[1]["msgId"] in [row["msgId"] for row in from_second]
    assert all(row["stored"] >= rows[1]["stored"] for row in from_second)
    assert ["2"] == [row["body"] for row in command.json("message", "find", topic, "--from", "1h", "--tag", "t2")]
    assert 2 == len(command.json("message", "find", topic, "--from", "1h", "--limit", "2"))
    assert sent[3]["msgId"] in command("message", "find", topic, "--key", "all")


def test_lines_of_standard_input_and_of_a_file_are_messages(command: Command, topic: str, tmp_path: Path) -> None:
    rows = command.json("message", "send", topic, "--lines", stdin="one\ntwo\n\nthree\n")
    assert 3 == len(rows)
    (tmp_path / "body.bin").write_bytes(b"\x00\x01")
    command("message", "send", topic, "--file", str(tmp_path / "body.bin"))
    assert "stored" in command("message", "send", topic, "--lines", stdin="four\nfive")
    command("message", "send", topic, "-", stdin="whole\ntext")
    bodies = {row["body"] for row in command.json("message", "find", topic, "--from", "1h")}
    assert {"one", "two", "three", "four", "five", "0x0001", "whole\ntext"} == bodies


def test_a_queue_and_an_order_key_are_obeyed(command: Command, topic: str) -> None:
    assert 1 == command.json("message", "send", topic, "x", "--queue", "broker-a:1")["queueId"]
    queues = {command.json("message", "send", topic, str(n), "--order-key", "same")["queueId"] for n in range(4)}
    assert 1 == len(queues)


def test_tail_shows_what_is_there_in_order_and_ends_if_told(command: Command, topic: str) -> None:
    for number in range(5):
        command("message", "send", topic, f"body-{number}", "--tag", "odd" if number % 2 else "even")
    lines = command("message", "tail", topic, "--from", "begin", "--no-follow").splitlines()
    assert [f"body-{number}" for number in range(5)] == [line.rpartition(" ")[2] for line in lines]
    odd = command("message", "tail", topic, "--from", "1h", "--no-follow", "--tag", "odd", "--json").splitlines()
    assert ["body-1", "body-3"] == [json.loads(line)["body"] for line in odd]
    assert 2 == len(command("message", "tail", topic, "--from", "begin", "--count", "2").splitlines())
    assert "" == command("message", "tail", topic, "--no-follow")


def test_tail_follows_until_it_is_interrupted(command: Command, topic: str) -> None:
    words = [sys.executable, "-u", "-c", "from arrowmq.cli import main; main()", "message", "tail", topic]
    tail = subprocess.Popen(
        [*words, "--from", "begin", "-n", command.namesrv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    )
    assert tail.stdout is not None
    try:
        for number in range(3):
            command("message", "send", topic, f"live-{number}")
            assert tail.stdout.readline().rstrip().endswith(f"live-{number}")
        tail.send_signal(signal.SIGINT)
        _, errors = tail.communicate(timeout=30)
    finally:
        if tail.poll() is None:
            tail.kill()
            tail.communicate()
    assert (0, "") == (tail.returncode, errors)


def test_a_member_consumes_a_message_once_more(command: Command, topic: str) -> None:
    seen: list[bytes] = []
    sent = command.json("message", "send", topic, "again")
    with sync.PushConsumer(
        command.namesrv, group=f"{topic}_g", topic=topic, handler=lambda message: seen.append(message.body)
    ) as consumer:
        told = command.json("message", "resend", sent["msgId"], "--topic", topic, "--group", f"{topic}_g")
        assert ("CR_SUCCESS", consumer.client_id) == (told["result"], told["clientId"])
    assert b"again" in seen


def test_mistakes_about_messages_are_sentences(command: Command, topic: str) -> None:
    assert "no route for topic nosuch" in command.fails(1, "message", "send", "nosuch", "x")
    assert "not NAME=VALUE" in command.fails(2, "message", "send", topic, "x", "--property", "a")
    assert "is no queue" in command.fails(2, "message", "send", topic, "x", "--queue", "1")
    assert "not both" in command.fails(2, "message", "send", topic, "x", "--file", __file__)
    assert "no line" in command.fails(1, "message", "send", topic, "--lines")
    assert "19 is not in the range" in command.fails(2, "message", "send", topic, "x", "--delay-level", "19")
    assert "nosuch" in command.fails(1, "message", "tail", "nosuch")
    assert "is no time" in command.fails(2, "message", "tail", topic, "--from", "tomorrow")
    assert "is not in any of" in command.fails(1, "message", "show", "0" * 32)
    assert f"is not in topic {topic}" in command.fails(1, "message", "show", "0" * 32, "--topic", topic)
    assert "is not in any of" in command.fails(1, "message", "resend", "no-id")
    assert "is not in any of" in command.fails(1, "message", "explain", "no-id")
    assert "say what to look for" in command.fails(2, "message", "find", topic)
    assert "no such message" in command.fails(1, "message", "find", topic, "--key", "nobody")
    sent = command.json("message", "send", topic, "x")
    assert "not online" in command.fails(1, "message", "resend", sent["msgId"], "--group", "nobody")
    assert "give one of them" in command.fails(2, "message", "resend", sent["msgId"], "--group", "g", "--to", "t")


def test_screens_fit_their_width(command: Command, topic: str) -> None:
    sent = command.json("message", "send", topic, "x" * 300, "--key", "k" * 30, "--tag", "a-tag")
    for columns in (80, 160):
        for words in (["message", "find", topic, "--from", "1h"], ["message", "explain", sent["msgId"]]):
            text = command(*words, columns=columns)
            assert max(map(len, text.splitlines())) <= columns
            assert sent["msgId"] in text, "an id that is cut cannot be copied"


def test_a_quick_bench_leaves_nothing_behind(command: Command) -> None:
    figures = command.json("bench", "--seconds", "0.2", "--in-flight", "8", "--queues", "2")
    assert figures["sent"]["messages"] == figures["consumed"]["messages"] > 0
    assert figures["topic"] not in command("topic", "list")
    assert "a second" in command("bench", "--seconds", "0.1")
