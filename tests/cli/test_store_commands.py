"""Goal: `arrowmq store` looks into ArrowMQ's and Apache's stores, finds what is wrong, and rebuilds what is derived."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import golden_stores
import pytest
from click.testing import CliRunner, Result
from writing import SMALL, bodies, numbered, opened

import arrowmq
from arrowmq.cli.store import store_group
from arrowmq.testing import LocalBroker
from certificates import self_signed

SEGMENT = "00000000000000000000"
SIZES = ("--set", "maxHashSlotNum=50", "--set", "maxIndexNum=100")


def arrowmq_store(*words: str) -> Result:
    return CliRunner().invoke(store_group, list(words), catch_exceptions=False)


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    store = opened(tmp_path / "store")
    for number in range(120):
        store.put(numbered(number))
    store.close()
    return tmp_path / "store"


def test_a_sound_store_of_ours_is_found_sound(small_store: Path) -> None:
    result = arrowmq_store("check", str(small_store), *SIZES)
    assert 0 == result.exit_code, result.output
    assert "120 records" in result.output
    assert "All sound." in result.output


@pytest.mark.parametrize("variant", ["store-clean", "plain"])
def test_apaches_stores_are_found_sound_without_any_setting(tmp_path: Path, variant: str) -> None:
    folder, expected = golden_stores.restore(variant, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = arrowmq_store("check", str(folder))
    assert 0 == result.exit_code, result.output
    assert f"{len(expected['messages'])} records" in result.output
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("file", "place", "finding"),
    [
        (f"commitlog/{SEGMENT}", 88, "does not match its checksum"),
        (f"consumequeue/orders/1/{SEGMENT}", 27, "the log says"),
        (f"consumequeue/orders/1/{SEGMENT}", 39, "the log says"),
    ],
)
def test_one_wrong_byte_is_found_and_named(small_store: Path, file: str, place: int, finding: str) -> None:
    data = bytearray((small_store / file).read_bytes())
    data[place] ^= 1
    (small_store / file).write_bytes(data)
    result = arrowmq_store("check", str(small_store), *SIZES)
    assert 1 == result.exit_code
    assert finding in " ".join(result.output.split())


def test_a_wrong_index_entry_and_a_missing_queue_are_found(small_store: Path) -> None:
    index = sorted((small_store / "index").iterdir())[0]
    data = bytearray(index.read_bytes())
    data[40 + 4 * 50 + 20 * 3 + 3] ^= 1
    index.write_bytes(data)
    shutil.rmtree(small_store / "consumequeue" / "orders" / "2")
    result = arrowmq_store("check", str(small_store), *SIZES)
    assert 1 == result.exit_code
    assert "entry 3" in result.output
    assert "orders/2" in result.output


def test_rebuilding_mends_queues_and_index_and_keeps_the_count_of_an_empty_queue(small_store: Path) -> None:
    store = opened(small_store)
    store.consume_queues.get("emptied", 0).begin_at(7)
    store.close()
    for path in (small_store / "consumequeue" / "orders").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(400))
    settings = ("--set", "maxHashSlotNum=50", "--set", "maxIndexNum=100")
    result = arrowmq_store("rebuild", str(small_store), *settings)
    assert 0 == result.exit_code, result.output
    assert "120 records read" in " ".join(result.output.split())
    store = opened(small_store)
    assert 120 == len(bodies(store))
    assert 7 == store.max_offset("emptied", 0)
    assert 1 == len(store.query("orders", "k77", 9, 0, 1 << 62))
    store.close()
    assert 0 == arrowmq_store("check", str(small_store), *settings).exit_code


def test_dump_prints_messages_as_json_lines(tmp_path: Path) -> None:
    folder, _ = golden_stores.restore("store-clean", tmp_path)
    result = arrowmq_store("dump", str(folder), "--topic", "TopicSync", "--queue", "1", "--limit", "2", "--bodies")
    first, second = (json.loads(line) for line in result.output.splitlines())
    assert ("TopicSync", 1, 0, "body 1") == (first["topic"], first["queueId"], first["queueOffset"], first["body"])
    assert 1 == second["queueOffset"]
    assert "北京 🚀" == first["properties"]["city"]


def test_stats_count_messages_per_queue(tmp_path: Path) -> None:
    folder, expected = golden_stores.restore("store-clean", tmp_path)
    found = json.loads(arrowmq_store("stats", str(folder), "--json").output)
    assert len(expected["messages"]) == found["messages"]
    for queue in expected["queues"]:
        wanted = [queue["queueId"], queue["minOffset"], queue["maxOffset"]]
        assert wanted in found["topics"].get(queue["topic"], [wanted])
    assert "TopicSync" in arrowmq_store("stats", str(folder)).output


def test_what_is_no_store_or_in_use_is_a_sentence(small_store: Path, tmp_path: Path) -> None:
    result = arrowmq_store("check", str(tmp_path))
    assert (1, True) == (result.exit_code, "is no store" in result.output)
    store = opened(small_store, SMALL)
    result = arrowmq_store("rebuild", str(small_store), "--set", "maxHashSlotNum=50", "--set", "maxIndexNum=100")
    assert (1, True) == (result.exit_code, "already open" in result.output)
    store.close()


async def test_a_damaged_record_is_brought_back_from_a_broker_that_has_it(tmp_path: Path) -> None:
    async with LocalBroker(tmp_path / "one") as broker, arrowmq.Producer(broker.namesrv) as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number * 50)
        file = min((tmp_path / "one" / "commitlog").iterdir())
        broker.node.broker.store.flush()  # type: ignore[union-attr]
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        damaged = bytearray((tmp_path / "copy" / "commitlog" / file.name).read_bytes())
        place = damaged.index(b"7" * 50)
        damaged[place] ^= 1
        (tmp_path / "copy" / "commitlog" / file.name).write_bytes(damaged)
        words = ("repair", str(tmp_path / "copy"), "--from", broker.broker_address)
        result = await asyncio.to_thread(arrowmq_store, *words)
        assert 0 == result.exit_code, result.output
        assert "1 records" in result.output
        again = await asyncio.to_thread(arrowmq_store, *words)
        assert "0 records" in again.output
    assert 7 == (tmp_path / "copy" / "commitlog" / file.name).read_bytes()[place] - ord("0")


async def test_a_repair_asks_a_broker_with_users_and_tls(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    root = ("root", "the-secret-of-root")
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": root[0], "password": root[1]}),
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(certificate.with_name("key.pem")),
    }
    async with (
        LocalBroker(tmp_path / "one", settings=settings) as broker,
        arrowmq.Producer(broker.namesrv, credentials=root) as producer,
    ):
        for number in range(20):
            await producer.send("orders", b"%d" % number * 50)
        file = min((tmp_path / "one" / "commitlog").iterdir())
        broker.node.broker.store.flush()  # type: ignore[union-attr]
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        damaged = bytearray((tmp_path / "copy" / "commitlog" / file.name).read_bytes())
        damaged[damaged.index(b"7" * 50)] ^= 1
        (tmp_path / "copy" / "commitlog" / file.name).write_bytes(damaged)
        words = ("repair", str(tmp_path / "copy"), "--from", broker.broker_address, "--tls-ca", str(certificate))
        refused = await asyncio.to_thread(arrowmq_store, *words)
        assert 1 == refused.exit_code
        assert "--access-key" in refused.output
        result = await asyncio.to_thread(arrowmq_store, *words, "--access-key", root[0], "--secret-key", root[1])
        assert 0 == result.exit_code, result.output
        assert "1 records" in result.output


def test_a_repair_from_nowhere_is_a_sentence(small_store: Path) -> None:
    data = bytearray((small_store / "commitlog" / SEGMENT).read_bytes())
    data[88] ^= 1
    (small_store / "commitlog" / SEGMENT).write_bytes(data)
    result = CliRunner().invoke(store_group, ["repair", str(small_store), "--from", "127.0.0.1:1", *SIZES])
    assert 1 == result.exit_code
    assert "cannot connect to 127.0.0.1:1" in result.output
