"""A table's file: who asks for it to be on disk waits for a write that holds what was asked, and shares it."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.broker.table_file import TableFile
from arrowmq.clock import SystemClock
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.errors import OutOfSpace, StoreDamaged


class SlowFile(JsonConfigFile):
    """Counts writes, and holds each until it is let through."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes: list[bytes] = []
        self.gate = threading.Semaphore(0)
        self.problem: Exception | None = None

    def _write(self, data: bytes) -> None:
        assert self.gate.acquire(timeout=30)
        if self.problem is not None:
            raise self.problem
        self.writes.append(data)
        super()._write(data)


async def test_a_hundred_who_ask_during_a_write_share_the_next(tmp_path: Path) -> None:
    rows: list[int] = []
    file = SlowFile(tmp_path / "topics.json")
    table = TableFile(file, SystemClock(), lambda: str(rows).encode())

    async def add(row: int) -> None:
        rows.append(row)
        table.changed(soon=False)
        await table.saved()
        assert row in json.loads(file.writes[-1])

    first = asyncio.ensure_future(add(0))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(add(row)) for row in range(1, 101)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in others)
    file.gate.release(2)
    await asyncio.gather(first, *others)
    assert [b"[0]", str(rows).encode()] == file.writes


async def test_a_refused_write_is_told_to_all_who_wait_and_tried_again_by_the_next(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "topics.json")
    table = TableFile(file, SystemClock(), lambda: b"{}")
    file.problem = OutOfSpace("no room on the disk")
    file.gate.release(5)
    table.changed(soon=False)
    for answer in await asyncio.gather(table.saved(), table.saved(), return_exceptions=True):
        assert isinstance(answer, OutOfSpace)
    file.problem = None
    assert not table.is_saved
    await table.saved()
    assert table.is_saved


async def test_one_who_gives_up_waiting_does_not_stop_the_write(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "topics.json")
    table = TableFile(file, SystemClock(), lambda: b"{}")
    table.changed(soon=False)
    waiting = asyncio.ensure_future(table.saved())
    other = asyncio.ensure_future(table.saved())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    file.gate.release(1)
    await other
    assert [b"{}"] == file.writes


def test_a_thread_that_was_left_behind_does_not_write_over_what_came_later(tmp_path: Path) -> None:
    """A task that is cancelled at a broker's end leaves the thread behind in which it writes."""
    file = JsonConfigFile(tmp_path / "config" / "delayOffset.json")
    left_behind = file.writing({"offsetTable": {"1": 5}})
    file.persist({"offsetTable": {"1": 7}})
    left_behind()
    assert {"offsetTable": {"1": 7}} == file.load()


async def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    """A thread that was still to write found the folder of an ended broker gone, and made the file again."""
    file = SlowFile(tmp_path / "topics.json")
    table = TableFile(file, SystemClock(), lambda: b"{}")
    table.changed(soon=False)
    late = file.writing(b"[]")
    file.gate.release(5)
    table.save()
    file.path.unlink()
    late()
    assert not file.path.exists()
    assert [b"{}"] == file.writes


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("topics.json", '{"topicConfigTable":[1]}'),
        ("topics.json", "\0" * 4096),
        ("consumerOffset.json", '{"offsetTable":{"orders@g":{"0":5'),
        ("consumerOffset.json", "5"),
        ("topics.json", '{"topicConfigTable":{"orders":{"perm":"six"}}}'),
        ("subscriptionGroup.json", '{"forbiddenTable":{"g":{"orders":{}}}}'),
        ("consumerOffset.json", '{"offsetTable":{"orders@g":{"x":5}}}'),
        ("delayOffset.json", '{"offsetTable":{"3":null}}'),
        ("consumerOrderInfo.json", '{"table":{"orders@g":[]}}'),
        ("messageRequestMode.json", '{"messageRequestModeMap":7}'),
        ("consumerFilter.json", '{"filterDataByTopic":{"orders":1}}'),
    ],
)
async def test_a_table_that_makes_no_sense_is_named_and_left_as_it_is(name: str, content: str, tmp_path: Path) -> None:
    """A start once ended with a traceback that named no file."""
    path = tmp_path / "config" / name
    path.parent.mkdir()
    path.write_text(content)
    broker = Broker(BrokerConfig.from_properties({}), tmp_path, SystemClock())
    with pytest.raises(StoreDamaged, match=f"{name} is damaged"):
        broker.open()
    broker.store.close()
    assert content == path.read_text()


def test_a_damaged_table_is_replaced_by_its_backup_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = JsonConfigFile(tmp_path / "topics.json")
    file.persist({"version": 1})
    file.persist({"version": 2})
    file.path.write_bytes(bytes(100))
    assert {"version": 1} == file.load()
    assert "topics.json is damaged: what topics.json.bak says is taken" in caplog.text


def test_a_missing_table_whose_backup_is_damaged_is_not_taken_for_none(tmp_path: Path) -> None:
    file = JsonConfigFile(tmp_path / "topics.json")
    file.backup.write_bytes(b"{")
    with pytest.raises(StoreDamaged, match=r"topics.json.bak is damaged"):
        file.load()


def test_an_empty_table_is_none(tmp_path: Path) -> None:
    file = JsonConfigFile(tmp_path / "topics.json")
    file.path.write_bytes(b" \n")
    assert file.load() is None


async def test_damaged_counts_of_timers_are_counted_anew(tmp_path: Path) -> None:
    """They follow from the wheel's log: no reason to refuse a start."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timermetrics").write_bytes(b"{")
    (tmp_path / "config" / "timercheck").write_bytes(bytes(4096))
    broker = Broker(BrokerConfig.from_properties({}), tmp_path, SystemClock())
    broker.open()
    broker.store.close()
