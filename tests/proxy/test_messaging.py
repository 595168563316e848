"""The MessagingService on a broker in the same process, called by gRPC's own Python library."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from proxy_client import Clients, Stub, message

from arrowmq.client.admin import Admin
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.server import Node
from arrowmq.wire.bodies import ConsumerConnection
from arrowmq.wire.codes import RequestCode
from waiting import until


async def test_a_message_comes_as_it_was_sent(client: Stub) -> None:
    await client.consumes("group", "normal")
    sent = message("normal", b"body", tag="T", keys=["k1", "k2"], properties={"colour": "red"})
    answer = await client.send(sent)
    assert (v2.OK, 1) == (answer.status.code, len(answer.entries))
    assert sent.system_properties.message_id == answer.entries[0].message_id
    found = (await client.receive_all("group", "normal", 1))[0]
    system = found.system_properties
    assert (b"body", "T", ["k1", "k2"]) == (found.body, system.tag, list(system.keys))
    assert {"colour": "red"} == dict(found.user_properties)
    assert (v2.NORMAL, v2.IDENTITY, 1) == (system.message_type, system.body_encoding, system.delivery_attempt)
    assert ("841A2D689AD86BD1611447453C22C6FC", v2.MD5) == (system.body_digest.checksum, system.body_digest.type)
    assert v2.OK == (await client.ack("group", "normal", found)).status.code
    assert [] == await client.receive("group", "normal")


async def test_the_stream_is_a_status_the_messages_and_a_time(client: Stub) -> None:
    await client.consumes("group", "normal")
    answers = await client.stream(client.receive_request("group", "normal"))
    assert ["status", "delivery_timestamp"] == [answer.WhichOneof("content") for answer in answers]
    assert v2.MESSAGE_NOT_FOUND == answers[0].status.code
    await client.send(message("normal"))
    async with asyncio.timeout(20):
        while len(answers) < 3:
            answers = await client.stream(client.receive_request("group", "normal"))
    assert ["status", "message", "delivery_timestamp"] == [answer.WhichOneof("content") for answer in answers]


async def test_what_is_not_acknowledged_comes_again(client: Stub) -> None:
    await client.consumes("group", "normal")
    await client.send(message("normal", b"again"))
    first = (await client.receive_all("group", "normal", 1, invisible_ms=1000))[0]
    second = (await client.receive_all("group", "normal", 1))[0]
    assert first.system_properties.message_id == second.system_properties.message_id
    assert 2 == second.system_properties.delivery_attempt


async def test_a_changed_time_gives_a_new_handle(client: Stub) -> None:
    await client.consumes("group", "normal")
    await client.send(message("normal"))
    found = (await client.receive_all("group", "normal", 1))[0]
    changed = await client.change("group", "normal", found, 60_000)
    assert v2.OK == changed.status.code
    assert changed.receipt_handle != found.system_properties.receipt_handle
    found.system_properties.receipt_handle = changed.receipt_handle
    assert v2.OK == (await client.ack("group", "normal", found)).status.code


async def test_the_route_leads_back_to_the_address_that_the_client_used(client: Stub) -> None:
    answer = await client.route("mixed")
    assert v2.OK == answer.status.code
    assert [0, 1] == sorted(queue.id for queue in answer.message_queues)
    queue = answer.message_queues[0]
    assert ("outside.example", 31000) == (
        queue.broker.endpoints.addresses[0].host,
        queue.broker.endpoints.addresses[0].port,
    )
    assert [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION] == list(queue.accept_message_types)


@pytest.mark.parametrize(("group", "ids"), [("group", [-1]), ("ordered", [0, 1])])
async def test_assignments_are_a_broker_or_its_queues(client: Stub, group: str, ids: list[int]) -> None:
    request = calls.QueryAssignmentRequest()
    request.topic.name, request.group.name = "fifo", group
    answer = await client.unary("QueryAssignment", request)
    assert ids == [each.message_queue.id for each in answer.assignments]


async def test_settings_come_back_with_the_servers_own(client: Stub) -> None:
    settings = v2.Settings(client_type=v2.PUSH_CONSUMER)
    settings.subscription.group.name = "ordered"
    settings.subscription.subscriptions.add().topic.name = "fifo"
    stream = await client.telemetry(settings)
    told = (await stream.next()).settings
    assert (True, 32, 20) == (
        told.subscription.fifo,
        told.subscription.receive_batch_size,
        told.subscription.long_polling_timeout.seconds,
    )
    assert (17, 18) == (told.backoff_policy.max_attempts, len(told.backoff_policy.customized_backoff.next))
    producer = v2.Settings(client_type=v2.PRODUCER)
    producer.publishing.SetInParent()
    told = (await (await client.telemetry(producer)).next()).settings
    assert (4 << 20, True) == (told.publishing.max_body_size, told.publishing.validate_message_type)


async def test_messages_of_a_group_stay_in_order(client: Stub) -> None:
    await client.consumes("ordered", "fifo")
    for number in range(10):
        await client.send(message("fifo", str(number).encode(), v2.FIFO, message_group="one"))
    found: list[v2.Message] = []
    async with asyncio.timeout(20):
        while len(found) < 10:
            fresh = await client.receive("ordered", "fifo", number=3)
            found += fresh
            if fresh:
                await client.ack("ordered", "fifo", *fresh)
    assert [str(number).encode() for number in range(10)] == [each.body for each in found]


async def test_delayed_messages_wait_and_can_be_recalled(client: Stub) -> None:
    await client.consumes("group", "delay")
    due = int(time.time() * 1000) + 2000
    await client.send(message("delay", b"kept", v2.DELAY, delivery_ms=due))
    taken = await client.send(message("delay", b"taken", v2.DELAY, delivery_ms=due))
    recall = calls.RecallMessageRequest(recall_handle=taken.entries[0].recall_handle)
    recall.topic.name = "delay"
    answer = await client.unary("RecallMessage", recall)
    assert (v2.OK, taken.entries[0].message_id) == (answer.status.code, answer.message_id)
    found = await client.receive_all("group", "delay", 1)
    assert [b"kept"] == [each.body for each in found]
    assert time.time() * 1000 >= due - 50
    assert [] == await client.receive("group", "delay", poll_ms=500)


async def test_filters_by_tag_and_by_sql(client: Stub) -> None:
    await client.consumes("group", "normal")
    for tag, size in (("a", "1"), ("b", "2"), ("c", "3")):
        await client.send(message("normal", tag.encode(), tag=tag, properties={"size": size}))
    found = await client.receive_all("group", "normal", 2, expression="a || c")
    assert {b"a", b"c"} == {each.body for each in found}
    request = client.receive_request("group", "normal", expression="size >", sql=True)
    assert v2.ILLEGAL_FILTER_EXPRESSION == (await client.stream(request))[0].status.code
    await client.send(message("normal", b"big", properties={"size": "9"}))
    await client.send(message("normal", b"small", properties={"size": "1"}))
    found = await client.receive_all("group", "normal", 1, expression="size > 5", sql=True)
    assert [b"big"] == [each.body for each in found]


async def ended(client: Stub, transaction_id: str, resolution: int, source: int = v2.SOURCE_CLIENT) -> int:
    request = calls.EndTransactionRequest(transaction_id=transaction_id, resolution=resolution, source=source)  # type: ignore[arg-type]
    request.topic.name = "transaction"
    return int((await client.unary("EndTransaction", request)).status.code)


async def test_transactions_are_committed_and_rolled_back(clients: Clients) -> None:
    producer, consumer = clients.new(), clients.new()
    await producer.produces("transaction")
    await consumer.consumes("group", "transaction")
    for body, resolution in ((b"yes", v2.COMMIT), (b"no", v2.ROLLBACK)):
        answer = await producer.send(message("transaction", body, v2.TRANSACTION))
        assert v2.OK == await ended(producer, answer.entries[0].transaction_id, resolution)
    assert [b"yes"] == [each.body for each in await consumer.receive_all("group", "transaction", 1)]
    assert [] == await consumer.receive("group", "transaction", poll_ms=500)


async def test_a_half_message_is_asked_about_and_another_producer_may_answer(clients: Clients) -> None:
    lost, other, consumer = clients.new(), clients.new(), clients.new()
    stream = await lost.produces("transaction")
    await consumer.consumes("group", "transaction")
    await lost.send(message("transaction", b"orphan", v2.TRANSACTION))
    stream.call.cancel()
    await lost.channel.close()
    asked = await (await other.produces("transaction")).next(20)
    recover = asked.recover_orphaned_transaction_command
    assert b"orphan" == recover.message.body
    assert v2.OK == await ended(other, recover.transaction_id, v2.COMMIT, v2.SOURCE_SERVER_CHECK)
    assert [b"orphan"] == [each.body for each in await consumer.receive_all("group", "transaction", 1)]


async def test_push_consumers_keep_what_they_work_on(node: Node, client: Stub) -> None:
    """The time of a message is prolonged, the client's first handle stays good."""
    assert node.proxy is not None
    config = node.proxy.config
    config.default_invisible_time_mills, config.renew_ahead_time_millis = 1500, 1000
    await client.consumes("group", "normal", v2.PUSH_CONSUMER)
    await client.send(message("normal", b"long work"))
    found = (await client.receive_all("group", "normal", 1, auto_renew=True))[0]
    renewal = node.proxy.service.settling.renewal
    entry = next(iter(next(iter(renewal._held.values())).values()))
    await until(lambda: entry.steps > 0, 20)
    assert [] == await client.receive("group", "normal", auto_renew=True, poll_ms=2000)
    assert v2.OK == (await client.ack("group", "normal", found)).status.code
    assert 0 == len(renewal)


async def test_a_client_that_leaves_gives_back_what_it_has(node: Node, clients: Clients) -> None:
    leaving, staying = clients.new(), clients.new()
    for each in (leaving, staying):
        await each.consumes("group", "normal", v2.PUSH_CONSUMER)
    await leaving.send(message("normal", b"left"))
    await leaving.receive_all("group", "normal", 1, auto_renew=True)
    goodbye = calls.NotifyClientTerminationRequest()
    goodbye.group.name = "group"
    assert v2.OK == (await leaving.unary("NotifyClientTermination", goodbye)).status.code
    found = await staying.receive_all("group", "normal", 1, auto_renew=True)
    assert [b"left"] == [each.body for each in found]


async def test_forwarded_messages_are_dead_letters(node: Node, client: Stub) -> None:
    await client.consumes("group", "normal")
    await client.send(message("normal", b"poison"))
    found = (await client.receive_all("group", "normal", 1))[0]
    request = calls.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=found.system_properties.receipt_handle, message_id=found.system_properties.message_id
    )
    request.group.name, request.topic.name = "group", "normal"
    assert v2.OK == (await client.unary("ForwardMessageToDeadLetterQueue", request)).status.code
    assert node.broker is not None
    assert 1 == node.broker.store.max_offset("%DLQ%group", 0)


async def test_tools_see_grpc_clients(node: Node, clients: Clients) -> None:
    consumer, producer = clients.new(), clients.new()
    await consumer.consumes("group", "normal")
    await producer.produces("normal")
    async with Admin(node.namesrv_address) as admin:
        ext, address = {"consumerGroup": "group"}, node.broker_address
        consumers = await admin.call_body(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ext, ConsumerConnection)
        assert [consumer.client_id] == [each.client_id for each in consumers.connection_set]
        assert ["PYTHON"] == [each.language for each in consumers.connection_set]


async def test_a_client_without_settings_is_not_recognized(client: Stub) -> None:
    answer = await client.unary("Heartbeat", calls.HeartbeatRequest(client_type=v2.PRODUCER))
    assert v2.UNRECOGNIZED_CLIENT_TYPE == answer.status.code
    await client.produces("normal")
    assert v2.OK == (await client.unary("Heartbeat", calls.HeartbeatRequest())).status.code


@pytest.mark.parametrize(
    ("code", "made"),
    [
        (v2.ILLEGAL_TOPIC, lambda: message("")),
        (v2.ILLEGAL_TOPIC, lambda: message("x" * 128)),
        (v2.ILLEGAL_TOPIC, lambda: message("a b")),
        (v2.ILLEGAL_TOPIC, lambda: message("rmq_sys_wheel_timer")),
        (v2.TOPIC_NOT_FOUND, lambda: message("nowhere")),
        (v2.MESSAGE_BODY_EMPTY, lambda: message("normal", b"")),
        (v2.MESSAGE_BODY_TOO_LARGE, lambda: message("normal", bytes((4 << 20) + 1))),
        (v2.ILLEGAL_MESSAGE_ID, lambda: message("normal", message_id=" ")),
        (v2.ILLEGAL_MESSAGE_TAG, lambda: message("normal", tag="a|b")),
        (v2.ILLEGAL_MESSAGE_KEY, lambda: message("normal", keys=["a\x01"])),
        (v2.ILLEGAL_MESSAGE_GROUP, lambda: message("fifo", kind=v2.FIFO, message_group="g" * 64)),
        (v2.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: message("normal", properties={"TAGS": "x"})),
        (v2.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: message("normal", properties={"a": "\x02"})),
        (v2.MESSAGE_PROPERTIES_TOO_LARGE, lambda: message("normal", properties={"a": "x" * 16384})),
        (v2.MESSAGE_PROPERTIES_TOO_LARGE, lambda: message("normal", properties={str(n): "x" for n in range(129)})),
        (v2.ILLEGAL_DELIVERY_TIME, lambda: message("delay", kind=v2.DELAY, delivery_ms=1 << 42)),
        (v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: message("fifo")),
        (v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: message("normal", kind=v2.TRANSACTION)),
    ],
)
async def test_what_may_not_be_sent(client: Stub, code: int, made: Any) -> None:
    answer = await client.send(made())
    assert code == answer.status.code
    assert answer.status.message


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (v2.ILLEGAL_INVISIBLE_TIME, {"invisible_ms": 99}),
        (v2.ILLEGAL_INVISIBLE_TIME, {"invisible_ms": 43_200_001}),
        (v2.ILLEGAL_FILTER_EXPRESSION, {"expression": "||"}),
    ],
)
async def test_what_may_not_be_received(client: Stub, code: int, options: dict[str, Any]) -> None:
    answers = await client.stream(client.receive_request("group", "normal", **options))
    assert code == answers[0].status.code


async def test_handles_that_nobody_issued(client: Stub) -> None:
    await client.consumes("group", "normal")
    for handle, code in (
        ("nonsense", v2.INTERNAL_SERVER_ERROR),
        ("0 1 2 3 0 broker-a 0 0 0", v2.INVALID_RECEIPT_HANDLE),
    ):
        made = message("normal")
        made.system_properties.receipt_handle = handle
        assert code == (await client.ack("group", "normal", made)).status.code


async def test_a_call_without_a_client_id(client: Stub) -> None:
    answer = await client.unary("Heartbeat", calls.HeartbeatRequest(), metadata=[])
    assert v2.CLIENT_ID_REQUIRED == answer.status.code


async def test_settings_without_content_end_the_stream(client: Stub) -> None:
    stream = await client.telemetry(v2.Settings(client_type=v2.PRODUCER))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.next()
    assert grpc.StatusCode.INVALID_ARGUMENT == refused.value.code()


async def test_calls_of_later_versions_are_not_implemented(client: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.unary("GetOffset", calls.GetOffsetRequest())
    assert grpc.StatusCode.UNIMPLEMENTED == refused.value.code()


async def test_a_client_that_hangs_up_gets_no_messages(clients: Clients) -> None:
    """Its poll ends with it; the next one finds the message at its first attempt."""
    gone, there = clients.new(), clients.new()
    for each in (gone, there):
        await each.consumes("group", "normal")
    waiting = asyncio.ensure_future(gone.stream(gone.receive_request("group", "normal", poll_ms=20_000)))
    answers = await there.stream(there.receive_request("group", "normal"))
    assert v2.MESSAGE_NOT_FOUND == answers[0].status.code
    waiting.cancel()
    await gone.channel.close()
    await there.route("normal")  # the reset came before this on the same loop
    await there.send(message("normal", b"for the living"))
    found = await there.receive_all("group", "normal", 1)
    assert [1] == [each.system_properties.delivery_attempt for each in found]


async def test_a_client_that_left_while_its_settings_were_on_their_way_is_no_member(node: Node, client: Stub) -> None:
    """The proxy itself became a member of its group."""
    assert node.proxy is not None
    assert node.broker is not None
    await client.consumes("group", "normal")
    known = node.proxy.service.clients.get(client.client_id)
    assert known is not None
    node.proxy.service.clients.remove(known)
    await node.proxy.service.back.registered(known)
    assert {} == node.broker.clients.consumers
