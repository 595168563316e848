"""SendMessage and RecallMessage."""

from __future__ import annotations

from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import Back, Reply
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import OK, BrokerFault, Fault, status_of
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.clients import Client, ClientTable
from arrowmq.proxy.service.message_form import kind_of, properties_of, sys_flag_of
from arrowmq.proxy.service.routing import Routing, type_name
from arrowmq.proxy.service.transactions import transaction_id
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import RecallMessage, RecallMessageResult, SendMessage, SendMessageResult
from arrowmq.wire.ids import IdError, parse_offset_message_id, parse_recall_handle

_KIND_NAMES = {
    int(v2.NORMAL): "NORMAL",
    int(v2.FIFO): "FIFO",
    int(v2.DELAY): "DELAY",
    int(v2.TRANSACTION): "TRANSACTION",
}
#: Answers that say "stored, but": the message is there, not everything that was asked for happened.
_HALF_OK = {
    int(ResponseCode.FLUSH_DISK_TIMEOUT): (v2.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): (v2.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    int(ResponseCode.SLAVE_NOT_AVAILABLE): (v2.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}
MAX_MESSAGES = 32


class Sending:
    def __init__(self, config: ProxyConfig, back: Back, routing: Routing, clients: ClientTable, clock: Clock) -> None:
        self._config, self._back, self._routing, self._clients, self._clock = config, back, routing, clients, clock
        self.fast = back.fast_sends(config)

    async def send_message(self, caller: Caller, request: calls.SendMessageRequest) -> calls.SendMessageResponse:
        if not request.messages:
            raise Fault(v2.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0].topic
        topic = first.name
        validation.check_topic(topic)
        now_ms = self._clock.now_ms()
        prepared = []
        for message in request.messages:
            if message.topic != first:
                raise Fault(v2.MESSAGE_CORRUPTED, "topic in message is not same")
            validation.check_body(self._config, message.body)
            prepared.append((message, properties_of(self._config, message, caller.peer_text, now_ms)))
        if len(prepared) > MAX_MESSAGES:
            raise Fault(v2.MESSAGE_CORRUPTED, f"more than {MAX_MESSAGES} messages in one request")
        if self._config.enable_topic_message_type_check:
            await self._check_kind(topic, prepared[0][1])
        # Several messages of a request have no group that holds them together, and stay together all the same.
        group = request.messages[0].system_properties.message_group if len(prepared) == 1 else ""
        broker, queue_id = await self._routing.writable_queue(topic, group)
        answer = calls.SendMessageResponse()
        codes = set()
        if self.fast is not None and await self._is_only_here(topic, broker):
            self.fast.learn(topic)
        for message, properties in prepared:
            entry = await self._send(caller, broker, queue_id, message, properties)
            answer.entries.append(entry)
            codes.add(entry.status.code)
        code = codes.pop() if len(codes) == 1 else v2.MULTIPLE_RESULTS
        answer.status.CopyFrom(status_of(code))
        return answer

    async def _is_only_here(self, topic: str, broker: str) -> bool:
        route = await self._back.route(topic)
        return all(queues.broker_name == broker for queues in route.queue_datas)

    async def _check_kind(self, topic: str, properties: dict[str, str]) -> None:
        expected = type_name(await self._back.topic_config(topic))
        actual = _KIND_NAMES[kind_of(properties)]
        if expected not in (actual, "MIXED", "UNSPECIFIED"):
            raise Fault(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
            )

    async def _send(
        self, caller: Caller, broker: str, queue_id: int, message: v2.Message, properties: dict[str, str]
    ) -> calls.SendResultEntry:
        header = SendMessage(
            producer_group=message.topic.name,
            topic=message.topic.name,
            queue_id=queue_id,
            sys_flag=sys_flag_of(message),
            born_timestamp=int(properties[prop.BORN_TIMESTAMP]),
            properties=prop.properties_text(properties),
            reconsume_times=0,
            bname=broker,
        )
        client = self._clients.get(caller.client_id) or stranger(caller)
        try:
            reply = await self._back.ask(
                broker,
                RequestCode.SEND_MESSAGE,
                header,
                message.body,
                client=client,
                user=caller.user,
                timeout_s=self._timeout_s(caller),
            )
        except Fault:
            self._routing.failed(broker)
            raise
        if reply.is_ok:
            self._routing.worked(broker)
            return self._entry(broker, message, reply)
        if reply.code in _HALF_OK:
            return calls.SendResultEntry(status=status_of_stored(reply.code, reply.remark))
        raise BrokerFault(reply.code, reply.remark)

    def _timeout_s(self, caller: Caller) -> float:
        remaining = caller.remaining_ms(self._clock.monotonic())
        return 3.0 if remaining is None else min(max(remaining / 1000, 0.1), 30.0)

    def _entry(self, broker: str, message: v2.Message, reply: Reply) -> calls.SendResultEntry:
        result = reply.header(SendMessageResult)
        message_id = message.system_properties.message_id
        entry = calls.SendResultEntry(status=OK, message_id=message_id, offset=result.queue_offset)
        entry.recall_handle = result.recall_handle or ""
        if message.system_properties.message_type == v2.TRANSACTION:
            position = parse_offset_message_id(result.msg_id).physical_offset
            entry.transaction_id = transaction_id(message_id, result.queue_offset, position, broker)
        else:
            entry.transaction_id = message_id  # as Apache's proxy has it, for what is no transaction
        return entry

    async def recall_message(self, caller: Caller, request: calls.RecallMessageRequest) -> calls.RecallMessageResponse:
        topic = request.topic.name
        validation.check_topic(topic)
        if self._config.enable_topic_message_type_check:
            expected = type_name(await self._back.topic_config(topic))
            if expected not in ("DELAY", "MIXED", "UNSPECIFIED"):
                raise Fault(
                    v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"TopicMessageType validate failed, the expected type is {expected}, but actual type is DELAY",
                )
        broker = _broker_of_recall(request.recall_handle)
        header = RecallMessage(producer_group=topic, topic=topic, recall_handle=request.recall_handle, bname=broker)
        client = self._clients.get(caller.client_id)
        reply = await self._back.ask(broker, RequestCode.RECALL_MESSAGE, header, client=client, user=caller.user)
        if not reply.is_ok:
            raise BrokerFault(reply.code, reply.remark)
        return calls.RecallMessageResponse(status=OK, message_id=reply.header(RecallMessageResult).msg_id)


def stranger(caller: Caller) -> Client:
    """A client that has not told its settings: its messages are born where it is, all the same."""
    client = Client(caller.client_id, lambda client, command: None)
    client.peer, client.language = caller.peer, caller.language
    return client


def status_of_stored(code: int, remark: str | None) -> v2.Status:
    """Of a message that a broker did not take, or took and could not promise what was asked for."""
    if code not in _HALF_OK:
        return BrokerFault(code, remark).status
    protocol_code, name = _HALF_OK[code]
    return status_of(protocol_code, f"send message failed, sendStatus={name}")


def _broker_of_recall(handle: str) -> str:
    try:
        return parse_recall_handle(handle).broker_name
    except IdError:
        raise Fault(v2.INTERNAL_SERVER_ERROR, "recall handle is invalid") from None
