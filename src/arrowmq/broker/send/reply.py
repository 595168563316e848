"""Request and reply: a consumer's answer to a message goes back to the very client that sent it.

The asking client is known by its id (REPLY_TO_CLIENT) and is connected to this broker as a producer. The reply is
pushed to it over that connection; whether it took it is the answer to the replying side. The reply is stored as well.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.clients.table import Clients
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused, set_properties
from arrowmq.broker.send.service import SendService
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, handles
from arrowmq.store import PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ReplyMessage, SendMessage
from arrowmq.wire.properties import properties_text
from arrowmq.wire.records import Record

log = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0


@dataclass(eq=False, repr=False)
class ReplyService:
    config: BrokerConfig
    address: BrokerAddress
    clients: Clients
    sends: SendService
    path: MessagePath
    stats: BrokerStats
    clock: Clock

    @handles(RequestCode.SEND_REPLY_MESSAGE)
    @handles(RequestCode.SEND_REPLY_MESSAGE_V2, read=SendMessage.from_v2_ext)
    async def reply(self, request: SendMessage, call: Call) -> Answer:
        topic = self.sends.check(request, call)
        record = self.sends.record_of(request, call, topic)
        # A reply is for one client: unlike other messages it does not say in which cluster to answer it.
        set_properties(record, {name: text for name, text in record.properties.items() if name != keys.CLUSTER})
        failure = await self._push(request, record, call)
        header = self.sends.region()
        header["queueId"] = str(request.queue_id)
        header["queueOffset"] = "0"
        header["msgId"] = ""
        if self.config.store_reply_message_enable:
            self._store(record, header)
        if failure is not None:
            return Answer(ResponseCode.SYSTEM_ERROR, header, remark=failure)
        return Answer(header=header)

    async def _push(self, request: SendMessage, record: Record, call: Call) -> str | None:
        """Pushes the reply to the client that waits for it. Why that failed, or None."""
        client_id = record.properties.get(keys.REPLY_TO_CLIENT)
        if not client_id:
            return f"reply message properties[{keys.REPLY_TO_CLIENT}] is null"
        waiting = self.clients.producer_of(client_id)
        if waiting is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self.clock.now_ms()
        born_ip, born_port = record.born_host
        header = ReplyMessage(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=properties_text({**record.properties, keys.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=request.reconsume_times,
            unit_mode=request.unit_mode,
            born_host=f"{ipaddress.ip_address(born_ip)}:{born_port}",
            store_host=f"{ipaddress.ip_address(self.address.ip)}:{self.address.port}",
            store_timestamp=now_ms,
        )
        command = Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, call.body)
        try:
            answer = await waiting.connection.request(command, PUSH_TIMEOUT_S)
        except RemotingError as failure:
            return f"push reply message to {client_id} fail. {failure}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. It answered {answer.code}: {answer.remark}"
        return None

    def _store(self, record: Record, header: dict[str, str]) -> None:
        """Keeps the reply as a message, too. That it cannot be kept does not undo that it was delivered."""
        queue_id = record.queue_id
        try:
            put = self.path.put(record)
        except PutRefused as refused:
            log.warning("a reply was not stored: %s", refused.reason)
            return
        if put.status is not PutStatus.PUT_OK:
            log.warning("a reply was not stored: %s", put.reason or put.status.name)
            return
        self.stats.put(record.topic, queue_id, 1, put.size)
        header["msgId"] = self.address.message_id(put.physical_offset)
        header["queueOffset"] = str(put.queue_offset)
