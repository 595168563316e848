"""`arrowmq user` and `arrowmq acl` against a server that checks who asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import arrowmq as package
from arrowmq import sync
from arrowmq.cli import arrowmq
from arrowmq.testing import BrokerThread

from .conftest import Command

ROOT = ("root", "the-secret-of-root")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}


class Signed(Command):
    """The command with credentials in its environment."""

    def __init__(self, namesrv: str, credentials: tuple[str, str] | None) -> None:
        super().__init__(namesrv)
        self.credentials = credentials

    def run(self, *words: str, stdin: str | bytes | None = None, columns: int | None = None) -> Result:
        key, secret = self.credentials or (None, None)
        environment = {"ARROWMQ_NAMESRV": self.namesrv, "ARROWMQ_ACCESS_KEY": key, "ARROWMQ_SECRET_KEY": secret}
        result = CliRunner().invoke(arrowmq, list(words), input=stdin, env=environment, prog_name="arrowmq")
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result


@pytest.fixture(scope="module")
def guarded() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SETTINGS) as thread:
        yield thread


@pytest.fixture
def command(guarded: BrokerThread) -> Signed:
    return Signed(guarded.namesrv, ROOT)


def test_without_a_signature_the_command_says_what_is_missing(guarded: BrokerThread) -> None:
    said = Signed(guarded.namesrv, None).fails(1, "user", "list")
    assert "username cannot be null" in said


def test_a_user_is_created_given_rights_and_works(command: Signed, guarded: BrokerThread, name: str) -> None:
    made = command.json("user", "create", name)
    credentials = (name, made["password"])
    assert "has no rights yet" in command("user", "create", f"{name}-2", "--password", "another-password")
    with (
        sync.Producer(guarded.namesrv, credentials=credentials, retries=0) as producer,
        pytest.raises(package.ArrowMQError, match=r"NO_PERMISSION|no permission"),
    ):
        producer.send("orders", b"x")
    assert f"{name}: allow Pub on Topic:orders" in command("acl", "allow", name, "pub", "Topic:orders")
    with sync.Producer(guarded.namesrv, credentials=credentials) as producer:
        assert producer.send("orders", b"x").queue_offset >= 0
    listed = command.json("user", "list", name)
    assert [name, f"{name}-2"] == [user["username"] for user in listed]
    assert "another-password" not in command("user", "list")


def test_a_test_of_rights_explains_which_rule_decides(command: Signed, name: str) -> None:
    command("user", "create", name, "--password", "x")
    said = command.fails(1, "acl", "test", name, "Pub", "Topic:team_a")
    assert "may not Pub on Topic:team_a" in said
    command("acl", "allow", name, "All", "Topic:team_*", "--from", "10.0.0.0/8")
    command("acl", "deny", name, "Pub", "Topic:team_b")
    assert "by the Custom rule: Allow All on Topic:team_* from 10.0.0.0/8" in command(
        "acl", "test", name, "Pub", "Topic:team_a", "--from", "10.1.2.3"
    )
    assert command.run("acl", "test", name, "Pub", "Topic:team_a", "--from", "192.0.2.1").exit_code == 1
    result = command.run("acl", "test", name, "Pub", "Topic:team_b", "--from", "10.1.2.3")
    assert 1 == result.exit_code
    assert "no, by the Custom rule: Deny Pub on Topic:team_b" in result.stdout
    assert "super user" in command("acl", "test", "root", "Pub", "Topic:any")
    assert "no such user" in command.run("acl", "test", f"{name}-none", "Pub", "Topic:any").stdout
    command("user", "update", name, "--disable")
    assert "disabled" in command.run("acl", "test", name, "Pub", "Topic:team_a", "--from", "10.1.2.3").stdout


def test_rights_are_listed_and_taken(command: Signed, name: str) -> None:
    command("user", "create", name, "--password", "x")
    command("acl", "allow", name, "Sub", "Topic:a", "Group:g")
    command("acl", "allow", name, "Get", "Topic:*", "--default")
    rows: list[dict[str, Any]] = command.json("acl", "list", name)
    assert [("Custom", "Topic:a"), ("Custom", "Group:g"), ("Default", "Topic:*")] == [
        (row["policy"], row["resource"]) for row in rows
    ]
    command("acl", "delete", name, "Topic:a")
    assert "Group:g" in command("acl", "list", name)
    assert "Topic:a" not in command("acl", "list", name)
    command("acl", "delete", name, "--yes")
    assert "Nobody has such rights." in command("acl", "list", name)
    command("user", "delete", name, "--yes")
    assert "there is no user" in command.fails(1, "user", "delete", name, "--yes")


def test_words_that_cannot_be_meant_are_refused_before_anything_is_asked(command: Signed) -> None:
    assert "no action" in command.fails(2, "acl", "allow", "root", "Publish", "Topic:a")
    assert "names none" in command.fails(2, "acl", "allow", "root", "Pub", "orders")
    assert "one resource" in command.fails(2, "acl", "test", "root", "Pub", "Topic:*")
    assert "nothing to change" in command.fails(2, "user", "update", "root")


def test_accounts_of_acl_1_are_imported_once(command: Signed, name: str, tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(
        f"accounts:\n- accessKey: {name}\n  secretKey: plain-secret\n  whiteRemoteAddress: 10.*.*.*\n"
        "  topicPerms: [orders=PUB]\n"
    )
    result = command.run("acl", "import", str(path))
    assert "1 of 1 accounts taken over" in result.stdout
    assert "whiteRemoteAddress" in result.stderr
    assert "yes" in command("acl", "test", name, "Pub", "Topic:orders")
    assert "0 of 1 accounts taken over" in command("acl", "import", str(path))
    assert "cannot be read" in command.fails(1, "acl", "import", str(tmp_path / "none.yml"))
