"""Signed requests on the fast path: what passes natively is what the guard lets pass, and nothing else."""

from __future__ import annotations

import random
from typing import Any

from callers import ANN_SECRET, AUTH, NO, OK, ROOT_SECRET, Caller
from conftest import Node, NodeMaker
from talking import has_fast_path, taken_by_fast_path

from arrowmq.auth.signature import sign
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

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
