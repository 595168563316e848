"""Goal: the commands that run servers, as an operator uses them: the real process, its output, its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle.ports import free_port

from arrowmq.remoting.client import RemotingClient
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

START_TIMEOUT_S = 60.0
COMMAND = [sys.executable, "-c", "from arrowmq.cli import main; main()"]


class Server:
    """A running `arrowmq` command."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> str:
        """The line that says so."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(START_TIMEOUT_S), "nothing was said in time"
        line = self.process.stdout.readline()
        if "ready" not in line:
            self.process.kill()
            raise AssertionError(f"{line!r}\n{self.process.communicate()[1]}")
        return line

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=START_TIMEOUT_S)
        return self.process.returncode, errors


@contextlib.contextmanager
def running(*words: str, cwd: Path) -> Iterator[Server]:
    server = Server(*words, cwd=cwd)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def fail(*words: str, cwd: Path) -> str:
    """Run a command that must not start; what it says on standard error."""
    done = subprocess.run([*COMMAND, *words], cwd=cwd, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


async def brokers_of(namesrv: str, topic: str = "TBW102") -> list[str]:
    client = RemotingClient()
    try:
        answer = await client.invoke(namesrv, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}), 10)
    finally:
        await client.close()
    assert answer.code == 0, answer.remark
    return sorted(broker["brokerName"] for broker in json.loads(answer.body)["brokerDatas"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_server_says_ready_serves_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    port, namesrv_port = free_port(), free_port()
    words = ["server", "--dir", "data", "--namesrv-port", str(namesrv_port), "--port", str(port)]
    with running(*words, "--set", "brokerName=broker-a", "--set", "bindAddress=127.0.0.1", cwd=tmp_path) as server:
        line = server.ready()
        assert line.startswith(f"ready: NameServer 127.0.0.1:{namesrv_port}, broker broker-a at 127.0.0.1:{port}")
        assert await brokers_of(f"127.0.0.1:{namesrv_port}") == ["broker-a"]
        code, errors = server.stop(number)
    assert (code, "Traceback" in errors) == (0, False)
    assert (tmp_path / "data" / "config" / "topics.json").exists()
    assert not (tmp_path / "data" / "abort").exists()


async def test_namesrv_and_broker_run_apart_with_apaches_files(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("bindAddress=127.0.0.1\nserverWorkerThreads=8\n")
    (tmp_path / "broker.conf").write_text(
        "brokerClusterName=East\nbrokerName=from-file\nbindAddress=127.0.0.1\nflushDiskType=ASYNC_FLUSH\n"
    )
    port = free_port()
    with running("namesrv", "--port", str(port), "--dir", "n", "-c", "namesrv.conf", cwd=tmp_path) as namesrv:
        namesrv.ready()
        words = ["broker", "-n", f"127.0.0.1:{port}", "--name", "broker-b", "--port", "0", "--dir", "b"]
        with running(*words, "-c", "broker.conf", "--set", "autoCreateTopicEnable=true", cwd=tmp_path) as broker:
            assert re.match(r"ready: broker broker-b at 127\.0\.0\.1:\d+", broker.ready())
            assert await brokers_of(f"127.0.0.1:{port}", "East") == ["broker-b"]
            assert broker.stop()[0] == 0
        assert namesrv.stop()[0] == 0


async def test_several_brokers_run_as_a_process_each_and_stop_together(tmp_path: Path) -> None:
    port = free_port(10)
    words = ["server", "--brokers", "2", "--namesrv-port", "0", "--port", str(port), "--name", "b", "--dir", "d"]
    with running(*words, "--set", "bindAddress=127.0.0.1", cwd=tmp_path) as server:
        line = server.ready()
        assert f"broker b-1 at 127.0.0.1:{port}, broker b-2 at 127.0.0.1:{port + 10}" in line
        found = re.search(r"NameServer (\S+),", line)
        assert found is not None
        assert await brokers_of(found[1]) == ["b-1", "b-2"]
        assert server.stop()[0] == 0
    assert {path.name for path in (tmp_path / "d").iterdir()} >= {"broker-1", "broker-2"}


def test_when_the_parent_is_killed_its_brokers_stop_too(tmp_path: Path) -> None:
    words = ["server", "--brokers", "2", "--namesrv-port", "0", "--port", "0", "--dir", "d", "--name", "b"]
    with running(*words, "--set", "bindAddress=127.0.0.1", cwd=tmp_path) as server:
        line = server.ready()
        server.process.kill()
        server.process.wait()
        ports = [int(port) for port in re.findall(r"broker b-\d at 127\.0\.0\.1:(\d+)", line)]
        assert len(ports) == 2
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(_listens(port) for port in ports):
            assert time.monotonic() < deadline, "a broker outlived its parent"
            os.sched_yield()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["broker", "--port", "0", "--dir", "d"], "a broker needs a NameServer: give it one with -n HOST:PORT"),
        (["broker", "-n", "nowhere", "--dir", "d"], "'nowhere' is no address: expected host:port"),
        (["server", "--set", "autoCreate"], "expected key=value"),
        (["server", "-c", "missing.conf"], "the configuration file missing.conf does not exist"),
        (["server", "--port", "70000"], "70000 is not in the range"),
        (["server", "--port", "0", "--namesrv-port", "0", "--set", "brokerRole=SLAVE"], "needs a brokerId above 0"),
        (["namesrv", "--port", "0", "--set", "enableTopicList=maybe"], "enableTopicList=maybe: expected true or false"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(tmp_path: Path, words: list[str], says: str) -> None:
    assert says in fail(*words, cwd=tmp_path)


def test_a_taken_port_and_a_locked_store_are_named(tmp_path: Path) -> None:
    words = ["server", "--dir", "d", "--namesrv-port", "0", "--set", "bindAddress=127.0.0.1"]
    with running(*words, "--port", "0", cwd=tmp_path) as server:
        found = re.search(r"at 127\.0\.0\.1:(\d+)", server.ready())
        assert found is not None
        assert "another program uses this port" in fail(
            *words[:2], "other", *words[3:], "--port", found[1], cwd=tmp_path
        )
        assert "another broker process works on d" in fail(*words, "--port", "0", cwd=tmp_path)
        assert server.stop()[0] == 0


def test_help_lists_the_commands_without_loading_them() -> None:
    check = (
        "import sys; from click.testing import CliRunner; from arrowmq.cli import arrowmq;"
        "print(CliRunner().invoke(arrowmq, ['--help']).output);"
        "print(sorted(m for m in sys.modules if m.startswith('arrowmq.')))"
    )
    output = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    for command in ("server", "namesrv", "broker"):
        assert re.search(rf"^  {command} ", output, re.MULTILINE)
    assert output.rstrip().endswith("['arrowmq.cli']")


def test_a_server_loads_no_tools() -> None:
    """Starting is fast because nothing is imported that a server does not use."""
    check = (
        "import sys, arrowmq.cli.serve.command, arrowmq.cli.serve.running, arrowmq.namesrv.name_server, arrowmq.broker;"
        "print([m for m in ('rich', 'lark', 'prometheus_client', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
