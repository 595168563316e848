"""The names, types, labels and buckets of Apache's metrics, as its broker 5.5.0 showed them after the same scene."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import metered
import pytest
from prometheus_client.parser import text_string_to_metric_families

from arrowmq.server import Node, build_node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
NOT_HERE: dict[str, str] = {}
# Labels that only ours have: which messages went out of a retry topic is asked often.
FURTHER_LABELS = {"rocketmq_messages_out": ["is_retry"], "rocketmq_throughput_out": ["is_retry"]}
# As RocketMQ's documentation lists them: without the unit that its exporter adds today.
DOCUMENTED = {
    "rocketmq_processor_watermark", "rocketmq_broker_permission", "rocketmq_topic_number",
    "rocketmq_consumer_group_number", "rocketmq_messages_in", "rocketmq_messages_out", "rocketmq_throughput_in",
    "rocketmq_throughput_out", "rocketmq_message_size", "rocketmq_topic_create_execution_time",
    "rocketmq_consumer_group_create_execution_time", "rocketmq_producer_connections", "rocketmq_consumer_connections",
    "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency", "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_queueing_latency", "rocketmq_consumer_ready_messages", "rocketmq_send_to_dlq_messages",
    "rocketmq_commit_messages", "rocketmq_rollback_messages", "rocketmq_finish_message_latency",
    "rocketmq_half_messages", "rocketmq_rpc_latency", "rocketmq_storage_size", "rocketmq_storage_flush_behind_bytes",
    "rocketmq_storage_dispatch_behind_bytes", "rocketmq_storage_message_reserve_time", "rocketmq_timer_enqueue_lag",
    "rocketmq_timer_enqueue_latency", "rocketmq_timer_dequeue_lag", "rocketmq_timer_dequeue_latency",
    "rocketmq_timing_messages", "rocketmq_timer_enqueue", "rocketmq_timer_dequeue", "rocketmq_timer_message_snapshot",
    "rocketmq_delay_message_latency", "rocketmq_pop_buffer_scan_time_consume", "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size", "rocketmq_pop_revive_lag", "rocketmq_pop_revive_latency",
}  # fmt: skip


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    settings = {key: str(value) for key, value in metered.settings(0).items()}
    place = {"brokerIP1": metered.HOST, "bindAddress": metered.HOST, "mappedFileSizeCommitLog": str(1 << 20)}
    node = build_node(tmp_path, {**settings, **place}, namesrv_port=0, broker_port=0)
    await node.start()
    yield node
    await node.stop()


async def test_after_the_same_scene_the_page_has_the_shape_of_apaches(node: Node) -> None:
    """Every metric of Apache's page, with its type, its labels and its buckets, or a reason why not."""
    assert node.metrics is not None
    ours = metered.shape(await metered.play(node.namesrv_address, node.metrics.port))
    expected = {name: shape for name, shape in metered.recorded().items() if name not in NOT_HERE}
    for name, further in FURTHER_LABELS.items():
        expected[name]["labels"] = sorted([*expected[name]["labels"], *further])
    assert expected == {name: shape for name, shape in ours.items() if name in expected}
    assert set(NOT_HERE) < set(metered.recorded())


async def test_a_broker_that_has_done_nothing_yet_shows_every_documented_name(node: Node) -> None:
    """Boards find their names from the first scrape on."""
    assert node.metrics is not None
    families = {family.name for family in text_string_to_metric_families(node.metrics.text().decode())}
    assert DOCUMENTED - families == set()
    without_unit = {name.removesuffix("_milliseconds").removesuffix("_seconds") for name in metered.recorded()}
    assert without_unit - DOCUMENTED == {
        *(name.removesuffix("_milliseconds") for name in NOT_HERE),
        "rocketmq_storage_size_bytes",
    }


async def test_the_scene_is_counted_message_by_message(node: Node) -> None:
    """What was sent as what, how large it was, how it was answered and how its transactions ended."""
    assert node.metrics is not None
    text = await metered.play(node.namesrv_address, node.metrics.port)
    found: dict[tuple[str, ...], float] = {}
    shown = ("topic", "message_type", "request_code", "response_code", "is_long_polling", "le")
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = (sample.labels[label] for label in shown if label in sample.labels)
            found[sample.name, *values] = sample.value
    assert found["rocketmq_messages_in_total", metered.TOPIC, "transaction"] == 1
    assert found["rocketmq_messages_in_total", metered.TOPIC, "delay"] == 2
    assert found["rocketmq_messages_in_total", "RMQ_SYS_TRANS_HALF_TOPIC", "transaction"] == 2
    assert found["rocketmq_messages_in_total", "SCHEDULE_TOPIC_XXXX", "delay"] == 1
    assert found["rocketmq_messages_in_total", "rmq_sys_wheel_timer", "delay"] == 1
    plain = sum(found.get(("rocketmq_messages_in_total", metered.TOPIC, kind), 0) for kind in ("normal", "fifo"))
    assert plain == 3
    assert found["rocketmq_message_size_count", metered.TOPIC, "delay"] == 2
    assert found["rocketmq_message_size_bucket", metered.TOPIC, "delay", "1024.0"] == 2
    assert found["rocketmq_rpc_latency_count", "send_message_v2", "success", "false"] == 7
    assert found["rocketmq_rpc_latency_milliseconds_count", "end_transaction", "success", "false"] == 2
    assert found["rocketmq_commit_messages_total", metered.TOPIC] == 1
    assert found["rocketmq_rollback_messages_total", metered.TOPIC] == 1
    assert found["rocketmq_half_messages", metered.TOPIC] == 0
    assert found["rocketmq_finish_message_latency_bucket", metered.TOPIC, "5.0"] == 1
    assert found["rocketmq_timer_enqueue_total", metered.TOPIC] == 1
    assert found["rocketmq_timer_dequeue_total", metered.TOPIC] == 1
    assert found["rocketmq_timing_messages", metered.TOPIC] == 0
    assert found["rocketmq_delay_message_latency_seconds_bucket", metered.TOPIC, "60.0"] == 1


async def test_the_page_about_metrics_names_each_of_them_and_no_other(node: Node) -> None:
    """docs/metrics.md; a metric with a unit stands there without it."""
    assert node.metrics is not None
    named = set(re.findall(r"`((?:rocketmq|arrowmq)_[a-z_]+)`", PAGE.read_text().partition("## Apache's")[2]))
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(node.metrics.text().decode())
    }
    with_units = {f"{name}_{unit}" for name in shown for unit in ("milliseconds", "seconds", "bytes")}
    assert named == shown - with_units
