"""Delivering what waited: the copy of a waiting message that its own topic gets, and whether it got it already."""

from __future__ import annotations

from arrowmq.broker.names import HALF_TOPIC
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_types import DELAY
from arrowmq.broker.topics.table import Topics
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.records import Record, decode_record

STORED = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT}
)
# No second try can help a message that the store refuses for what it is.
HOPELESS = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
_STAMPS = frozenset({keys.TIMER_ENQUEUE_MS, keys.TIMER_DEQUEUE_MS, keys.TIMER_ROLL_TIMES})


class Poisoned(Exception):
    """A waiting message that can never be delivered: it is skipped and said in the log."""


def delivered_copy(waiting: Record) -> Record:
    """The message as its topic gets it.

    The properties stay as they are, DELAY and REAL_TOPIC included: consumers of Apache's broker see them too.
    """
    topic, queue_text = waiting.properties.get(keys.REAL_TOPIC), waiting.properties.get(keys.REAL_QID, "")
    if not topic or not queue_text.isdecimal():
        raise Poisoned(f"it does not say where it belongs (REAL_TOPIC={topic}, REAL_QID={queue_text})")
    if topic == HALF_TOPIC:
        raise Poisoned("half messages are not delayed")
    return Record(
        topic=topic,
        queue_id=int(queue_text),
        flag=waiting.flag,
        sys_flag=waiting.sys_flag,
        born_timestamp=waiting.born_timestamp,
        born_host=waiting.born_host,
        store_host=waiting.store_host,
        reconsume_times=waiting.reconsume_times,
        body=waiting.body,
        properties_raw=waiting.properties_raw,
    )


def make_known(topics: Topics, message: Record) -> None:
    """A topic made by a message that had to wait may have been forgotten by a crash before it was written down."""
    if topics.get(message.topic) is None:
        topics.adopt({message.topic: [message.queue_id]})


def deliver(store: MessageStore, topics: Topics, stats: BrokerStats, copy: Record) -> Put:
    """Puts the copy of a message that has waited to its topic; raises `Poisoned` if no second try can help it."""
    make_known(topics, copy)
    put = store.put(copy)
    if put.status in HOPELESS:
        raise Poisoned(put.reason or put.status.name)
    if put.status in STORED:
        stats.put(copy.topic, copy.queue_id, 1, put.size, DELAY)
    return put


def is_delivered(store: MessageStore, waiting: Record, copy: Record) -> bool:
    """Whether the log has the delivered copy, whatever the clock said. Asked only for what may have been delivered:
    by a crashed process, or before the clock was set back."""
    unique_id = waiting.properties.get(keys.UNIQ_KEY)
    if not unique_id:
        return False
    wanted = _unstamped(waiting)
    later = store.query(copy.topic, unique_id, 64, after=waiting.physical_offset)
    for found in map(decode_record, later):
        if (
            (found.topic, found.queue_id) == (copy.topic, copy.queue_id)
            and found.reconsume_times == waiting.reconsume_times
            and found.body == waiting.body
            and _unstamped(found) == wanted
        ):
            return True
    return False


def _unstamped(record: Record) -> dict[str, str]:
    return {name: text for name, text in record.properties.items() if name not in _STAMPS}
