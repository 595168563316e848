"""The unit, the container file and the compose example start the server that this repository has."""

from __future__ import annotations

import configparser
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.config import read_properties
from arrowmq.store import StoreConfig

ROOT = Path(__file__).resolve().parents[1]
CONTAINER = ROOT / "packaging" / "Containerfile"
COMPOSE = ROOT / "examples" / "docker-compose.yml"
UNIT = ROOT / "packaging" / "systemd" / "arrowmq.service"
ARROWMQ = [sys.executable, "-c", "import sys; from arrowmq.cli import main; sys.exit(main())"]
FREE_PORTS = ["--namesrv-port", "0", "--port", "0", "--set", "metricsPromExporterPort=0"]


def starts(arguments: list[str], folder: Path) -> str:
    """The first lines of a server with these arguments, up to the one that says it is ready; it ends with its input."""
    at = arguments.index("--dir") + 1
    command = [*ARROWMQ, *arguments[:at], str(folder), *arguments[at + 1 :], *FREE_PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if line.startswith("ready"):
                    return line
        finally:
            server.terminate()
        assert server.stderr is not None
        raise AssertionError(server.stderr.read())


def test_the_containers_command_starts_a_server_that_clients_outside_can_reach(tmp_path: Path) -> None:
    command = re.search(r"^CMD (\[.*\])$", CONTAINER.read_text(), re.MULTILINE)
    assert command is not None
    assert "at 127.0.0.1:" in starts(json.loads(command[1]), tmp_path / "data")


def test_the_compose_command_starts_the_same_server_and_takes_the_hosts_name(tmp_path: Path) -> None:
    text = COMPOSE.read_text()
    block = re.search(r"command:\n((?:      - .*\n)+)", text)
    assert block is not None
    arguments = [line.split("- ", 1)[1] for line in block[1].splitlines()]
    filled = [word.replace("${ARROWMQ_HOST:-127.0.0.1}", "localhost") for word in arguments]
    assert filled != arguments
    assert "at localhost:" in starts(filled, tmp_path / "data")


def test_the_container_file_has_no_fault_that_hadolint_knows() -> None:
    """hadolint comes with the development tools where it is packaged (Linux on x86-64)."""
    linter = Path(sys.executable).with_name("hadolint")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return
    done = subprocess.run([linter, CONTAINER], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_published_ports_are_the_same_outside_as_inside() -> None:
    ports = re.findall(r'- "(\d+):(\d+)"', COMPOSE.read_text())
    assert ports == [("9876", "9876"), ("10911", "10911"), ("10909", "10909")]
    exposed = re.search(r"^EXPOSE (.*)$", CONTAINER.read_text(), re.MULTILINE)
    assert exposed is not None
    assert {inside for _, inside in ports} <= set(exposed[1].split())


def test_the_container_does_not_run_as_root() -> None:
    assert re.search(r"^USER 10911$", CONTAINER.read_text(), re.MULTILINE)


def test_the_image_gets_every_file_that_it_copies() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINER.read_text(), re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_unit_starts_the_server_with_the_settings_beside_it(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    settings = UNIT.parent / "broker.conf"
    properties = read_properties(settings)
    BrokerConfig.from_properties(properties)
    StoreConfig.from_broker_config(properties)
    arguments = unit["Service"]["ExecStart"].replace("/etc/arrowmq/broker.conf", str(settings)).split()[1:]
    assert "ready" in starts([*arguments, "--set", "brokerIP1=127.0.0.1"], tmp_path / "data")


def test_every_line_of_the_unit_is_understood(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/arrowmq/bin/arrowmq", sys.executable)
    assert [line for line in text.splitlines() if not re.fullmatch(r"(#.*|\[\w+\]|[A-Z]\w+=.*|)", line)] == []
    if shutil.which("systemd-analyze") is None:
        return  # the form alone, where nobody can judge the meaning
    (tmp_path / UNIT.name).write_text(text)
    verify = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line] == []
