"""Giving a message back to the broker, which delivers it again later and at last puts it among the dead letters.

Three ways, each tried when the one before fails: the broker copies the message by itself (CONSUMER_SEND_MSG_BACK); this
client sends it to the group's retry topic; it stays here and is handed out again. In none of them is it lost.
"""

from __future__ import annotations

import logging

from arrowmq.client import names
from arrowmq.client.consume.group.offsets import broker_address
from arrowmq.client.errors import ArrowMQError
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.produce.outgoing import Message, Packed
from arrowmq.client.produce.sending import Sender
from arrowmq.client.session import Session
from arrowmq.wire import properties as prop
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command

log = logging.getLogger("arrowmq.client")

DEFAULT_MAX_RECONSUME_TIMES = 16
SEND_BACK_TIMEOUT_S = 5.0
FIRST_RETRY_LEVEL = 3


class Returns:
    def __init__(self, session: Session, group: str, max_reconsume_times: int) -> None:
        self._session = session
        self._group = group
        self.max_reconsume_times = max_reconsume_times
        self._sender = Sender(session, names.CLIENT_INNER_PRODUCER, retries=2)

    @property
    def _limit(self) -> int:
        return self.max_reconsume_times if self.max_reconsume_times >= 0 else DEFAULT_MAX_RECONSUME_TIMES

    async def give_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """True when the broker has it; False when it must stay here for now."""
        assert message.source is not None
        ext = {
            "offset": str(message.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.msg_id,
            "originTopic": message.record.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(self._limit),
            "bname": message.broker_name,
        }
        try:
            address = await broker_address(self._session, message.source.queue)
            request = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
            await self._session.ask(address, request, f"giving back {message!r}", SEND_BACK_TIMEOUT_S)
            return True
        except ArrowMQError as error:
            log.warning("%s; sending it to the retry topic instead", error)
        return await self.send_to_retry_topic(message)

    async def send_to_retry_topic(self, message: ReceivedMessage) -> bool:
        """As an ordinary message that says how often it was tried; over the limit the broker makes it a dead letter."""
        properties = dict(message.properties)
        properties.setdefault(prop.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[prop.RETRY_TOPIC] = message.properties.get(prop.RETRY_TOPIC) or message.record.topic
        properties[prop.RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[prop.MAX_RECONSUME_TIMES] = str(self._limit)
        properties[prop.DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        for name in (prop.TRAN_MSG, prop.PGROUP, prop.TRANSACTION_ID, prop.MIN_OFFSET, prop.MAX_OFFSET):
            properties.pop(name, None)
        topic = names.retry_topic(self._group)
        body = message.record.body
        packed = Packed(
            Message(topic, body, flag=message.flag), topic, body, properties, message.sys_flag, message.msg_id
        )
        try:
            await self._sender.send(packed, SEND_BACK_TIMEOUT_S)
            return True
        except ArrowMQError as error:
            log.warning("%s; keeping the message here", error)
            return False
