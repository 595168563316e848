"""Reading ranges from a broker: exact edges, lost connections, lost data."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from live import Server
from test_source import connect, fill

from arrowmq.spark.blocking_link import Link, LinkLost
from arrowmq.spark.source.pull import DataLost, Subscription, read_range
from arrowmq.spark.source.ranges import OffsetRange
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import decode_records


def offsets(server: Server, topic: str, start: int, end: int, **subscription: object) -> list[int]:
    cluster = connect(server)
    wanted = OffsetRange(MessageQueue(topic, "broker-a", 0), start, end)
    found = []
    for pulled in read_range(cluster, wanted, Subscription(**subscription)):  # type: ignore[arg-type]
        records = decode_records(pulled.records)
        assert pulled.count == len(records)
        found += [record.queue_offset for record in records]
    cluster.close()
    return found


def test_a_range_has_exact_edges(server: Server) -> None:
    fill(server, "PullEdges", 500, queues=1)
    for start, end in ((0, 500), (0, 1), (31, 33), (1, 64), (499, 500), (7, 7)):
        assert list(range(start, end)) == offsets(server, "PullEdges", start, end)


def test_a_filter_keeps_the_edges(server: Server) -> None:
    fill(server, "PullFilter", 900, queues=1)
    assert [n for n in range(100, 800) if n % 3 == 1] == offsets(server, "PullFilter", 100, 800, expression="tag1")


def test_an_end_that_is_not_there_is_lost_data_or_a_gap(server: Server) -> None:
    fill(server, "PullLost", 10, queues=1)
    with pytest.raises(DataLost, match="option failOnDataLoss: offsets 10 to 20 of queue broker-a:0 of topic PullLost"):
        offsets(server, "PullLost", 5, 20)
    assert [5, 6, 7, 8, 9] == offsets(server, "PullLost", 5, 20, fail_on_data_loss=False)


def test_reading_goes_on_after_the_broker_was_killed_and_came_back(tmp_path: Path) -> None:
    with Server(tmp_path) as own:
        fill(own, "PullRestart", 3000, queues=1)
        cluster = connect(own)
        found: list[int] = []
        restarted: threading.Thread | None = None
        wanted = OffsetRange(MessageQueue("PullRestart", "broker-a", 0), 0, 3000)
        for pulled in read_range(cluster, wanted, Subscription()):
            found += [record.queue_offset for record in decode_records(pulled.records)]
            if restarted is None and len(found) > 500:
                own.kill()
                restarted = threading.Thread(target=own.start)
                restarted.start()
        assert restarted is not None
        restarted.join()
        assert list(range(3000)) == found


def test_what_is_not_a_rocketmq_server_is_said(server: Server) -> None:
    with pytest.raises(LinkLost, match=r"127\.0\.0\.1:1 cannot be reached"):
        Link("127.0.0.1:1", 1.0)
