"""A running cluster, and the command that the tests call: the real one, in this process, without a terminal."""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from arrowmq.cli import arrowmq
from arrowmq.testing import BrokerThread


class Command:
    """`command("topic", "list")`: its result; `command.json(...)`: the document; `command.fails(...)`: the sentence."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def run(self, *words: str, stdin: str | bytes | None = None, columns: int | None = None) -> Result:
        environment = {"ARROWMQ_NAMESRV": self.namesrv, "COLUMNS": str(columns) if columns else None}
        result = CliRunner().invoke(arrowmq, list(words), input=stdin, env=environment, prog_name="arrowmq")
        # Whatever happens, a user never sees a traceback: only an exit is allowed to end a command.
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result

    def __call__(self, *words: str, stdin: str | bytes | None = None, columns: int | None = None) -> str:
        result = self.run(*words, stdin=stdin, columns=columns)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str, stdin: str | bytes | None = None) -> Any:
        return json.loads(self(*words, "--json", stdin=stdin))

    def fails(self, code: int, *words: str) -> str:
        """Runs a command that must end with this exit code; what it says on standard error."""
        result = self.run(*words)
        assert code == result.exit_code, result.output
        return result.stderr


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings={"autoCreateTopicEnable": "false"}) as thread:
        yield thread


@pytest.fixture
def command(broker: BrokerThread) -> Command:
    return Command(broker.namesrv)


@pytest.fixture
def name() -> str:
    return f"cli_{uuid.uuid4().hex[:10]}"


@pytest.fixture
def closed_port() -> int:
    """A port where nothing listens."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
