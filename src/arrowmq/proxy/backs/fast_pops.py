"""Ordinary ReceiveMessage and AckMessage calls on the broker's fast path: protobuf bytes in, protobuf bytes out.

A request becomes the frame that a client of the older protocol would have sent (`_pop_frames_native`), the broker's own
fast path serves it, under its permit, and what it answers becomes the stream that the client is sent
(`_deliveries_native`). Whatever is not ordinary takes the general path: a first request, so that everything is checked
there; users that are told apart; nothing to be had yet; retries, other handles, other brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from arrowmq.proxy.backs.acked import Acked, Asker
from arrowmq.proxy.backs.back import Reply
from arrowmq.proxy.faults import OK
from arrowmq.proxy.service.message_form import LITE_TOPIC
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import decode_frame

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.proxy.backs.rights import Rights
    from arrowmq.proxy.config import ProxyConfig
    from arrowmq.proxy.http2.connection import Http2Connection
    from arrowmq.proxy.service.clients import Client
    from arrowmq.wire.headers import PopMessage

_OK_STATUS = OK.SerializeToString()
#: What a client is told of these depends on more than the record
_UNUSUAL = (
    prop.POP_CK,
    prop.DELAY,
    prop.TIMER_DELAY_SEC,
    prop.TIMER_DELIVER_MS,
    prop.DLQ_ORIGIN_TOPIC,
    prop.DLQ_ORIGIN_MESSAGE_ID,
    LITE_TOPIC,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the requests of one client for one queue have in common."""

    topic: str
    topic_bytes: bytes
    group: str
    tags: frozenset[bytes]


class FastPops:
    def __init__(self, broker: Broker, config: ProxyConfig, rights: Rights, nobody: Client) -> None:
        self._broker, self._rights, self._nobody = broker, rights, nobody
        self.broker_name = broker.config.broker_name
        frames = import_module("arrowmq.proxy.backs._pop_frames_native")
        self._header = frames.header
        self._pops: Any = frames.PopFrames(
            least_invisible=config.min_invisible_time_mills_for_recv,
            most_invisible=max(config.max_invisible_time_mills, 0),
            renewed_ms=config.default_invisible_time_mills,
            may_renew=config.enable_proxy_auto_renew,
        )
        name = self.broker_name.encode()
        self._acks: Any = frames.AckFrames(name, _OK_STATUS)
        self._deliveries: Any = import_module("arrowmq.proxy.backs._deliveries_native").Deliveries(
            {each.encode() for each in prop.RESERVED}, {each.encode() for each in _UNUSUAL}, _OK_STATUS, name
        )
        self._rests_on: tuple[object, object] = (None, None)
        broker.on_config_change.append(self._forget)

    def _forget(self) -> None:
        self._pops.forget()
        self._acks.forget()

    def _router(self) -> Any:
        """The broker's fast path, if it may be taken; what was learnt is forgotten if topics or groups have changed."""
        broker = self._broker
        if broker.fast_path is None or self._rights.is_on:
            return None
        topics, groups = broker.topics.version, broker.groups.version
        if topics is not self._rests_on[0] or groups is not self._rests_on[1]:
            self._forget()
            self._rests_on = (topics, groups)
        return broker.fast_path

    # --- ReceiveMessage ----------------------------------------------------------------------------------------------

    def learn_pop(self, raw: bytes, header: PopMessage, tags: frozenset[str]) -> None:
        """The general path has served this request: the next one like it may be quicker."""
        if self._router() is None or header.bname != self.broker_name or header.order:
            return
        if header.exp_type != "TAG" or not (header.exp or "").isascii():
            return
        fields = {
            "consumerGroup": header.consumer_group,
            "topic": header.topic,
            "queueId": str(header.queue_id),
            "pollTime": "0",
            "initMode": str(header.init_mode),
            "expType": header.exp_type,
            "exp": header.exp or "*",
            "order": "false",
        }
        subject = Subject(
            header.topic, header.topic.encode(), header.consumer_group, frozenset(tag.encode() for tag in tags)
        )
        shown = self._header(int(RequestCode.POP_MESSAGE), fields)
        if shown is not None:
            self._pops.show(raw, shown, subject)

    def pop(self, connection: Http2Connection, raw: bytes, client: Client | None) -> tuple[Reply, Subject, bool] | None:
        """What the broker gave, for whom, and whether it is to be renewed; None if the general path must ask it."""
        router = self._router()
        made = None if router is None else self._pops.frame(raw)
        if made is None:
            return None
        frame, subject, is_renewed = made
        if is_renewed and (client is None or client.closed):
            return None
        consumed, answer = router(Asker(client or self._nobody, connection), frame)
        if not consumed:
            return None
        found = decode_frame(memoryview(answer)[4:])
        return Reply(found.code, found.remark, found.body, ext=found.ext), subject, is_renewed

    def stream(self, reply: Reply, subject: Subject, now_ms: int, handed: list[tuple[str, str]] | None) -> bytes | None:
        """Everything that the client is sent of it, or None if there is a message among them that is not ordinary."""
        made: bytes | None = self._deliveries.stream(
            reply.body, subject.topic_bytes, subject.tags, reply.ext, now_ms, handed
        )
        return made

    # --- AckMessage --------------------------------------------------------------------------------------------------

    def learn_ack(self, raw: bytes, topic: str, group: str, now_ms: int) -> None:
        if self._router() is None:
            return
        shown = self._header(int(RequestCode.ACK_MESSAGE), {"consumerGroup": group, "topic": topic})
        if shown is not None:
            self._acks.show(raw, shown, group, now_ms)

    def acknowledged(self, raw: bytes) -> tuple[str, list[tuple[str, str]]] | None:
        """The group of an ordinary request, and the ids and handles in it."""
        found: tuple[str, list[tuple[str, str]]] | None = self._acks.entries(raw)
        return found

    def ack(self, connection: Http2Connection, raw: bytes, client: Client | None, now_ms: int) -> bytes | Acked | None:
        """The answer, or what is left to be done for one; None if the general path must ask the broker."""
        router = self._router()
        made = None if router is None else self._acks.frames(raw, now_ms)
        if made is None:
            return None
        frames, count, answer = made
        asker = Asker(client or self._nobody, connection)
        consumed, replies = router(asker, frames)
        if not consumed:
            return None
        if replies and consumed == len(frames):
            return cast(bytes, answer)
        done = count if consumed == len(frames) else _frames_in(frames[:consumed])
        return Acked(done, None if replies else asker)


def _frames_in(frames: memoryview) -> int:
    count = position = 0
    while position < len(frames):
        position += 4 + int.from_bytes(frames[position : position + 4], "big")
        count += 1
    return count
