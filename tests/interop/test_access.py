"""Users and rights beside Apache's: every case of a matrix is decided alike, in the same words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from access.asking import ADMIN, GUARDED, INNER_SECRET, Line, administer, judge, prepare, signed
from access.cases import USERS, Case, cases, password
from oracle import hands
from oracle.java import Value
from oracle.scene import Listener, Producer
from oracle.target import Target

from arrowmq import ArrowMQError, sync
from arrowmq.wire.codes import ResponseCode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.xdist_group("access")]

SETTINGS: dict[str, Value] = {**GUARDED, "mappedFileSizeCommitLog": 16 << 20}
KINDS = ("apache", "arrowmq")
SECRETS = (ADMIN[1], INNER_SECRET, *map(password, USERS))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    """Both brokers, with the same users and policies."""
    with ExitStack() as stack:
        started = {}
        for kind in KINDS:
            started[kind] = stack.enter_context(Target(kind, tmp_path_factory.mktemp(kind), **SETTINGS))
            asyncio.run(prepare(started[kind].broker))
        yield started


def differences(targets: dict[str, Target], questions: list[Case]) -> list[str]:
    theirs, ours = (
        asyncio.run(judge(targets[kind].broker, questions, SECRETS if kind == "arrowmq" else ())) for kind in KINDS
    )
    return [
        f"{case.name}: Apache says {theirs[case]!r}, ArrowMQ {ours[case]!r}"
        for case in questions
        if theirs[case] != ours[case]
    ]


def test_every_case_of_the_matrix_is_decided_alike_and_in_the_same_words(targets: dict[str, Target]) -> None:
    questions = list(cases())
    assert len(questions) > 3000
    assert [] == differences(targets, questions)


def test_users_and_rights_outlive_a_kill_and_a_restart(targets: dict[str, Target]) -> None:
    questions = list(cases())[::11]
    for target in targets.values():
        target.crash()
    assert [] == differences(targets, questions)
    before = asyncio.run(judge(targets["arrowmq"].broker, questions))
    targets["arrowmq"].restart()
    assert before == asyncio.run(judge(targets["arrowmq"].broker, questions))


# What any user of Apache's may do without a right, and ours may not
OPEN_AT_APACHE: dict[str, tuple[int, dict[str, str], Any]] = {
    "settings": (26, {}, b""),
    "runtime data": (28, {}, b""),
    "all topics": (21, {}, b""),
    "all groups": (201, {}, b""),
    "all offsets": (43, {}, b""),
    "create a group": (200, {}, {"groupName": "intruder"}),
    "delete files": (329, {}, b""),
    "clean queues": (306, {}, b""),
    "change settings": (25, {}, b"traceOn=true\n"),
    "lite pull": (
        361,
        {
            "consumerGroup": "g1", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
            "sysFlag": "12", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
        },
        b"",
    ),
}  # fmt: skip


def test_what_apache_leaves_open_is_closed(targets: dict[str, Target]) -> None:
    async def ask(kind: str) -> dict[str, int]:
        line = Line(targets[kind].broker)
        found = {}
        for name, (code, ext, body) in OPEN_AT_APACHE.items():
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await line.ask(signed(code, {"x": "x", **ext}, data, "nobody", password("nobody")))
            found[name] = answer.code
            if kind == "arrowmq":
                assert not answer.body
        line.close()
        return found

    assert {16} == set(asyncio.run(ask("arrowmq")).values())
    assert 16 not in asyncio.run(ask("apache")).values(), "Apache has closed one: take it off the list and the page"


def test_no_secret_is_in_any_log(targets: dict[str, Target]) -> None:
    folder = targets["arrowmq"].folder
    endings = ("", ".log", ".out", ".err", ".txt")
    logs = [path for path in folder.rglob("*") if path.is_file() and path.suffix in endings]
    texts = [path for path in logs if path.stat().st_size < 50 << 20 and "commitlog" not in path.parts]
    assert any(b"refused server=" in path.read_bytes() for path in texts), [str(path) for path in texts]
    for path in texts:
        content = path.read_bytes()
        for secret in SECRETS:
            assert secret.encode() not in content, path


def test_the_file_of_users_is_for_its_owner_only(targets: dict[str, Target]) -> None:
    path = Path(targets["arrowmq"].store) / "config" / "accounts.json"
    assert 0o600 == path.stat().st_mode & 0o777


# --- clients and tools that nobody here wrote ------------------------------------------------------------------------

CLIENT = ("client", "password-of-client")
CLIENT_RIGHTS = [("Topic:mine*", ["Pub", "Sub", "Get"]), ("Group:mine*", ["Sub"])]
FLAVOURS = ("java-5.5-json", "java-5.5-binary", "java-4.9-json", "go")


@pytest.fixture(scope="module")
def client_rights(targets: dict[str, Target]) -> None:
    """A user who may work with what is its own, and the topics of the scenes."""

    async def make(broker: str) -> None:
        line = Line(broker)
        await administer(line, 3001, {"username": CLIENT[0]}, {"password": CLIENT[1], "userType": "Normal"})
        entries = [
            {"resource": resource, "actions": actions, "decision": "Allow"} for resource, actions in CLIENT_RIGHTS
        ]
        body = {"subject": "User:client", "policies": [{"policyType": "Custom", "entries": entries}]}
        assert (await administer(line, 3006, {"subject": "User:client"}, body)).code == 0
        topic = {"defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
        for name in [*(f"mine_{flavour}" for flavour in map(_word, FLAVOURS)), "mine_python", "theirs"]:
            answer = await administer(line, 17, {"topic": name, "topicFilterType": "SINGLE_TAG", **topic})
            assert answer.code == 0, answer.remark
        line.close()

    for target in targets.values():
        asyncio.run(make(target.broker))


def _word(flavour: str) -> str:
    return flavour.replace("-", "_").replace(".", "_")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("client_rights")
def test_clients_that_sign_work_with_what_is_theirs_and_nothing_else(
    targets: dict[str, Target], kind: str, flavour: str, tmp_path: Path
) -> None:
    target, mine = targets[kind], f"mine_{_word(flavour)}"
    with hands.start(flavour, target.namesrv, target.broker, tmp_path, CLIENT) as hand:
        producer = Producer(hand, "p", "mine_producers", retries=0)
        listener = Listener(hand, "l", f"{mine}_group", mine)
        receipts = producer.send(mine, [{"key": f"k{n}", "body": f"b{n}"} for n in range(5)])
        assert ["SEND_OK"] * 5 == [receipt["status"] for receipt in receipts]
        assert {f"b{n}" for n in range(5)} == {record["body"] for record in listener.quiet(5)}
        (refused,) = producer.send("theirs", [{"key": "k", "body": "b"}])
        assert is_refused(refused, "User:client has no permission to access Topic:theirs from 127.0.0.1")
    with hands.start(flavour, target.namesrv, target.broker, tmp_path) as stranger:
        producer = Producer(stranger, "p", "mine_producers", retries=0)
        (refused,) = producer.send(mine, [{"key": "k", "body": "b"}])
        assert is_refused(refused, "username cannot be null")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("client_rights")
def test_the_python_client_signs_alike(targets: dict[str, Target], kind: str) -> None:
    namesrv = targets[kind].namesrv
    with sync.Producer(namesrv, credentials=CLIENT, retries=0) as producer:
        producer.send("mine_python", b"b")
        with pytest.raises(ArrowMQError, match="no permission to access Topic:theirs"):
            producer.send("theirs", b"b")
    with sync.Consumer(
        namesrv, group="mine_python", topic="mine_python", consume_from="first", credentials=CLIENT
    ) as consumer:
        assert [b"b"] == [message.body for message in consumer.receive(timeout_s=30)]


def is_refused(outcome: dict[str, Any], why: str) -> bool:
    """The Java client hands on the code of a refusal, the others its words."""
    return outcome.get("code") == ResponseCode.NO_PERMISSION or why in str(outcome)


MQADMIN = [
    "createUser -b {broker} -u tool -p password-of-tool -t Normal",
    "createUser -b {broker} -u tool -p again",
    "listUser -b {broker} -f tool",
    "getUser -b {broker} -u tool",
    "updateUser -b {broker} -u tool -s disable",
    "getUser -b {broker} -u tool",
    "createAcl -b {broker} -s User:tool -r Topic:a,Group:b* -a Pub,Sub -d Allow -i 10.0.0.0/8",
    "createAcl -b {broker} -s User:nobody_at_all -r Topic:a -a Pub -d Allow",
    "updateAcl -b {broker} -s User:tool -r Topic:a -a All -d Deny",
    "getAcl -b {broker} -s User:tool",
    "listAcl -b {broker} -s tool",
    "deleteAcl -b {broker} -s User:tool -r Topic:a",
    "getAcl -b {broker} -s User:tool",
    "deleteAcl -b {broker} -s User:tool",
    "getAcl -b {broker} -s User:tool",
    "deleteUser -b {broker} -u tool",
    "getUser -b {broker} -u tool",
]


def test_mqadmin_says_the_same_of_users_and_rights(targets: dict[str, Target], tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: {ADMIN[0]}\nsecretKey: {ADMIN[1]}\n")
    said: dict[str, list[str]] = {}
    with hands.start("java-5.5-json", "127.0.0.1:1", "127.0.0.1:1", tmp_path) as hand:
        for kind, target in targets.items():
            said[kind] = []
            for line in MQADMIN:
                words = line.format(broker=target.broker).split()
                printed = hand.do("mqadmin", arguments=[*words, "-n", target.namesrv])
                text = printed["printed"] + printed["complained"]
                said[kind].append(f"{line}: {_plain(text.replace(target.broker, 'BROKER'))}")
        copied = [
            f"copyUser -f {targets['apache'].broker} -t {targets['arrowmq'].broker} -u team",
            f"copyUser -f {targets['arrowmq'].broker} -t {targets['apache'].broker} -u team",
            f"copyAcl -f {targets['apache'].broker} -t {targets['arrowmq'].broker} -s User:team",
        ]
        for line in copied:
            printed = hand.do("mqadmin", arguments=[*line.split(), "-n", targets["apache"].namesrv])
            assert "success" in printed["printed"], printed
    assert said["apache"] == said["arrowmq"]
    assert "User:tool" in " ".join(said["arrowmq"])


def _plain(text: str) -> str:
    """Without the places in Java code, which only say where it was thrown."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join(line for line in lines if line and not line.startswith(("at ", "... ")))
