"""The real commands, killed in the middle and started again; the long form is `make pipeline-soak`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from commands import pipeline
from live import Server
from pipeline_soak import SETTINGS, Soak

from arrowmq import sync
from arrowmq.testing import BrokerThread

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def test_a_killed_archive_and_a_killed_resend_go_on_and_do_nothing_twice(tmp_path: Path) -> None:
    with Server(tmp_path, *SETTINGS) as server:
        soak = Soak(server, tmp_path, seed=4, most_kills=1)
        assert soak.archive() is None
        assert soak.dead_letters() is None
        assert 2 == soak.kills


def is_spark(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it has just ended
    return words[0].endswith(b"java") and any(word.startswith(b"org.apache.spark.deploy.") for word in words)


def test_a_stop_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "store") as broker, sync.Producer(broker.namesrv) as producer:
        producer.send("orders", b"x")
    running = pipeline(tmp_path / "run", "audit", str(tmp_path / "store"))
    try:
        assert running.interrupt_when(lambda: any(is_spark(pid) for pid in running.members()))
        assert 130 == running.process.wait(60)
        assert running.err.read_text().endswith("stopped; the same command begins anew\n")
        deadline = time.monotonic() + 30
        while running.members():
            assert time.monotonic() < deadline, running.members()
            time.sleep(0.05)
    finally:
        running.kill()
