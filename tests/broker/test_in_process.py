"""Goal: a broker's services serve a client that comes by no socket: values in, values out, no frame and no bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from in_process import SMALL_FILES, LocalClient

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.broker.groups.subscriptions import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from arrowmq.broker.services import Services
from arrowmq.clock import VirtualClock
from arrowmq.remoting.errors import ConnectionLost
from arrowmq.remoting.handlers import Answer, Refused, release
from arrowmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import (
    EndTransaction,
    GetConsumerRunningInfo,
    PullMessage,
    QueryConsumerOffset,
    RecallMessage,
    SendMessage,
    UpdateConsumerOffset,
)
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.records import Record, decode_records
from arrowmq.wire.sysflag import TRANSACTION_COMMIT
from waiting import until

NOBODY_LISTENS = 10911
START_MS = 1_794_769_200_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker without a port: nobody can reach it but from this process."""
    settings = {**SMALL_FILES, "recallMessageEnable": "true", "transactionCheckInterval": "1000000000"}
    broker = Broker(BrokerConfig.from_properties(settings), tmp_path, VirtualClock(START_MS))
    await broker.start(NOBODY_LISTENS)
    yield broker
    await broker.stop()


@pytest.fixture
def services(broker: Broker) -> Services:
    return broker.services


@pytest.fixture
def client(broker: Broker) -> LocalClient:
    return LocalClient(broker.handlers)


def send_of(properties: str = "", topic: str = "orders") -> SendMessage:
    return SendMessage(producer_group="P", topic=topic, queue_id=0, born_timestamp=START_MS, properties=properties)


def pull_of(offset: int, *, wait_ms: int = 0) -> PullMessage:
    flags = FLAG_SUBSCRIPTION | (FLAG_SUSPEND if wait_ms else 0)
    return PullMessage(
        consumer_group="G", topic="orders", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=flags,
        commit_offset=0, suspend_timeout_millis=wait_ms, sub_version=0, subscription="*",
    )  # fmt: skip


def records_in(answer: Answer) -> list[Record]:
    """The records of a pull's answer, whose views of the log are given back."""
    assert isinstance(answer.body, list), answer.remark
    found = decode_records(b"".join(answer.body))
    release(answer)
    return found


def fields_of(answer: Answer) -> dict[str, str]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert isinstance(answer.header, dict)
    return answer.header


async def test_what_is_sent_is_pulled(services: Services, client: LocalClient) -> None:
    sent = fields_of(await client.ask(services.send.send, send_of("TAGS\x01a\x02"), b"first"))
    assert (sent["queueId"], sent["queueOffset"]) == ("0", "0")
    (record,) = records_in(await client.ask(services.pull.pull, pull_of(0)))
    assert (record.body, record.properties["TAGS"]) == (b"first", "a")
    assert record.born_host == (bytes([10, 1, 2, 3]), 4567)


async def test_a_pull_waits_for_the_next_message(broker: Broker, services: Services, client: LocalClient) -> None:
    await client.ask(services.send.send, send_of(), b"first")
    pulling = asyncio.ensure_future(client.ask(services.pull.pull, pull_of(1, wait_ms=15_000)))
    await until(lambda: broker.longpoll.count == 1)
    await client.ask(services.send.send, send_of(), b"second")
    assert [record.body for record in records_in(await pulling)] == [b"second"]


async def test_a_pull_that_waits_in_vain_says_so_when_its_time_is_over(
    broker: Broker, services: Services, client: LocalClient
) -> None:
    await client.ask(services.send.send, send_of(), b"first")
    pulling = asyncio.ensure_future(client.ask(services.pull.pull, pull_of(1, wait_ms=15_000)))
    await until(lambda: broker.longpoll.count == 1)
    assert isinstance(broker.clock, VirtualClock)
    await broker.clock.advance(16)
    assert (await pulling).code == ResponseCode.PULL_NOT_FOUND


async def test_the_pull_of_a_client_that_is_gone_waits_no_longer(
    broker: Broker, services: Services, client: LocalClient
) -> None:
    await client.ask(services.send.send, send_of(), b"first")
    pulling = asyncio.ensure_future(client.ask(services.pull.pull, pull_of(1, wait_ms=15_000)))
    await until(lambda: broker.longpoll.count == 1)
    client.close()
    assert broker.longpoll.count == 0
    with pytest.raises(ConnectionLost, match=r"10\.1\.2\.3:4567 is gone"):
        await pulling


async def test_an_answer_that_nobody_waits_for_any_more_gives_its_records_back(
    broker: Broker, services: Services, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[Answer] = []

    def noted(reply: Answer) -> None:
        released.append(reply)
        release(reply)

    monkeypatch.setattr("arrowmq.remoting.direct_call.release", noted)
    await client.ask(services.send.send, send_of(), b"first")
    pulling = asyncio.ensure_future(client.ask(services.pull.pull, pull_of(1, wait_ms=15_000)))
    await until(lambda: broker.longpoll.count == 1)
    pulling.cancel()
    await asyncio.wait({pulling})
    await client.ask(services.send.send, send_of(), b"second")
    await until(lambda: released != [])
    assert (released[0].code, released[0].on_sent) == (ResponseCode.SUCCESS, None)


async def test_a_refusal_is_an_answer_too(services: Services, client: LocalClient) -> None:
    answer = await client.ask(services.send.send, send_of(), b"")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "it has no body" in (answer.remark or "")


async def test_offsets_are_committed_and_found(services: Services, client: LocalClient) -> None:
    await client.ask(services.send.send, send_of(), b"first")
    asked = QueryConsumerOffset(consumer_group="G", topic="orders", queue_id=0, set_zero_if_not_found=False)
    with pytest.raises(Refused, match="do not set to zero"):
        services.offsets.query(asked)
    records_in(await client.ask(services.pull.pull, pull_of(0)))  # the first pull makes the group
    services.offsets.update(UpdateConsumerOffset(consumer_group="G", topic="orders", queue_id=0, commit_offset=1))
    assert services.offsets.query(asked).offset == 1


def consumer(group: str) -> ConsumerData:
    subscription = SubscriptionData(topic="orders", sub_string="*", sub_version=1)
    return ConsumerData(
        group_name=group, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET", subscription_data_set=[subscription],
    )  # fmt: skip


async def test_a_heartbeat_makes_a_member_which_is_notified_and_asked(broker: Broker, client: LocalClient) -> None:
    services, other = broker.services, LocalClient(broker.handlers, ("10.1.2.4", 1))
    for each, client_id in ((client, "c1"), (other, "c2")):
        beat = HeartbeatData(client_id=client_id, consumer_data_set=[consumer("G")])
        assert (await each.ask(services.heartbeat.heartbeat, beat, language=4, version=401)).code == 0
    await until(lambda: client.notices != [])
    assert client.notices[-1].code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    group = broker.clients.consumers["G"]
    assert [(each.client_id, each.language, each.version) for each in group.channels.values()] == [
        ("c1", 4, 401),
        ("c2", 4, 401),
    ]
    client.answers = lambda command: command.answer(0, body=b"{}", remark=command.ext["clientId"])
    answer = await services.client_admin.running_info(GetConsumerRunningInfo(consumer_group="G", client_id="c1"))
    assert (answer.code, answer.body, answer.remark) == (0, b"{}", "c1")
    client.close()
    assert group.client_ids == ["c2"]


async def test_a_half_message_is_asked_about_and_ended(broker: Broker, client: LocalClient) -> None:
    services, clock = broker.services, broker.clock
    assert isinstance(clock, VirtualClock)
    beat = HeartbeatData(client_id="p1", producer_data_set=[ProducerData(group_name="P")])
    await client.ask(services.heartbeat.heartbeat, beat)
    half = fields_of(await client.ask(services.send.send, send_of("TRAN_MSG\x01true\x02PGROUP\x01P\x02"), b"half"))
    nothing_yet = await client.ask(services.pull.pull, pull_of(0))
    assert nothing_yet.code == ResponseCode.PULL_NOT_FOUND
    await clock.advance(60)
    await services.transaction_checks.round()
    (check,) = [each for each in client.notices if each.code == RequestCode.CHECK_TRANSACTION_STATE]
    assert check.ext["transactionId"] == half["transactionId"]
    end = EndTransaction(
        producer_group="P",
        tran_state_table_offset=int(half["queueOffset"]),
        commit_log_offset=parse_offset_message_id(half["msgId"]).physical_offset,
        commit_or_rollback=TRANSACTION_COMMIT,
        from_transaction_check=True,
    )
    ended = await client.ask(services.transactions.end_transaction, end)
    assert isinstance(ended, Answer)
    assert (ended.code, ended.remark) == (ResponseCode.SUCCESS, None)
    (record,) = records_in(await client.ask(services.pull.pull, pull_of(0)))
    assert record.body == b"half"


async def test_a_timer_message_is_recalled(broker: Broker, client: LocalClient) -> None:
    services, clock = broker.services, broker.clock
    assert isinstance(clock, VirtualClock)
    due = f"TIMER_DELIVER_MS\x01{START_MS + 5000}\x02"
    await client.ask(services.send.send, send_of(), b"at once")
    kept = fields_of(await client.ask(services.send.send, send_of(due), b"kept"))
    recalled = fields_of(await client.ask(services.send.send, send_of(due), b"recalled"))
    request = RecallMessage(topic="orders", producer_group="P", recall_handle=recalled["recallHandle"])
    assert fields_of(await client.ask(services.recall.recall, request))["msgId"] != kept["transactionId"]
    await clock.advance(10)
    found = records_in(await client.ask(services.pull.pull, pull_of(0)))
    assert [record.body for record in found] == [b"at once", b"kept"]


async def test_a_handler_that_fails_is_answered_for(
    services: Services, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.send.path, "put", lambda record: 1 // 0)
    answer = await client.ask(services.send.send, send_of(), b"first")
    assert (answer.code, answer.remark) == (1, "ZeroDivisionError: integer division or modulo by zero")


async def test_the_code_of_a_direct_call_is_the_handlers_first_unless_another_is_given(
    broker: Broker, client: LocalClient
) -> None:
    broker.config.lite_pull_message_enable = False
    assert (await client.ask(broker.services.pull.pull, pull_of(0))).code != ResponseCode.NO_PERMISSION
    lite = await client.ask(broker.services.pull.pull, pull_of(0), code=RequestCode.LITE_PULL_MESSAGE)
    assert lite.code == ResponseCode.NO_PERMISSION
