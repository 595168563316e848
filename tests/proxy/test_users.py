"""Users and rights of gRPC clients: at a proxy in the process of a broker, and at one before brokers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from proxy_client import SETTINGS, Clients, Stub, message

from arrowmq.client.admin import Admin
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.server import Node, build_node, build_proxy_node

INNER = '{"accessKey":"inner","secretKey":"inner-secret"}'
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": INNER,
    "authenticationWhitelist": "apache.rocketmq.v2.NotifyClientTerminationRequest",
}
PROXY = {
    **SETTINGS,
    **AUTH,
    "grpcServerPort": "0",
    "remotingListenPort": "0",
    "userCacheRefreshSeconds": "0",
    "userCacheExpiredSeconds": "0",
}
OK, UNAUTHORIZED = v2.OK, v2.UNAUTHORIZED
NOT_SERVED = {"QueryOffset", "GetOffset", "UpdateOffset", "PullMessage"}  # by no proxy, Apache's or ours


@dataclass
class Guarded:
    clients: Clients
    broker: Node

    def as_user(self, name: str, password: str) -> Stub:
        stub = self.clients.new()
        at = "20260101T000000Z"
        signature = hmac.new(password.encode(), at.encode(), hashlib.sha1).hexdigest().upper()
        value = f"MQv2-HMAC-SHA1 Credential={name}/cn/rocketmq, SignedHeaders=x-mq-date-time, Signature={signature}"
        stub.metadata += [("x-mq-date-time", at), ("authorization", value)]
        return stub

    def admin(self) -> Admin:
        return Admin(self.broker.namesrv_address, credentials=("root", "root-secret"))

    @property
    def address(self) -> str:
        assert self.broker.broker is not None
        return self.broker.broker.address.text


@pytest.fixture(params=["local", "cluster"])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Guarded]:
    is_local = request.param == "local"
    nodes = [
        build_node(tmp_path, {**SETTINGS, **AUTH}, namesrv_port=0, broker_port=0, proxy_port=0 if is_local else None)
    ]
    await nodes[0].start()
    try:
        if not is_local:
            nodes.append(build_proxy_node({**PROXY, "namesrvAddr": nodes[0].namesrv_address}))
            await nodes[1].start()
        proxy = nodes[-1].proxy
        assert proxy is not None
        made = Guarded(Clients(f"127.0.0.1:{proxy.port}"), nodes[0])
        async with made.admin() as admin:
            for topic in ("orders", "secrets"):
                await admin.create_topic(topic, queues=1)
            for group in ("billing", "spies"):
                await admin.create_group(group)
            await admin.create_user(made.address, "alice", "alice-secret")
            for resource, actions in (("Topic:orders", "Pub,Sub"), ("Group:billing", "Sub")):
                await admin.give_rights(made.address, "alice", [resource], actions.split(","))
        yield made
        await made.clients.close()
    finally:
        for node in reversed(nodes):
            await node.stop()


async def test_a_user_does_what_it_may(guarded: Guarded) -> None:
    alice = guarded.as_user("alice", "alice-secret")
    assert OK == (await alice.route("orders")).status.code
    await alice.produces("orders")
    for _ in range(3):  # the second and later ones could take the fast path
        assert OK == (await alice.send(message("orders"))).status.code
    await alice.consumes("billing", "orders")
    found = await alice.receive_all("billing", "orders", 3)
    assert OK == (await alice.change("billing", "orders", found[0], 30_000)).status.code
    assert OK == (await alice.ack("billing", "orders", found[1], found[2])).status.code


async def test_who_is_not_a_user_is_refused_every_call(guarded: Guarded) -> None:
    strangers = {
        "username cannot be null.": guarded.clients.new(),
        "check signature failed.": guarded.as_user("alice", "another"),
        "User:mallory is not found.": guarded.as_user("mallory", "any"),
    }
    for why, stranger in strangers.items():
        for answer in (await stranger.route("orders"), await stranger.send(message("orders"))):
            assert (UNAUTHORIZED, why) == (answer.status.code, answer.status.message)
        statuses = [each.status for each in await stranger.stream(stranger.receive_request("billing", "orders"))]
        assert (UNAUTHORIZED, why) == (statuses[0].code, statuses[0].message)


async def test_a_user_is_refused_what_it_may_not(guarded: Guarded) -> None:
    alice, root = guarded.as_user("alice", "alice-secret"), guarded.as_user("root", "root-secret")
    await root.send(message("secrets"))
    taken = await root.receive_all("spies", "secrets", 1)
    said = "User:alice has no permission to access Topic:secrets from 127.0.0.1, no matched policies."
    refused = [
        await alice.route("secrets"),
        await alice.send(message("secrets")),
        await alice.ack("billing", "secrets", taken[0]),
        await alice.unary("RecallMessage", _recall("secrets")),
    ]
    for answer in refused[:2]:
        assert (UNAUTHORIZED, said) == (answer.status.code, answer.status.message)
    assert UNAUTHORIZED == refused[2].entries[0].status.code
    assert OK != refused[3].status.code
    for group, topic in (("spies", "orders"), ("billing", "secrets")):
        statuses = [each.status for each in await alice.stream(alice.receive_request(group, topic))]
        assert UNAUTHORIZED == statuses[0].code
    assert UNAUTHORIZED == (await alice.change("spies", "orders", taken[0], 30_000)).status.code


def _every_request(taken: v2.Message) -> dict[str, Any]:
    """A whole request of each call, about what belongs to others; `taken` is a message that another is working on."""
    system = taken.system_properties
    made: dict[str, Any] = {
        "QueryRoute": calls.QueryRouteRequest(),
        "Heartbeat": calls.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER),
        "SendMessage": calls.SendMessageRequest(messages=[message("secrets")]),
        "QueryAssignment": calls.QueryAssignmentRequest(),
        "AckMessage": calls.AckMessageRequest(),
        "ForwardMessageToDeadLetterQueue": calls.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=system.receipt_handle, message_id=system.message_id, delivery_attempt=1
        ),
        "EndTransaction": calls.EndTransactionRequest(
            message_id=system.message_id, transaction_id="t", resolution=v2.COMMIT
        ),
        "NotifyClientTermination": calls.NotifyClientTerminationRequest(),
        "ChangeInvisibleDuration": calls.ChangeInvisibleDurationRequest(
            receipt_handle=system.receipt_handle, message_id=system.message_id
        ),
        "SyncLiteSubscription": calls.SyncLiteSubscriptionRequest(lite_topic_set=["l"]),
        "RecallMessage": _recall("secrets"),
    }
    made["AckMessage"].entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    made["ChangeInvisibleDuration"].invisible_duration.FromMilliseconds(60_000)
    for request in made.values():
        names = request.DESCRIPTOR.fields_by_name
        if "topic" in names and request.DESCRIPTOR.name != "RecallMessageRequest":
            request.topic.name = "secrets"
        if "group" in names:
            request.group.name = "spies"
        if "endpoints" in names:
            request.endpoints.scheme = v2.IPv4
            request.endpoints.addresses.add(host="127.0.0.1", port=8081)
    return made


async def test_no_call_acts_for_who_may_nothing(guarded: Guarded) -> None:
    """Every call there is: unsigned, wrongly signed, of an unknown user, and of one without rights."""
    root = guarded.as_user("root", "root-secret")
    await root.send(message("secrets"))
    (taken,) = await root.receive_all("spies", "secrets", 1)
    async with guarded.admin() as admin:
        await admin.create_user(guarded.address, "idle", "idle-secret")
    node = guarded.broker
    assert node.broker is not None
    before = int(node.broker.store.appended), node.broker.topics.version, node.broker.groups.version
    requests = _every_request(taken)
    service = calls.DESCRIPTOR.services_by_name["MessagingService"]
    streams = {"ReceiveMessage", "Telemetry"}
    assert set(requests) | streams | NOT_SERVED == {method.name for method in service.methods}
    callers = {
        "unsigned": guarded.clients.new(),
        "wrong": guarded.as_user("root", "another"),
        "unknown": guarded.as_user("mallory", "any"),
        "without rights": guarded.as_user("idle", "idle-secret"),
    }
    otherwise: dict[tuple[str, str], str] = {}
    for who, caller in callers.items():
        for name, request in requests.items():
            if name == "NotifyClientTermination":
                continue  # on the white list of these servers, and about the caller alone
            answer = await caller.unary(name, request)
            status = answer.entries[0].status if name == "AckMessage" and answer.entries else answer.status
            if status.code != UNAUTHORIZED:
                otherwise[who, name] = v2.Code.Name(status.code)
        statuses = [each.status for each in await caller.stream(caller.receive_request("spies", "secrets"))]
        assert UNAUTHORIZED == statuses[0].code, (who, statuses)
        settings = v2.Settings(client_type=v2.PRODUCER)
        settings.publishing.topics.add(name="secrets")
        stream = await caller.telemetry(settings)
        with pytest.raises(grpc.aio.AioRpcError, match=r"username|signature|is not found|has no permission"):
            await stream.next()  # in Apache's words: process client telemetryCommand failed
        for name in NOT_SERVED:
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await caller.unary(name, getattr(calls, f"{name}Request")())
    # A user's request that could not be served for anybody: no settings, no transaction of this id, no delayed message.
    assert otherwise == {
        ("without rights", "Heartbeat"): "UNRECOGNIZED_CLIENT_TYPE",
        ("without rights", "EndTransaction"): "INTERNAL_SERVER_ERROR",
        ("without rights", "RecallMessage"): "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    }
    assert before == (int(node.broker.store.appended), node.broker.topics.version, node.broker.groups.version)
    assert OK == (await root.ack("spies", "secrets", taken)).status.code


async def test_a_change_of_users_is_in_force_at_once(guarded: Guarded) -> None:
    alice = guarded.as_user("alice", "alice-secret")
    assert OK == (await alice.send(message("orders"))).status.code
    async with guarded.admin() as admin:
        await admin.update_user(guarded.address, "alice", status="disable")
    refused = await alice.send(message("orders"))
    assert (UNAUTHORIZED, "User:alice is disabled.") == (refused.status.code, refused.status.message)


async def test_a_call_on_the_white_list_needs_no_signature(guarded: Guarded) -> None:
    stranger = guarded.clients.new()
    answer = await stranger.unary("NotifyClientTermination", calls.NotifyClientTerminationRequest())
    assert v2.UNRECOGNIZED_CLIENT_TYPE == answer.status.code  # it came as far as being looked for


def _recall(topic: str) -> calls.RecallMessageRequest:
    request = calls.RecallMessageRequest(recall_handle="bm90IGEgaGFuZGxl")
    request.topic.name = topic
    return request
