"""Sends by the short way: which broker may use it, for which topics, and what it has to be told.

The short way itself is native (`_fastpath_native.pyx`). It is a shortcut for the ordinary message and never says no:
whatever it does not know goes through `send.py`. Here stands what "ordinary" means for a broker and a topic; what it
means for a message is decided in the native module, message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.broker import names
from arrowmq.broker.send import peer_address, region_of
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.handlers import Refused
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frame import Command, encode_frame
from arrowmq.wire.properties import encode_properties

if TYPE_CHECKING:
    from arrowmq.broker import _fastpath_plain as _fastpath
    from arrowmq.broker.node import Broker
else:
    _fastpath = native.load("arrowmq.broker._fastpath")

FastPath = _fastpath.FastPath
Answers = _fastpath.Answers

PEER_BYTES = "fastpath.peer"
PEERS_OF_FOUR_BYTES = 4

# Stand-ins for the figures of an answer, in the order in which the native module numbers them
_OPAQUE = 1987654321
_FIGURES = (str(_OPAQUE), "@message-id@", "@queue-id@", "@queue-offset@", "@transaction-id@")


def build_fast_path(broker: Broker) -> FastPath | None:
    """The short way of a broker that has started; None where its settings leave no ordinary message."""
    if broker.path.sync_flush or not native.is_native(_fastpath) or not is_native_store(broker):
        return None
    ip, port = broker.address.store_host
    if len(ip) != PEERS_OF_FOUR_BYTES:
        return None
    store = broker.store
    region = region_of(broker.config)
    fast_path = FastPath(
        store.commit_log.tail,
        store.index.tail,
        answer_pieces(region),
        added=encode_properties({**region, keys.CLUSTER: broker.config.broker_cluster_name}),
        store_host=ip + port.to_bytes(4, "big"),
        find_topic=lambda name: ordinary_queues(broker, name.decode("utf-8", "replace")),
        find_queue=store.queue,
        tell=store.tell,
        gate=gate_of(broker, region),
        now_ms=broker.clock.now_ms,
        peer_of=peer_bytes,
        with_crc=store.config.enabled_append_prop_crc,
    )
    broker.topics.on_change.append(lambda changed: fast_path.forget())
    return fast_path


def is_native_store(broker: Broker) -> bool:
    """The short way writes through the native tails only."""
    return type(broker.store.commit_log.tail).__module__.endswith("_native")


def ordinary_queues(broker: Broker, topic: str) -> int:
    """How many queues of a topic the short way may write to; 0 if messages to it get special treatment."""
    if topic.startswith(names.RETRY_PREFIX) or topic in names.SEND_FORBIDDEN_TOPICS or topic.startswith("%"):
        return 0
    known = broker.topics.get(topic)
    if known is None or broker.config.enable_topic_message_type_check:
        return 0
    if {"queue.type", "cleanup.policy"} & set(known.attributes or ()):
        return 0
    return max(known.write_queue_nums, known.read_queue_nums)


def gate_of(broker: Broker, region: dict[str, str]) -> Callable[[], int]:
    """Asked once a read: how long a body may be now; 0 if the broker takes no ordinary messages at this moment, the
    reason of which is the general path's to tell."""
    path, store, config, clock = broker.path, broker.store, broker.config, broker.clock

    def gate() -> int:
        try:
            for each in path.gates:
                each()
        except Refused:
            return 0
        if store.wants_every or not config.is_writable or config.start_accept_send_request_time_stamp > clock.now_ms():
            return 0
        if store.why_not_writable() is not None or region_of(config) != region:
            return 0
        return config.max_message_size

    return gate


def peer_bytes(connection: Connection) -> bytes:
    """The peer as a record carries it: address, then the port in four bytes."""
    known: bytes | None = connection.attributes.get(PEER_BYTES)
    if known is None:
        ip, port = peer_address(connection)
        known = connection.attributes[PEER_BYTES] = ip + port.to_bytes(4, "big")
    return known


def answer_pieces(region: dict[str, str]) -> Answers:
    """Cut an answer of the general path's encoder at its figures."""
    ext = dict(region)
    ext.update(zip(("msgId", "queueId", "queueOffset", "transactionId"), _FIGURES[1:], strict=True))
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque=_OPAQUE)
    whole = encode_frame(request.answer(0, ext))[8:]
    order = sorted(range(len(_FIGURES)), key=lambda figure: whole.index(_FIGURES[figure].encode()))
    pieces: list[bytes] = []
    at = 0
    for figure in order:
        found = whole.index(_FIGURES[figure].encode())
        pieces.append(whole[at:found])
        at = found + len(_FIGURES[figure])
    pieces.append(whole[at:])
    request.serialize_type = 1
    binary_start = encode_frame(request.answer(0, ext))[8:13]  # code, language, version
    return Answers(pieces, order, binary_start, b"".join(_binary_entry(*entry) for entry in region.items()))


def _binary_entry(name: str, value: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
