"""Transactions by the short way: which broker may use it, and what it has to be told.

The short way itself is native (`_fasttransaction_native.pyx`). It is asked for what the one of ordinary messages leaves
and, like that one, never says no: whatever it does not know goes through `send.py` and `transaction.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arrowmq import native
from arrowmq.broker.fastpath.build import (
    SEND_FIGURES,
    answer_words,
    hold_until_kept,
    limit_of,
    ordinary_queues,
    peer_bytes,
    send_not_safe,
)
from arrowmq.broker.fastpath.permit import ENDS, HALVES, KindPermit
from arrowmq.broker.names import HALF_TOPIC, OP_HALF_TOPIC
from arrowmq.broker.send.message_types import TRANSACTION
from arrowmq.broker.send.service import REPLACED_PROPERTIES, region_of
from arrowmq.broker.transactions.log import HALF_QUEUE, End, op_properties
from arrowmq.broker.transactions.service import ENDING_PROPERTIES, NOT_ON_DISK, NOTED_PROPERTIES
from arrowmq.remoting.answer_times import ONEWAY, SUCCESS, Answered
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.errors import OutOfSpace
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.properties import encode_properties

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker
    from arrowmq.broker.fastpath import _transaction_plain as _fasttransaction
else:
    _fasttransaction = native.load("arrowmq.broker.fastpath._transaction")

FastTransactions = _fasttransaction.FastTransactions


def build_fast_transactions(broker: Broker) -> FastTransactions | None:
    """The short way of transactions; None where the broker's settings leave no ordinary one."""
    store = broker.store
    if not native.is_native(_fasttransaction) or store.config.enabled_append_prop_crc:
        return None
    service = broker.services.transactions
    transactions, counts = service.transactions, service.counts
    ip, port = broker.address.store_host
    region = region_of(broker.config)
    makes_wait = broker.path.makes_wait
    halves = broker.permit.of(HALVES, implements=(service.rule,))
    ends = broker.permit.of(ENDS)
    short = FastTransactions(
        store.commit_log.tail,
        store.index.tail,
        transactions.ended,
        store.commit_log,
        half_answers=answer_words(RequestCode.SEND_MESSAGE_V2, region, SEND_FIGURES),
        end_answers=answer_words(RequestCode.END_TRANSACTION, {}, ()),
        added=encode_properties({**region, keys.CLUSTER: broker.config.broker_cluster_name}),
        store_host=ip + port.to_bytes(4, "big"),
        half_topic=HALF_TOPIC.encode(),
        op_topic=OP_HALF_TOPIC.encode(),
        commit_words=op_properties(End.COMMIT, "").removesuffix(b"\x02"),
        rollback_words=op_properties(End.ROLLBACK, "").removesuffix(b"\x02"),
        find_topic=lambda name: _queues_of_halves(broker, name.decode("utf-8", "replace"), halves, ends),
        find_queue=_find_queue(store),
        notify=store.notify,
        gate=lambda is_end: limit_of(broker, ends if is_end else halves),
        counted_up_to=lambda: counts.looked_up_to,
        now_ms=broker.clock.now_ms,
        peer_of=peer_bytes,
        hold_halves=hold_until_kept(store, send_not_safe) if makes_wait else None,
        hold_ends=hold_until_kept(store, _end_not_safe) if makes_wait else None,
    )

    def renew() -> None:
        own = {*REPLACED_PROPERTIES, *NOTED_PROPERTIES}
        short.use(halves.ordinary.properties | own, ends.ordinary.properties | ENDING_PROPERTIES)

    broker.permit.on_change.append(renew)
    renew()
    broker.topics.on_change.append(lambda changed: short.forget())
    broker.stats.sources.append(lambda: _count(broker, short))
    counts.sources.append(short.take_ended)
    return short


def _queues_of_halves(broker: Broker, topic: str, *permits: KindPermit) -> int:
    """A half message is the general path's while neither the table on disk nor a message would tell of its topic after
    a crash."""
    count = ordinary_queues(broker, topic, *permits)
    return 0 if broker.topics.is_unsaved(topic) and not broker.store.has_messages(topic, count) else count


def _find_queue(store: MessageStore) -> Callable[[str, int], Any]:
    """The end of a queue, with room for the first message: a queue that nobody wrote to has no file yet."""

    def find(topic: str, queue_id: int) -> Any:
        queue = store.consume_queues.get(topic, queue_id)
        if queue.tail.view is None:
            with suppress(OutOfSpace):
                queue.make_room()
        return queue.tail

    return find


def _end_not_safe(answer: Command, status: PutStatus) -> None:
    answer.remark = f"{status.name}: {NOT_ON_DISK}"


def _count(broker: Broker, short: FastTransactions) -> None:
    """Give the statistics what the short way has counted. It answers in the pass that read a request, so the time of
    that is below the first bound."""
    stats, times = broker.stats, broker.answer_times
    messages, size, *ends_by_result = short.take_answered()
    if messages:
        stats.put(HALF_TOPIC, HALF_QUEUE, messages, size, TRANSACTION)
        times.add(Answered(RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS, False, SUCCESS), 0, messages)
    for topic, queue_id, count, published in short.take_published():
        stats.put(topic, queue_id, count, published, TRANSACTION)
    for result, ends in zip((SUCCESS, ONEWAY), ends_by_result, strict=True):
        if ends:
            times.add(Answered(RequestCode.END_TRANSACTION, ResponseCode.SUCCESS, False, result), 0, ends)
