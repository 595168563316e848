"""Receipt handles: what a client needs to acknowledge a message, and any proxy or broker to understand it.

The text is that of RocketMQ's pop (`wire.headers.pop.Receipt`) with the commit log offset at its end.
"""

from __future__ import annotations

from arrowmq.proxy.faults import Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire.errors import HeaderError
from arrowmq.wire.headers.pop import PopMessageResult, Receipt, parse_offset_info, parse_receipt
from arrowmq.wire.records import Record

RETRY_PREFIX = "%RETRY%"


def parse_handle(text: str) -> Receipt:
    try:
        return parse_receipt(text)
    except HeaderError:
        raise Fault(v2.INTERNAL_SERVER_ERROR, "Parse failed, dataList size " + str(text.count(" ") + 1)) from None


def check_not_expired(receipt: Receipt, now_ms: int) -> None:
    if receipt.pop_time + receipt.invisible_time <= now_ms:
        raise Fault(v2.INVALID_RECEIPT_HANDLE, "receipt handle is expired")


def real_topic(receipt: Receipt, topic: str, group: str) -> str:
    """The topic that the message lies in: the one that was asked for, or the group's retry topic of it."""
    if receipt.retry_flag == "1":
        return f"{RETRY_PREFIX}{group}_{topic}"
    if receipt.retry_flag == "2":
        return f"{RETRY_PREFIX}{group}+{topic}"
    return topic


class Receipts:
    """The receipts of the messages of one pop."""

    def __init__(self, result: PopMessageResult, broker: str) -> None:
        self._result, self._broker = result, broker
        self._starts = parse_offset_info(result.start_offset_info)
        self._offsets = parse_offset_info(result.msg_offset_info)
        self._counts = parse_offset_info(result.order_count_info)
        #: Messages stand in the order of their queue's offsets in the text, which of a static topic are not their own.
        self._taken: dict[tuple[str, str], int] = {}

    def of(self, record: Record) -> Receipt:
        own = record.property("POP_CK")  # of a message from a retry topic: the broker has written it
        if own is not None:
            return parse_handle(own)._replace(commit_log_offset=record.physical_offset)
        key = (_flag(record.topic), str(record.queue_id))
        offset = record.queue_offset
        known = self._offsets.get(key)
        if known:
            position = self._taken.get(key, 0)
            self._taken[key] = position + 1
            if offset not in known and position < len(known):
                offset = known[position]
        starts = self._starts.get(key)
        return Receipt(
            starts[0] if starts else offset,
            self._result.pop_time,
            self._result.invisible_time,
            self._result.revive_qid,
            key[0],
            self._broker,
            record.queue_id,
            offset,
            record.physical_offset,
        )

    def reconsume_times(self, record: Record) -> int:
        """Of ordered messages the broker counts the deliveries by itself."""
        if self._counts:
            flag, queue = _flag(record.topic), str(record.queue_id)
            found = self._counts.get((flag, f"qo{queue}%{record.queue_offset}")) or self._counts.get((flag, queue))
            if found and found[0] > 0:
                return found[0]
        return record.reconsume_times


def _flag(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"
