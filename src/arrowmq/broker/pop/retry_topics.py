"""Where a message goes that was popped and not acknowledged in time: the retry topic of a group and a topic.

Version 1 is `%RETRY%group_topic`, version 2 (enableRetryTopicV2) `%RETRY%group+topic`, whose parts can be told apart.
A receipt says by its flag which of them, or the topic itself, a message was popped from.
"""

from __future__ import annotations

from arrowmq.broker.names import RETRY_PREFIX
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.wire.bodies import TopicConfig

NORMAL = "0"
RETRY_V1 = "1"
RETRY_V2 = "2"
RETRY_QUEUES = 1


def v1(topic: str, group: str) -> str:
    return f"{RETRY_PREFIX}{group}_{topic}"


def v2(topic: str, group: str) -> str:
    return f"{RETRY_PREFIX}{group}+{topic}"


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def flag_of(topic: str) -> str:
    if not is_retry(topic):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, flag: str) -> str:
    """The topic that a receipt with this flag means, if its client names the normal one."""
    if is_retry(topic) or flag not in (RETRY_V1, RETRY_V2):
        return topic
    return v2(topic, group) if flag == RETRY_V2 else v1(topic, group)


def normal_topic(topic: str, group: str) -> str:
    """The topic whose retries lie in `topic`; a topic that is no retry topic is its own."""
    for prefix in (f"{RETRY_PREFIX}{group}+", f"{RETRY_PREFIX}{group}_"):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class RetryTopics:
    def __init__(self, config: BrokerConfig, topics: Topics, offsets: ConsumerOffsets) -> None:
        self.config = config
        self.topics = topics
        self.offsets = offsets

    def written(self, topic: str, group: str) -> str:
        """The name under which retries are stored now."""
        if is_retry(topic):
            return topic
        return v2(topic, group) if self.config.enable_retry_topic_v2 else v1(topic, group)

    def all_read(self, topic: str, group: str) -> list[str]:
        """Every name under which retries may lie."""
        if not self.config.enable_retry_topic_v2:
            return [v1(topic, group)]
        if not self.config.retrieve_message_from_pop_retry_topic_v1:
            return [v2(topic, group)]
        return [v2(topic, group), v1(topic, group)]

    def ensure(self, name: str, group: str) -> TopicConfig:
        """The retry topic, made if it is not there; with useSeparateRetryQueue as wide as its topic."""
        queues = RETRY_QUEUES
        if self.config.use_separate_retry_queue:
            normal = self.topics.get(normal_topic(name, group))
            queues = RETRY_QUEUES if normal is None else max(RETRY_QUEUES, normal.write_queue_nums)
        found = self.topics.get(name)
        if found is None:
            found = self.topics.create_internal(name, queues)
        elif found.write_queue_nums < queues:
            found.read_queue_nums = found.write_queue_nums = queues
            self.topics.widened(found)
        for queue_id in range(found.read_queue_nums):
            if self.offsets.get(group, name, queue_id) is None:
                self.offsets.commit(group, name, queue_id, 0)
        return found

    def queue_of(self, retry: TopicConfig, queue_id: int) -> int:
        if not self.config.use_separate_retry_queue or queue_id >= retry.write_queue_nums:
            return 0
        return queue_id
