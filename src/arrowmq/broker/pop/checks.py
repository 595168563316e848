"""Who may pop what: Apache's checks in Apache's order, with the reason added."""

from __future__ import annotations

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.apache_remarks import with_faq
from arrowmq.broker.groups.subscriptions import compiled
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.pop.retry_topics import is_retry, real_topic
from arrowmq.broker.settings.config import READ, BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.filter import FilterError
from arrowmq.remoting.channel import Channel
from arrowmq.remoting.handlers import Refused
from arrowmq.store import MessageStore
from arrowmq.store.results import EntryFilter
from arrowmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.headers import PopMessage
from arrowmq.wire.headers.pop import Receipt

MOST_MESSAGES = 32
LATE_MS = 500


class PopChecks:
    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        clock: Clock,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.topics = topics
        self.groups = groups
        self.clock = clock

    def pop(self, request: PopMessage, client: Channel) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        now_ms = self.clock.now_ms()
        if not request.born_time:
            request.born_time = now_ms
        here = f"the broker[{self.address.host}]"
        if now_ms - request.born_time - request.poll_time > LATE_MS:
            raise Refused(ResponseCode.POLLING_TIMEOUT, f"{here} pop message is timeout too much")
        self._broker_is_readable(f"{here} pop message is forbidden")
        if request.max_msg_nums > MOST_MESSAGES:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{here} pop message's num is greater than {MOST_MESSAGES}")
        if not self.config.timer_wheel_enable:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"{here} pop message is forbidden because timerWheelEnable is false"
            )
        self.invisible_time(request.invisible_time)
        if request.max_msg_nums < 1:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{here} pop message's num is less than 1")
        return self.readable(request.topic, request.queue_id, request.consumer_group, client)

    def invisible_time(self, invisible_ms: int) -> None:
        """Longer than the timer keeps a message, Apache's broker cannot keep it invisible either."""
        longest_s = self.config.timer_max_delay_sec
        if not 0 <= invisible_ms <= longest_s * 1000:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime={invisible_ms} is not between 0 and {longest_s * 1000} ms (timerMaxDelaySec)",
            )

    def ask(
        self, topic: str, queue_id: int, group: str, client: Channel
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """Of NOTIFICATION, PEEK_MESSAGE and POLLING_INFO."""
        self._broker_is_readable(f"the broker[{self.address.host}] peeking message is forbidden")
        return self.readable(topic, queue_id, group, client)

    def _broker_is_readable(self, remark: str) -> None:
        if not self.config.is_readable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{remark}: brokerPermission is {self.config.broker_permission}, without read",
            )

    def readable(
        self, topic: str, queue_id: int, group: str, client: Channel
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        config = self._topic(topic)
        if not config.perm & READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] peeking message is forbidden: its perm is {config.perm}, without read",
            )
        if queue_id >= config.read_queue_nums:
            raise Refused(ResponseCode.INVALID_PARAMETER, _wrong_queue(queue_id, config, client))
        settings = self.groups.find(group)
        if settings is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                with_faq(f"subscription group [{group}] does not exist, {self.groups.why_not_created(group)}"),
            )
        if not settings.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}: its consumeEnable is false"
            )
        return config, settings

    def _topic(self, topic: str) -> TopicConfig:
        config = self.topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                with_faq(
                    f"topic[{topic}] not exist, apply first please! Only a first message or an administrator "
                    f"creates a topic, for example with `arrowmq topic create {topic}`"
                ),
            )
        return config

    def filter_of(self, kind: str | None, expression: str | None) -> EntryFilter | None:
        if not expression:
            return None
        try:
            return compiled(kind, expression)
        except FilterError as fault:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {fault}"
            ) from fault

    def receipt(
        self, topic: str, group: str, queue_id: int, offset: int, receipt: Receipt, client: Channel, *, may_be_end: bool
    ) -> str:
        """Of an ack and a change of the invisible time: the topic that the message was popped from."""
        config = self._topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, _wrong_queue(queue_id, config, client))
        # A client may name the normal topic although the receipt says that the message is a retry
        real = topic if is_retry(topic) else real_topic(topic, group, receipt.retry_flag)
        lowest, highest = self.store.min_offset(real, queue_id), self.store.max_offset(real, queue_id)
        if not lowest <= offset <= (highest if may_be_end else highest - 1):
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{real}@{queue_id}, commit:{offset}, store:{lowest}~{highest}",
            )
        return real


def _wrong_queue(queue_id: int, topic: TopicConfig, client: Channel) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{client.peer_text}]"
    )
