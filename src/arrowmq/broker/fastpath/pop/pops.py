"""Pops and acks on the fast path: which groups and lanes are ordinary, and what the native handlers are given.

The handlers (`_pop_native.pyx`, `_ack_native.pyx`) never refuse anything: whatever they do not know goes through
`pop/service.py` and `pop/acks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.broker.fastpath.entry import Entry
from arrowmq.broker.fastpath.kept_answers import sender_when_kept
from arrowmq.broker.fastpath.permit import ACKS, POPS, KindPermit
from arrowmq.broker.fastpath.sends import host_bytes
from arrowmq.broker.pop.acks import ack_not_safe
from arrowmq.broker.pop.pop_counts import ACK, CHECK_POINT
from arrowmq.broker.pop.retry_topics import real_topic
from arrowmq.broker.send.message_types import PRIORITY
from arrowmq.broker.topics.table import MESSAGE_TYPE
from arrowmq.filter import TagFilter
from arrowmq.remoting.answer_times import SUCCESS, Answered
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.handlers import Refused
from arrowmq.touches import is_named
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import HeaderError
from arrowmq.wire.headers import PopMessage, decode_header
from arrowmq.wire.in_place.fields import ACK as ACK_FIELDS
from arrowmq.wire.in_place.fields import BATCH_ACK, POP, POPPED
from arrowmq.wire.in_place.templates import answer_template

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

MOST_CACHED_PLANS = 4096  # groups of a topic each; a few hundred bytes a queue
MOST_CACHED_LANES = 16_384
CLOSED = -1
_PLACEHOLDERS = ("popTime", "invisibleTime", "reviveQid", "restNum", "startOffsetInfo", "msgOffsetInfo")

Checked = tuple[str, str, int, list[int], list[tuple[str, int]], frozenset[int] | None, int, bool]
"""Topic, group, queue asked for (-1: all), queues to read, retry topics with the number of their queues, tag hashes
(None: every message), how probably (out of a hundred) retries come first, whether queues go from the highest down."""


def build_pops(broker: Broker) -> list[Entry]:
    """None where records have a checksum of their own, which the handlers do not write."""
    store = broker.store
    if store.config.enabled_append_prop_crc:
        return []
    service = broker.services.pop
    lanes_module = import_module("arrowmq.broker.fastpath.pop._lanes_native")
    log = service.log

    def writer() -> Any:
        return lanes_module.ReviveWriter(
            store.commit_log.tail,
            store.index.tail,
            topic=log.topic.encode(),
            store_host=host_bytes(broker.address.store_host),
            broker_name=broker.config.broker_name,
            queues=len(log.queues),
            find_queue=store.queue,
            notify=store.notify,
            watchers=broker.watchers,
        )

    def lanes(kind: str) -> Any:
        made = lanes_module.Lanes(
            *(service.table, store.positions, store.commit_log),
            find_queue=store.consume_queues.find,
            commits_of=broker.offsets.find_commits_of,
            kind=kind,
        )
        service.counts.sources.append(made.take_stored)
        return made

    pops, settling = broker.permit.of(POPS), broker.permit.of(ACKS)
    popping = import_module("arrowmq.broker.fastpath.pop._pop_native").PopHandler(
        *(store.records, store.positions, lanes(CHECK_POINT), writer()),
        answer_template(RequestCode.POP_MESSAGE, POPPED, _PLACEHOLDERS, {}, remark="FOUND"),
        check=_checker(broker, pops),
        limits=lambda: broker.config.timer_max_delay_sec * 1000 if pops.is_open() else CLOSED,
        rests_on=(broker.topics, broker.groups),
        commit=broker.offsets.commit,
        resets=broker.offsets.resets,
        service=service,
        flush_soon=store.copied,
        most_plans=MOST_CACHED_PLANS,
    )
    acking = import_module("arrowmq.broker.fastpath.pop._ack_native").AckHandler(
        *(store.positions, lanes(ACK), writer()),
        answer_template(RequestCode.ACK_MESSAGE, POPPED, (), {}),
        check=_lane_checker(broker, settling),
        is_permitted=settling.is_open,
        topics=broker.topics,
        revive_queues=log.queues,
        send_when_kept=sender_when_kept(store, ack_not_safe),
        most_lanes=MOST_CACHED_LANES,
    )
    broker.stats.sources.append(lambda: _hand_in(broker, popping, acking))
    broker.offsets.sources.append(popping.take_commits)
    broker.offsets.on_replace.append(popping.forget)
    codes = (RequestCode.ACK_MESSAGE,), (RequestCode.BATCH_ACK_MESSAGE,)
    return [
        Entry("pops", popping, (RequestCode.POP_MESSAGE,), POP, (pops,), popping.forget, at_vip_port=False),
        Entry("acks", acking, codes[0], ACK_FIELDS, (settling,), acking.forget, at_vip_port=False),
        Entry("batches of acks", acking, codes[1], BATCH_ACK, (settling,), at_vip_port=False),
    ]


def _checker(broker: Broker, permit: KindPermit) -> Callable[[dict[str, str], Connection], Checked | None]:
    """Lets the general path check a group. None if it would refuse it, or if its pops are not ordinary."""
    service = broker.services.pop

    def check(fields: dict[str, str], connection: Connection) -> Checked | None:
        try:
            request = decode_header(PopMessage, fields)
            topic, _ = service.checks.pop(request, connection)
            matches = service.checks.filter_of(request.exp_type, request.exp)
        except (Refused, HeaderError):
            return None
        retries = [
            found
            for name in service.retry_topics.all_read(request.topic, request.consumer_group)
            if (found := broker.topics.get(name)) is not None
        ]
        names = (request.topic, service.log.topic, *(retry.topic_name for retry in retries))
        if any(is_named(name, permit.ordinary.topics) for name in names):
            return None
        if (topic.attributes or {}).get(MESSAGE_TYPE) == PRIORITY or not topic.read_queue_nums:
            return None
        if not (matches is None or isinstance(matches, TagFilter)):
            return None
        queue_id = max(request.queue_id, -1)
        return (
            request.topic,
            request.consumer_group,
            queue_id,
            list(range(topic.read_queue_nums)) if queue_id < 0 else [queue_id],
            [(retry.topic_name, retry.read_queue_nums) for retry in retries],
            matches.codes or None if matches is not None else None,
            broker.config.pop_from_retry_probability,
            broker.config.priority_order_asc,
        )

    return check


def _lane_checker(broker: Broker, permit: KindPermit) -> Callable[[bytes, bytes, bytes, int], str | None]:
    """The topic that a receipt means, or None if it or its queue is not there."""

    def check(topic_name: bytes, group_name: bytes, flag: bytes, queue_id: int) -> str | None:
        topic, group = topic_name.decode("utf-8", "replace"), group_name.decode("utf-8", "replace")
        named = broker.topics.get(topic)
        real = real_topic(topic, group, flag.decode("utf-8", "replace"))
        found = broker.topics.get(real)
        if any(is_named(name, permit.ordinary.topics) for name in (topic, real, broker.services.pop.log.topic)):
            return None
        for each in (named, found):
            if each is None or not 0 <= queue_id < each.read_queue_nums:
                return None
        return real

    return check


def _hand_in(broker: Broker, popping: Any, acking: Any) -> None:
    """Give the statistics what the handlers have counted. They answer in the pass that read a request, so the time of
    that is below the first bound."""
    for group, topic, queue_id, messages, size, times in popping.take_counts():
        broker.stats.get(group, topic, queue_id, messages, size, times)
    codes = (RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
    for code, times in zip(codes, (popping.take_answered(), *acking.take_answered()), strict=True):
        if times:
            broker.answer_times.add(Answered(code, ResponseCode.SUCCESS, False, SUCCESS), 0, times)
