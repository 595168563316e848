"""Pulls on the fast path: which readers are ordinary, and what the native handler is given.

The handler (`_pull_native.pyx`) serves readers that the general path has checked, and never refuses one: whatever it
does not know goes through `pull/service.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.broker.fastpath.entry import Entry
from arrowmq.broker.fastpath.permit import PULLS, KindPermit
from arrowmq.broker.pull.service import PullService
from arrowmq.filter import TagFilter
from arrowmq.remoting.answer_times import SUCCESS, Answered
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.handlers import Refused
from arrowmq.touches import is_named
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import HeaderError
from arrowmq.wire.headers import PullMessage, decode_header
from arrowmq.wire.in_place.fields import PULL, PULLED
from arrowmq.wire.in_place.templates import answer_template

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

MOST_CACHED_CHECKS = 16_384  # readers of a queue each; about a kilobyte a check
_PLACEHOLDERS = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")

Checked = tuple[str, str, int, Any, frozenset[int] | None, int, int, dict[int, int], tuple[int, int]]
"""Group, topic, queue id, queue, tag hashes (None: every message), flags of topic and group, offsets pulled to, and
where to read on: while the group keeps up, and when it reads what lies far back."""


def build_pulls(broker: Broker) -> Entry:
    permit = broker.permit.of(PULLS)
    handler = import_module("arrowmq.broker.fastpath._pull_native").PullHandler(
        broker.store.records,
        answer_template(RequestCode.PULL_MESSAGE, PULLED, _PLACEHOLDERS, {}, remark="FOUND"),
        may_read=permit.is_open,
        check=checker(broker, broker.services.pull, permit),
        rests_on=(broker.topics, broker.groups, broker.clients),
        commit=broker.offsets.commit,
        commits_of=broker.offsets.commits_of,
        resets=broker.offsets.resets,
        most_checks=MOST_CACHED_CHECKS,
    )
    broker.stats.sources.append(lambda: _hand_in(broker, handler))
    broker.offsets.sources.append(handler.take_commits)
    broker.offsets.on_replace.append(handler.forget)
    return Entry("pulls", handler, (RequestCode.PULL_MESSAGE,), PULL, (permit,), handler.forget, at_vip_port=False)


def checker(
    broker: Broker, service: PullService, permit: KindPermit
) -> Callable[[dict[str, str], Connection], Checked | None]:
    """Lets the general path check a reader. None if it would refuse it, or if its filter has to see the records."""

    def check(fields: dict[str, str], connection: Connection) -> Checked | None:
        try:
            request = decode_header(PullMessage, fields)
            topic, group, matches = service.check(request, connection)
        except (Refused, HeaderError):
            return None
        if is_named(request.topic, permit.ordinary.topics):
            return None
        queue = broker.store.consume_queues.find(request.topic, request.queue_id)
        if queue is None or not (matches is None or isinstance(matches, TagFilter)):
            return None
        return (
            request.consumer_group,
            request.topic,
            request.queue_id,
            queue,
            matches.codes or None if matches is not None else None,
            topic.topic_sys_flag,
            group.group_sys_flag,
            broker.offsets.pulls_of(request.consumer_group, request.topic),
            service.suggested_brokers(group),
        )

    return check


def _hand_in(broker: Broker, pulls: Any) -> None:
    """Give the statistics what the handler has counted."""
    answered = Answered(RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, False, SUCCESS)
    for group, topic, queue_id, messages, size, times in pulls.take_counts():
        broker.stats.get(group, topic, queue_id, messages, size, times)
        broker.answer_times.add(answered, 0, times)
