"""A member of a consumer group: which queues it holds, the loops that pull them, and the offsets it commits.

All members divide the queues of a topic by the same rule, from the members that the broker lists. That is done when
this member starts, when a broker says that members changed, when a route changed, and every twenty seconds. A queue
that went to another member is dropped with its offset committed, a new one is begun where the group left off.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from arrowmq.client import names
from arrowmq.client.consume.decoding import messages_of
from arrowmq.client.consume.group.allocation import Averagely, Strategy, allocate
from arrowmq.client.consume.group.consume_from import Start, first_offset
from arrowmq.client.consume.group.offsets import OffsetStore
from arrowmq.client.consume.group.queue_locks import QueueLocks
from arrowmq.client.consume.group.subscription import SQL92, Subscription
from arrowmq.client.consume.pulled_body import Chunk, can_be_whole
from arrowmq.client.consume.pulling import FlowControl, Inbox, Lock, PulledQueue, Pulling
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.client.message import Delivered, ReceivedMessage, Settles
from arrowmq.client.routes import Route
from arrowmq.client.session import Session
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import CheckClientConfig, ConsumerData, ConsumerIdList
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger("arrowmq.client")

REBALANCE_INTERVAL_S = 20.0
#: After a round that left something open, doubling to a second: a topic that is about to be created is found quickly.
REBALANCE_SOON_S = 0.05
REBALANCE_SOON_LIMIT_S = 1.0
COMMIT_INTERVAL_S = 5.0
COMPLAIN_AGAIN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member knows of its group."""

    group: str
    start: Start
    is_broadcasting: bool = False
    is_orderly: bool = False
    is_active: bool = False  # lite pull: CONSUME_ACTIVELY
    strategy: Strategy = field(default_factory=Averagely)
    flow: FlowControl = field(default_factory=FlowControl)
    pulling: Pulling = field(default_factory=Pulling)
    message_type: type[ReceivedMessage] = ReceivedMessage
    commit_interval_s: float = COMMIT_INTERVAL_S


class GroupMember:
    def __init__(
        self, session: Session, membership: Membership, offsets: OffsetStore, inbox: Inbox, settler: Settles
    ) -> None:
        self.session = session
        self.membership = membership
        self.group = membership.group
        self.flow = membership.flow
        self.pulling = membership.pulling
        #: Brokers from before RocketMQ 5, which serve a lite pull by the common request.
        self.without_lite_pull: set[str] = set()
        self.inbox = inbox
        self.offsets = offsets
        self.settler = settler
        self.commits_at_broker = not membership.is_broadcasting
        self.subscriptions: dict[str, Subscription] = {}
        self.pulled: dict[MessageQueue, PulledQueue] = {}
        self.fixed_queues: set[MessageQueue] | None = None  # assigned by the user instead of by rebalance
        self.locks = (
            QueueLocks(session, self.group) if membership.is_orderly and not membership.is_broadcasting else None
        )
        self.pulled_count = 0
        self.keeps_chunks = False  # bodies are handed on whole, for Arrow
        self.started_ms = session.clock.now_ms()
        self.is_suspended = False
        self._is_unbalanced = False
        self._open_rounds = 0
        self._wake = asyncio.Event()
        self._balancing = asyncio.Lock()
        self._complained: dict[MessageQueue, float] = {}
        self._warned_topics: set[str] = set()

    # -- life

    async def start(self) -> None:
        """Join the group: routes, heartbeat, first division of the queues."""
        await self.offsets.load()
        self.session.consumer_data[self.group] = self.describe
        if not self.membership.is_broadcasting and not self.membership.is_active:
            retry = names.retry_topic(self.group)
            self.subscriptions[retry] = Subscription(retry, version=self.session.clock.now_ms())
        for topic in self.subscriptions:
            self.session.watched[topic] = self.rebalance_soon
            await self.session.refresh_route(topic)
        await self._check_expressions()
        await self.session.heartbeat()
        await self.rebalance()
        self.session.spawn(self._rebalance_loop(), "rebalance")
        self.session.spawn(self._commit_loop(), "commit offsets")
        if self.locks is not None:
            self.session.spawn(self.locks.renew_forever(self), "renew queue locks")

    async def stop_pulling(self) -> None:
        """No new messages from here on; what is held can still be acknowledged."""
        self.is_suspended = True
        for pulled in self.pulled.values():
            if pulled.task is not None:
                pulled.task.cancel()

    async def leave(self) -> None:
        """Commit, unlock, and tell the brokers, so that others take over at once."""
        self.is_suspended = True
        queues = list(self.pulled.values())
        for pulled in queues:
            if pulled.task is not None:
                pulled.task.cancel()
        await self.commit()
        for pulled in queues:
            pulled.drop()
            self.inbox.dropped(pulled)
        if self.locks is not None:
            await self.locks.release([pulled.queue for pulled in queues])
        self.pulled.clear()
        self.session.consumer_data.pop(self.group, None)
        await self.session.unregister(consumer_group=self.group)

    # -- subscriptions

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.topic] = subscription

    async def subscribe_now(self, subscription: Subscription) -> None:
        """Add or change a subscription of a running member."""
        self.subscribe(subscription)
        self.session.watched[subscription.topic] = self.rebalance_soon
        await self.session.refresh_route(subscription.topic)
        await self.session.heartbeat()
        for pulled in self.pulled.values():
            if pulled.queue.topic == subscription.topic:
                pulled.subscription = subscription
        await self.rebalance()

    async def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self.session.watched.pop(topic, None)
        await self.session.heartbeat()
        await self.rebalance()

    def describe(self) -> ConsumerData:
        membership = self.membership
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY" if membership.is_active else "CONSUME_PASSIVELY",
            message_model="BROADCASTING" if membership.is_broadcasting else "CLUSTERING",
            consume_from_where=membership.start.where.value,
            subscription_data_set=[subscription.to_data() for subscription in self.subscriptions.values()],
            unit_mode=False,
        )

    async def _check_expressions(self) -> None:
        """A wrong SQL92 expression must fail the start, not make a consumer that never gets anything."""
        for topic, subscription in self.subscriptions.items():
            route = self.session.routes.get(topic)
            if subscription.expression_type != SQL92 or route is None:
                continue
            body = CheckClientConfig(
                client_id=self.session.client_id,
                group=self.group,
                namespace="",
                subscription_data=subscription.to_data(),
            )
            for broker_name in route.addresses:
                found = route.reader(broker_name)
                if found is not None:
                    request = Command.request(RequestCode.CHECK_CLIENT_CONFIG, None, fastjson.dumps(body))
                    await self.session.ask(found[1], request, f"checking the SQL92 expression for {topic}")
                    break

    # -- rebalance

    def rebalance_soon(self) -> None:
        self._wake.set()

    async def _rebalance_loop(self) -> None:
        while True:
            self._open_rounds = self._open_rounds + 1 if self._is_unbalanced else 0
            soon_s = min(REBALANCE_SOON_S * 2 ** min(self._open_rounds, 10), REBALANCE_SOON_LIMIT_S)
            await self._sleep_or_wake(soon_s if self._is_unbalanced else REBALANCE_INTERVAL_S)
            self._wake.clear()
            if not self.is_suspended:
                await self.session.guarded(self.rebalance, REBALANCE_INTERVAL_S)

    async def _sleep_or_wake(self, wait_s: float) -> None:
        timer = self.session.clock.call_later(wait_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def rebalance(self) -> None:
        """Divide the queues anew. What cannot be asked now stays as it is and is tried again in a second."""
        async with self._balancing:
            self._is_unbalanced = False
            wanted: dict[str, set[MessageQueue]] = {}
            for topic in list(self.subscriptions):
                try:
                    mine = await self._share_of(topic)
                except (ArrowMQError, WireError) as error:
                    log.warning("dividing the queues of %s for %s: %s", topic, self.group, error)
                    mine = None
                if mine is None:
                    self._is_unbalanced = True
                    wanted[topic] = {queue for queue in self.pulled if queue.topic == topic}
                else:
                    wanted[topic] = mine
            await self._apply({queue for queues in wanted.values() for queue in queues})

    async def _share_of(self, topic: str) -> set[MessageQueue] | None:
        route = self.session.routes.get(topic) or await self.session.refresh_route(topic)
        if self.fixed_queues is not None:
            return {queue for queue in self.fixed_queues if queue.topic == topic}
        if route is None or not route.subscribe_queues:
            if topic not in self._warned_topics and not topic.startswith(names.RETRY_PREFIX):
                self._warned_topics.add(topic)
                log.warning("topic %s has no route yet; %s waits until some broker serves it", topic, self.group)
            return None
        if self.membership.is_broadcasting:
            return set(route.subscribe_queues)
        members = await self._members(route)
        if self.session.client_id not in members:
            await self.session.heartbeat()
            return None
        share = allocate(self.membership.strategy, self.group, self.session.client_id, route.subscribe_queues, members)
        return set(share)

    async def _members(self, route: Route) -> list[str]:
        """Who is in the group, by one broker of the topic; another one if that cannot be asked."""
        broker_names = list(route.addresses)
        random.shuffle(broker_names)
        failure: ArrowMQError | None = None
        for broker_name in broker_names:
            found = route.reader(broker_name)
            if found is None:
                continue
            request = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group})
            try:
                answer = await self.session.ask(found[1], request, f"asking for the members of {self.group}")
            except Refused:
                return []  # nobody is registered there yet
            except ArrowMQError as error:
                failure = error
                continue
            return fastjson.loads(answer.body, ConsumerIdList).consumer_id_list
        if failure is not None:
            raise failure
        return []

    async def _apply(self, wanted: set[MessageQueue]) -> None:
        gone = [pulled for queue, pulled in self.pulled.items() if queue not in wanted]
        for pulled in gone:
            await self._give_up(pulled)
        new = [queue for queue in sorted(wanted) if queue not in self.pulled]
        locked = await self.locks.acquire(new) if self.locks is not None else set(new)
        begun = 0
        for queue in new:
            if queue not in locked:
                self._is_unbalanced = True  # its last owner still holds it
                continue
            begun += await self._begin(queue)
        if gone or begun:
            self._share_flow()
            log.info("%s now holds %d queues (%d new, %d gone)", self.group, len(self.pulled), begun, len(gone))
            await self._subscriptions_changed()

    async def _begin(self, queue: MessageQueue) -> bool:
        try:
            offset = await first_offset(self.session, self.offsets, queue, self.membership.start)
        except ArrowMQError as error:
            log.warning("%s cannot begin %s queue %d: %s", self.group, queue.topic, queue.queue_id, error)
            self._is_unbalanced = True
            return False
        subscription = self.subscriptions.get(queue.topic)
        if subscription is None or self.is_suspended:
            return False
        pulled = PulledQueue(self, queue, offset, subscription)
        if self.locks is not None:
            pulled.lock = Lock.HELD
            pulled.locked_at = self.session.clock.monotonic()
        self.pulled[queue] = pulled
        pulled.task = self.session.spawn(pulled.run(), f"pull {queue.topic} {queue.queue_id}")
        return True

    async def _give_up(self, pulled: PulledQueue) -> None:
        queue = pulled.queue
        self.pulled.pop(queue, None)
        offset = self.committable(pulled)
        pulled.drop()
        self.inbox.dropped(pulled)
        if offset >= 0:
            await self._commit({queue: offset})
        if self.locks is not None:
            await self.locks.release([queue])

    def _share_flow(self) -> None:
        for topic in self.subscriptions:
            held = [pulled for queue, pulled in self.pulled.items() if queue.topic == topic]
            for pulled in held:
                pulled.flow = self.flow.shared_by(len(held))

    async def _subscriptions_changed(self) -> None:
        """Brokers take the subscription with the newest version, and must all know the members of a group."""
        now_ms = self.session.clock.now_ms()
        for topic, subscription in self.subscriptions.items():
            self.subscriptions[topic] = subscription.with_version(now_ms)
        for queue, pulled in self.pulled.items():
            pulled.subscription = self.subscriptions.get(queue.topic, pulled.subscription)
        await self.session.heartbeat()

    # -- offsets

    def committable(self, pulled: PulledQueue) -> int:
        return pulled.process_queue.committable()

    async def commit(self) -> None:
        """Commit what has changed since the last time."""
        changed = {}
        for queue, pulled in self.pulled.items():
            offset = self.committable(pulled)
            if offset >= 0 and offset != pulled.committed:
                changed[queue] = offset
        for queue in await self._commit(changed):
            if queue in self.pulled:
                self.pulled[queue].committed = changed[queue]

    async def _commit(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Gives the queues whose offsets are safe now; the others go again with the next commit."""
        if not offsets:
            return []
        if not self.commits_at_broker:
            await self.offsets.commit(offsets)
            return list(offsets)

        async def commit(queue: MessageQueue, offset: int) -> MessageQueue | None:
            try:
                await self.offsets.commit({queue: offset})
            except ArrowMQError as error:
                log.warning("%s", error)
                return None
            return queue

        committed = await asyncio.gather(*(commit(queue, offset) for queue, offset in offsets.items()))
        return [queue for queue in committed if queue is not None]

    async def _commit_loop(self) -> None:
        while True:
            await self.session.clock.sleep(self.membership.commit_interval_s)
            await self.session.guarded(self.commit, self.membership.commit_interval_s)

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Somebody set the group's offsets: forget what is held of these queues and begin them anew."""
        async with self._balancing:
            for queue, offset in offsets.items():
                pulled = self.pulled.pop(queue, None)
                if pulled is not None:
                    pulled.drop()
                    self.inbox.dropped(pulled)
                    await self._commit({queue: offset})
        self.rebalance_soon()

    # -- what the pull loops report

    def decode(self, pulled: PulledQueue, body: bytes) -> Sequence[Delivered]:
        if self.keeps_chunks and body and can_be_whole(pulled, bool(self.session.options.namespace.name)):
            return [Chunk(pulled, body, self.decode_messages)]
        return self.decode_messages(pulled, body)

    def decode_messages(self, pulled: PulledQueue, body: bytes) -> list[ReceivedMessage]:
        return messages_of(self, pulled, body)

    def count_pulled(self, count: int) -> None:
        self.pulled_count += count

    async def offset_moved(self, pulled: PulledQueue, next_offset: int) -> None:
        """The broker says that our offset is outside of what it has, or was reset."""
        queue = pulled.queue
        log.warning(
            "offset %d of %s queue %d at %s is not there (any more) for %s; going on at %d",
            pulled.next_offset, queue.topic, queue.queue_id, queue.broker_name, self.group, next_offset,
        )  # fmt: skip
        if self.pulling.is_lite:
            pulled.next_offset = next_offset
            pulled.process_queue.clear()
            pulled.process_queue.skip_to(next_offset)
            return
        self.session.spawn(self.move({queue: next_offset}), "move an offset")
        pulled.is_dropped = True

    def pull_failed(self, pulled: PulledQueue, error: Exception) -> None:
        """Say so once a minute: a consumer that gets nothing must not be silent about it."""
        now = self.session.clock.monotonic()
        if now - self._complained.get(pulled.queue, -COMPLAIN_AGAIN_AFTER_S) >= COMPLAIN_AGAIN_AFTER_S:
            self._complained[pulled.queue] = now
            log.warning("%s; %s tries again every second", error, self.group)

    async def came_back(self, pulled: PulledQueue) -> None:
        """After a lost connection the broker may have been restarted and know nobody: introduce ourselves."""
        try:
            await self.session.refresh_route(pulled.queue.topic)
        except ArrowMQError as error:
            log.warning("%s", error)
        await self.session.heartbeat()
