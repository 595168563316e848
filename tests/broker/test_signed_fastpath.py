"""Signed requests on the fast path: what passes natively is what the guard lets pass, and nothing else."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest
from callers import ANN_SECRET, AUTH, NO, OK, ROOT_SECRET, Caller
from conftest import Node, NodeMaker
from talking import Talk, has_fast_path, taken_by_fast_path

from arrowmq.auth.accounts import Accounts
from arrowmq.auth.policies import PolicyType
from arrowmq.auth.signature import sign
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command, decode_frame, encode_frame

LONG = "a password that is longer than the block of the hash, so that HMAC hashes it first: " + "x" * 40
USERS = {"root": ROOT_SECRET, "ann": ANN_SECRET, "long": LONG, "пользователь": "пароль"}
PLAIN = "KEYS\x01k\x02UNIQ_KEY\x01AC11000118B418B4AAC2123456780000\x02WAIT\x01true\x02"


async def guarded(make_node: NodeMaker, *, short: bool) -> tuple[Node, dict[str, Caller]]:
    node = await make_node(short=short, **AUTH)
    callers = {name: Caller(node.address, name, secret) for name, secret in USERS.items()}
    root = callers["root"]
    for name, secret in USERS.items():
        if name != "root":
            assert OK == (await root.create_user(name, secret)).code
            assert OK == (await root.give(name, "Topic:orders", "Pub,Sub")).code
            assert OK == (await root.give(name, "Group:g", "Sub")).code
    for topic in ("orders", "others"):
        assert OK == (await root.send(topic, i=PLAIN)).code
    return node, callers


async def close(callers: dict[str, Caller]) -> None:
    for caller in callers.values():
        await caller.remoting.close()


async def test_good_requests_of_every_user_stay_native(make_node: NodeMaker) -> None:
    node, callers = await guarded(make_node, short=True)
    before = taken_by_fast_path(node.broker)["sent"]
    for caller in callers.values():
        for _ in range(5):
            assert OK == (await caller.send("orders", i=PLAIN)).code
    assert before + 5 * len(USERS) * has_fast_path() == taken_by_fast_path(node.broker)["sent"]
    assert OK == (await callers["ann"].pull("orders", "g")).code
    assert OK == (await callers["ann"].pull("orders", "g")).code
    assert has_fast_path() == (taken_by_fast_path(node.broker)["pulled"] > 0)
    await close(callers)


async def test_a_binary_header_is_signed_alike(make_node: NodeMaker) -> None:
    node, callers = await guarded(make_node, short=True)
    before = taken_by_fast_path(node.broker)["sent"]
    ann = callers["ann"]
    command = ann.command(RequestCode.SEND_MESSAGE_V2, ann.send_header("orders", i=PLAIN), b"body")
    command.serialize_type = 1
    assert OK == (await ann.remoting.invoke(node.address, command, 20)).code
    assert before + has_fast_path() == taken_by_fast_path(node.broker)["sent"]
    await close(callers)


async def test_a_right_that_was_taken_is_gone_with_the_next_request(make_node: NodeMaker) -> None:
    _, callers = await guarded(make_node, short=True)
    root, ann = callers["root"], callers["ann"]
    assert OK == (await ann.send("orders", i=PLAIN)).code
    await root.give("ann", "Topic:orders", "Pub", "Deny")
    answer = await ann.send("orders", i=PLAIN)
    assert (NO, "the decision is deny.") == (answer.code, (answer.remark or "")[-21:])
    await root.give("ann", "Topic:orders", "Pub")
    assert OK == (await ann.send("orders", i=PLAIN)).code
    await root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, {"password": "new"})
    assert "check signature failed." == (await ann.send("orders", i=PLAIN)).remark
    ann.secret = "new"
    assert OK == (await ann.send("orders", i=PLAIN)).code
    await root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, {"userStatus": "disable"})
    assert "User:ann is disabled." == (await ann.send("orders", i=PLAIN)).remark
    await close(callers)


def mutate(command: Command, dice: random.Random) -> None:
    """Changes a signed request somewhere, or leaves it."""
    ext = command.ext
    match dice.randrange(9):
        case 0:
            command.body += b"!"
        case 1:
            ext["Signature"] = ext["Signature"][:-2] + dice.choice("AQgw") + "="
        case 2:
            ext["b"] = "others"
        case 3:
            del ext["Signature"]
        case 4:
            ext["AccessKey"] = dice.choice(["root", "nobody", ""])
        case 5:
            ext["Signature"] = dice.choice(["", "A" * 28, "=" * 28, ext["Signature"] + "A", "é" * 14])
        case 6:
            ext["e"] = "3"
        case _:
            pass


async def test_both_ways_decide_the_same_requests_alike(make_node: NodeMaker) -> None:
    """Signed well, badly, by others, over other fields and bodies, with tokens, in both header forms."""
    dice = random.Random(19)
    plan: list[tuple[str, str, dict[str, Any], bytes, int, str, int]] = []
    for number in range(400):
        user = dice.choice([*USERS, "stranger"])
        topic = dice.choice(["orders", "orders", "orders", "others", "none"])
        more = {"i": dice.choice([PLAIN, "", "TAGS\x01a\x02" + PLAIN]), "e": dice.randrange(4)}
        body = dice.choice([b"x", b"", dice.randbytes(3000), "тело".encode()])
        token = dice.choice(["", "", "token"])
        plan.append((user, topic, more, body, dice.randrange(2), token, number))
    seen: list[list[tuple[int, str | None, str | None]]] = []
    taken = []
    for short in (True, False):
        node, callers = await guarded(make_node, short=short)
        ann, answers = callers["ann"], []
        for user, topic, more, body, form, token, seed in plan:
            header = {name: str(value) for name, value in ann.send_header(topic, **more).items()}
            command = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
            sign(command.ext, body, user, USERS.get(user, "x").encode(), token)
            mutate(command, random.Random(seed))
            command.serialize_type = form
            answer = await ann.remoting.invoke(node.address, command, 20)
            answers.append((answer.code, answer.remark, answer.ext.get("queueOffset")))
        seen.append(answers)
        taken.append(taken_by_fast_path(node.broker)["sent"])
        await close(callers)
    differing = [(plan[n], one, two) for n, (one, two) in enumerate(zip(*seen, strict=True)) if one != two]
    assert [] == differing
    assert 0 == taken[1]
    assert has_fast_path() == (taken[0] > 20)
    codes = {code for code, _, _ in seen[0]}
    assert {OK, NO} <= codes


async def test_authentication_alone_is_checked_natively_too(make_node: NodeMaker) -> None:
    node = await make_node(short=True, **{**AUTH, "authorizationEnabled": "false"})
    root = Caller(node.address, "root", ROOT_SECRET)
    await root.create_user("ann", ANN_SECRET)
    ann, nobody = Caller(node.address, "ann", ANN_SECRET), Caller(node.address)
    await ann.send("orders", i=PLAIN)
    assert OK == (await ann.send("orders", i=PLAIN)).code
    assert has_fast_path() == (taken_by_fast_path(node.broker)["sent"] > 0)
    assert NO == (await nobody.send("orders", i=PLAIN)).code
    await close({"root": root, "ann": ann, "nobody": nobody})


# Bursts: many requests in one write, whose digests are made together

Seen = tuple[int, str | None, str | None]


def passed_ahead(node: Node) -> int:
    """How many requests passed by a digest that was made together with others'."""
    return sum(check.passed_ahead for check in node.broker.permit.native_checks.values())


def has_lanes() -> bool:
    return has_fast_path() and bool(import_module("arrowmq.auth._hmac_native").HAS_LANES)


def signed_send(
    number: int, user: str = "ann", secret: str = "", topic: str = "orders", body: bytes = b"body", **more: Any
) -> Command:
    header = Caller("").send_header(topic, **{"i": PLAIN, **more})
    command = Command.request(RequestCode.SEND_MESSAGE_V2, {name: str(value) for name, value in header.items()}, body)
    sign(command.ext, body, user, (secret or USERS[user]).encode())
    command.opaque = number
    return command


def numbered(number: int, command: Command) -> Command:
    command.opaque = number
    return command


async def burst(node: Node, commands: list[Command]) -> list[Seen]:
    """What answers these, which are all written at once; in their order."""
    async with Talk("127.0.0.9", 0) as talk:
        await talk.connect(int(node.address.rpartition(":")[2]))
        answers = await talk.answers([b"".join(encode_frame(command) for command in commands)])
    found = (decode_frame(memoryview(answers[command.opaque])[4:]) for command in commands)
    return [(answer.code, answer.remark, answer.ext.get("queueOffset")) for answer in found]


def mixed_burst(dice: random.Random) -> list[Command]:
    """Mostly good requests, of one user or of several; among them wrongly signed and unsigned ones, strangers', and
    some for a topic that their user has no right to. Of the longest headers a few fit into the reader's memory."""
    commands = []
    users = dice.choice([["ann"], ["root"], [*USERS]])
    for number in range(1, 100):
        properties = PLAIN + dice.choice(["", "", "", "", "a\x01" + '"\\\n' * dice.choice([20, 400, 3000]) + "\x02"])
        body = dice.choice(
            [b"x", b"", dice.randbytes(1024), dice.randbytes(1000), dice.randbytes(dice.randrange(2000))]
        )
        command = signed_send(number, dice.choice(users), body=body, i=properties, e=dice.randrange(4))
        if not dice.randrange(40):
            mutate(command, dice)
        elif not dice.randrange(80):
            command = signed_send(number, "ann", topic="others")
        elif not dice.randrange(80):
            command = signed_send(number, "stranger", "x")
        command.serialize_type = dice.randrange(2)
        commands.append(command)
    return commands


async def test_a_burst_is_decided_as_its_requests_are_alone(make_node: NodeMaker) -> None:
    """Whatever stands between the good ones, each gets the answer that it gets on the general path."""
    bursts = [mixed_burst(random.Random(seed)) for seed in range(25)]
    seen: list[list[list[Seen]]] = []
    for short in (True, False):
        node, callers = await guarded(make_node, short=short)
        seen.append([await burst(node, commands) for commands in bursts])
        assert (short and has_lanes()) == (passed_ahead(node) > 200)
        await close(callers)
    for seed, commands in enumerate(bursts):
        for command, fast, general in zip(commands, seen[0][seed], seen[1][seed], strict=True):
            assert general == fast, (seed, command.opaque, command.ext)
    remarks = {remark for answers in seen[0] for _, remark, _ in answers}
    assert "check signature failed." in remarks
    assert any("nobody" in (remark or "") or "stranger" in (remark or "") for remark in remarks)
    assert any("the decision is deny" in (remark or "") or "others" in (remark or "") for remark in remarks)


async def test_every_good_request_of_a_burst_stays_native(make_node: NodeMaker) -> None:
    """With escapes in each header, which stand beside those of the others, and also where one answer fills what is sent
    at once, so that the requests read behind it are read again."""
    node, callers = await guarded(make_node, short=True)
    before = taken_by_fast_path(node.broker)
    sends = [signed_send(n, body=bytes(10_000), i=f"{PLAIN}n\x01{n * 'x'}\x02") for n in range(1, 65)]
    assert {OK} == {code for code, _, _ in await burst(node, sends)}
    ann = callers["ann"]
    header = {
        "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 1, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    pulls = [numbered(n, ann.command(RequestCode.PULL_MESSAGE, header)) for n in range(1, 33)]
    assert {OK} == {code for code, _, _ in await burst(node, pulls)}
    taken = taken_by_fast_path(node.broker)
    assert 64 * has_fast_path() == taken["sent"] - before["sent"]
    assert has_fast_path() == (taken["pulled"] - before["pulled"] >= 31 * 25)
    await close(callers)


@pytest.mark.parametrize("change", ["password", "user", "right"])
async def test_what_changes_within_a_burst_counts_for_the_rest_of_it(make_node: NodeMaker, change: str) -> None:
    """The digests of all of them are made by then, with a key that is not good any more."""
    node, callers = await guarded(make_node, short=True)
    book = node.broker.guard.book
    changed = {
        "password": book.accounts.with_user_changed("ann", "new", None, None),
        "user": book.accounts.without_user("ann"),
        "right": book.accounts.without_acl("ann", PolicyType.CUSTOM, None),
    }
    coming: list[Accounts] = []
    # Asked when the first request of a burst has passed.
    node.broker.permit.close_while("a test", lambda: book.use(coming.pop()) if coming else None)
    sends = [signed_send(number) for number in range(1, 65)]
    assert {OK} == {code for code, _, _ in await burst(node, sends)}
    before = passed_ahead(node)
    coming.append(changed[change])
    answers = await burst(node, sends[:16])
    if has_fast_path():
        assert [OK] + 15 * [NO] == [code for code, _, _ in answers]
    assert int(has_lanes()) == passed_ahead(node) - before
    await close(callers)


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_user_changed_by_a_request_in_a_burst_is_refused_behind_it(
    make_node: NodeMaker, is_deleted: bool
) -> None:
    """An administrator's request takes the general path in the midst of sends. When it is answered, what the user
    signed with the password from before is refused, on this connection and on others."""
    node, callers = await guarded(make_node, short=True)
    root = callers["root"]
    code = RequestCode.AUTH_DELETE_USER if is_deleted else RequestCode.AUTH_UPDATE_USER
    admin = root.command(code, {"username": "ann"}, b"" if is_deleted else {"password": "new"})
    sends = [signed_send(number) for number in range(1, 100)]
    mixed = [*sends[:40], numbered(500, admin), *sends[40:]]
    async with Talk("127.0.0.9", 0) as same:
        await same.connect(int(node.address.rpartition(":")[2]))
        answers = await same.answers([b"".join(map(encode_frame, mixed))])
        assert OK == decode_frame(memoryview(answers[500])[4:]).code
        assert {OK} == {decode_frame(memoryview(answers[number])[4:]).code for number in range(1, 41)}
        answers = await same.answers([b"".join(map(encode_frame, sends))])
        assert {NO} == {decode_frame(memoryview(answer)[4:]).code for answer in answers.values()}
    assert {NO} == {code for code, _, _ in await burst(node, sends)}
    if not is_deleted:
        renewed = [signed_send(number, "ann", "new") for number in range(1, 100)]
        assert {OK} == {code for code, _, _ in await burst(node, renewed)}
    await close(callers)
