"""A broker that knows its users: nobody acts unseen, rights change at once, secrets are told to nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from callers import ANN_SECRET, AUTH, INNER_SECRET, NO, OK, ROOT_SECRET, Caller
from conftest import NodeMaker
from in_process import LocalClient
from oracle.ports import broker_port
from talking import has_fast_path, taken_by_fast_path

from arrowmq.auth.needs import SUPER_ONLY
from arrowmq.broker import Broker, BrokerConfig
from arrowmq.broker.ports import BrokerPorts
from arrowmq.clock import SystemClock
from arrowmq.config import ConfigError
from arrowmq.remoting.direct_call import DirectCall
from arrowmq.remoting.tls.settings import server_tls
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.headers import QueryConsumerOffset
from certificates import Authority, key_of
from waiting import until


class Guarded:
    """A broker with authentication and authorization on, with both ports, a super user root and a normal one, ann."""

    def __init__(self, broker: Broker, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.broker = broker
        self.port = port
        self.tls = tls
        self.callers: list[Caller] = []
        self.root = self.caller("root", ROOT_SECRET)
        self.ann = self.caller("ann", ANN_SECRET)
        self.nobody = self.caller()

    def caller(self, name: str = "", secret: str = "", *, vip: bool = False) -> Caller:
        made = Caller(f"127.0.0.1:{self.port - 2 if vip else self.port}", name, secret, self.tls)
        self.callers.append(made)
        return made


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with started(tmp_path) as made:
        yield made


@asynccontextmanager
async def started(tmp_path: Path, certificate: Path | None = None) -> AsyncIterator[Guarded]:
    """With a certificate, by TLS alone."""
    port = broker_port()
    tls = incoming = None
    if certificate is not None:
        tls = ssl.create_default_context(cafile=certificate.with_name("ca.pem"))
        incoming = server_tls(
            {
                "tls.server.mode": "enforcing",
                "tls.server.certPath": str(certificate),
                "tls.server.keyPath": str(key_of(certificate)),
            }
        )
    config = BrokerConfig.from_properties(
        {**AUTH, "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "brokerName": "broker-a",
         "listenPort": str(port), "mappedFileSizeCommitLog": str(1 << 20)}
    )  # fmt: skip
    clock = SystemClock()
    broker = Broker(config, tmp_path / "store", clock, ports=BrokerPorts(clock, incoming))
    await broker.start()
    made = Guarded(broker, port, tls)
    assert OK == (await made.root.create_user("ann", ANN_SECRET)).code
    yield made
    for caller in made.callers:
        await caller.remoting.close()
    await broker.stop()


def stored(broker: Broker) -> int:
    return broker.store.appended


async def test_a_send_needs_pub_and_the_refusal_is_apaches(guarded: Guarded) -> None:
    before = stored(guarded.broker)
    answer = await guarded.ann.send("orders")
    assert NO == answer.code
    assert "User:ann has no permission to access Topic:orders from 127.0.0.1, no matched policies." == answer.remark
    assert b"" == answer.body
    assert "username cannot be null." == (await guarded.nobody.send("orders")).remark
    wrong = guarded.caller("ann", "wrong")
    assert (NO, "check signature failed.") == ((await wrong.send("orders")).code, (await wrong.send("orders")).remark)
    assert before == stored(guarded.broker)
    assert OK == (await guarded.root.give("ann", "Topic:orders", "Pub")).code
    assert OK == (await guarded.ann.send("orders")).code
    assert before < stored(guarded.broker)


async def test_each_request_is_checked_by_itself_whatever_came_before_on_the_connection(guarded: Guarded) -> None:
    await guarded.root.give("ann", "Topic:orders", "Pub")
    assert OK == (await guarded.ann.send("orders")).code
    header = guarded.ann.send_header("orders")
    unsigned = guarded.nobody.command(RequestCode.SEND_MESSAGE_V2, header, b"x")
    answer = await guarded.ann.remoting.invoke(guarded.ann.address, unsigned, 20)
    assert (NO, "username cannot be null.") == (answer.code, answer.remark)


async def test_one_way_requests_and_the_vip_port_are_no_way_around(guarded: Guarded) -> None:
    await guarded.root.send("orders")
    before = stored(guarded.broker)
    for vip in (False, True):
        for caller in (guarded.caller(vip=vip), guarded.caller("ann", ANN_SECRET, vip=vip)):
            await caller.oneway(RequestCode.SEND_MESSAGE_V2, caller.send_header("orders"), b"x")
            assert NO == (await caller.send("orders")).code  # behind the one-way one, on the same connection
    assert before == stored(guarded.broker)
    good = guarded.caller("root", ROOT_SECRET, vip=True)
    await good.oneway(RequestCode.SEND_MESSAGE_V2, good.send_header("orders"), b"x")
    assert OK == (await good.send("orders")).code


@pytest.mark.parametrize("way", ["plain", "TLS", "plain without fast path"])
async def test_no_request_code_acts_for_who_may_nothing(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsigned, wrongly signed, and by a user without rights; asked and one-way; at both ports."""
    if way == "plain without fast path":
        monkeypatch.setattr("arrowmq.broker.broker.check_natively", lambda guard, permit: None)
    certificate = Authority(tmp_path / "tls").make("server") if way == "TLS" else None
    async with started(tmp_path, certificate) as guarded:
        await sweep(guarded)


async def sweep(guarded: Guarded) -> None:
    await guarded.root.send("orders")
    before = stored(guarded.broker), guarded.broker.topics.version, guarded.broker.groups.version
    names = {"topic": "orders", "b": "orders", "consumerGroup": "g", "group": "g", "groupName": "g", "username": "x"}
    body = fastjson.dumps(
        {
            "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "orders"}]}],
            "consumerGroup": "g",
            "topic": "orders",
            "groupName": "g",
            "topicConfigList": [{"topicName": "orders"}],
            "groupConfigList": [{"groupName": "g"}],
            "acks": [{"c": "g", "t": "orders"}],
        }
    )
    open_to_any_user = {RequestCode.CHECK_CLIENT_CONFIG, RequestCode.END_TRANSACTION}
    for vip in (False, True):
        nobody, wrong, ann = (
            guarded.caller(vip=vip),
            guarded.caller("root", "wrong", vip=vip),
            guarded.caller("ann", ANN_SECRET, vip=vip),
        )
        handlers = guarded.broker.ports.vip.handlers if vip else guarded.broker.handlers  # type: ignore[union-attr]
        for code in sorted(handlers):
            for caller in (nobody, wrong, ann):
                if caller is ann and code in open_to_any_user:
                    continue
                await caller.oneway(code, names, body)
                answer = await caller.ask(code, names, body)
                assert NO == answer.code, (RequestCode(code).name, caller.name, answer.remark)
                assert b"" == answer.body
    assert before == (stored(guarded.broker), guarded.broker.topics.version, guarded.broker.groups.version)
    assert {"root", "inner", "ann"} == set(guarded.broker.guard.book.accounts.users)


async def test_codes_that_are_for_super_users_are_refused_to_others_by_name(guarded: Guarded) -> None:
    served = SUPER_ONLY & set(guarded.broker.handlers)
    for code in served:
        assert "super users only" in ((await guarded.ann.ask(code)).remark or "")
    assert served <= SUPER_ONLY


async def test_without_a_native_check_the_guard_closes_the_fast_path(
    make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrowmq.broker.broker.check_natively", lambda guard, permit: None)
    node = await make_node(short=True, **AUTH)
    caller = Caller(node.address)
    await Caller(node.address, "root", ROOT_SECRET).send("orders")
    assert NO == (await caller.send("orders")).code
    assert ("request hook Guard.check" in node.broker.permit.report()["fastPathClosedBy"]) == has_fast_path()
    assert {"sent": 0, "pulled": 0, "halves": 0, "ends": 0} == taken_by_fast_path(node.broker)
    await caller.remoting.close()


async def test_a_waiting_pull_is_answered_when_its_user_loses_the_right(guarded: Guarded) -> None:
    await guarded.root.send("orders")
    await guarded.root.give("ann", "Topic:orders", "Sub")
    await guarded.root.give("ann", "Group:g", "Sub")
    assert OK == (await guarded.ann.pull("orders", "g")).code
    waiting = asyncio.ensure_future(guarded.ann.pull("orders", "g", 1, sysFlag=6, suspendTimeoutMillis=600_000))
    await until(lambda: guarded.broker.longpoll.count)
    await guarded.root.give("ann", "Topic:orders", "Sub", "Deny")
    assert ResponseCode.PULL_NOT_FOUND == (await waiting).code
    await guarded.root.send("orders", b"secret")
    answer = await guarded.ann.pull("orders", "g", 1)
    assert NO == answer.code
    assert "the decision is deny." in (answer.remark or "")


async def test_a_waiting_pop_is_answered_when_its_user_loses_the_right(guarded: Guarded) -> None:
    await guarded.root.send("orders")
    await guarded.root.give("ann", "Topic:orders", "Sub")
    await guarded.root.give("ann", "Group:g", "Sub")
    first = await guarded.ann.pop("orders", "g")
    assert OK == first.code, first.remark
    waiting = asyncio.ensure_future(guarded.ann.pop("orders", "g"))
    notified = asyncio.ensure_future(guarded.ann.pop("orders", "g", RequestCode.NOTIFICATION))
    services = guarded.broker.services
    await until(lambda: services.pop.polling.count and services.notification.polling.count)
    await guarded.root.give("ann", "Topic:orders", "Sub", "Deny")
    assert ResponseCode.POLLING_TIMEOUT == (await waiting).code
    assert "true" != (await notified).ext.get("hasMsg")
    await guarded.root.send("orders", b"secret")
    answer = await guarded.ann.pop("orders", "g")
    assert (NO, b"") == (answer.code, answer.body)


async def test_changes_are_in_force_at_once_and_survive_a_crash(make_node: NodeMaker) -> None:
    node = await make_node(**AUTH)
    root, ann = Caller(node.address, "root", ROOT_SECRET), Caller(node.address, "ann", ANN_SECRET)
    await root.create_user("ann", ANN_SECRET)
    await root.give("ann", "Topic:orders", "Pub")
    assert OK == (await ann.send("orders")).code
    await root.remoting.close()
    await ann.remoting.close()
    await node.crash()
    root, ann = Caller(node.address, "root", ROOT_SECRET), Caller(node.address, "ann", ANN_SECRET)
    assert OK == (await ann.send("orders")).code
    disabled = await root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, {"userStatus": "disable"})
    assert OK == disabled.code
    assert "User:ann is disabled." == (await ann.send("orders")).remark
    await root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "ann"}, {"userStatus": "enable", "password": "new"})
    assert "check signature failed." == (await ann.send("orders")).remark
    ann.secret = "new"
    assert OK == (await ann.send("orders")).code
    deleted = await root.ask(RequestCode.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topic:orders"})
    assert OK == deleted.code
    assert "no matched policies." in ((await ann.send("orders")).remark or "")
    await root.ask(RequestCode.AUTH_DELETE_USER, {"username": "ann"})
    assert "User:ann is not found." == (await ann.send("orders")).remark
    await root.remoting.close()
    await ann.remoting.close()


async def test_the_first_user_is_made_once_and_keeps_its_password(make_node: NodeMaker) -> None:
    node = await make_node(**AUTH)
    other = json.dumps({"username": "root", "password": "another"})
    await node.restart(initAuthenticationUser=other)
    assert OK == (await Caller(node.address, "root", ROOT_SECRET).ask(RequestCode.AUTH_LIST_USER)).code
    assert NO == (await Caller(node.address, "root", "another").ask(RequestCode.AUTH_LIST_USER)).code


# --- administration --------------------------------------------------------------------------------------------------


async def test_users_are_listed_and_their_passwords_are_for_super_users(guarded: Guarded) -> None:
    await guarded.root.give("ann", "Cluster:DefaultCluster", "Get")
    for caller, password in ((guarded.root, ANN_SECRET), (guarded.ann, None)):
        answer = await caller.ask(RequestCode.AUTH_GET_USER, {"username": "ann"})
        shown = json.loads(answer.body)
        assert ("ann", "Normal", "enable", password) == (
            shown["username"], shown["userType"], shown["userStatus"], shown.get("password"),
        )  # fmt: skip
    users = json.loads((await guarded.root.ask(RequestCode.AUTH_LIST_USER, {"filter": "n"})).body)
    assert ["ann", "inner"] == [user["username"] for user in users]
    assert b"" == (await guarded.root.ask(RequestCode.AUTH_GET_USER, {"username": "eve"})).body
    assert b"" == (await guarded.root.ask(RequestCode.AUTH_LIST_USER, {"filter": "zzz"})).body


async def test_super_users_are_made_changed_and_deleted_by_super_users_only(guarded: Guarded) -> None:
    await guarded.root.give("ann", "Cluster:DefaultCluster", "Get,Update")
    assert OK == (await guarded.ann.create_user("bob", "b")).code
    answers = [
        await guarded.ann.create_user("eve", "e", userType="Super"),
        await guarded.ann.ask(RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, {"userType": "Super"}),
        await guarded.ann.ask(RequestCode.AUTH_UPDATE_USER, {"username": "root"}, {"password": "mine"}),
        await guarded.ann.ask(RequestCode.AUTH_DELETE_USER, {"username": "root"}),
    ]
    assert [
        (ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"),
        (ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user"),
        (NO, "The super user can only be update by super user"),
        (NO, "The super user can only be update by super user"),
    ] == [(answer.code, answer.remark) for answer in answers]
    assert OK == (await guarded.root.create_user("eve", "e", userType="super")).code


async def test_administration_refuses_in_apaches_words(guarded: Guarded) -> None:
    root = guarded.root

    async def refusal(code: int, ext: dict[str, str], body: Any = b"") -> tuple[int, str | None]:
        answer = await root.ask(code, ext, body)
        return answer.code, answer.remark

    invalid = ResponseCode.INVALID_PARAMETER
    assert (invalid, "The username is blank") == await refusal(RequestCode.AUTH_CREATE_USER, {}, {"password": "x"})
    assert (NO, "The user is existed") == await refusal(
        RequestCode.AUTH_CREATE_USER, {"username": "ann"}, {"password": "x"}
    )
    assert (NO, "password can not be blank") == await refusal(RequestCode.AUTH_CREATE_USER, {"username": "bob"}, {})
    assert (NO, "The user is not exist") == await refusal(RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, {})
    assert (NO, "The subject is not exist.") == await refusal(RequestCode.AUTH_GET_ACL, {"subject": "User:bob"})
    assert (NO, "The acl is not exist.") == await refusal(RequestCode.AUTH_DELETE_ACL, {"subject": "User:ann"})
    assert (NO, "The body of acl is null") == await refusal(RequestCode.AUTH_CREATE_ACL, {"subject": "User:ann"})
    answer = await root.give("bob", "Topic:a", "Pub")
    assert (NO, "The subject of User:bob is not exist.") == (answer.code, answer.remark)
    answer = await root.give("ann", "Topic:a", "Pub", "Perhaps")
    assert (NO, "The decision is null or illegal.") == (answer.code, answer.remark)
    broken = await root.ask(RequestCode.AUTH_CREATE_USER, {"username": "bob"}, b'{"password": "hush-hush"')
    assert ResponseCode.SYSTEM_ERROR == broken.code
    assert "hush-hush" not in (broken.remark or "")


async def test_rights_are_shown_as_mqadmin_reads_them(guarded: Guarded) -> None:
    await guarded.root.give("ann", "Topic:a*", "Pub,Sub", sourceIps=["10.0.0.0/8"])
    await guarded.root.give("ann", "Group:g", "Sub")
    shown = json.loads((await guarded.root.ask(RequestCode.AUTH_GET_ACL, {"subject": "User:ann"})).body)
    entries = [
        {"resource": "Topic:a*", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"},
        {"resource": "Group:g", "actions": ["Sub"], "decision": "Allow"},
    ]
    assert {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": entries}]} == shown
    listed = json.loads((await guarded.root.ask(RequestCode.AUTH_LIST_ACL, {"resourceFilter": "Group"})).body)
    assert [[entries[1]]] == [[*policy["entries"]] for acl in listed for policy in acl["policies"]]
    assert b"" == (await guarded.root.ask(RequestCode.AUTH_GET_ACL, {"subject": "User:root"})).body
    assert b"" == (await guarded.root.ask(RequestCode.AUTH_LIST_ACL, {"subjectFilter": "bob"})).body


# --- what Apache leaves open -----------------------------------------------------------------------------------------


async def test_settings_are_shown_to_who_may_see_them_and_never_with_secrets(guarded: Guarded) -> None:
    assert NO == (await guarded.ann.ask(RequestCode.GET_BROKER_CONFIG)).code
    text = (await guarded.root.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
    assert "initAuthenticationUser=******" in text
    assert ROOT_SECRET not in text
    assert INNER_SECRET not in text
    changed = await guarded.root.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"authenticationEnabled=false")
    assert NO == changed.code
    assert NO == (await guarded.ann.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false")).code
    assert NO == (await guarded.ann.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code


async def test_an_id_or_a_place_in_the_log_gives_no_message_of_a_topic_without_rights(guarded: Guarded) -> None:
    sent = await guarded.root.send("secret", i="KEYS\x01k")
    place = int(sent.ext["msgId"][16:32], 16)
    for topic in ("mine", "%RETRY%g"):
        await guarded.root.give("ann", f"Topic:{topic}", "All")
    await guarded.root.give("ann", "Group:g", "All")
    assert NO == (await guarded.ann.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})).code
    answer = await guarded.ann.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place, "topic": "mine"})
    assert (NO, b"") == (answer.code, answer.body)
    assert "Topic:secret" in (answer.remark or "")
    back = {"offset": place, "group": "g", "delayLevel": 0, "originTopic": "mine"}
    before = stored(guarded.broker)
    assert NO == (await guarded.ann.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code
    assert before == stored(guarded.broker)
    direct = {"consumerGroup": "g", "clientId": "c", "msgId": sent.ext["msgId"], "topic": "mine", "brokerName": "b"}
    assert NO == (await guarded.ann.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)).code
    assert OK == (await guarded.root.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})).code
    assert OK == (await guarded.root.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code


async def test_a_key_with_the_hash_of_another_topics_key_finds_nothing_of_it(guarded: Guarded) -> None:
    """Java's hash of "Aa" is that of "BB": topics that differ so share the hashes of all their keys."""
    await guarded.root.send("topicAa", b"secret", i="KEYS\x01k")
    await guarded.root.send("topicBB", b"mine", i="KEYS\x01k")
    await guarded.root.give("ann", "Topic:topicBB", "Get")
    header = {"topic": "topicBB", "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    answer = await guarded.ann.ask(RequestCode.QUERY_MESSAGE, header)
    assert OK == answer.code
    assert b"mine" in answer.body
    assert b"secret" not in answer.body


async def test_a_transaction_is_ended_by_who_may_publish_to_its_topic(guarded: Guarded) -> None:
    await guarded.root.give("ann", "Topic:mine", "Pub")
    half = await guarded.root.send("orders", f=4, i="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u\x02")
    assert OK == half.code, half.remark
    end = {
        "producerGroup": "P",
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": int(half.ext["msgId"][16:32], 16),
        "commitOrRollback": 8,
        "fromTransactionCheck": "false",
        "msgId": "u",
    }
    for topic in ({}, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, {"topic": "mine"}, {"topic": "orders"}):
        answer = await guarded.ann.ask(RequestCode.END_TRANSACTION, {**end, **topic})
        assert NO == answer.code, topic
        assert "Topic:orders" in (answer.remark or "")
    await guarded.root.give("ann", "Topic:orders", "Pub")
    named = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert OK == (await guarded.ann.ask(RequestCode.END_TRANSACTION, {**end, **named})).code


async def test_rules_about_sources_see_who_the_socket_is_of_unless_a_proxy_is_trusted(make_node: NodeMaker) -> None:
    for trusted, expected in (("*", OK), ("127.0.0.0/8", OK), ("10.0.0.0/8", NO), ("", NO), (None, NO)):
        node = await make_node(**({} if trusted is None else {"trustedProxies": trusted}), **AUTH)
        root = Caller(node.address, "root", ROOT_SECRET)
        await root.create_user("ann", ANN_SECRET)
        await root.give("ann", "Topic:orders", "Pub", sourceIps=["192.0.2.0/24"])
        ann = Caller(node.address, "ann", ANN_SECRET)
        assert NO == (await ann.send("orders")).code
        await ann.remoting.close()
        connection = await ann_behind_a_proxy(node.address)
        frame = ann.command(RequestCode.SEND_MESSAGE_V2, ann.send_header("orders"), b"x")
        assert expected == await connection(frame), trusted
        await root.remoting.close()


async def ann_behind_a_proxy(address: str) -> Any:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PROXY TCP4 192.0.2.7 192.0.2.9 5000 10911\r\n")

    async def ask(command: Command) -> int:
        writer.write(encode_frame(command))
        splitter = FrameSplitter()
        while True:
            data = await reader.read(1 << 16)
            assert data
            for answer in splitter.feed(data):
                writer.close()
                return answer.code

    return ask


# --- inside the process, outgoing requests, settings ---------------------------------------------------------------


async def test_a_call_from_inside_the_process_says_for_whom_it_is(guarded: Guarded) -> None:
    broker = guarded.broker
    client = LocalClient(broker.handlers)
    request = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
    handler = broker.services.offsets.query
    for user, expected in ((None, NO), ("ann", NO), ("root", ResponseCode.QUERY_NOT_FOUND)):
        call = DirectCall(broker.handlers, client, code=RequestCode.QUERY_CONSUMER_OFFSET)
        call.user = None if user is None else broker.guard.book.user(user)
        answer = await call.ask(lambda asked, _: handler(asked), request)
        assert expected == answer.code


async def test_the_brokers_own_requests_are_signed(guarded: Guarded) -> None:
    other = await guarded.broker.remoting.invoke(
        f"127.0.0.1:{guarded.port}", Command.request(RequestCode.AUTH_LIST_USER), 20
    )
    assert OK == other.code


async def test_refusals_and_changes_leave_lines_and_no_secret_is_in_any(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await guarded.ann.send("orders")
        await guarded.root.create_user("bob", "the-secret-of-bob")
        await guarded.root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, {"password": "another-secret"})
        await guarded.root.give("bob", "Topic:a", "Pub")
        await guarded.root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": "new", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        })  # fmt: skip
    lines = [record.getMessage() for record in caplog.records if record.name == "arrowmq.audit"]
    assert 5 == len(lines)
    assert "refused server=broker-a user=ann" in lines[0]
    assert "what=created User:bob type=Normal status=enable" in lines[1]
    assert "what=changed User:bob type=Normal status=enable with a new password" in lines[2]
    assert "what=gave User:bob the rights Allow Pub on Topic:a" in lines[3]
    assert "asked server=broker-a user=root" in lines[4]
    assert "request=UPDATE_AND_CREATE_TOPIC(17) resource=Topic:new" in lines[4]
    for secret in (ROOT_SECRET, ANN_SECRET, INNER_SECRET, "the-secret-of-bob", "another-secret"):
        assert secret not in caplog.text


async def test_users_can_be_prepared_before_they_are_asked_for(make_node: NodeMaker) -> None:
    node = await make_node()
    caller = Caller(node.address)
    assert OK == (await caller.create_user("ann", ANN_SECRET, userType="Super")).code
    shown = json.loads((await caller.ask(RequestCode.AUTH_GET_USER, {"username": "ann"})).body)
    assert "password" not in shown
    await caller.remoting.close()
    await node.restart(authenticationEnabled="true")
    assert OK == (await Caller(node.address, "ann", ANN_SECRET).send("orders")).code


def test_settings_that_contradict_each_other_keep_a_broker_from_starting(tmp_path: Path) -> None:
    for properties in ({"authorizationEnabled": "true"}, {"authenticationProvider": "com.example.Own"}):
        with pytest.raises(ConfigError):
            Broker(BrokerConfig.from_properties(properties), tmp_path, SystemClock())


async def test_accounts_of_acl_1_are_taken_over_at_the_start(make_node: NodeMaker, tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: '12345678'\n  topicPerms: [orders=PUB]\n")
    node = await make_node(migrateAuthFromV1Enabled="true", aclFile=str(path), **AUTH)
    old = Caller(node.address, "RocketMQ", "12345678")
    assert OK == (await old.send("orders")).code
    assert NO == (await old.send("other")).code
    await old.remoting.close()
