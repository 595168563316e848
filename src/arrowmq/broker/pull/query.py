"""Looking up messages: by key, by unique id, and by the place in the log that an offset message id names."""

from __future__ import annotations

from arrowmq.auth.guard import Guard
from arrowmq.auth.resources import Action
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import MessageStore
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import QueryMessage, ViewMessage
from arrowmq.wire.records import decode_record


class QueryService:
    def __init__(self, config: BrokerConfig, store: MessageStore, guard: Guard) -> None:
        self.config = config
        self.store = store
        self.guard = guard

    @handles(RequestCode.QUERY_MESSAGE)
    def query(self, request: QueryMessage) -> Answer:
        """Records whose key has the hash of the one asked for; clients compare the keys themselves."""
        wanted = self.config.default_query_max_num if request.unique_key_query else request.max_num
        wanted = min(wanted, self.config.max_msgs_num_batch)
        records = self.store.query(request.topic, request.key, wanted, request.begin_timestamp, request.end_timestamp)
        if self.guard.is_on:  # a key can be made to have the hash of another topic's key
            records = [record for record in records if decode_record(record).topic == request.topic]
        index = self.store.index.tail
        header = {
            "indexLastUpdateTimestamp": str(index.end_timestamp),
            "indexLastUpdatePhyoffset": str(index.end_physical),
        }
        if not records:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", header)
        return Answer(header=header, body=b"".join(records))

    @handles(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, request: ViewMessage, call: Call) -> Answer:
        record = self.store.record_bytes_at(request.offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {request.offset}")
        if self.guard.is_on:
            self.guard.require_topic(call, decode_record(record).topic, Action.GET)
        return Answer(body=bytes(record))
