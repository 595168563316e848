"""What holds for every verb: help with an example, a sentence and an exit code when the server is down."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from arrowmq.cli import arrowmq

from .conftest import Command

# Arguments that a verb needs before it talks to anybody
ARGUMENTS = {
    "topic create": ["orders"],
    "topic show": ["orders"],
    "topic update": ["orders", "--perm", "r"],
    "topic delete": ["orders", "--yes"],
    "topic routes": ["orders"],
    "group show": ["billing"],
    "group create": ["billing"],
    "group delete": ["billing", "--yes"],
    "offset show": ["billing"],
    "offset reset": ["billing", "orders", "--to-end", "--yes"],
    "message send": ["orders", "hello"],
    "message tail": ["orders"],
    "message find": ["orders", "--key", "k"],
    "message show": ["0" * 32],
    "message resend": ["0" * 32],
    "message explain": ["0" * 32],
    "dead-letters show": ["billing", "0" * 32],
    "dead-letters resend": ["billing", "--yes"],
    "broker config show": ["broker-a"],
    "broker config set": ["broker-a", "a=b"],
    "completion": ["bash"],
    "cluster switch": ["broker-a"],
    "user create": ["billing"],
    "user update": ["billing", "--disable"],
    "user delete": ["billing", "--yes"],
    "acl allow": ["billing", "Pub", "Topic:orders"],
    "acl deny": ["billing", "Pub", "Topic:orders"],
    "acl delete": ["billing", "--yes"],
    "acl test": ["billing", "Pub", "Topic:orders"],
    "acl import": [str(Path(__file__).with_name("plain_acl.yml"))],
}
# Verbs that run servers, work on files or start Spark: each with arguments that are wrong, the exit code for them, and
# a word of what is then said. What they do when all is well is tested with their own subjects.
LOCAL: dict[str, tuple[list[str], int, str]] = {
    "server": (["--port", "70000"], 2, "70000 is not in the range"),
    "namesrv": (["-c", "no-such-file.conf"], 1, "no-such-file.conf"),
    "broker": (["--dir", "x", "--set", "no equals sign"], 2, "expected key=value"),
    "replica": (["--of", "nonsense", "--broker", "broker-a", "--dir", "x"], 1, "'nonsense' is no address"),
    "controller": (["--etcd", "nonsense"], 1, "expected http://host:port"),
    "tls make": (["--days", "0"], 2, "0 is not in the range"),
    "console": (["--port", "70000"], 2, "70000 is not in the range"),
    "proxy": (["-n", "nowhere"], 2, "'nowhere' is no NameServer address"),
    "store check": (["no-such-folder"], 2, "does not exist"),
    "store dump": (["no-such-folder"], 2, "does not exist"),
    "store rebuild": (["no-such-folder"], 2, "does not exist"),
    "store repair": (["no-such-folder", "--from", "127.0.0.1:1"], 2, "does not exist"),
    "store stats": (["no-such-folder"], 2, "does not exist"),
    "pipeline archive": ([], 2, "Missing option '--to'"),
    "pipeline audit": ([], 2, "Missing argument 'STORE...'"),
    "pipeline dead-letters": (["--namesrv"], 2, "requires an argument"),
    "pipeline init": ([], 2, "Missing argument 'FOLDER'"),
    "pipeline replay": ([], 2, "Missing option '--work'"),
    "pipeline trace": (["--no-such-option"], 2, "No such option"),
}
# Verbs of pipelines that ask a server at once; with the arguments they need to get there
DOWN = {"pipeline dead-letters": [], "pipeline trace": []}


def verbs(group: click.Group = arrowmq, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb of the command, found in its own tree: one that is added tomorrow is here, too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        full = f"{path} {name}".strip()
        if isinstance(found, click.Group):
            yield from verbs(found, full)
            if found.invoke_without_command:
                yield full, found
        elif found is not None:
            yield full, found


ALL = dict(verbs())
VERBS = {verb: found for verb, found in ALL.items() if verb not in LOCAL}


def test_the_verbs_of_the_command_are_these() -> None:
    assert [
        "broker config set", "broker config show", "acl allow", "acl delete", "acl deny", "acl import", "acl list",
        "acl test", "bench", "client list", "cluster show", "cluster switch", "completion",
        "dead-letters list", "dead-letters resend", "dead-letters show", "doctor", "group create", "group delete",
        "group list", "group show", "message explain", "message find", "message resend", "message send",
        "message show", "message tail", "offset reset", "offset show", "topic create", "topic delete", "topic list",
        "topic routes", "topic show", "topic update",
        "user create", "user delete", "user list", "user update",
    ] == sorted(VERBS, key=lambda verb: (not verb.startswith("broker"), verb))  # fmt: skip
    assert set(LOCAL) == set(ALL) - set(VERBS), "a verb that is gone"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_scene_with_a_running_server(verb: str) -> None:
    """In this folder: `command("noun", "verb", …)` ends well there, or its document is looked at."""
    words = r",\s*".join(f'"{word}"' for word in verb.split())
    called = re.compile(rf"(?:command|\bcommand\.json|at_a_terminal|command\.run)\(\s*(?:[\w.]+,\s*)?{words}")
    scenes = [
        path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__) or verb == "completion"
    ]
    assert any(called.search(path.read_text()) for path in scenes), f"no scene calls arrowmq {verb}"


@pytest.mark.parametrize("verb", LOCAL)
def test_wrong_arguments_of_a_local_verb_are_a_sentence(command: Command, verb: str) -> None:
    words, code, said = LOCAL[verb]
    told = command.fails(code, *verb.split(), *words)
    assert said in " ".join(told.split())
    assert "Traceback" not in told


@pytest.mark.parametrize("verb", DOWN)
def test_a_pipeline_says_in_a_sentence_that_no_server_answers(closed_port: int, verb: str) -> None:
    words = [*verb.split(), *DOWN[verb], "--namesrv", f"127.0.0.1:{closed_port}"]
    done = subprocess.run(
        [sys.executable, "-c", "from arrowmq.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert 1 == done.returncode
    assert "no NameServer answers" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ALL)
def test_an_option_that_there_is_not_is_named(command: Command, verb: str) -> None:
    said = command.fails(2, *verb.split(), "--no-such-option")
    assert ("No such option" in said, "--no-such-option" in said) == (True, True)


@pytest.mark.parametrize("verb", ALL)
def test_every_verb_helps_with_an_example(command: Command, verb: str) -> None:
    text = " ".join(command(*verb.split(), "--help").split())
    assert f"arrowmq {verb}" in text.partition("Example")[2]


@pytest.mark.parametrize("verb", ALL)
def test_every_verb_is_in_the_docs_with_what_it_prints(verb: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    if verb in LOCAL:
        names = (
            "operations.md",
            "store.md",
            "spark/pipelines.md",
            "failover.md",
            "security.md",
            "proxy.md",
            "console.md",
        )
        pages = [docs / name for name in names]
        assert any(f"arrowmq {verb}" in page.read_text() for page in pages)
    else:
        assert f"arrowmq {verb}" in (docs / "commands.md").read_text().partition("## topic")[2]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("completion", "doctor")])
def test_a_server_that_is_down_is_a_sentence_and_exit_code_3(closed_port: int, verb: str) -> None:
    said = Command(f"127.0.0.1:{closed_port}").fails(3, *verb.split(), *ARGUMENTS.get(verb, []))
    assert said.startswith(f"Error: no NameServer answers (127.0.0.1:{closed_port}: connection refused)")
    assert said.count("\n") == 1


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "completion"])
def test_an_address_that_is_none_is_a_wrong_argument(command: Command, verb: str) -> None:
    assert "'nowhere' is no NameServer address" in command.fails(
        2, *verb.split(), *ARGUMENTS.get(verb, []), "-n", "nowhere"
    )


@pytest.mark.parametrize("verb", ARGUMENTS)
def test_a_missing_argument_is_named(command: Command, verb: str) -> None:
    if verb in ("message find",):
        assert "needs a topic" in command.fails(2, *verb.split())
    else:
        assert "Missing argument" in command.fails(2, *verb.split())


def test_keys_belong_together(command: Command) -> None:
    assert "--access-key and --secret-key" in command.fails(2, "topic", "list", "--access-key", "a")


def test_a_trust_file_that_is_missing_is_named(command: Command) -> None:
    assert "missing.pem" in command.fails(2, "topic", "list", "--tls-ca", "missing.pem")


def test_the_installed_command_says_it_in_one_sentence_too(closed_port: int) -> None:
    words = [sys.executable, "-c", "from arrowmq.cli import main; main()", "topic", "list"]
    done = subprocess.run([*words, "-n", f"127.0.0.1:{closed_port}"], capture_output=True, text=True, timeout=60)
    assert (3, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(command: Command) -> None:
    words = f"{sys.executable} -c 'from arrowmq.cli import main; main()' broker config show broker-a"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} -n {command.namesrv} | head -1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "SETTING" in done.stdout
    assert "" == done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(command: Command, shell: str) -> None:
    assert "_ARROWMQ_COMPLETE" in command("completion", shell)


def test_names_of_topics_are_completed_from_the_cluster(command: Command, name: str) -> None:
    command("topic", "create", name)
    environment = {
        "COMP_WORDS": f"arrowmq topic show {name[:8]}",
        "COMP_CWORD": "3",
        "_ARROWMQ_COMPLETE": "bash_complete",
        "ARROWMQ_NAMESRV": command.namesrv,
    }
    words = [sys.executable, "-c", "from arrowmq.cli import main; main()"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert f"plain,{name}" in done.stdout.splitlines()


def test_the_package_runs_as_the_command() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "arrowmq", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("Usage: arrowmq [OPTIONS] COMMAND")
