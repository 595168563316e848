"""Sends and pulls by the short way: which broker may use it, for which topics and readers, and what it has to be told.

The short ways themselves are native (`_fastsend_native.pyx`, `_fastpull_native.pyx`). They are shortcuts for ordinary
requests and never say no: whatever they do not know goes through `send.py` and `pull.py`. Here stands what "ordinary"
means for a broker, a topic and a reader; what it means for one request is decided there, request by request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq import native
from arrowmq.broker import names
from arrowmq.broker.fastpath.permit import BATCHES, PULLS, SENDS, KindPermit
from arrowmq.broker.pull.service import PullService
from arrowmq.broker.runtime.stats import SIZE_BOUNDS
from arrowmq.broker.send.message_path import status_of
from arrowmq.broker.send.message_types import FIFO, NORMAL
from arrowmq.broker.send.service import PUT_CODES, REPLACED_PROPERTIES, not_safe_yet, peer_address, region_of
from arrowmq.broker.topics.table import MESSAGE_TYPE
from arrowmq.clock import SystemClock
from arrowmq.filter import TagFilter
from arrowmq.remoting.answer_times import ONEWAY, SUCCESS, Answered
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.handlers import Refused
from arrowmq.store import MessageStore, PutStatus
from arrowmq.store.positions import Missed
from arrowmq.touches import is_named
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import HeaderError
from arrowmq.wire.frames import Command, FrameSplitter, encode_frame
from arrowmq.wire.headers import PullMessage, decode_header
from arrowmq.wire.properties import encode_properties

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker
    from arrowmq.broker.fastpath import _pull_plain as _fastpull
    from arrowmq.broker.fastpath import _send_plain as _fastsend
else:
    _fastsend = native.load("arrowmq.broker.fastpath._send")
    _fastpull = native.load("arrowmq.broker.fastpath._pull")

FastSend = _fastsend.FastSend
FastPull = _fastpull.FastPull

IPV4_BYTES = 4
# Attributes of a topic that mean nothing to a send; whatever else a topic has, the general path judges.
HARMLESS_ATTRIBUTES = frozenset({MESSAGE_TYPE})

# Stand-ins for the figures of an answer, in the order in which the native modules number them
_OPAQUE = 1987654321
SEND_FIGURES = ("msgId", "queueId", "queueOffset", "transactionId")
_PULL_FIGURES = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")


def build_fast_path(broker: Broker, *, with_pulls: bool = True) -> FastSend | None:
    """The short ways of a broker that has started; None where its settings leave no ordinary request."""
    if not native.is_native(_fastsend) or not is_native_store(broker):
        return None
    ip, port = broker.address.store_host
    if len(ip) != IPV4_BYTES:
        return None
    store = broker.store
    region = region_of(broker.config)
    singles, batches = broker.permit.of(SENDS), broker.permit.of(BATCHES)
    fast_send = FastSend(
        store.commit_log.tail,
        store.index.tail,
        answer_words(RequestCode.SEND_MESSAGE_V2, region, SEND_FIGURES),
        answer_words(RequestCode.SEND_MESSAGE_V2, region, SEND_FIGURES[:-1]),
        added=encode_properties({**region, keys.CLUSTER: broker.config.broker_cluster_name}),
        store_host=ip + port.to_bytes(4, "big"),
        find_topic=lambda name: ordinary_queues(broker, name.decode("utf-8", "replace"), singles, batches),
        find_queue=store.queue,
        make_room=store.extend,
        notify=store.notify,
        gate=lambda: (limit_of(broker, singles), limit_of(broker, batches)),
        now_ms=None if isinstance(broker.clock, SystemClock) else broker.clock.now_ms,
        peer_of=peer_bytes,
        with_crc=store.config.enabled_append_prop_crc,
        hold=hold_until_kept(store, send_not_safe) if broker.path.makes_wait else None,
        size_bounds=SIZE_BOUNDS,
    )
    broker.topics.on_change.append(lambda changed: fast_send.forget())

    def renew() -> None:
        fast_send.use(singles.ordinary.properties | batches.ordinary.properties | set(REPLACED_PROPERTIES))

    broker.permit.on_change.append(renew)
    renew()
    broker.stats.sources.append(lambda: hand_in_sends(broker, fast_send))
    fast_send.pull = build_fast_pull(broker) if with_pulls else None
    return fast_send


def is_native_store(broker: Broker) -> bool:
    """The short ways write through the native tails only."""
    return type(broker.store.commit_log.tail).__module__.endswith("_native")


def hand_in_sends(broker: Broker, sends: FastSend) -> None:
    """Give the statistics what the short way of sends has counted. It answers in the pass that read the request, in
    less time than the first bound."""
    for topic, queue_id, messages, size in sends.take_counts():
        broker.stats.count_put(topic, queue_id, messages, size)
    for topic, is_ordered, counts, total, largest in sends.take_sizes():
        broker.stats.add_sizes(topic, FIFO if is_ordered else NORMAL, counts, total, largest)
    for code, is_oneway, times in sends.take_answered():
        answered = Answered(code, ResponseCode.SUCCESS, False, ONEWAY if is_oneway else SUCCESS)
        broker.answer_times.add(answered, 0, times)


def hand_in_pulls(broker: Broker, pulls: FastPull) -> None:
    answered = Answered(RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, False, SUCCESS)
    for group, topic, queue_id, messages, size, times in pulls.take_counts():
        broker.stats.get(group, topic, queue_id, messages, size, times)
        broker.answer_times.add(answered, 0, times)


# --- sends -----------------------------------------------------------------------------------------------------------


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
    """How long a body may be now; 0 while the fast path is closed, or where a step looks at a header's fields."""
    return broker.config.max_message_size if not permit.ordinary.fields and permit.is_open() else 0


NotSafe = Callable[[Command, PutStatus], None]


def hold_until_kept(store: MessageStore, not_safe: NotSafe) -> Callable[[Connection, bytes], None]:
    """Takes the answers of a pass, and sends them once what the broker promises is true of all that the pass wrote. If
    that fails or takes too long, each answer says so first."""
    positions = store.positions

    def hold(connection: Connection, answers: bytes) -> None:
        connection.in_flight += 1

        def send(missed: Missed) -> None:
            if missed:
                for answer in FrameSplitter().feed(answers):
                    not_safe(answer, status_of(missed))
                    connection.send(answer)
            else:
                connection.write_frame([answers])
            connection.in_flight_ended()

        positions.when(positions.appended_end, positions.promised, send)

    return hold


def send_not_safe(answer: Command, status: PutStatus) -> None:
    answer.code, answer.remark = PUT_CODES[status], not_safe_yet(status)


def peer_bytes(connection: Connection) -> bytes:
    """The peer as a record carries it: address, then the port in four bytes."""
    if connection.peer_bytes is None:
        ip, port = peer_address(connection)
        connection.peer_bytes = ip + port.to_bytes(4, "big")
    return connection.peer_bytes


# --- pulls -----------------------------------------------------------------------------------------------------------


def build_fast_pull(broker: Broker) -> FastPull | None:
    permit = broker.permit.of(PULLS)
    fast_pull = FastPull(
        broker.store.records,
        answer_pieces(RequestCode.PULL_MESSAGE, {}, _PULL_FIGURES, remark="FOUND"),
        is_open=lambda: not permit.ordinary.fields and permit.is_open(),
        admit=admission(broker, broker.services.pull, permit),
        rests_on=(broker.topics, broker.groups, broker.clients),
        commit=broker.offsets.commit,
        commits_of=broker.offsets.commits_of,
        resets=broker.offsets.resets,
    )
    broker.stats.sources.append(lambda: hand_in_pulls(broker, fast_pull))
    broker.offsets.sources.append(fast_pull.take_commits)
    broker.offsets.on_replace.append(fast_pull.forget)
    broker.permit.on_change.append(fast_pull.forget)
    return fast_pull


def admission(
    broker: Broker, service: PullService, permit: KindPermit
) -> Callable[[dict[str, str], Connection], _fastpull.Admitted | None]:
    """Lets the general path check a reader. None if it would refuse it, or if its filter has to see the records."""

    def admit(fields: dict[str, str], connection: Connection) -> _fastpull.Admitted | None:
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

    return admit


# --- answers ---------------------------------------------------------------------------------------------------------


def answer_pieces(
    code: int, fixed: dict[str, str], figures: tuple[str, ...], remark: str | None = None
) -> tuple[list[bytes], list[int], bytes]:
    """An answer of the general path's encoder, cut at its figures: the pieces between them, which figure stands behind
    which piece (0 is the opaque, then `figures`), and how the binary form begins."""
    marks = [str(_OPAQUE), *(f"@{name}@" for name in figures)]
    ext = {**fixed, **dict(zip(figures, marks[1:], strict=True))}
    request = Command(code, opaque=_OPAQUE)
    whole = encode_frame(request.answer(0, ext, remark=remark))[8:]
    order = sorted(range(len(marks)), key=lambda figure: whole.index(marks[figure].encode()))
    pieces: list[bytes] = []
    at = 0
    for figure in order:
        found = whole.index(marks[figure].encode())
        pieces.append(whole[at:found])
        at = found + len(marks[figure])
    pieces.append(whole[at:])
    request.serialize_type = 1
    return pieces, order, encode_frame(request.answer(0, ext))[8:13]  # code, language, version


def answer_words(
    code: int, fixed: dict[str, str], figures: tuple[str, ...]
) -> tuple[list[bytes], list[int], bytes, bytes]:
    """The same for the answers of `_answers_native.pyx`, with those entries of the binary form that never change."""
    return *answer_pieces(code, fixed, figures), b"".join(_binary_entry(*entry) for entry in fixed.items())


def _binary_entry(name: str, value: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
