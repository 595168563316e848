"""Request and reply over topics: the asker's broker pushes the reply to the asking client."""

from __future__ import annotations

import asyncio
import logging
import uuid

from arrowmq.client.errors import InvalidUse, ReplyTimedOut
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.session import Session
from arrowmq.remoting.handlers import Answer, Call, Outcome
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.properties import encode_properties, parse_properties
from arrowmq.wire.records import Record

log = logging.getLogger("arrowmq.client")


class Replies:
    """Requests of this client that wait for a reply, by their correlation id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        session.remoting.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._arrived)

    def request_properties(self, timeout_s: float) -> dict[str, str]:
        return {
            prop.CORRELATION_ID: str(uuid.uuid4()),
            prop.REPLY_TO_CLIENT: self._session.client_id,
            prop.TTL: str(round(timeout_s * 1000)),
        }

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        reply.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return reply

    async def wait(self, reply: asyncio.Future[ReceivedMessage], topic: str, timeout_s: float) -> ReceivedMessage:
        try:
            async with asyncio.timeout(timeout_s):
                return await reply
        except TimeoutError as late:
            raise ReplyTimedOut(
                f"the request to {topic} is stored, but nobody replied within {timeout_s:g} s: "
                "is a consumer of that topic running, and does it reply?"
            ) from late

    def _arrived(self, call: Call) -> Outcome:
        ext = call.ext
        properties = parse_properties(ext.get("properties", ""))
        correlation_id = properties.get(prop.CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            log.warning("a reply came that nobody waits for (any more): correlation id %s", correlation_id)
        else:
            waiting.set_result(ReceivedMessage(_record(ext, properties, call.body), ext.get("bname", "")))
        return Answer()


def _record(ext: dict[str, str], properties: dict[str, str], body: bytes) -> Record:
    return Record(
        topic=ext.get("topic", ""),
        queue_id=int(ext.get("queueId", "0")),
        flag=int(ext.get("flag", "0")),
        sys_flag=int(ext.get("sysFlag", "0")),
        born_timestamp=int(ext.get("bornTimestamp", "0")),
        store_timestamp=int(ext.get("storeTimestamp", "0")),
        reconsume_times=int(ext.get("reconsumeTimes") or "0"),
        body=bytes(body),
        properties_raw=encode_properties(properties),
    )


def reply_properties(request: ReceivedMessage) -> tuple[str, dict[str, str]]:
    """The topic and the properties that take a reply to whoever sent the request."""
    asked = request.properties
    cluster, correlation = asked.get(prop.CLUSTER), asked.get(prop.CORRELATION_ID)
    if not cluster or not correlation or not asked.get(prop.REPLY_TO_CLIENT):
        raise InvalidUse(f"{request!r} was not sent with Producer.request: there is nobody to reply to")
    properties = {
        prop.MSG_TYPE: "reply",
        prop.CORRELATION_ID: correlation,
        prop.REPLY_TO_CLIENT: asked[prop.REPLY_TO_CLIENT],
        prop.TTL: asked.get(prop.TTL, "3000"),
    }
    return f"{cluster}_REPLY_TOPIC", properties
