"""The example of docs/spark/pipelines.md, run as it stands but for addresses and folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from live import Server
from test_pipelines import count, kill_letters, trace_records
from test_source import fill

import arrowmq.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "pipelines.md"


def test_the_example_of_the_page_runs(
    spark: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(server, "orders", 30)
    kill_letters(server, "billing", [b"one", b"two"], "orders-repaired")
    trace_records(server, "RMQ_SYS_TRACE_TOPIC")
    (tmp_path / "broker-a").symlink_to(server.store)
    example = next(text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "session(" in text)
    example = example.replace("localhost:9876", server.namesrv).replace("/data/", f"{tmp_path}/")
    monkeypatch.setattr(arrowmq.spark, "session", lambda name: spark)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(example.replace("tags = 'paid'", "tags = 'tag1'"), str(PAGE), "exec"), space)
    assert (30, 2, 2) == (space["done"].rows, space["resent"].decided, space["resent"].sent)
    assert space["again"].rows == space["again"].total == len(count(spark, server, "orders-again")) > 0
    assert space["found"].is_sound
    assert 20 == space["times"].sends
    assert {"archive.html", "audit.html", "latency.html", "my-orders"} <= {path.name for path in tmp_path.iterdir()}
    assert "records, sound" in capsys.readouterr().out
