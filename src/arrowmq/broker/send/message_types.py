"""Message types: a topic may say which kind of message it is for (`message.type`), and others are then refused.

Apache's broker stores the attribute and leaves the check to its proxy. Here enableTopicMessageTypeCheck=true makes the
broker itself check every send; the default is Apache's.
"""

from __future__ import annotations

from collections.abc import Mapping

from arrowmq.broker import names
from arrowmq.broker.send.message_path import MessagePath
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import MESSAGE_TYPE, Topics
from arrowmq.remoting.handlers import Refused
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import SendMessage
from arrowmq.wire.records import Record

NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY = "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"
ANY_TYPE = frozenset({"UNSPECIFIED", "MIXED"})
_DELAYS = (keys.DELAY, keys.TIMER_DELIVER_MS, keys.TIMER_DELAY_SEC, keys.TIMER_DELAY_MS)


def message_type(properties: Mapping[str, str]) -> str:
    """The type of a message, as its properties show it."""
    if properties.get(keys.TRAN_MSG, "").lower() == "true":
        return TRANSACTION
    if any(properties.get(name) not in (None, "", "0") for name in _DELAYS):
        return DELAY
    if keys.SHARDING_KEY in properties:
        return FIFO
    return PRIORITY if keys.PRIORITY in properties else NORMAL


class MessageTypeCheck:
    def __init__(self, config: BrokerConfig, topics: Topics, path: MessagePath) -> None:
        self.topics = topics
        if config.enable_topic_message_type_check:
            # Which topics it is about is a matter of their attributes, which change: all of them.
            path.rules.add(self.rule)
            path.batch_rules.add(self.rule)

    def rule(self, request: SendMessage, record: Record) -> None:
        topic = self.topics.get(record.topic)
        expected = (topic.attributes or {}).get(MESSAGE_TYPE) if topic is not None else None
        if expected is None or expected in ANY_TYPE or names.is_retry_or_dlq(record.topic):
            return
        actual = message_type(record.properties)
        if actual != expected:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}: "
                f"topic[{record.topic}] takes {expected} messages only (attribute {MESSAGE_TYPE})",
            )
