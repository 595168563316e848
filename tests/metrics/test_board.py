"""The Grafana board asks for what the metrics page has, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from arrowmq.server import build_node

BOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "arrowmq.json"
ENDINGS = {"counter": "_total", "histogram": "_bucket"}  # of what a query asks for
SETTINGS = {
    "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "metricsExporterType": "PROM", "metricsPromExporterPort": "0",
    "mappedFileSizeCommitLog": str(1 << 20),
}  # fmt: skip


def board() -> dict[str, Any]:
    return json.loads(BOARD.read_text())


def queries() -> list[str]:
    asked = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    return asked + [one["query"]["query"] for one in board()["templating"]["list"] if isinstance(one["query"], dict)]


async def test_every_metric_of_the_board_is_on_the_page(tmp_path: Path) -> None:
    node = build_node(tmp_path, SETTINGS, namesrv_port=0, broker_port=0)
    await node.start()
    try:
        assert node.metrics is not None
        text = node.metrics.text().decode()
    finally:
        await node.stop()
    # A family without samples (nobody consumes yet) still says its name and type.
    known = set()
    for family in text_string_to_metric_families(text):
        known.add(f"{family.name}{ENDINGS.get(family.type, '')}")
    asked = {name for query in queries() for name in re.findall(r"\b(?:rocketmq|arrowmq)_[a-z_]+", query)}
    assert len(asked) > 20
    assert asked - known == set()


def test_queries_choose_by_labels_that_every_sample_has() -> None:
    for query in queries():
        if not query.startswith("label_values"):
            assert query.count('cluster=~"$cluster", node_id=~"$broker"') == len(re.findall(r"\w\{", query))
        assert query.count("(") == query.count(")")
        assert query.count("{") == query.count("}")


def test_panels_lie_beside_each_other_and_not_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    numbers = [panel["id"] for panel in board()["panels"]]
    assert len(set(numbers)) == len(numbers)
