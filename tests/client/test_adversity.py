"""What users live through: restarts, lost servers, cut connections, time-outs, hanging handlers, cancellation.

In all of them: no message lost, no task left, and errors that say what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from inside import NOTHING, session_of, under_way

import arrowmq
from arrowmq.testing import BrokerThread
from waiting import until


class Relay:
    """Stands between a client and a server, and cuts, stalls or forwards."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.cut_after_bytes: int | None = None
        self.is_stalled = False

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, onward_writer}
        try:
            await asyncio.gather(self._copy(reader, onward_writer), self._copy(onward_reader, writer, is_answer=True))
        finally:
            for each in (writer, onward_writer):
                each.close()
                self._writers.discard(each)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        while data := await reader.read(65536):
            if self.is_stalled:
                continue
            if is_answer and self.cut_after_bytes is not None:
                writer.write(data[: self.cut_after_bytes])
                await writer.drain()
                self.cut_after_bytes = None
                self.cut()
                return
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()


@asynccontextmanager
async def relayed(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...] = (0,)
) -> AsyncIterator[Relay]:
    """Clients made inside reach the broker, and each of its replicas, through a relay, as if the route said so."""
    from arrowmq.client.routes import Route
    from arrowmq.wire.bodies import TopicRouteData

    relay = Relay(broker.broker_address)
    await relay.start()
    original = Route.from_data.__func__  # type: ignore[attr-defined]

    def through_relay(cls: type[Route], topic: str, data: TopicRouteData) -> Route:
        for each in data.broker_datas:
            each.broker_addrs = dict.fromkeys(ids, relay.address)
        route: Route = original(cls, topic, data)
        return route

    monkeypatch.setattr(Route, "from_data", classmethod(through_relay))
    try:
        yield relay
    finally:
        await relay.close()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "arrowmq")


async def test_a_broker_restart_loses_and_repeats_nothing_acknowledged(
    arrowmq_broker: BrokerThread, topic: str, group: str
) -> None:
    seen: list[bytes] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        seen.append(message.body)

    namesrv = arrowmq_broker.namesrv
    async with (
        arrowmq.Producer(namesrv, timeout_s=20, retries=100) as producer,
        arrowmq.PushConsumer(namesrv, group=group, topic=topic, handler=handle, consume_from="first"),
    ):
        for n in range(20):
            await producer.send(topic, b"%d" % n)
        await until(lambda: len(set(seen)) == 20)
        await asyncio.to_thread(arrowmq_broker.restart)
        for n in range(20, 40):
            await producer.send(topic, b"%d" % n)
        await until(lambda: len(set(seen)) == 40)
    assert {b"%d" % n for n in range(40)} == set(seen)


async def test_a_send_during_a_restart_waits_for_the_broker(arrowmq_broker: BrokerThread, topic: str) -> None:
    async with arrowmq.Producer(arrowmq_broker.namesrv, timeout_s=20, retries=1000) as producer:
        await producer.send(topic, b"before")
        restart = asyncio.create_task(asyncio.to_thread(arrowmq_broker.restart))
        receipts = [await producer.send(topic, b"%d" % n) for n in range(10)]
        await restart
        receipts += [await producer.send(topic, b"after")]
    assert 11 == len({receipt.offset_msg_id for receipt in receipts})


async def test_messages_flow_on_when_every_name_server_is_gone(
    arrowmq_broker: BrokerThread, topic: str, group: str
) -> None:
    """Routes are cached: losing the NameServers stops nothing that is running."""
    relay = Relay(arrowmq_broker.namesrv)
    await relay.start()
    async with (
        arrowmq.Producer(relay.address, poll_namesrv_interval_s=0.05) as producer,
        arrowmq.Consumer(
            relay.address, group=group, topic=topic, consume_from="first", poll_namesrv_interval_s=0.05
        ) as consumer,
    ):
        await producer.send(topic, b"before")
        await (await anext(consumer)).ack()
        await relay.close()
        await producer.send(topic, b"after")
        message = await anext(consumer)
        await message.ack()
        assert b"after" == message.body


async def test_the_next_name_server_is_asked_when_one_is_dead(arrowmq_broker: BrokerThread, topic: str) -> None:
    namesrv = ["127.0.0.1:1", arrowmq_broker.namesrv, "127.0.0.1:2"]
    async with arrowmq.Producer(namesrv) as producer:
        assert arrowmq.SendStatus.SEND_OK is (await producer.send(topic, b"x")).status


async def test_no_name_server_at_all_is_said_at_the_start() -> None:
    with pytest.raises(arrowmq.NamesrvUnreachable, match=r"127\.0\.0\.1:1.*Check the addresses"):
        await arrowmq.Producer("127.0.0.1:1", start_timeout_s=0.2).start()
    with pytest.raises(arrowmq.NamesrvUnreachable):
        await arrowmq.Consumer("127.0.0.1:1", group="g", topic="t", start_timeout_s=0.2).start()


async def test_a_connection_cut_in_the_middle_of_an_answer_is_survived(
    arrowmq_broker: BrokerThread, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        relayed(arrowmq_broker, monkeypatch) as relay,
        arrowmq.Producer(arrowmq_broker.namesrv, retries=5) as producer,
        arrowmq.Consumer(arrowmq_broker.namesrv, group=group, topic=topic, consume_from="first") as consumer,
    ):
        bodies = [b"%d" % n * 2000 for n in range(30)]
        seen: set[bytes] = set()
        for n, body in enumerate(bodies):
            if n % 10 == 5:
                relay.cut_after_bytes = 37  # within the header of a frame
            await producer.send(topic, body)
        while len(seen) < len(bodies):
            for message in await consumer.receive(timeout_s=20):
                seen.add(message.body)
                await message.ack()
        assert set(bodies) == seen


@pytest.mark.parametrize("ids", [(0,), (0, 1)])
async def test_a_sender_without_retries_sends_nothing_twice(
    arrowmq_broker: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...]
) -> None:
    """Also where a slave might take over, and others wait for that: the message is stored, and its answer was cut."""
    async with (
        relayed(arrowmq_broker, monkeypatch, ids) as relay,
        arrowmq.Producer(arrowmq_broker.namesrv, retries=0) as producer,
    ):
        first = await producer.send(topic, b"x", order_key="k")
        relay.cut_after_bytes = 5
        with pytest.raises(arrowmq.SendFailed, match="Whether it took effect is not known"):
            await producer.send(topic, b"y", order_key="k")
        last = await producer.send(topic, b"z", order_key="k")
    assert last.queue_offset - first.queue_offset == 2


async def test_a_broker_that_does_not_answer_is_a_timeout(
    arrowmq_broker: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        relayed(arrowmq_broker, monkeypatch) as relay,
        arrowmq.Producer(arrowmq_broker.namesrv, timeout_s=20) as producer,
    ):
        await producer.send(topic, b"x")
        relay.is_stalled = True
        with pytest.raises(arrowmq.SendTimedOut, match=topic) as failure:
            await producer.send(topic, b"y", timeout_s=0.3)
        assert isinstance(failure.value, TimeoutError)
        relay.is_stalled = False
        relay.cut()
        await producer.send(topic, b"z")


async def test_every_send_that_is_cut_off_fails_or_succeeds_and_none_hangs(
    arrowmq_broker: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        relayed(arrowmq_broker, monkeypatch) as relay,
        arrowmq.Producer(arrowmq_broker.namesrv, retries=0, timeout_s=20) as producer,
    ):
        await producer.send(topic, b"x")
        sends = [asyncio.create_task(producer.send(topic, b"%d" % n)) for n in range(200)]
        await asyncio.sleep(0)
        relay.cut()
        results = await asyncio.gather(*sends, return_exceptions=True)
        kinds = {type(result) for result in results}
        assert kinds <= {arrowmq.SendReceipt, arrowmq.SendFailed, arrowmq.SendTimedOut}
        assert NOTHING == under_way(producer)


async def test_a_send_can_be_cancelled_at_any_await(arrowmq_broker: BrokerThread, topic: str) -> None:
    async with arrowmq.Producer(arrowmq_broker.namesrv, max_in_flight=2) as producer:
        await producer.send(topic, b"x")
        for turns in range(12):
            task = asyncio.create_task(producer.send(topic, b"cancelled"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert 0 == under_way(producer).messages
        assert arrowmq.SendStatus.SEND_OK is (await producer.send(topic, b"still works")).status


async def test_a_start_can_be_cancelled_at_any_await(arrowmq_broker: BrokerThread, topic: str, group: str) -> None:
    for turns in range(0, 40, 3):
        consumer = arrowmq.Consumer(arrowmq_broker.namesrv, group=group, topic=topic)
        task = asyncio.create_task(consumer.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.close()
        assert [] == consumer.assignment


async def test_waiting_for_a_message_can_be_cancelled_and_no_message_is_lost(
    arrowmq_broker: BrokerThread, topic: str, group: str
) -> None:
    async with (
        arrowmq.Producer(arrowmq_broker.namesrv) as producer,
        arrowmq.Consumer(arrowmq_broker.namesrv, group=group, topic=topic, consume_from="first") as consumer,
    ):
        seen: list[bytes] = []
        for n in range(20):
            waiting = asyncio.create_task(consumer.receive(1))
            await asyncio.sleep(0)
            send = asyncio.create_task(producer.send(topic, b"%d" % n))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            waiting.cancel()
            (result,) = await asyncio.gather(waiting, return_exceptions=True)
            if isinstance(result, list):
                seen += [message.body for message in result]
            await send
        while len(seen) < 20:
            found = await consumer.receive(timeout_s=10)
            assert found, f"{20 - len(seen)} messages are lost"
            seen += [message.body for message in found]
    assert sorted(b"%d" % n for n in range(20)) == sorted(seen)


async def test_a_handler_that_hangs_for_ever_does_not_hold_the_close(
    arrowmq_broker: BrokerThread, topic: str, group: str
) -> None:
    begun = asyncio.Event()

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    namesrv = arrowmq_broker.namesrv
    async with arrowmq.Producer(namesrv) as producer:
        await producer.send(topic, b"stuck")
        async with arrowmq.PushConsumer(
            namesrv, group=group, topic=topic, handler=handle, consume_from="first", close_timeout_s=0.1
        ):
            await begun.wait()
    async with arrowmq.Consumer(namesrv, group=group, topic=topic) as consumer:
        message = await anext(consumer)
        assert b"stuck" == message.body
        await message.ack()


async def test_retries_end_among_the_dead_letters(arrowmq_broker: BrokerThread, topic: str, group: str) -> None:
    """Sixteen retries with delays up to two hours, in a moment."""
    attempts: list[int] = []

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ValueError("never")

    namesrv = arrowmq_broker.namesrv
    async with (
        arrowmq.Producer(namesrv) as producer,
        arrowmq.PushConsumer(namesrv, group=group, topic=topic, handler=handle, consume_from="first"),
        arrowmq.Admin(namesrv) as admin,
    ):
        await producer.send(topic, b"poison")
        await arrowmq_broker.advance_until(lambda: len(attempts) == 17, step=7200)
        letters: list[arrowmq.ReceivedMessage] = []
        async with asyncio.timeout(10):
            while not letters:
                letters = await admin.dead_letters(group)
    assert list(range(17)) == attempts
    assert [b"poison"] == [letter.body for letter in letters]


async def test_memory_stays_bounded_while_nobody_acknowledges(
    arrowmq_broker: BrokerThread, topic: str, group: str
) -> None:
    namesrv = arrowmq_broker.namesrv
    async with arrowmq.Admin(namesrv) as admin, arrowmq.Producer(namesrv) as producer:
        await admin.create_topic(topic, queues=1)
        for _ in range(40):
            await producer.send_batch([arrowmq.Message(topic, bytes(1000)) for _ in range(100)])
        flow = arrowmq.FlowControl(max_bytes=200_000)
        async with arrowmq.Consumer(namesrv, group=group, topic=topic, consume_from="first", flow=flow) as consumer:
            held: list[arrowmq.ReceivedMessage] = []
            while found := await consumer.receive(100, timeout_s=0.3):
                held += found
            one_pull = 32 * 1300
            assert sum(message.size for message in held) <= 200_000 + one_pull


async def test_a_client_used_wrongly_says_so(arrowmq_broker: BrokerThread, topic: str) -> None:
    producer = arrowmq.Producer(arrowmq_broker.namesrv)
    with pytest.raises(arrowmq.InvalidUse, match="not started"):
        await producer.send(topic, b"x")
    await producer.start()
    with pytest.raises(arrowmq.InvalidUse, match="started before"):
        await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(arrowmq.InvalidUse, match="closed"):
        await producer.send(topic, b"x")
    with pytest.raises(arrowmq.InvalidUse, match="NAMESRV_ADDR"):
        arrowmq.Producer("")
    with pytest.raises(arrowmq.InvalidUse, match="localhost:9876"):
        arrowmq.Producer("nonsense")
    with pytest.raises(arrowmq.InvalidUse, match="nothing is subscribed"):
        await arrowmq.Consumer(arrowmq_broker.namesrv, group="g").start()
    with pytest.raises(arrowmq.InvalidName):
        arrowmq.Consumer(arrowmq_broker.namesrv, group="DEFAULT_CONSUMER", topic="t")


async def test_a_topic_that_nobody_serves_is_explained(arrowmq_broker: BrokerThread) -> None:
    """Without automatic creation a send to an unknown topic says how to create it."""
    from arrowmq.testing import LocalBroker

    async with (
        LocalBroker(settings={"autoCreateTopicEnable": "false"}) as strict,
        arrowmq.Producer(strict.namesrv) as producer,
    ):
        with pytest.raises(arrowmq.NoRoute, match="arrowmq topic create unknown"):
            await producer.send("unknown", b"x")


class TestABrokerThatShedsLoad:
    @pytest.fixture
    def arrowmq_settings(self) -> dict[str, str]:
        return {"maxSendsPerSecond": "20"}

    async def test_sends_slow_down_and_all_of_them_arrive(
        self, arrowmq_broker: BrokerThread, topic: str, group: str
    ) -> None:
        """Being told that the broker is busy is no failure of a message: it waits and tries again."""
        async with arrowmq.Producer(arrowmq_broker.namesrv, timeout_s=30, retries=0) as producer:
            receipts = await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(60)))
        assert 60 == len({receipt.offset_msg_id for receipt in receipts})


async def test_a_gathered_send_has_a_time_out_of_its_own(
    arrowmq_broker: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The impatient one of a batch is told in its own time; the patient one waits on."""
    async with relayed(arrowmq_broker, monkeypatch) as relay:
        batching = arrowmq.Batching(linger_ms=1)
        async with arrowmq.Producer(arrowmq_broker.namesrv, batching=batching, timeout_s=1.0, retries=0) as producer:
            await producer.send(topic, b"the topic is made")
            await session_of(producer).refresh_route(topic)
            await producer.send(topic, b"through the relay")
            relay.is_stalled = True
            loop = asyncio.get_running_loop()
            started = loop.time()
            patient = asyncio.create_task(producer.send(topic, b"patient"))
            with pytest.raises(arrowmq.SendTimedOut, match="gathered"):
                await producer.send(topic, b"impatient", timeout_s=0.1)
            assert loop.time() - started < 0.9
            with pytest.raises(arrowmq.SendTimedOut):
                await patient
            assert 0.9 <= loop.time() - started
