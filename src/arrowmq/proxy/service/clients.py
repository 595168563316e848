"""The clients of this proxy, by the id that each gives itself.

A client is known from its first Settings until it says good-bye, or nothing was heard of it for
`channelExpiredTimeout`. Its Telemetry stream may break and come again meanwhile; the newest one counts. To a broker in
this process it is a `Channel` like any other: what a broker tells or asks its clients is translated here to commands on
that stream.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service.message_form import message_of
from arrowmq.remoting.address import format_address
from arrowmq.remoting.errors import ConnectionLost, RequestTimeout
from arrowmq.wire import fastjson
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode, RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.records import decode_record

if TYPE_CHECKING:
    from arrowmq.proxy.grpc.call import Call
    from arrowmq.remoting.channel import Channel

log = logging.getLogger(__name__)

#: Unread commands that may wait for one client; more are dropped, brokers ask again
MAX_UNSENT_BYTES = 1024 * 1024
MAX_QUESTIONS = 64

CheckOf = Callable[["Client", Command], object]


class Client:
    """One client. Compared by identity, as every `Channel`."""

    def __init__(self, client_id: str, on_check: CheckOf) -> None:
        self.client_id = client_id
        self.attributes: dict[str, Any] = {}
        self.language = LanguageCode.OTHER
        self.version = CURRENT_VERSION
        self.version_text = ""
        self.settings: v2.Settings | None = None  # as the client gave them
        self.merged: v2.Settings | None = None  # as it was told
        self.peer: tuple[str, int] = ("", 0)
        self.closed = False
        self.heard_at = 0.0
        self.transaction_topics: set[str] = set()
        self._on_check = on_check
        self._telemetry: Call | None = None
        self._close_callbacks: list[Callable[[Channel], object]] = []
        self._questions: dict[str, asyncio.Future[Command]] = {}
        self._nonces = itertools.count(1)

    def __repr__(self) -> str:
        return f"<gRPC client {self.client_id} at {self.peer_text}>"

    @property
    def peer_text(self) -> str:
        return format_address(*self.peer)

    @property
    def group(self) -> str:
        """The consumer group; empty for a producer."""
        return "" if self.settings is None else self.settings.subscription.group.name

    @property
    def topics(self) -> list[str]:
        """What a producer says it sends to."""
        return [] if self.settings is None else [topic.name for topic in self.settings.publishing.topics]

    @property
    def is_consumer(self) -> bool:
        return self.settings is not None and self.settings.WhichOneof("pub_sub") == "subscription"

    @property
    def is_reachable(self) -> bool:
        return self._telemetry is not None and not self._telemetry.is_ended

    # --- the Telemetry stream ----------------------------------------------------------------------------------------

    def use(self, telemetry: Call) -> None:
        """The newest stream is the one that commands go to."""
        self._telemetry = telemetry

    def send(self, command: calls.TelemetryCommand) -> bool:
        """False if it cannot be told now."""
        telemetry = self._telemetry
        if telemetry is None or telemetry.is_ended or telemetry.unsent > MAX_UNSENT_BYTES:
            return False
        telemetry.send(command)
        return True

    def answered(self, nonce: str, status: v2.Status, trace: str | None) -> None:
        """What came back for a question of ours."""
        question = self._questions.pop(nonce, None)
        if question is None or question.done():
            return
        if trace is not None:
            if status.code == v2.OK:
                body = fastjson.dumps({"jstack": trace, "properties": {}, "subscriptionSet": [], "mqTable": {}})
                question.set_result(Command(ResponseCode.SUCCESS, remark="", body=body))
            else:
                question.set_result(Command(ResponseCode.SYSTEM_ERROR, remark=status.message or "it says no"))
            return
        outcomes = {
            int(v2.OK): "CR_SUCCESS",
            int(v2.FAILED_TO_CONSUME_MESSAGE): "CR_LATER",
            int(v2.MESSAGE_CORRUPTED): "CR_RETURN_NULL",
        }
        result: dict[str, object] = {
            "autoCommit": True,
            "order": False,
            "remark": "from gRPC client",
            "spentTimeMills": 0,
        }
        if int(status.code) in outcomes:
            result["consumeResult"] = outcomes[int(status.code)]
        question.set_result(Command(ResponseCode.SUCCESS, remark="", body=fastjson.dumps(result)))

    # --- as a channel of a broker ------------------------------------------------------------------------------------

    def on_close(self, callback: Callable[[Channel], object]) -> None:
        if self.closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for question in self._questions.values():
            if not question.done():
                question.set_exception(ConnectionLost(self.peer_text, f"{self.client_id} is gone"))
        self._questions.clear()
        if self._telemetry is not None:
            self._telemetry.end()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    def send_oneway(self, command: Command) -> None:
        """Of what brokers tell their clients, a gRPC client needs to hear only of half messages: it has no queues of
        its own that others could take over."""
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._on_check(self, command)

    async def request(self, command: Command, timeout_s: float) -> Command:
        question = calls.TelemetryCommand()
        nonce = f"{self.client_id}-{next(self._nonces)}"
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            question.print_thread_stack_trace_command.nonce = nonce
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            try:
                record = decode_record(command.body)
            except WireError as error:
                return Command(ResponseCode.SYSTEM_ERROR, remark=f"the message cannot be read: {error}")
            message = message_of(record, record.topic, None, record.reconsume_times, record.store_timestamp)
            question.verify_message_command.nonce = nonce
            question.verify_message_command.message.CopyFrom(message)
        else:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="a gRPC client cannot be asked this")
        if len(self._questions) >= MAX_QUESTIONS:
            return Command(ResponseCode.SYSTEM_BUSY, remark=f"{self.client_id} has not answered earlier questions")
        if not self.send(question):
            raise ConnectionLost(self.peer_text, f"{self.client_id} has no open Telemetry stream")
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._questions[nonce] = answer
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise RequestTimeout(self.peer_text, f"{self.client_id} did not answer within {timeout_s:g} s") from None
        finally:
            self._questions.pop(nonce, None)


class ClientTable:
    def __init__(self, on_check: CheckOf) -> None:
        self._on_check = on_check
        self._clients: dict[str, Client] = {}
        #: topic → its producers; for half messages whose sender is to be asked
        self._producers: dict[str, dict[Client, None]] = {}
        self._turn = itertools.count()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Any:
        return iter(list(self._clients.values()))

    def get(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def obtain(self, client_id: str) -> Client:
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = Client(client_id, self._on_check)
        return client

    def remove(self, client: Client) -> None:
        if self._clients.get(client.client_id) is client:
            del self._clients[client.client_id]
        for topic in list(self._producers):
            self._producers[topic].pop(client, None)
            if not self._producers[topic]:
                del self._producers[topic]
        client.close()

    def produces(self, client: Client, topic: str) -> None:
        self._producers.setdefault(topic, {})[client] = None

    def producer_of(self, topic: str) -> Client | None:
        """One of the producers that can be asked now, another one each time."""
        reachable = [client for client in self._producers.get(topic, ()) if client.is_reachable]
        return reachable[next(self._turn) % len(reachable)] if reachable else None

    def expired(self, now: float, after_s: float) -> list[Client]:
        return [client for client in self._clients.values() if now - client.heard_at > after_s]
