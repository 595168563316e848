"""Writes docs/grafana/arrowmq.json, a Grafana board over the metrics page. A row of the table below is a panel.

python tools/grafana_board.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BOARD = Path(__file__).resolve().parent.parent / "docs" / "grafana" / "arrowmq.json"
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
HERE = 'cluster=~"$cluster", node_id=~"$broker"'

# title, unit, what it tells, [(query, legend), …]
Panel = tuple[str, str, str, list[tuple[str, str]]]
ROWS: list[tuple[str, list[Panel]]] = [
    (
        "Is it well?",
        [
            (
                "Refused and failed sends",
                "ops",
                "Anything above zero has its reason here: disk, memory, flush lag or a rate limit.",
                [
                    (
                        "sum by (node_id, reason) (rate(arrowmq_refused_sends_total{HERE}[5m]))",
                        "{{node_id}} {{reason}}",
                    ),
                    ("rate(arrowmq_failed_sends_total{HERE}[5m])", "{{node_id}} failed"),
                ],
            ),
            (
                "Age of the oldest message not consumed",
                "ms",
                "By group and topic. A line that rises with the clock is a group that stands still.",
                [
                    (
                        'max by (consumer_group, topic) (rocketmq_consumer_lag_latency{HERE, is_system="false"})',
                        "{{consumer_group}} {{topic}}",
                    )
                ],
            ),
            (
                "Longest pause of the event loop",
                "s",
                "Nobody is served during a pause. Above 0.1 s: look for a busy machine or a slow disk.",
                [("arrowmq_loop_pause_seconds{HERE}", "{{node_id}}")],
            ),
        ],
    ),
    (
        "Messages",
        [
            (
                "Messages in",
                "ops",
                "By topic, without the topics of the system.",
                [
                    (
                        'sum by (topic) (rate(rocketmq_messages_in_total{HERE, is_system="false"}[1m]))',
                        "{{topic}}",
                    )
                ],
            ),
            (
                "Messages out",
                "ops",
                "By topic and group.",
                [
                    (
                        'sum by (consumer_group, topic)(rate(rocketmq_messages_out_total{HERE,is_system="false"}[1m]))',
                        "{{consumer_group}} {{topic}}",
                    )
                ],
            ),
            (
                "Bytes in and out",
                "Bps",
                "",
                [
                    ("sum by (node_id) (rate(rocketmq_throughput_in_total{HERE}[1m]))", "{{node_id}} in"),
                    ("sum by (node_id) (rate(rocketmq_throughput_out_total{HERE}[1m]))", "{{node_id}} out"),
                ],
            ),
        ],
    ),
    (
        "Consumers",
        [
            (
                "Messages not consumed yet",
                "short",
                "By group and topic.",
                [
                    (
                        'sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{HERE, is_system="false"})',
                        "{{consumer_group}} {{topic}}",
                    )
                ],
            ),
            (
                "The ten queues that lag most",
                "s",
                "One queue far above the others: a consumer that hangs, or a key that everything goes to.",
                [
                    (
                        "topk(10, arrowmq_queue_lag_seconds{HERE})",
                        "{{consumer_group}} {{topic}} queue {{queue_id}}",
                    ),
                    (
                        "topk(10, arrowmq_queue_lag_messages{HERE})",
                        "{{consumer_group}} {{topic}} queue {{queue_id}} (messages)",
                    ),
                ],
            ),
            (
                "In flight and ready",
                "short",
                "In flight: pulled and not confirmed, so with the consumers. Ready: not yet pulled.",
                [
                    (
                        'sum by (consumer_group) (rocketmq_consumer_inflight_messages{HERE, is_system="false"})',
                        "{{consumer_group}} in flight",
                    ),
                    (
                        'sum by (consumer_group) (rocketmq_consumer_ready_messages{HERE, is_system="false"})',
                        "{{consumer_group}} ready",
                    ),
                ],
            ),
            (
                "Time until pulled",
                "ms",
                "Age of the oldest message that nobody has pulled yet.",
                [
                    (
                        'max by (consumer_group, topic) (rocketmq_consumer_queueing_latency{HERE, is_system="false"})',
                        "{{consumer_group}} {{topic}}",
                    )
                ],
            ),
            (
                "Given up",
                "short",
                "Messages that went to a dead letter topic in the last hour.",
                [
                    (
                        "sum by (consumer_group) (increase(rocketmq_send_to_dlq_messages_total{HERE}[1h]))",
                        "{{consumer_group}}",
                    )
                ],
            ),
            (
                "Members that subscribe differently",
                "short",
                "Two members of one group with different topics or tags lose each other's messages.",
                [("increase(arrowmq_differing_subscriptions_total{HERE}[1h])", "{{node_id}}")],
            ),
        ],
    ),
    (
        "Clients",
        [
            (
                "Producers",
                "short",
                "Connected producers by language and version.",
                [
                    (
                        "sum by (language, version) (rocketmq_producer_connections{HERE})",
                        "{{language}} {{version}}",
                    )
                ],
            ),
            (
                "Consumers",
                "short",
                "Connected consumers by group.",
                [
                    (
                        'sum by (consumer_group) (rocketmq_consumer_connections{HERE, is_system="false"})',
                        "{{consumer_group}}",
                    )
                ],
            ),
            (
                "Waiting pulls",
                "short",
                "Consumers at the end of their queues.",
                [("arrowmq_waiting_pulls{HERE}", "{{node_id}}")],
            ),
        ],
    ),
    (
        "Store",
        [
            (
                "Not forced to disk yet",
                "bytes",
                "What a power cut could take under ASYNC_FLUSH.",
                [("rocketmq_storage_flush_behind_bytes{HERE}", "{{node_id}}")],
            ),
            (
                "Commit log",
                "bytes",
                "Bytes kept, and how fast the log grows.",
                [
                    ("rocketmq_storage_size{HERE}", "{{node_id}} kept"),
                    ("rate(arrowmq_log_appended_offset{HERE}[5m])", "{{node_id}} growth a second"),
                ],
            ),
            (
                "Age of the oldest message kept",
                "ms",
                "",
                [("rocketmq_storage_message_reserve_time{HERE}", "{{node_id}}")],
            ),
            (
                "Reads that waited for the disk",
                "ops",
                "Consumers that are so far behind that their messages have left memory.",
                [("rate(arrowmq_cold_reads_total{HERE}[5m])", "{{node_id}}")],
            ),
            (
                "Memory of the process",
                "bytes",
                "Without the mapped files, which the kernel takes back when it needs room.",
                [("arrowmq_own_memory_bytes{HERE}", "{{node_id}}")],
            ),
            (
                "Topics and groups",
                "short",
                "",
                [
                    ("rocketmq_topic_number{HERE}", "{{node_id}} topics"),
                    ("rocketmq_consumer_group_number{HERE}", "{{node_id}} groups"),
                    ("rocketmq_broker_permission{HERE}", "{{node_id}} permission (6: reads and writes)"),
                ],
            ),
        ],
    ),
    (
        "Requests, transactions and timers",
        [
            (
                "Requests: 99 of 100 are answered within",
                "ms",
                "Without pulls that wait for a message.",
                [
                    (
                        "histogram_quantile(0.99, sum by (le, request_code) "
                        '(rate(rocketmq_rpc_latency_bucket{HERE, is_long_polling="false"}[5m])))',
                        "{{request_code}}",
                    )
                ],
            ),
            (
                "Requests that wait for their answer",
                "short",
                "For the disk, a NameServer or another client.",
                [
                    (
                        "sum by (node_id, processor) (rocketmq_processor_watermark{HERE}) > 0",
                        "{{node_id}} {{processor}}",
                    )
                ],
            ),
            (
                "Size of messages",
                "bytes",
                "Half of them, and 99 of 100, are at most so large.",
                [
                    (
                        "histogram_quantile(0.5, sum by (le, topic) (rate(rocketmq_message_size_bucket{HERE}[5m])))",
                        "{{topic}} half",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le, topic) (rate(rocketmq_message_size_bucket{HERE}[5m])))",
                        "{{topic}} 99 of 100",
                    ),
                ],
            ),
            (
                "Transactions",
                "short",
                "Ended a second, and open now.",
                [
                    ("sum by (topic) (rate(rocketmq_commit_messages_total{HERE}[5m]))", "{{topic}} committed"),
                    ("sum by (topic) (rate(rocketmq_rollback_messages_total{HERE}[5m]))", "{{topic}} rolled back"),
                    ("sum by (topic) (rocketmq_half_messages{HERE})", "{{topic}} open"),
                ],
            ),
            (
                "Timer messages that wait",
                "short",
                "",
                [("sum by (topic) (rocketmq_timing_messages{HERE})", "{{topic}}")],
            ),
            (
                "Timer messages due within",
                "short",
                "",
                [("sum by (timer_bound_s) (rocketmq_timer_message_snapshot{HERE})", "{{timer_bound_s}} s")],
            ),
        ],
    ),
]


def panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for heading, row in ROWS:
        made.append({"type": "row", "title": heading, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []})
        top += 1
        for place, panel in enumerate(row):
            made.append(_panel(panel, x=place % COLUMNS * WIDTH, y=top + place // COLUMNS * HEIGHT))
        top += -(-len(row) // COLUMNS) * HEIGHT
    for number, one in enumerate(made, 1):
        one["id"] = number
    return made


def _panel(panel: Panel, x: int, y: int) -> dict[str, Any]:
    title, unit, about, queries = panel
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query.replace("HERE", HERE), "legendFormat": legend}
            for place, (query, legend) in enumerate(queries)
        ],
    }


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def board() -> dict[str, Any]:
    return {
        "title": "ArrowMQ",
        "uid": "arrowmq",
        "description": "Brokers of ArrowMQ; the rocketmq_ panels also show Apache RocketMQ 5 brokers.",
        "tags": ["arrowmq", "rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"type": "datasource", "name": "source", "label": "Prometheus", "query": "prometheus"},
                _choice("cluster", "Cluster", "label_values(rocketmq_topic_number, cluster)"),
                _choice("broker", "Broker", 'label_values(rocketmq_topic_number{cluster=~"$cluster"}, node_id)'),
            ]
        },
        "panels": panels(),
    }


if __name__ == "__main__":
    BOARD.parent.mkdir(parents=True, exist_ok=True)
    BOARD.write_text(json.dumps(board(), indent=2, ensure_ascii=False) + "\n")
