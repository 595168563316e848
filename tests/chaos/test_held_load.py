"""Goal: the mixed load in its short form; `make load` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_clusters import Cluster
from held_load import HeldLoad


@pytest.mark.timeout(300)
async def test_a_broker_bears_stalled_readers_floods_crowds_deleted_topics_and_many_queues(tmp_path: Path) -> None:
    with Cluster("arrowmq", tmp_path, {"mappedFileSizeCommitLog": 64 << 20}) as cluster:
        rows = await HeldLoad(cluster, queues=500, members=200).play(minutes=0.3)
    # How long sends take says more of the machine than of the broker when tests share it.
    assert not [row for row in rows if not row.held and not row.what.startswith("latency")]
