"""One stream of frames for two brokers, of which one has no fast path: what they answer and leave must be the same."""

from __future__ import annotations

import random
from pathlib import Path

from talking import Talk, cut, files_of, has_fast_path, taken_by_fast_path

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import VirtualClock
from arrowmq.remoting.server import RemotingServer
from arrowmq.wire import properties

START_MS = 1_790_000_000_000
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
CLIENT = "127.0.0.9"
#: Every name that RocketMQ reserves, and values that mean something to one of them or another
PROPERTY_NAMES = sorted(
    value for name, value in vars(properties).items() if name.isupper() and isinstance(value, str) and value > "\x02"
)
VALUES = ("1", "0", "-1", "true", "false", "TRUE", "x", "Orders", "1790000000000", "0123456789")


class Outcome:
    def __init__(
        self,
        answers: dict[int, bytes],
        files: dict[str, bytes],
        port: int,
        local_port: int,
        taken: dict[str, int],
        offsets: object,
    ) -> None:
        self.answers = answers
        self.files = files
        self.port = port
        self.local_port = local_port
        self.taken = taken  # by the fast paths
        self.offsets = offsets


async def run(
    root: Path,
    frames: list[bytes],
    chunks: list[bytes],
    *,
    fast: bool,
    like: Outcome | None = None,
    flush: str = "ASYNC_FLUSH",
    settings: dict[str, str] = SETTINGS,
) -> Outcome:
    random.seed(1)  # a message without a queue gets one by chance
    clock = VirtualClock(START_MS)
    config = BrokerConfig.from_properties(
        {**settings, "flushDiskType": flush, "listenPort": str(like.port if like else 0)}
    )
    broker = Broker(config, root, clock)
    broker.open()
    server = RemotingServer(broker.handlers, clock=clock)
    port = await server.start("127.0.0.1", like.port if like else 0)
    await broker.start(port)
    try:
        if fast:
            assert broker.fast_path is not None
            server.fast_path = broker.fast_path
        async with Talk(CLIENT, like.local_port if like else 0) as talk:
            await talk.connect(port)
            answers = await talk.answers(chunks)
        taken = taken_by_fast_path(broker)
        offsets = (broker.offsets.as_json()["offsetTable"], broker.offsets._pulled)
    finally:
        await server.close()
        await broker.stop()
    return Outcome(answers, files_of(root), port, talk.local_port, taken, offsets)


async def same_on_both(
    tmp_path: Path, frames: list[bytes], last: bytes, *, seed: int, settings: dict[str, str] = SETTINGS
) -> tuple[Outcome, Outcome]:
    """Cut the stream anywhere and give it to both; the outcomes on the general path and on the fast path, which are
    found to be the same."""
    chunks = cut(b"".join(frames) + last, random.Random(seed))
    general = await run(tmp_path / "general", frames, chunks, fast=False, settings=settings)
    fast = await run(tmp_path / "fast", frames, chunks, fast=has_fast_path(), like=general, settings=settings)
    for opaque, answer in general.answers.items():
        assert answer == fast.answers[opaque], frames[opaque - 1] if 0 < opaque <= len(frames) else opaque
    assert general.answers.keys() == fast.answers.keys()
    assert general.files.keys() == fast.files.keys(), general.files.keys() ^ fast.files.keys()
    for name, data in general.files.items():
        assert data == fast.files[name], name
    assert general.offsets == fast.offsets
    assert not any(general.taken.values())
    return general, fast
