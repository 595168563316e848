"""Sends on the fast path: which topics are ordinary for a broker, and what the native handler is given.

The handler (`_send_native.pyx`) takes ordinary messages and never refuses one: whatever it does not know goes through
`send/service.py`. What "ordinary" means for one message it decides itself, by the tables it is given here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrowmq.broker import names
from arrowmq.broker.fastpath.entry import Entry
from arrowmq.broker.fastpath.kept_answers import sender_when_kept
from arrowmq.broker.fastpath.permit import BATCHES, SENDS, KindPermit
from arrowmq.broker.runtime.stats import SIZE_BOUNDS
from arrowmq.broker.send.message_types import FIFO, NORMAL
from arrowmq.broker.send.service import PUT_CODES, REPLACED_PROPERTIES, not_safe_yet, peer_address, region_of
from arrowmq.broker.topics.table import MESSAGE_TYPE
from arrowmq.remoting.answer_times import ONEWAY, SUCCESS, Answered
from arrowmq.remoting.connection import Connection
from arrowmq.store import PutStatus
from arrowmq.touches import is_named
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.in_place.fields import SEND, SENT
from arrowmq.wire.in_place.templates import Template, answer_template
from arrowmq.wire.properties import encode_properties

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

CODES = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
# Attributes of a topic that mean nothing to a send; whatever else a topic has, the general path judges.
HARMLESS_ATTRIBUTES = frozenset({MESSAGE_TYPE})


def build_sends(broker: Broker) -> Entry:
    store = broker.store
    singles, batches = broker.permit.of(SENDS), broker.permit.of(BATCHES)
    handler = import_module("arrowmq.broker.fastpath._send_native").SendHandler(
        store.commit_log.tail,
        store.index.tail,
        store.positions,
        sent_template(broker),
        sent_template(broker, has_transaction_id=False),
        added=added_properties(broker),
        store_host=host_bytes(broker.address.store_host),
        find_topic=lambda name: ordinary_queues(broker, name.decode("utf-8", "replace"), singles, batches),
        find_queue=store.queue,
        make_room=store.extend,
        notify=store.notify,
        limits=lambda: (limit_of(broker, singles), limit_of(broker, batches)),
        peer_of=peer_bytes,
        with_crc=store.config.enabled_append_prop_crc,
        send_when_kept=sender_when_kept(store, send_not_safe),
        size_bounds=SIZE_BOUNDS,
    )
    broker.topics.on_change.append(lambda changed: handler.forget())
    broker.stats.sources.append(lambda: _hand_in(broker, handler))

    def renew() -> None:
        touched = singles.ordinary.properties | batches.ordinary.properties
        handler.use(touched.union(REPLACED_PROPERTIES))

    return Entry("sends", handler, CODES, SEND, (singles, batches), renew)


def ordinary_queues(broker: Broker, topic: str, *permits: KindPermit) -> int:
    """How many queues of a topic the fast path may write to; 0 if messages to it get special treatment."""
    if topic.startswith("%") or topic in names.SEND_FORBIDDEN_TOPICS:
        return 0
    known = broker.topics.get(topic)
    if known is None or set(known.attributes or ()) - HARMLESS_ATTRIBUTES:
        return 0
    if any(is_named(topic, permit.ordinary.topics) for permit in permits):
        return 0
    return max(known.write_queue_nums, known.read_queue_nums)


def limit_of(broker: Broker, permit: KindPermit) -> int:
    """How long a body may be now; 0 while the fast path is closed, the reason of which is the general path's to say."""
    return broker.config.max_message_size if permit.is_open() else 0


def sent_template(broker: Broker, *, has_transaction_id: bool = True) -> Template:
    placeholders = ("msgId", "queueId", "queueOffset") + (("transactionId",) if has_transaction_id else ())
    return answer_template(RequestCode.SEND_MESSAGE_V2, SENT, placeholders, region_of(broker.config))


def added_properties(broker: Broker) -> bytes:
    """What the broker adds to every message."""
    return encode_properties({**region_of(broker.config), keys.CLUSTER: broker.config.broker_cluster_name})


def host_bytes(host: tuple[bytes, int]) -> bytes:
    """A host as a record carries it: address, then the port in four bytes."""
    ip, port = host
    return ip + port.to_bytes(4, "big")


def peer_bytes(connection: Connection) -> bytes:
    if connection.peer_bytes is None:
        connection.peer_bytes = host_bytes(peer_address(connection))
    return connection.peer_bytes


def send_not_safe(answer: Command, status: PutStatus) -> None:
    answer.code, answer.remark = PUT_CODES[status], not_safe_yet(status)


def _hand_in(broker: Broker, sends: Any) -> None:
    """Give the statistics what the handler has counted. It answers in the pass that read the request, in less time than
    the first bound."""
    for topic, queue_id, messages, size in sends.take_counts():
        broker.stats.count_put(topic, queue_id, messages, size)
    for topic, is_ordered, counts, total, largest in sends.take_sizes():
        broker.stats.add_sizes(topic, FIFO if is_ordered else NORMAL, counts, total, largest)
    for code, is_oneway, times in sends.take_answered():
        answered = Answered(code, ResponseCode.SUCCESS, False, ONEWAY if is_oneway else SUCCESS)
        broker.answer_times.add(answered, 0, times)
