"""Settings, told both ways on the Telemetry stream: the client's own, with the server's written over them."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.remoting.address import parse_address
from arrowmq.wire.bodies.groups import GroupRetryPolicy, SubscriptionGroupConfig

#: How long after each attempt the next one comes, where a group has no policy of its own
LITE_QUOTA, MAX_LITE_TOPIC = 2000, 64
DEFAULT_BACKOFF_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
#: Python's client reads whole seconds, and a strategy must be there for Java's
DEFAULT_GROUP = SubscriptionGroupConfig()


def merged(config: ProxyConfig, given: v2.Settings, group: SubscriptionGroupConfig | None) -> v2.Settings:
    """What the client is told to use."""
    settings = v2.Settings()
    settings.CopyFrom(given)
    if given.WhichOneof("pub_sub") == "publishing":
        _for_producer(config, settings)
    else:
        _for_consumer(config, settings, group or DEFAULT_GROUP)
    settings.metric.CopyFrom(_metric(config, given))
    return settings


def _for_producer(config: ProxyConfig, settings: v2.Settings) -> None:
    policy = settings.backoff_policy
    policy.max_attempts = config.grpc_client_producer_max_attempts
    _set_ms(policy.exponential_backoff.initial, config.grpc_client_producer_backoff_initial_millis)
    _set_ms(policy.exponential_backoff.max, config.grpc_client_producer_backoff_max_millis)
    policy.exponential_backoff.multiplier = config.grpc_client_producer_backoff_multiplier
    settings.publishing.validate_message_type = config.enable_topic_message_type_check
    settings.publishing.max_body_size = config.max_message_size


def _for_consumer(config: ProxyConfig, settings: v2.Settings, group: SubscriptionGroupConfig) -> None:
    subscription = settings.subscription
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    _set_ms(subscription.long_polling_timeout, config.grpc_client_consumer_max_long_polling_timeout_millis)
    subscription.fifo = group.consume_message_orderly
    # Of lite topics, which are not here; Apache's proxy tells every consumer.
    subscription.lite_subscription_quota, subscription.max_lite_topic_size = LITE_QUOTA, MAX_LITE_TOPIC
    policy = settings.backoff_policy
    policy.max_attempts = group.retry_max_times + 1
    retry = group.group_retry_policy or GroupRetryPolicy()
    if retry.type == "EXPONENTIAL":
        exponential = retry.exponential_retry_policy
        _set_ms(policy.exponential_backoff.initial, exponential.initial if exponential else 5000)
        _set_ms(policy.exponential_backoff.max, exponential.max if exponential else 7_200_000)
        policy.exponential_backoff.multiplier = exponential.multiplier if exponential else 2
        return
    policy.customized_backoff.ClearField("next")
    for millis in retry_delays_ms(group):
        _set_ms(policy.customized_backoff.next.add(), millis)


def retry_delays_ms(group: SubscriptionGroupConfig) -> list[int]:
    retry = group.group_retry_policy
    customized = retry.customized_retry_policy if retry is not None else None
    if customized is not None and customized.next:
        return list(customized.next)
    return [seconds * 1000 for seconds in DEFAULT_BACKOFF_S]


def retry_delay_ms(group: SubscriptionGroupConfig | None, reconsume_times: int) -> int:
    """When a message that was delivered so often comes again."""
    group = group or DEFAULT_GROUP
    retry = group.group_retry_policy
    if retry is not None and retry.type == "EXPONENTIAL":
        exponential = retry.exponential_retry_policy
        first, most, factor = (
            (exponential.initial, exponential.max, exponential.multiplier) if exponential else (5000, 7_200_000, 2)
        )
        return int(min(most, first * factor ** min(max(reconsume_times, 0), 32)))
    delays = retry_delays_ms(group)
    # The first two of the table are passed over, as Apache's retries begin with the third level.
    return delays[min(max(reconsume_times, 0) + 2, len(delays) - 1)]


def _metric(config: ProxyConfig, given: v2.Settings) -> v2.Metric:
    metric = v2.Metric()
    mode = config.metric_collector_mode.lower()
    if mode == "on":
        host, port = parse_address(config.metric_collector_address)
        metric.on = True
        metric.endpoints.scheme = v2.IPv4
        metric.endpoints.addresses.add(host=host, port=port)
    elif mode == "proxy":
        metric.on = True
        metric.endpoints.CopyFrom(given.access_point)
    return metric


def _set_ms(duration: Duration, millis: int) -> None:
    duration.seconds, duration.nanos = millis // 1000, millis % 1000 * 1_000_000
