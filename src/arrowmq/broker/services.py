"""Every service of a broker, by name: what is not a field of `Services`, the broker does not do.

A service is an object with `@handles` methods. It takes what it needs in its constructor, where it may also add to
`broker.path.gates`, `.rules` and `.rewrites` (see `send/message_path.py`) and to `broker.background.every(...)`. Of
these, what it has is called:

  load()          the store is open and the tables are read
  start()         clients can connect
  async stop()    the broker stops; the store is still open
  persist()       the very end, before the store closes

The order of the fields is an order of events. Services are made in it, so the rules of a send run in it; they are
loaded, started and persisted in it, and stopped in the reverse. A new service is one more field and one more line of
`build_services`, behind the services whose rules must have run before its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from arrowmq.auth.admin import UserAdmin
from arrowmq.broker.clients.admin import ClientAdmin
from arrowmq.broker.clients.heartbeat import HeartbeatService
from arrowmq.broker.delayed.delay_levels import DelayLevels
from arrowmq.broker.delayed.recall import RecallService
from arrowmq.broker.delayed.timer import TimerMessages
from arrowmq.broker.groups.admin import GroupAdmin
from arrowmq.broker.groups.assignment import AssignmentService
from arrowmq.broker.groups.consumer_filters import ConsumerFilters
from arrowmq.broker.groups.queue_locks import LockService
from arrowmq.broker.offsets.progress import ProgressAdmin
from arrowmq.broker.offsets.requests import OffsetService
from arrowmq.broker.offsets.reset import ResetService
from arrowmq.broker.pop.acks import AckService
from arrowmq.broker.pop.build import build_pop
from arrowmq.broker.pop.notification import NotificationService
from arrowmq.broker.pop.order import OrderTable
from arrowmq.broker.pop.revive import ReviveService
from arrowmq.broker.pop.service import PopService
from arrowmq.broker.pull.query import QueryService
from arrowmq.broker.pull.service import PullService
from arrowmq.broker.retry import RetryService
from arrowmq.broker.runtime.admin import BrokerAdmin
from arrowmq.broker.send.flow import FlowControl
from arrowmq.broker.send.message_types import MessageTypeCheck
from arrowmq.broker.send.priority import MessagePriorities
from arrowmq.broker.send.reply import ReplyService
from arrowmq.broker.send.service import SendService
from arrowmq.broker.topics.admin import TopicAdmin
from arrowmq.broker.transactions.checks import TransactionChecks
from arrowmq.broker.transactions.log import TransactionLog
from arrowmq.broker.transactions.service import TransactionService

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


@runtime_checkable
class Loads(Protocol):
    def load(self) -> None: ...


@runtime_checkable
class Starts(Protocol):
    def start(self) -> None: ...


@runtime_checkable
class Stops(Protocol):
    async def stop(self) -> None: ...


@runtime_checkable
class Persists(Protocol):
    def persist(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    send: SendService
    # What makes messages other than plain ones
    flow: FlowControl
    message_types: MessageTypeCheck
    priorities: MessagePriorities
    retry: RetryService
    transactions: TransactionService
    transaction_checks: TransactionChecks
    delay_levels: DelayLevels
    timer: TimerMessages
    consumer_filters: ConsumerFilters
    recall: RecallService
    reply: ReplyService
    reset: ResetService
    # Consuming
    pull: PullService
    pop_revive: ReviveService
    pop_order: OrderTable
    pop: PopService
    acks: AckService
    notification: NotificationService
    offsets: OffsetService
    heartbeat: HeartbeatService
    locks: LockService
    query: QueryService
    assignment: AssignmentService
    # Administration
    topic_admin: TopicAdmin
    group_admin: GroupAdmin
    client_admin: ClientAdmin
    progress_admin: ProgressAdmin
    broker_admin: BrokerAdmin
    user_admin: UserAdmin

    def __iter__(self) -> Iterator[object]:
        return (getattr(self, field.name) for field in fields(self))

    def load(self) -> None:
        for service in self:
            if isinstance(service, Loads):
                service.load()

    def start(self) -> None:
        for service in self:
            if isinstance(service, Starts):
                service.start()

    async def stop(self) -> None:
        for service in reversed(list(self)):
            if isinstance(service, Stops):
                await service.stop()

    def persist(self) -> None:
        for service in self:
            if isinstance(service, Persists):
                service.persist()


def build_services(broker: Broker) -> Services:
    send = SendService(
        broker.config,
        broker.address,
        broker.topics,
        broker.path,
        broker.stats,
        broker.clock,
        broker.registration.settled,
    )
    transaction_log = TransactionLog(broker.store, broker.offsets, broker.address, broker.clock)

    def was_clean() -> bool:
        return broker.recovered is not None and broker.recovered.was_clean

    pop = build_pop(broker)
    return Services(
        send=send,
        flow=FlowControl(broker.config, broker.store, broker.path, broker.background, broker.clock),
        message_types=MessageTypeCheck(broker.config, broker.topics, broker.path),
        priorities=MessagePriorities(broker.topics, broker.path),
        retry=RetryService(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.groups,
            broker.locks,
            broker.path,
            broker.stats,
            broker.guard,
        ),
        transactions=TransactionService(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.path,
            transaction_log,
            broker.stats,
            broker.clock,
            was_clean,
            broker.guard,
        ),
        transaction_checks=TransactionChecks(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.clients,
            transaction_log,
            broker.background,
            broker.clock,
        ),
        delay_levels=DelayLevels(
            broker.config,
            broker.store,
            broker.topics,
            broker.path,
            broker.file("delayOffset.json"),
            broker.background,
            broker.stats,
            broker.clock,
        ),
        timer=TimerMessages(
            broker.config,
            broker.root,
            broker.store,
            broker.topics,
            broker.path,
            broker.background,
            broker.stats,
            broker.clock,
            was_clean,
        ),
        consumer_filters=ConsumerFilters(
            broker.clients, broker.file("consumerFilter.json"), broker.background, broker.clock
        ),
        recall=RecallService(broker.config, broker.address, broker.topics, broker.path, broker.clock),
        reply=ReplyService(
            broker.config, broker.address, broker.clients, send, broker.path, broker.stats, broker.clock
        ),
        reset=ResetService(
            broker.config,
            broker.store,
            broker.topics,
            broker.groups,
            broker.offsets,
            broker.clients,
            broker.longpoll,
        ),
        pull=PullService(
            broker.config,
            broker.store,
            broker.topics,
            broker.groups,
            broker.offsets,
            broker.subscriptions,
            broker.longpoll,
            broker.stats,
            broker.clock,
            broker.role,
        ),
        pop_revive=pop.revive,
        pop_order=pop.order,
        pop=pop.pop,
        acks=pop.acks,
        notification=pop.notification,
        offsets=OffsetService(broker.store, broker.topics, broker.groups, broker.offsets, lambda: broker.role.is_slave),
        heartbeat=HeartbeatService(
            broker.config, broker.topics, broker.groups, broker.clients, broker.clock, broker.registration.settled
        ),
        locks=LockService(broker.locks),
        query=QueryService(broker.config, broker.store, broker.guard),
        assignment=AssignmentService(broker),
        topic_admin=TopicAdmin(broker),
        group_admin=GroupAdmin(broker),
        client_admin=ClientAdmin(broker),
        progress_admin=ProgressAdmin(broker),
        broker_admin=BrokerAdmin(broker),
        user_admin=UserAdmin(broker.guard),
    )
