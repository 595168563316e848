"""Every service of a broker, in one list: what is not named here, the broker does not do.

A service is an object with `@handles` methods. It takes what it needs in its constructor, where it may also add to
`broker.path.gates`, `.rules` and `.rewrites` (see `rewrite.py`) and to `broker.background.every(...)`. What it has of
these is called:

  load()          the store is open and the tables are read
  start()         clients can connect
  async stop()    the broker stops; the store is still open
  persist()       the very end, before the store closes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from arrowmq.broker.admin_broker import BrokerAdmin
from arrowmq.broker.admin_clients import ClientAdmin
from arrowmq.broker.admin_groups import GroupAdmin
from arrowmq.broker.admin_progress import ProgressAdmin
from arrowmq.broker.admin_topics import TopicAdmin
from arrowmq.broker.assignment import AssignmentService
from arrowmq.broker.consumer_filters import ConsumerFilters
from arrowmq.broker.flow import FlowControl
from arrowmq.broker.heartbeat import HeartbeatService
from arrowmq.broker.locks import LockService
from arrowmq.broker.message_types import MessageTypeCheck
from arrowmq.broker.offset_requests import OffsetService
from arrowmq.broker.pull import PullService
from arrowmq.broker.query import QueryService
from arrowmq.broker.recall import RecallService
from arrowmq.broker.reply import ReplyService
from arrowmq.broker.reset import ResetService
from arrowmq.broker.retry import RetryService
from arrowmq.broker.schedule import DelayLevels
from arrowmq.broker.send import SendService
from arrowmq.broker.timer import TimerMessages
from arrowmq.broker.transaction import TransactionService
from arrowmq.broker.transaction_check import TransactionChecks
from arrowmq.broker.transaction_log import TransactionLog
from arrowmq.store.config_file import JsonConfigFile

if TYPE_CHECKING:
    from arrowmq.broker.node import Broker


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


def build_services(broker: Broker) -> list[object]:
    sends = SendService(
        broker.config,
        broker.address,
        broker.topics,
        broker.path,
        broker.stats,
        broker.clock,
        broker.registration.settled,
    )
    return [
        sends,
        *_message_kinds(broker, sends),
        PullService(
            broker.config,
            broker.store,
            broker.topics,
            broker.groups,
            broker.offsets,
            broker.subscriptions,
            broker.longpoll,
            broker.stats,
            broker.clock,
        ),
        OffsetService(broker.store, broker.topics, broker.groups, broker.offsets),
        HeartbeatService(
            broker.config,
            broker.topics,
            broker.groups,
            broker.clients,
            broker.clock,
            broker.registration.settled,
        ),
        LockService(broker.locks),
        QueryService(broker.config, broker.store),
        AssignmentService(broker),
        TopicAdmin(broker),
        GroupAdmin(broker),
        ClientAdmin(broker),
        ProgressAdmin(broker),
        BrokerAdmin(broker),
    ]


def _message_kinds(broker: Broker, sends: SendService) -> list[object]:
    """What makes messages other than plain ones. The rules of a send run in this order."""
    transactions = TransactionLog(broker.store, broker.offsets, broker.address, broker.clock)

    def was_clean() -> bool:
        return broker.recovered is not None and broker.recovered.was_clean

    return [
        FlowControl(broker.config, broker.store, broker.path, broker.background, broker.clock),
        MessageTypeCheck(broker.config, broker.topics, broker.path),
        RetryService(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.groups,
            broker.locks,
            broker.path,
            broker.stats,
        ),
        TransactionService(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.path,
            transactions,
            broker.stats,
            broker.clock,
            was_clean,
        ),
        TransactionChecks(
            broker.config,
            broker.address,
            broker.store,
            broker.topics,
            broker.clients,
            transactions,
            broker.background,
            broker.clock,
        ),
        DelayLevels(
            broker.config,
            broker.store,
            broker.topics,
            broker.path,
            JsonConfigFile(broker.root / "config" / "delayOffset.json"),
            broker.background,
            broker.stats,
            broker.clock,
        ),
        TimerMessages(
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
        ConsumerFilters(
            broker.clients,
            JsonConfigFile(broker.root / "config" / "consumerFilter.json"),
            broker.background,
            broker.clock,
        ),
        RecallService(broker.config, broker.address, broker.topics, broker.path, broker.clock),
        ReplyService(broker.config, broker.address, broker.clients, sends, broker.path, broker.stats, broker.clock),
        ResetService(
            broker.config,
            broker.store,
            broker.topics,
            broker.groups,
            broker.offsets,
            broker.clients,
            broker.longpoll,
        ),
    ]
