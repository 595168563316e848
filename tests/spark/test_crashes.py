"""A real stream from topic to topic, with its processes and its broker killed at chosen points.

A short form of `make spark-soak`, which goes through every point with seeds, and kills Java as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crash_stream import BATCH_ROWS, fill, run, visible
from failpoints import BROKER, JAVA, WORKER, CrashingSource, Kill, Plan, pairs_of, seeded_kills
from live import Kept, Server

KILLS = [
    Kill("sink.half", 7, WORKER),  # a task, with half messages under way
    Kill("commit.half", 9, WORKER),  # the commit, with some messages visible and others not
    Kill("commit.half", 4, BROKER),
    Kill("commit.end", 0, WORKER),  # after the sink's commit, before Spark's own
    Kill("source.batch", 1, WORKER),
]


def test_each_row_arrives_once_whoever_is_killed(spark: Any, tmp_path: Path) -> None:
    plan = Plan(tmp_path / "plan")
    plan.write(KILLS, tmp_path / "checkpoint")
    spark.dataSource.register(CrashingSource)
    with Server(tmp_path) as server:
        fill(server.namesrv, "sink-from", BATCH_ROWS * 8)
        with Kept(server, plan.broker_is) as kept:
            run(spark, server.namesrv, tmp_path, "sink")
        assert [] == plan.left()
        assert 1 == kept.starts
        assert visible(server.namesrv, "sink-from") == visible(server.namesrv, "sink-to")


def test_a_seed_decides_the_kills_and_every_point_gets_its_turn() -> None:
    quick = pairs_of(("source.pull", "sink.half"), WORKER, BROKER)
    kills = seeded_kills(5, 40, quick, [("sink.end", JAVA)], BATCH_ROWS)
    assert kills == seeded_kills(5, 40, quick, [("sink.end", JAVA)], BATCH_ROWS)
    assert kills != seeded_kills(6, 40, quick, [("sink.end", JAVA)], BATCH_ROWS)
    assert {*quick, ("sink.end", JAVA)} == {(kill.point, kill.victim) for kill in kills}
