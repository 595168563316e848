"""The way of a packed message to a broker and of the receipt back: choice of the queue, attempts, fault avoidance.

An attempt that failed is repeated on another broker if there is one, with the same message id, within the time given
for all attempts together. What a broker refuses for good (a message too large, say) is not repeated.

Where the master of a set of brokers is lost, another becomes it within moments. So a send to a set that has other
brokers, and to no other set, waits for that as long as it has time. A master that hangs answers nothing and closes no
connection: who waits for it asks the NameServer meanwhile, and turns to the new master once there is one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from arrowmq.client import names
from arrowmq.client.errors import (
    ArrowMQError,
    InvalidUse,
    NoRoute,
    Refused,
    SendFailed,
    SendTimedOut,
    TimedOut,
    Unreachable,
)
from arrowmq.client.produce.faults import FaultTable, choose_queue
from arrowmq.client.produce.outcome import STORED_CODES, receipt_of, what
from arrowmq.client.produce.outgoing import Packed
from arrowmq.client.produce.pending_sends import Lane, PendingSend, Target, frame
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.client.produce.send_frame import DEFAULT_TOPIC_QUEUES, FrameStarts
from arrowmq.client.routes import MASTER_ID, Route
from arrowmq.client.session import Session
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import V5_0_0, RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.properties import encode_properties, properties_text

log = logging.getLogger("arrowmq.client")

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
#: What a broker may say that was master until just now
MASTER_CHANGED_CODES = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION})
#: A broker that sheds load is asked again after this, doubling up to the limit.
BUSY_PAUSE_S = 0.01
BUSY_PAUSE_LIMIT_S = 0.5
#: The same for a set of brokers whose master is gone.
TAKEOVER_PAUSE_S = 0.01
TAKEOVER_PAUSE_LIMIT_S = 0.08

#: Picks one of the queues of a route.
Choice = Callable[[Sequence[MessageQueue]], MessageQueue]


class Sender:
    """Sends packed messages for one producer group."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        retries: int,
        avoid_slow_brokers: bool = True,
        retry_when_not_flushed: bool = False,
    ) -> None:
        self._session = session
        self.group = group
        self._retries = retries
        self._retry_when_not_flushed = retry_when_not_flushed
        self.faults = FaultTable(session.clock) if avoid_slow_brokers else None
        self._turn = random.randrange(1000)
        self._starts = FrameStarts(group)
        self._look: asyncio.Task[None] | None = None
        #: The fast paths of topics that were sent to, for who may take them.
        self.lanes: dict[str, Lane] = {}

    async def send(
        self,
        packed: Packed,
        timeout_s: float,
        choice: Choice | None = None,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        begun: PendingSend | None = None,
    ) -> SendReceipt:
        """Deliver to one queue. With a `choice` the message stays on that queue, otherwise retries change brokers.

        `begun` is a first attempt that took the fast path and has failed, or will.
        A broker that sheds load is asked again, more and more slowly, as long as there is time, and so is a set whose
        master is gone: that is no failure of the message, and counts for no attempt. Who wants no attempt but the first
        has it end where the message may be stored by then.
        """
        monotonic = self._session.clock.monotonic
        started = monotonic() if begun is None else begun.sent_at
        tried: list[str] = []
        causes: list[ArrowMQError] = []
        unsure: SendReceipt | None = None
        attempts_left = 1 + self._retries
        busy_pause_s = BUSY_PAUSE_S
        takeover_pause_s = TAKEOVER_PAUSE_S
        is_awaiting = False
        left_s = timeout_s
        while attempts_left > 0 and left_s > 0:
            try:
                attempt, begun = begun, None
                receipt = await self._try(packed, choice, code, left_s, tried, attempt)
            except (Unreachable, TimedOut, Refused, NoRoute) as failure:
                awaits_master = self._awaits_master(packed.topic, choice, tried, failure)
                if not (tried or awaits_master) or (isinstance(failure, Refused) and failure.code not in RETRY_CODES):
                    raise
                if awaits_master and is_awaiting:  # it counts, and is told, as one attempt
                    causes.pop()
                    del tried[len(causes) + 1 :]
                causes.append(failure)
                is_awaiting = awaits_master
                if awaits_master:
                    await self._session.clock.sleep(min(takeover_pause_s, left_s))
                    takeover_pause_s = min(2 * takeover_pause_s, TAKEOVER_PAUSE_LIMIT_S)
                elif isinstance(failure, Refused) and failure.code == ResponseCode.SYSTEM_BUSY:
                    await self._session.clock.sleep(min(busy_pause_s, left_s))
                    busy_pause_s = min(2 * busy_pause_s, BUSY_PAUSE_LIMIT_S)
                else:
                    attempts_left -= 1
            else:
                if receipt.status is SendStatus.SEND_OK or not self._retry_when_not_flushed:
                    return receipt
                unsure = receipt
                attempts_left -= 1
            left_s = timeout_s - (monotonic() - started)
        if unsure is not None:
            return unsure
        raise self._gave_up(packed, tried, causes, timeout_s, (monotonic() - started) * 1000)

    async def _try(
        self,
        packed: Packed,
        choice: Choice | None,
        code: int,
        left_s: float,
        tried: list[str],
        begun: PendingSend | None = None,
    ) -> SendReceipt:
        """One attempt, with what is learnt from its failure. `tried` gets the broker that it went to."""
        session = self._session
        route = session.routes.get(packed.topic)
        if route is None or not route.publish_queues:
            route = await self._route(packed.topic, left_s)
        queue = self._choose(route, choice, tried) if begun is None else begun.queue
        broker_name = queue.broker_name
        tried.append(broker_name)
        address = route.master(broker_name)
        if address is None:
            await self._refresh(packed.topic)
            raise NoRoute(packed.topic, broker_name, "Its master is gone; the route is asked for again")
        if begun is None and not prop.TIMERS.isdisjoint(packed.properties):
            await self._check_timers(address, broker_name)
        try:
            if begun is None:
                receipt = await self._ask(address, packed, queue, code, left_s)
            else:
                receipt = await begun.future
        except (Unreachable, TimedOut, Refused) as failure:
            if self.faults is not None:
                self.faults.failed(broker_name, is_reachable=isinstance(failure, TimedOut))
            if isinstance(failure, Unreachable):
                session.broker_versions.pop(address, None)
                await self._refresh(packed.topic)  # a slave may have taken over
            elif isinstance(failure, Refused) and failure.code == ResponseCode.GO_AWAY:
                session.remoting.disconnect(address)
            elif isinstance(failure, TimedOut) or failure.code in MASTER_CHANGED_CODES:
                await self._refresh(packed.topic)  # it may be master no longer
            elif route.is_template and isinstance(failure, Refused) and failure.code not in RETRY_CODES:
                # The topic exists by now, and not as the template said: ask how it is.
                session.routes.pop(packed.topic, None)
                raise NoRoute(packed.topic, broker_name, f"It was just created: {failure}") from failure
            raise
        if address not in session.broker_versions and session.producer_groups:
            # A broker that was away may have been restarted and know nobody: it could not ask us anything.
            session.broker_versions[address] = 0
            session.spawn(session.heartbeat(), "heartbeat to a broker that is back")
        return receipt

    def _awaits_master(self, topic: str, choice: Choice | None, tried: Sequence[str], failure: ArrowMQError) -> bool:
        """Whether the brokers that this message may go to have lost their master, and another may take over."""
        route = self._session.routes.get(topic)
        if route is None or isinstance(failure, TimedOut):
            return False
        if isinstance(failure, Refused) and failure.code != ResponseCode.SERVICE_NOT_AVAILABLE:
            return False
        if isinstance(failure, Unreachable) and failure.is_in_doubt and not self._retries:
            return False
        sets = route.addresses
        if tried and (choice is not None or len(sets) == 1):
            sets = {name: by_id for name, by_id in sets.items() if name == tried[-1]}
            return any(len(by_id) > 1 or MASTER_ID not in by_id for by_id in sets.values())
        # No attempt could be made: no set has a master, as the NameServer tells it.
        return not tried and bool(sets) and all(by_id and MASTER_ID not in by_id for by_id in sets.values())

    def seek_masters(self, pending: Sequence[PendingSend]) -> None:
        """These have waited long: is another master by now?"""
        if self._look is None or self._look.done():
            self._look = self._session.spawn(self._turn_to_new_masters(pending), "look for new masters")

    async def _turn_to_new_masters(self, pending: Sequence[PendingSend]) -> None:
        wrap = self._session.options.namespace.wrap
        for topic in {wrap(each.topic) for each in pending}:
            await self._refresh(topic)
        for each in pending:
            route = self._session.routes.get(wrap(each.topic))
            master = None if route is None else route.master(each.queue.broker_name)
            if master is not None and master != each.address:
                self._session.pending_sends.abandon(each, f"it does not answer, and {master} is master by now")

    async def _check_timers(self, address: str, broker_name: str) -> None:
        """A broker from before RocketMQ 5 keeps a timer's properties, knows nothing of them, and delivers at once."""
        versions = self._session.broker_versions
        if not versions.get(address):
            await self._session.heartbeat()
        if 0 < versions.get(address, 0) < V5_0_0:
            raise InvalidUse(
                f"broker {broker_name} at {address} is older than RocketMQ 5 and has no timers: it would deliver at "
                "once. Use delay_level (1 to 18: 1 s, 5 s, 10 s, 30 s, 1 min … 2 h)"
            )

    async def _refresh(self, topic: str) -> None:
        try:
            await self._session.refresh_route(topic)
        except ArrowMQError as error:
            log.info("%s; the attempts go on with what is known", error)

    async def _ask(self, address: str, packed: Packed, queue: MessageQueue, code: int, left_s: float) -> SendReceipt:
        """One attempt. On an open connection, with nobody who must see the fields, the frame is written directly."""
        session = self._session
        pending_sends = session.pending_sends
        connection = session.remoting.connection(address) if session.is_plain else None
        topic = packed.message.topic
        if connection is None or prop.RECONSUME_TIME in packed.properties:
            asked = session.clock.monotonic()
            request = self.request(packed, queue, code)
            answer = await session.ask(address, request, what(topic, queue), left_s, accept=STORED_CODES)
            if self.faults is not None:
                self.faults.answered(queue.broker_name, (session.clock.monotonic() - asked) * 1000)
            return receipt_of(topic, queue, packed.msg_id, answer)
        opaque = pending_sends.next_opaque()
        written = frame(
            code,
            opaque,
            0,
            self._starts.of(packed.topic, queue, code == RequestCode.SEND_BATCH_MESSAGE),
            packed.sys_flag,
            packed.flag,
            session.clock.now_ms(),
            encode_properties(packed.properties),
            packed.body,
        )
        future = pending_sends.new_future()
        pending = PendingSend(opaque, topic, queue, address, connection, packed.msg_id, left_s, future, self.faults)
        pending_sends.begin(pending, written)
        try:
            return await future
        finally:
            if future.cancelled():
                pending_sends.forget(pending)

    def open_lane(self, topic: str, largest_bytes: int) -> None:
        """Let plain messages to this topic, up to such a size, take the fast path from now on."""
        session = self._session
        route = session.routes.get(topic)
        if route is None or not session.is_plain:
            return
        targets = [
            Target(queue, address, self._starts.of(topic, queue))
            for queue in route.publish_queues
            if (address := route.master(queue.broker_name)) is not None
        ]
        if len(targets) == len(route.publish_queues) > 0:
            lane = self.lanes[topic] = Lane(
                session.pending_sends, route, session.routes, targets, self.faults, largest_bytes
            )
            lane.turn = self._turn + 1  # the round goes on

    async def send_oneway(self, packed: Packed, choice: Choice | None = None) -> None:
        route = self._session.routes.get(packed.topic) or await self._route(packed.topic, 3.0)
        queue = self._choose(route, choice, ())
        address = route.master(queue.broker_name)
        if address is None:
            raise NoRoute(packed.topic, queue.broker_name, "Its master is gone")
        request = self.request(packed, queue, RequestCode.SEND_MESSAGE_V2, oneway=True)
        await self._session.send_oneway(address, request, f"sending to {packed.topic} one-way")

    def _choose(self, route: Route, choice: Choice | None, tried: Sequence[str]) -> MessageQueue:
        if choice is not None:
            return choice(route.publish_queues)
        self._turn += 1
        return choose_queue(route.publish_queues, self._turn, self.faults, tried)

    async def _route(self, topic: str, timeout_s: float) -> Route:
        session = self._session
        if topic in session.routes:  # known, but nothing in it can be written to: maybe it can now
            await session.refresh_route(topic)
        async with asyncio.timeout(timeout_s):
            route = await session.route(topic, for_sending=True)
        session.watched.setdefault(topic, _nothing_more)
        if not route.publish_queues:
            raise NoRoute(
                topic, session.options.namesrv[0], "It has no queue that may be written to (perm or no master)"
            )
        return route

    def request(self, packed: Packed, queue: MessageQueue, code: int, *, oneway: bool = False) -> Command:
        message = packed.message
        properties = packed.properties
        ext = {
            "a": self.group,
            "b": packed.topic,
            "c": names.AUTO_CREATE_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUES),
            "e": str(queue.queue_id),
            "f": str(packed.sys_flag),
            "g": str(self._session.clock.now_ms()),
            "h": str(message.flag),
            "i": properties_text(properties),
            "j": "0",
            "k": "false",
            "m": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": queue.broker_name,
        }
        if prop.RECONSUME_TIME in properties:
            kept = {name: value for name, value in properties.items() if name not in _IN_HEADER}
            ext["i"] = properties_text(kept)
            ext["j"] = properties[prop.RECONSUME_TIME]
            ext["l"] = properties.get(prop.MAX_RECONSUME_TIMES, "16")
        return Command.request(code, ext, packed.body, oneway=oneway)

    @staticmethod
    def _gave_up(
        packed: Packed, tried: list[str], causes: list[ArrowMQError], timeout_s: float, spent_ms: float
    ) -> ArrowMQError:
        topic = packed.message.topic
        if not causes:
            return SendTimedOut(topic, ["no broker yet"], [TimeoutError(f"no route within {timeout_s:g} s")], spent_ms)
        if all(isinstance(cause, Refused) for cause in causes) and len(causes) == 1:
            return causes[0]
        if spent_ms >= timeout_s * 1000 or isinstance(causes[-1], TimedOut):
            return SendTimedOut(topic, tried, causes, spent_ms)
        return SendFailed(topic, tried, causes, spent_ms)


_IN_HEADER = (prop.RECONSUME_TIME, prop.MAX_RECONSUME_TIMES)


def _nothing_more() -> None:
    """A producer reads its routes when it sends; a changed route needs nothing else."""
