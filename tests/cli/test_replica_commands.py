"""`arrowmq server --brokers 3 --replicas`, and what an operator asks of such a trio: who is master? Another one!"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle.ports import free_port

from waiting import block_until

from .conftest import Command

PROGRAM = "import sys; from arrowmq.cli import main; sys.exit(main())"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Command, subprocess.Popen[str]]]:
    folder = tmp_path_factory.mktemp("trio")
    namesrv, broker = free_port(), free_port(*range(-2, 23))
    words = ["--dir", str(folder / "data"), "--namesrv-port", str(namesrv), "--port", str(broker), "--name", "broker-a"]
    settings = ["brokerIP1=127.0.0.1", "controllerIP=127.0.0.1", f"controllerDLegerPeers=n0-127.0.0.1:{free_port()}"]
    words += [part for setting in settings for part in ("--set", setting)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "server", "--brokers", "3", "--replicas", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready: "), (folder / "log").read_text()[-2000:]
        yield Command(f"127.0.0.1:{namesrv}"), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def controlled(command: Command) -> dict[str, object]:
    (found,) = {str(row["controlled"]): row["controlled"] for row in command.json("cluster", "show")}.values()
    assert isinstance(found, dict)
    return found


def is_whole(command: Command) -> bool:
    return command.run("cluster", "show").exit_code == 0 and controlled(command).get("syncStateSet") == [1, 2, 3]


def test_a_trio_shows_its_master_and_switches_to_another(trio: tuple[Command, subprocess.Popen[str]]) -> None:
    command, _ = trio
    block_until(lambda: is_whole(command))
    before = controlled(command)
    assert (1, "n0") == (before["epoch"], before["leader"])
    target = next(number for number in (1, 2, 3) if number != before["masterId"])
    said = command("cluster", "switch", "broker-a", "--to", str(target))
    assert f"broker-a: master {target} at 127.0.0.1" in said
    block_until(lambda: is_whole(command))
    assert (target, 2) == (controlled(command)["masterId"], controlled(command)["epoch"])
    assert "in sync: 1, 2, 3" in command("cluster", "show", columns=200)
    assert "is its master already" in command.fails(1, "cluster", "switch", "broker-a", "--to", str(target))
    assert "is not alive and in sync" in command.fails(1, "cluster", "switch", "broker-a", "--to", "9")


def test_a_broker_that_is_killed_is_followed_and_started_again(trio: tuple[Command, subprocess.Popen[str]]) -> None:
    command, process = trio
    block_until(lambda: is_whole(command))
    before = controlled(command)
    rows = command.json("cluster", "show")
    port = next(row["address"] for row in rows if row["brokerId"] == 0).rpartition(":")[2]
    os.kill(_child_with(process.pid, f"--port {port} "), signal.SIGKILL)
    block_until(lambda: is_whole(command) and controlled(command)["masterId"] != before["masterId"])
    switches = controlled(command)["switches"]
    assert isinstance(switches, list)
    assert "its process ended" in switches[-1]["reason"]


def test_a_broker_without_a_controller_cannot_switch(command: Command) -> None:
    assert "is under no controller" in command.fails(1, "cluster", "switch", "broker-a")


def test_replicas_need_several_brokers(command: Command) -> None:
    assert "--brokers 3" in command.fails(2, "server", "--replicas")


def _child_with(parent: int, words: str) -> int:
    for text in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if words in Path(f"/proc/{text}/cmdline").read_text().replace("\0", " "):
            return int(text)
    raise AssertionError(f"no child of {parent} has {words}")
