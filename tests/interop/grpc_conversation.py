"""One conversation with a proxy, call by call, in a form in which two proxies can be compared.

Every name in it begins with the side ("a" or "b"), which is taken out of the answers again, as are times, handles and
other texts that no two runs have in common. What is left is to be the same, or a difference that is known.
"""

from __future__ import annotations

import itertools
import queue
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls

SERVICE = "apache.rocketmq.v2.MessagingService"
TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "tx": "TRANSACTION", "quiet": "NORMAL"}
GROUPS = {"group": False, "other": False, "ordered": True}
#: Texts of Java's own; a Python program cannot say the same
_JAVA = re.compile(r"\.? ?\w+(Exception|Error)\. .*$", re.DOTALL)
#: What Apache's proxy puts around a text on its way through its layers
_WRAPPING = (
    "org.apache.rocketmq.proxy.common.ProxyException: ",
    "CODE: 17  DESC: ",
    "\nFor more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ",
)
_ANY = {
    "receipt_handle",
    "store_host",
    "born_host",
    "delivery_timestamp",
    "store_timestamp",
    "born_timestamp",
    "recall_handle",
    "transaction_id",
    "message_id",
}


class Conversation:
    def __init__(self, address: str, side: str) -> None:
        self.side = side
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 1 << 25)])
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._numbers = itertools.count(1)
        self.heard: dict[str, Any] = {}

    def close(self) -> None:
        self._channel.close()

    # --- the ways of asking ------------------------------------------------------------------------------------------

    def ask(
        self, step: str, call: str, request: Message, *, client: str = "c", timeout: float = 20, stream: bool = False
    ) -> list[Any]:
        """Asks, and remembers what came under the name of the step."""
        name = type(request).__name__.replace("Request", "Response")
        answer = getattr(calls, name)
        make = self._channel.unary_stream if stream else self._channel.unary_unary
        method = make(
            f"/{SERVICE}/{call}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            found = method(request, metadata=self._metadata(client), timeout=timeout)
            answers = list(found) if stream else [found]
        except grpc.RpcError as error:
            self.heard[step] = self._grpc_error(error)
            return []
        self.heard[step] = [self._plain(each) for each in answers]
        return answers

    def telemetry(self, step: str, settings: v2.Settings, client: str = "c") -> Iterator[None]:
        """A stream that stays open until the generator is closed."""
        outgoing: queue.Queue[calls.TelemetryCommand | None] = queue.Queue()
        method = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=calls.TelemetryCommand.FromString,
        )
        stream = method(iter(outgoing.get, None), metadata=self._metadata(client), timeout=120)
        outgoing.put(calls.TelemetryCommand(settings=settings))
        try:
            self.heard[step] = self._plain(next(stream))
        except grpc.RpcError as error:
            self.heard[step] = self._grpc_error(error)
        except StopIteration:
            self.heard[step] = "ended"
        try:
            yield
        finally:
            outgoing.put(None)

    def _metadata(self, client: str) -> list[tuple[str, str]]:
        known = [("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0"), ("x-mq-protocol", "v2")]
        return [*known, ("x-mq-client-id", f"{self.side}-{client}")] if client else known

    # --- what no two runs have in common -----------------------------------------------------------------------------

    def _grpc_error(self, error: Any) -> dict[str, str]:
        return {"grpc": error.code().name, "details": self._text(error.details() or "")}

    def _plain(self, message: Message) -> Any:
        return self._normal(MessageToDict(message, preserving_proto_field_name=True))

    def _normal(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._normal(each, key) for key, each in value.items() if key != "offset"}
        if isinstance(value, list):
            return [self._normal(each, name) for each in value]
        if name in _ANY and value:
            return "…"
        if name == "port":
            return "the port"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for name in (*TOPICS, *GROUPS, "nowhere", "nobody"):
            text = text.replace(self.name(name), name)
        for words in _WRAPPING:
            text = text.replace(words, "")
        return _JAVA.sub("", text)

    # --- values ------------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return f"{self.side}-{name}"

    def resource(self, name: str) -> v2.Resource:
        is_ours = name.isalpha() and len(name) < 20
        return v2.Resource(name=self.name(name) if is_ours else name)

    def endpoints(self) -> v2.Endpoints:
        return v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host=self._host, port=self._port)])

    def message(self, topic: str = "normal", body: bytes = b"hello", kind: Any = v2.NORMAL, **more: Any) -> v2.Message:
        made = v2.Message(topic=self.resource(topic), body=body)
        system = made.system_properties
        system.message_id = f"01{next(self._numbers):032X}"
        system.message_type = kind
        system.body_encoding = v2.IDENTITY
        system.born_timestamp.FromMilliseconds(int(time.time() * 1000))
        system.born_host = "here"
        made.user_properties.update(more.pop("properties", {}))
        system.keys.extend(more.pop("keys", ()))
        if "delivery_ms" in more:
            system.delivery_timestamp.FromMilliseconds(more.pop("delivery_ms"))
        if "recovery_s" in more:
            system.orphaned_transaction_recovery_duration.seconds = more.pop("recovery_s")
        for name, value in more.items():
            setattr(system, name, value)
        return made

    def send(self, step: str, *messages: v2.Message) -> list[Any]:
        return self.ask(step, "SendMessage", calls.SendMessageRequest(messages=messages))

    def receive(
        self,
        step: str,
        topic: str = "normal",
        group: str = "group",
        *,
        client: str = "s",
        timeout: float = 20,
        **more: Any,
    ) -> list[v2.Message]:
        request = calls.ReceiveMessageRequest(
            group=self.resource(group),
            message_queue=v2.MessageQueue(topic=self.resource(topic), broker=v2.Broker(name="broker-a")),
            filter_expression=v2.FilterExpression(
                type=more.pop("type", v2.TAG), expression=more.pop("expression", "*")
            ),
            batch_size=more.pop("batch", 16),
        )
        request.invisible_duration.FromMilliseconds(more.pop("invisible_ms", 30_000))
        request.long_polling_timeout.FromMilliseconds(more.pop("poll_ms", 5000))
        answers = self.ask(step, "ReceiveMessage", request, client=client, timeout=timeout, stream=True)
        return [each.message for each in answers if each.HasField("message")]

    def ack(self, step: str, handle: str, message_id: str = "id", topic: str = "normal", group: str = "group") -> None:
        request = calls.AckMessageRequest(group=self.resource(group), topic=self.resource(topic))
        if handle:
            request.entries.add(message_id=message_id, receipt_handle=handle)
        self.ask(step, "AckMessage", request, client="s")


def producer(it: Conversation, *topics: str) -> v2.Settings:
    settings = v2.Settings(client_type=v2.PRODUCER, access_point=it.endpoints())
    settings.request_timeout.seconds = 3
    settings.publishing.topics.extend(it.resource(topic) for topic in topics)
    settings.user_agent.language = v2.JAVA
    return settings


def consumer(
    it: Conversation, group: str, topic: str, kind: Any = v2.SIMPLE_CONSUMER, expression: str = "*"
) -> v2.Settings:
    settings = v2.Settings(client_type=kind, access_point=it.endpoints())
    settings.request_timeout.seconds = 3
    settings.subscription.group.CopyFrom(it.resource(group))
    entry = settings.subscription.subscriptions.add(topic=it.resource(topic))
    entry.expression.type, entry.expression.expression = v2.TAG, expression
    return settings


def hold(address: str, side: str) -> dict[str, Any]:
    """The whole conversation; what was heard at each step."""
    it = Conversation(address, side)
    streams: list[Iterator[None]] = []

    def opened(step: str, settings: v2.Settings, client: str) -> None:
        stream = it.telemetry(step, settings, client)
        next(stream)
        streams.append(stream)

    try:
        for part in (_routes, _settings, _assignments, _sends, _receives, _handles, _transactions, _others):
            part(it, opened)
        return it.heard
    finally:
        for stream in streams:
            stream.close()
        it.close()


Opened = Callable[[str, v2.Settings, str], None]


def _routes(it: Conversation, opened: Opened) -> None:
    for step, topic in {
        "route": "normal",
        "route of a fifo topic": "fifo",
        "route unknown": "nowhere",
        "route blank": "",
        "route illegal": "no topic!",
        "route too long": "x" * 128,
        "route system": "TBW102",
        "route rmq_sys": "rmq_sys_x",
    }.items():
        it.ask(step, "QueryRoute", calls.QueryRouteRequest(topic=it.resource(topic), endpoints=it.endpoints()))
    request = calls.QueryRouteRequest(topic=it.resource("normal"), endpoints=it.endpoints())
    it.ask("route without a client id", "QueryRoute", request, client="")


def _settings(it: Conversation, opened: Opened) -> None:
    it.ask("heartbeat of a stranger", "Heartbeat", calls.HeartbeatRequest(client_type=v2.PRODUCER))
    opened("settings of a producer", producer(it, "normal", "fifo", "delay", "tx"), "c")
    opened("settings of a simple consumer", consumer(it, "group", "normal"), "s")
    opened("settings of a push consumer", consumer(it, "other", "normal", v2.PUSH_CONSUMER), "p")
    opened("settings of a fifo consumer", consumer(it, "ordered", "fifo", v2.PUSH_CONSUMER), "f")
    opened("settings of an unknown group", consumer(it, "nobody", "normal"), "n")
    opened("settings without anything", v2.Settings(client_type=v2.PRODUCER), "x1")
    opened("settings with a blank group", consumer(it, "", "normal"), "x2")
    opened("settings with a blank topic", producer(it, ""), "x3")
    opened("settings with a bad topic", producer(it, "no topic!"), "x4")
    opened("settings of a consumer that says it is a producer", consumer(it, "group", "normal", v2.PRODUCER), "x5")
    opened("settings with bad tags", consumer(it, "group", "normal", expression="||"), "x6")
    opened("settings without a client id", producer(it, "normal"), "")
    it.ask("heartbeat of a producer", "Heartbeat", calls.HeartbeatRequest(client_type=v2.PRODUCER))
    request = calls.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER, group=it.resource("group"))
    it.ask("heartbeat of a consumer", "Heartbeat", request, client="s")
    request = calls.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER)
    it.ask("heartbeat of a consumer without its group", "Heartbeat", request, client="s")


def _assignments(it: Conversation, opened: Opened) -> None:
    for step, (topic, group) in {
        "assignment": ("normal", "group"),
        "assignment in order": ("fifo", "ordered"),
        "assignment unknown": ("nowhere", "group"),
        "assignment of a bad group": ("normal", "no group!"),
        "assignment of a system group": ("normal", "CID_RMQ_SYS_x"),
    }.items():
        request = calls.QueryAssignmentRequest(
            topic=it.resource(topic), group=it.resource(group), endpoints=it.endpoints()
        )
        it.ask(step, "QueryAssignment", request, client="s")


def _sends(it: Conversation, opened: Opened) -> None:
    now_ms = int(time.time() * 1000)
    it.send("send", it.message(tag="T", keys=["k1", "k2"], properties={"colour": "red"}, trace_context="t"))
    it.send("send two", it.message(), it.message())
    it.send("send in order", it.message("fifo", kind=v2.FIFO, message_group="one"))
    it.send("send later", it.message("delay", kind=v2.DELAY, delivery_ms=now_ms + 3_600_000))
    it.send("send too late", it.message("delay", kind=v2.DELAY, delivery_ms=now_ms + 90_000_000))
    it.send("send nothing")
    it.send("send to two topics", it.message(), it.message("fifo", kind=v2.FIFO, message_group="one"))
    it.send("send to nowhere", it.message("nowhere"))
    it.send("send an empty body", it.message(body=b""))
    it.send("send too much", it.message(body=bytes(4 * 1024 * 1024 + 1)))
    it.send("send without an id", it.message(message_id=" "))
    for step, more in {
        "a blank tag": {"tag": "  "},
        "a tag with a pipe": {"tag": "a|b"},
        "a tag with a control": {"tag": "a\nb"},
        "a blank key": {"keys": ["  "]},
        "a key with a control": {"keys": ["a\tb"]},
        "a reserved property": {"properties": {"TAGS": "x"}},
        "a control in a name": {"properties": {"a\nb": "x"}},
        "a control in a value": {"properties": {"a": "x\ny"}},
        "many properties": {"properties": {f"p{number}": "x" for number in range(129)}},
        "long properties": {"properties": {"a": "x" * 17_000}},
        "a fifo message": {"message_group": "one", "kind": v2.FIFO},
        "a blank message group": {"message_group": "  "},
        "a long message group": {"message_group": "x" * 64},
        "a group with a control": {"message_group": "a\nb"},
    }.items():
        it.send(f"send {step}", it.message(**more))
    it.send("send half", it.message("tx", kind=v2.TRANSACTION))
    it.send("send half with a long recovery", it.message("tx", kind=v2.TRANSACTION, recovery_s=7200))


def _receives(it: Conversation, opened: Opened) -> None:
    it.receive("receive nothing", "quiet")
    it.receive("receive for a moment", invisible_ms=1000)
    it.receive("receive for a week", invisible_ms=7 * 86_400_000)
    it.receive("receive with bad tags", expression="||")
    it.receive("receive with bad SQL", type=v2.SQL, expression="a >")
    it.receive("receive from nowhere", "nowhere")
    it.receive("receive with a bad group", group="no group!")
    it.receive("receive of a stranger", "quiet", client="nobody")
    it.receive("receive with too little time", timeout=2)


def _handles(it: Conversation, opened: Opened) -> None:
    found = it.receive("receive", batch=1)
    first = found[0].system_properties if found else v2.SystemProperties()
    change = calls.ChangeInvisibleDurationRequest(
        group=it.resource("group"),
        topic=it.resource("normal"),
        receipt_handle=first.receipt_handle,
        message_id=first.message_id,
    )
    change.invisible_duration.seconds = -1
    it.ask("change to before", "ChangeInvisibleDuration", change, client="s")
    change.invisible_duration.seconds = 86_400
    it.ask("change for too long", "ChangeInvisibleDuration", change, client="s")
    change.invisible_duration.seconds = 20
    changed = it.ask("change", "ChangeInvisibleDuration", change, client="s")
    it.ack("ack", changed[0].receipt_handle if changed else "", first.message_id)
    old = f"0 {int(time.time() * 1000) - 90_000} 60000 0 0 broker-a 0 0 0"
    new = f"0 {int(time.time() * 1000)} 60000 0 0 broker-a 0 0 0"
    it.ack("ack what was never received", new)
    it.ack("ack too late", old)
    it.ack("ack with no handle", "nonsense")
    it.ack("ack of another broker", new.replace("broker-a", "broker-z"))
    it.ack("ack nothing", "")
    change.receipt_handle = "nonsense"
    it.ask("change with no handle", "ChangeInvisibleDuration", change, client="s")
    change.receipt_handle = old
    it.ask("change too late", "ChangeInvisibleDuration", change, client="s")
    forward = calls.ForwardMessageToDeadLetterQueueRequest(
        group=it.resource("group"), topic=it.resource("normal"), max_delivery_attempts=16, delivery_attempt=1
    )
    more = it.receive("receive again", batch=1)
    if more:
        forward.receipt_handle = more[0].system_properties.receipt_handle
        forward.message_id = more[0].system_properties.message_id
    it.ask("forward", "ForwardMessageToDeadLetterQueue", forward, client="s")
    forward.receipt_handle = "nonsense"
    it.ask("forward with no handle", "ForwardMessageToDeadLetterQueue", forward, client="s")
    forward.receipt_handle = new.rpartition(" ")[0]
    it.ask("forward with a short handle", "ForwardMessageToDeadLetterQueue", forward, client="s")


def _transactions(it: Conversation, opened: Opened) -> None:
    half = it.message("tx", kind=v2.TRANSACTION)
    sent = it.send("send another half", half)
    end = calls.EndTransactionRequest(
        topic=it.resource("tx"),
        message_id=half.system_properties.message_id,
        transaction_id=sent[0].entries[0].transaction_id if sent and sent[0].entries else "",
        resolution=v2.COMMIT,
        source=v2.SOURCE_CLIENT,
    )
    it.ask("end", "EndTransaction", end)
    end.transaction_id = "  "
    it.ask("end without an id", "EndTransaction", end)
    end.transaction_id = "unknown"
    it.ask("end of an unknown one", "EndTransaction", end)


def _others(it: Conversation, opened: Opened) -> None:
    recall = calls.RecallMessageRequest(topic=it.resource("normal"), recall_handle="x")
    it.ask("recall from a normal topic", "RecallMessage", recall)
    recall.topic.CopyFrom(it.resource("delay"))
    it.ask("recall by nonsense", "RecallMessage", recall)
    later = it.send(
        "send later again", it.message("delay", kind=v2.DELAY, delivery_ms=int(time.time() * 1000) + 3_600_000)
    )
    recall.recall_handle = later[0].entries[0].recall_handle if later and later[0].entries else ""
    it.ask("recall", "RecallMessage", recall)
    it.ask("pull", "PullMessage", calls.PullMessageRequest(group=it.resource("group")), stream=True)
    it.ask("update an offset", "UpdateOffset", calls.UpdateOffsetRequest(group=it.resource("group")))
    it.ask("get an offset", "GetOffset", calls.GetOffsetRequest(group=it.resource("group")))
    it.ask("query an offset", "QueryOffset", calls.QueryOffsetRequest())
    it.ask("call what is not there", "Nothing", calls.QueryOffsetRequest())
    lite = calls.SyncLiteSubscriptionRequest(
        topic=it.resource("normal"), group=it.resource("group"), lite_topic_set=["l"]
    )
    it.ask("lite subscription", "SyncLiteSubscription", lite, client="s")
    gone = calls.NotifyClientTerminationRequest(group=it.resource("group"))
    it.ask("good-bye of a consumer", "NotifyClientTermination", gone, client="s")
    it.ask("good-bye twice", "NotifyClientTermination", gone, client="s")
    it.ask("good-bye of a producer", "NotifyClientTermination", calls.NotifyClientTerminationRequest())
