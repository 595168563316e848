"""Messages with a priority (RIP-80): the priority is the queue, and pop reads the highest queue first.

Of a message that is more than that (delayed, ordered, of a transaction) the priority is taken off.
"""

from __future__ import annotations

from arrowmq.broker.send.message_path import MessagePath, set_properties
from arrowmq.broker.send.message_types import PRIORITY, message_type
from arrowmq.broker.topics.table import Topics
from arrowmq.touches import Touches
from arrowmq.wire import properties as keys
from arrowmq.wire.headers import SendMessage
from arrowmq.wire.records import Record


class MessagePriorities:
    def __init__(self, topics: Topics, path: MessagePath) -> None:
        self.topics = topics
        path.rules.add(self.rule, Touches(properties=(keys.PRIORITY,)))

    def rule(self, request: SendMessage, record: Record) -> None:
        text = record.properties.get(keys.PRIORITY)
        if text is None or not text.isdecimal():
            return
        topic = self.topics.get(record.topic)
        if topic is not None and message_type(record.properties) == PRIORITY:
            # The answer names this queue, too
            record.queue_id = request.queue_id = max(0, min(int(text), topic.write_queue_nums - 1))
            return
        properties = dict(record.properties)
        del properties[keys.PRIORITY]
        set_properties(record, properties)
