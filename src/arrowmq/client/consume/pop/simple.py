"""The simple consumer: the program asks for messages, and says of each what became of it.

There are no queues to be divided: every member of a group gets what is there next, so a slow message holds up no other,
and more members than queues make sense. The broker lends a message for a time (`invisible_s`); what is not acknowledged
by then it delivers again. Works with ArrowMQ and with Apache RocketMQ from version 5 on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from arrowmq.client import names
from arrowmq.client.async_scope import Scope
from arrowmq.client.consume.group.consume_from import ConsumeFrom
from arrowmq.client.consume.group.subscription import Subscription, subscription
from arrowmq.client.consume.pop.ack_batches import AckBatches
from arrowmq.client.consume.pop.popped import PoppedMessage, messages_of
from arrowmq.client.errors import InvalidUse, NoRoute, Unreachable
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.session import Session
from arrowmq.wire.bodies import ConsumerData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ChangeInvisibleTime, PopMessage
from arrowmq.wire.headers.declare import decode_header
from arrowmq.wire.headers.pop import ChangeInvisibleTimeResult

MOST_MESSAGES = 32
GRACE_S = 10.0  # for the answer to a request that waited as long as it was told to
NO_MORE = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND)
FIRST, LAST = 0, 1


class SimpleConsumer(Scope):
    """Receives messages and acknowledges each of them.

    async with arrowmq.SimpleConsumer("localhost:9876", group="billing", topic="orders") as consumer:
        for message in await consumer.receive(16, invisible_s=30):
            await message.ack()

    `invisible_s` is how long a received message belongs to this consumer, `wait_s` how long a call waits for the first
    message. With `in_order` the messages of a queue come one after the other: nothing more of it is delivered to the
    group before what was received is acknowledged.
    """

    message_type: type[PoppedMessage] = PoppedMessage

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | Sequence[str],
        tags: str = "*",
        sql: str | None = None,
        invisible_s: float = 30.0,
        wait_s: float = 15.0,
        consume_from: ConsumeFrom | str = ConsumeFrom.FIRST_OFFSET,
        in_order: bool = False,
        **connect: Unpack[ConnectOptions],
    ) -> None:
        names.check_group(group)
        options = Options.of(namesrv, connect)
        self._namespace = options.namespace
        self.group = options.namespace.wrap(group)
        self._session = Session(options)
        self._invisible_s = _positive(invisible_s, "invisible_s")
        self._wait_s = wait_s
        self._init_mode = LAST if ConsumeFrom(consume_from) is ConsumeFrom.LAST_OFFSET else FIRST
        self._in_order = in_order
        self._subscriptions: dict[str, Subscription] = {}
        for name in (topic,) if isinstance(topic, str) else topic:
            names.check_topic(name)
            wrapped = self.wrapped(name)
            self._subscriptions[wrapped] = subscription(wrapped, tags, sql, self._session.clock.now_ms())
        if not self._subscriptions:
            raise InvalidUse("a simple consumer needs a topic")
        self._acks = AckBatches(self.group, self._ask, self._session.spawn)
        self._turn = 0

    def wrapped(self, topic: str) -> str:
        return self._namespace.wrap(topic)

    def unwrapped(self, topic: str) -> str:
        return self._namespace.unwrap(topic)

    # -- life

    @property
    def client_id(self) -> str:
        return self._session.client_id

    async def start(self) -> None:
        await self._session.start()
        self._session.consumer_data[self.group] = self._describe
        for topic in self._subscriptions:
            self._session.watched[topic] = _nothing
            await self._session.refresh_route(topic)
        await self._session.heartbeat()

    async def close(self) -> None:
        if self._session.is_closed:
            return
        try:
            if self.group in self._session.consumer_data:
                await self._session.unregister(consumer_group=self.group)
        finally:
            await self._session.close()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[each.to_data() for each in self._subscriptions.values()],
            unit_mode=False,
        )

    # -- receiving

    async def receive(
        self, max_messages: int = MOST_MESSAGES, invisible_s: float | None = None, *, wait_s: float | None = None
    ) -> list[PoppedMessage]:
        """Up to so many messages, which belong to the caller for `invisible_s`; an empty list if none came in time."""
        self._session.check_usable()
        if not 1 <= max_messages <= MOST_MESSAGES:
            raise InvalidUse(f"max_messages={max_messages}: a broker hands out 1 to {MOST_MESSAGES} messages at a time")
        invisible_ms = round(_positive(invisible_s or self._invisible_s, "invisible_s") * 1000)
        left_s = self._wait_s if wait_s is None else wait_s
        while True:
            places = await self._places()
            # First what is there already, then a share of the waiting at each broker in turn
            for topic, broker_name in places[:-1]:
                if messages := await self._pop(topic, broker_name, max_messages, invisible_ms, 0.0):
                    return messages
            share_s = left_s if len(places) == 1 else min(left_s, max(1.0, left_s / len(places)))
            topic, broker_name = places[-1]
            messages = await self._pop(topic, broker_name, max_messages, invisible_ms, share_s)
            left_s -= share_s
            if messages or left_s <= 0:
                return messages

    async def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        while not self._session.is_closed:
            for message in await self.receive():
                yield message

    async def _places(self) -> list[tuple[str, str]]:
        """Every topic at every broker that has it, another one first each time."""
        places = []
        for topic in self._subscriptions:
            route = await self._session.route(topic)
            places += [(topic, name) for name in dict.fromkeys(queue.broker_name for queue in route.subscribe_queues)]
        if not places:
            topic = next(iter(self._subscriptions))
            raise NoRoute(topic, self._session.options.namesrv[0], "It has no queues that may be read")
        self._turn = (self._turn + 1) % len(places)
        return places[self._turn :] + places[: self._turn]

    async def _pop(
        self, topic: str, broker_name: str, max_messages: int, invisible_ms: int, wait_s: float
    ) -> list[PoppedMessage]:
        wanted = self._subscriptions[topic]
        header = PopMessage(
            consumer_group=self.group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=max_messages,
            invisible_time=invisible_ms,
            poll_time=round(wait_s * 1000),
            born_time=0,  # the broker's own time: a client's clock may be wrong
            init_mode=self._init_mode,
            exp_type=wanted.expression_type,
            exp=wanted.expression,
            order=self._in_order,
        )
        request = Command.request(RequestCode.POP_MESSAGE, header)
        what = f"receiving messages of {self.unwrapped(topic)}"
        answer = await self._ask(broker_name, request, what, wait_s + GRACE_S, accept=NO_MORE)
        if answer.code:
            return []
        messages = messages_of(self, answer, topic, broker_name)
        if not wanted.tags:
            return messages
        # The broker compares hashes of tags; two tags may share one. What is not wanted is done with.
        strangers = [message for message in messages if message.tag not in wanted.tags]
        for message in strangers:
            await self._acks.add(message)
        return [message for message in messages if message.tag in wanted.tags]

    # -- what becomes of a message

    async def acknowledge(self, message: PoppedMessage) -> None:
        self._session.check_usable()
        await self._acks.add(message)

    async def change_invisible_time(self, message: PoppedMessage, seconds: float) -> None:
        self._session.check_usable()
        if seconds < 0:
            raise InvalidUse(f"{seconds} s: a message cannot have become visible in the past")
        receipt = message.receipt
        header = ChangeInvisibleTime(
            consumer_group=self.group,
            topic=message.popped_topic,
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.queue_offset,
            invisible_time=round(seconds * 1000),
        )
        request = Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        answer = await self._ask(message.broker_name, request, f"changing the invisible time of {message!r}")
        changed = decode_header(ChangeInvisibleTimeResult, answer.ext)
        message.receipt = receipt._replace(
            start_offset=receipt.start_offset if self._in_order else receipt.queue_offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )

    async def _ask(
        self,
        broker_name: str,
        request: Command,
        what: str,
        timeout_s: float | None = None,
        *,
        accept: tuple[int, ...] = (),
    ) -> Command:
        address = self._master(broker_name)
        if address is None:  # it may have registered since
            for topic in self._subscriptions:
                await self._session.refresh_route(topic)
            address = self._master(broker_name)
        if address is None:
            raise NoRoute(", ".join(self._subscriptions), broker_name, f"The broker {broker_name} is in no route now")
        request.ext["bname"] = broker_name  # a proxy has one address for all brokers
        try:
            return await self._session.ask(address, request, what, timeout_s, accept=accept)
        except Unreachable:
            self._session.spawn(self._session.refresh_routes(), "refresh routes")
            raise

    def _master(self, broker_name: str) -> str | None:
        found = (route.master(broker_name) for route in self._session.routes.values())
        return next(filter(None, found), None)


def _positive(seconds: float, name: str) -> float:
    if seconds <= 0:
        raise InvalidUse(f"{name}={seconds}: give a time in seconds above 0")
    return seconds


def _nothing() -> None:
    """A route changed: the next call looks at it anyway."""
