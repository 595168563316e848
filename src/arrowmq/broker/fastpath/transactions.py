"""Transactions on the fast path: half messages and their ends, and what the native handler is given.

The handler (`_transaction_native.pyx`) is asked for the sends that the one of ordinary messages leaves, and for ends.
It never refuses one: whatever it does not know goes through `send/service.py` and `transactions/service.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.broker.fastpath.entry import Entry
from arrowmq.broker.fastpath.kept_answers import sender_when_kept
from arrowmq.broker.fastpath.permit import ENDS, HALVES, KindPermit
from arrowmq.broker.fastpath.sends import (
    added_properties,
    host_bytes,
    limit_of,
    ordinary_queues,
    peer_bytes,
    send_not_safe,
    sent_template,
)
from arrowmq.broker.names import HALF_TOPIC, OP_HALF_TOPIC
from arrowmq.broker.send.message_types import TRANSACTION
from arrowmq.broker.send.service import REPLACED_PROPERTIES
from arrowmq.broker.transactions.log import HALF_QUEUE, End, op_properties
from arrowmq.broker.transactions.service import ENDING_PROPERTIES, NOT_ON_DISK, NOTED_PROPERTIES
from arrowmq.remoting.answer_times import ONEWAY, SUCCESS, Answered
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.errors import OutOfSpace
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.in_place.fields import END, SEND, SENT
from arrowmq.wire.in_place.templates import answer_template

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


def build_transactions(broker: Broker) -> list[Entry]:
    """None where records have a checksum of their own, which the handler does not write."""
    store = broker.store
    if store.config.enabled_append_prop_crc:
        return []
    service = broker.services.transactions
    halves = broker.permit.of(HALVES, implements=(service.rule,))
    ends = broker.permit.of(ENDS)
    handler = import_module("arrowmq.broker.fastpath._transaction_native").TransactionHandler(
        store.commit_log.tail,
        store.index.tail,
        store.positions,
        service.transactions.ended,
        store.commit_log,
        half_answers=sent_template(broker),
        end_answers=answer_template(RequestCode.END_TRANSACTION, SENT, (), {}),
        added=added_properties(broker),
        store_host=host_bytes(broker.address.store_host),
        half_topic=HALF_TOPIC.encode(),
        op_topic=OP_HALF_TOPIC.encode(),
        commit_start=op_properties(End.COMMIT, "").removesuffix(b"\x02"),
        rollback_start=op_properties(End.ROLLBACK, "").removesuffix(b"\x02"),
        find_topic=lambda name: _queues_of_halves(broker, name.decode("utf-8", "replace"), halves, ends),
        find_queue=_queue_finder(store),
        notify=store.notify,
        limits=lambda: (limit_of(broker, halves), limit_of(broker, ends)),
        counted_up_to=lambda: service.counts.looked_up_to,
        peer_of=peer_bytes,
        send_halves_when_kept=sender_when_kept(store, send_not_safe),
        send_ends_when_kept=sender_when_kept(store, _end_not_safe),
    )
    broker.topics.on_change.append(lambda changed: handler.forget())
    broker.stats.sources.append(lambda: _hand_in(broker, handler))
    service.counts.sources.append(handler.take_ended)

    def renew() -> None:
        of_halves = halves.ordinary.properties.union(REPLACED_PROPERTIES, NOTED_PROPERTIES)
        handler.use(of_halves, ends.ordinary.properties | ENDING_PROPERTIES)

    return [
        Entry("half messages", handler, (RequestCode.SEND_MESSAGE_V2,), SEND, (halves,), renew),
        Entry("ends of transactions", handler, (RequestCode.END_TRANSACTION,), END, (ends,)),
    ]


def _queues_of_halves(broker: Broker, topic: str, *permits: KindPermit) -> int:
    """A half message is the general path's while neither the table on disk nor a message would show its topic after a
    crash."""
    count = ordinary_queues(broker, topic, *permits)
    return 0 if broker.topics.is_unsaved(topic) and not broker.store.has_messages(topic, count) else count


def _queue_finder(store: MessageStore) -> Callable[[str, int], Any]:
    """Finds the end of a queue, with room for the first message: a queue that nobody wrote to has no file yet."""

    def find(topic: str, queue_id: int) -> Any:
        queue = store.consume_queues.get(topic, queue_id)
        if queue.tail.view is None:
            with suppress(OutOfSpace):
                queue.make_room()
        return queue.tail

    return find


def _end_not_safe(answer: Command, status: PutStatus) -> None:
    answer.remark = f"{status.name}: {NOT_ON_DISK}"


def _hand_in(broker: Broker, handler: Any) -> None:
    """Give the statistics what the handler has counted. It answers in the pass that read a request, so the time of that
    is below the first bound."""
    stats, times = broker.stats, broker.answer_times
    messages, size, *ends_by_result = handler.take_answered()
    if messages:
        stats.put(HALF_TOPIC, HALF_QUEUE, messages, size, TRANSACTION)
        times.add(Answered(RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS, False, SUCCESS), 0, messages)
    for topic, queue_id, count, published in handler.take_published():
        stats.put(topic, queue_id, count, published, TRANSACTION)
    for result, ends in zip((SUCCESS, ONEWAY), ends_by_result, strict=True):
        if ends:
            times.add(Answered(RequestCode.END_TRANSACTION, ResponseCode.SUCCESS, False, result), 0, ends)
