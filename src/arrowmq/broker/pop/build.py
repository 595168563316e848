"""Puts the parts of pop together; the services among them are fields of `broker/services.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowmq.broker.pop.acks import AckService
from arrowmq.broker.pop.check_points import CheckPoints
from arrowmq.broker.pop.checks import PopChecks
from arrowmq.broker.pop.merging import Merging
from arrowmq.broker.pop.notification import NotificationService
from arrowmq.broker.pop.offset_replay import OffsetReplay
from arrowmq.broker.pop.order import OrderTable
from arrowmq.broker.pop.polling import Polling
from arrowmq.broker.pop.pop_counts import PopCounts
from arrowmq.broker.pop.retry_topics import RetryTopics
from arrowmq.broker.pop.revive import ReviveService
from arrowmq.broker.pop.revive_log import ReviveLog
from arrowmq.broker.pop.service import PopService

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

TIMER_LATE_MS = 1500


@dataclass(frozen=True, slots=True)
class PopParts:
    revive: ReviveService
    order: OrderTable
    pop: PopService
    acks: AckService
    notification: NotificationService


def build_pop(broker: Broker) -> PopParts:
    config, store, topics, groups, offsets = broker.config, broker.store, broker.topics, broker.groups, broker.offsets
    address, background, stats, clock = broker.address, broker.background, broker.stats, broker.clock
    table, counts = CheckPoints(), PopCounts()
    log = ReviveLog(config, address, store, offsets, broker.path, table, counts, broker.watch, clock)
    merging = Merging(config, table, log, offsets, clock)
    retry_topics = RetryTopics(config, topics, offsets)
    checks = PopChecks(config, address, store, topics, groups, clock)
    order = OrderTable(config, topics, groups, offsets, broker.file("consumerOrderInfo.json"), background, clock)

    def timer_is_behind() -> bool:
        timer = broker.services.timer
        return timer.not_entered > 0 or timer.behind_ms > TIMER_LATE_MS

    def queues_of(topic: str) -> int:
        found = topics.get(topic)
        return 0 if found is None else found.read_queue_nums

    def polling(name: str, *, newest_first: bool) -> Polling:
        return Polling(*(config, clock, broker.watch, queues_of), newest_first=newest_first, name=name)

    pop_polling, notification_polling = polling("pop", newest_first=False), polling("notification", newest_first=True)

    def look_again(topic: str, group: str | None = None) -> None:
        pop_polling.poke(topic, group)
        notification_polling.poke(topic, group)

    broker.look_again.append(look_again)
    broker.guard.access.on_change += [pop_polling.answer_all, notification_polling.answer_all]
    offsets.on_reset.append(merging.was_reset)
    offsets.on_reset.append(lambda group, topic, queue_id: look_again(topic, group))
    revive = ReviveService(
        *(config, address, store, topics, groups, table, log, merging, retry_topics),
        *(OffsetReplay(offsets, log, store), timer_is_behind, background, stats, counts, clock),
    )
    revive.on_revived += [pop_polling.came_back, notification_polling.came_back]
    pop = PopService(
        *(config, address, store, topics, offsets, checks, table, log, revive, merging, order, retry_topics),
        *(pop_polling, stats, counts, clock),
    )
    acks = AckService(
        *(config, store, topics, offsets, checks, table, log, revive, merging),
        *(order, pop_polling, broker.path, counts, clock),
    )
    notification = NotificationService(
        *(config, store, topics, offsets, checks, table, merging, order, retry_topics),
        *(notification_polling, pop_polling, stats, clock),
    )
    return PopParts(revive, order, pop, acks, notification)
