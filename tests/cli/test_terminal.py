"""What happens at a real terminal, and with a server that hangs."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arrowmq.server import build_node
from arrowmq.sync.loop_thread import LoopThread

from .conftest import Command

ARROWMQ = [sys.executable, "-c", "from arrowmq.cli import main; main()"]


def at_a_terminal(namesrv: str, *words: str, answer: str) -> tuple[int, str]:
    """Runs the command with a terminal, gives it one answer; its exit code and all that appeared."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ARROWMQ_NAMESRV": namesrv, "TERM": "dumb"}
    process = subprocess.Popen([*ARROWMQ, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    is_answered = False
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # how a terminal says that nobody is at its other end any more
                break
            seen += piece
            if not is_answered and b"[y/N]" in seen:
                is_answered = True
                os.write(ours, answer.encode() + b"\n")
        return process.wait(60), seen.decode()
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_no_changes_nothing_and_a_yes_does_it(command: Command, name: str) -> None:
    command("topic", "create", name)
    code, seen = at_a_terminal(command.namesrv, "topic", "delete", name, answer="n")
    assert (1, True) == (code, "nothing was changed" in seen)
    assert f"Delete topic {name} with its 0 messages?" in seen
    command("topic", "show", name)
    code, seen = at_a_terminal(command.namesrv, "topic", "delete", name, answer="y")
    assert (0, True) == (code, "is deleted" in seen)
    command.fails(1, "topic", "show", name)


def test_a_reset_shows_its_plan_before_it_asks(command: Command, name: str) -> None:
    command("topic", "create", name, "--queues", "1")
    command("message", "send", name, "x")
    command("group", "create", name)
    code, seen = at_a_terminal(command.namesrv, "offset", "reset", name, name, "--to-end", answer="y")
    assert (0, True) == (code, seen.index("RESET TO") < seen.index("[y/N]") < seen.index("is reset"))
    assert 1 == command.json("offset", "show", name, "--topic", name)[0]["consumed"]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[str]:
    """The NameServer of a cluster whose broker is stopped in the middle of its work: it accepts, and never answers."""
    thread = LoopThread("NameServer of a test")
    namesrv = build_node(tmp_path / "n", {"bindAddress": "127.0.0.1"}, namesrv_port=0)
    thread.call(namesrv.start)
    address = namesrv.namesrv_address
    words = [*ARROWMQ, "broker", "-n", address, "--name", "frozen", "--port", "0", "--dir", str(tmp_path / "b")]
    settings = ["--set", "bindAddress=127.0.0.1", "--set", "mappedFileSizeCommitLog=1048576"]
    broker = subprocess.Popen([*words, *settings], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    try:
        assert broker.stdout.readline().startswith("ready:")
        broker.send_signal(signal.SIGSTOP)
        yield address
    finally:
        broker.kill()
        broker.communicate()
        thread.call(namesrv.stop)
        thread.stop()


def test_a_broker_that_hangs_is_exit_code_4_and_the_doctor_names_it(hanging: str) -> None:
    command = Command(hanging)
    said = command.fails(4, "topic", "list", "--timeout", "0.5")
    assert "no answer within 0.5 s. Whether it took effect is not known" in said
    result = command.run("doctor", "--json", "--timeout", "0.5")
    assert 1 == result.exit_code
    (finding,) = [each for each in json.loads(result.stdout)["findings"] if each["severity"] == "error"]
    assert "broker-unreachable" == finding["name"]
    assert "Broker frozen is registered" in finding["what"]
