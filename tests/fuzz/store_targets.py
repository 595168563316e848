"""What is fuzzed of disks: the files of a store, the tables of a broker beside them, and the files of settings."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import scratch
from target import Target
from writing import SMALL, message, numbered, opened

from arrowmq.broker import Broker, BrokerConfig
from arrowmq.clock import SystemClock
from arrowmq.config import ConfigError, parse_properties
from arrowmq.controller.config import ControllerConfig
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.kvconfig import KvConfig
from arrowmq.proxy.config import ProxyConfig, read_proxy_file
from arrowmq.store import MessageStore, StoreConfig, StoreError
from arrowmq.store.integrity.check import StoreCheck
from arrowmq.store.integrity.inspection import StoreView
from arrowmq.store.integrity.repair import repair
from arrowmq.wire.batch import decode_batch, encode_batch
from arrowmq.wire.errors import WireError
from arrowmq.wire.records import Record, decode_records

COUNT = 60
MOST_CHANGES = 100
PAGE_BYTES = 4096


@cache
def _folder() -> Path:
    return scratch.folder("store")


# A store


@cache
def _store_folder() -> Path:
    """As a killed broker leaves it: it is recovered when it is opened."""
    root = _folder() / "store"
    store = opened(root)
    for number in range(COUNT):
        store.put(numbered(number))
    store.close()
    (root / "abort").write_text("1")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    return root


@cache
def _bodies() -> dict[int, bytes]:
    store = opened(shutil.copytree(_store_folder(), _folder() / "sound"))
    found = {record.physical_offset: record.body for record in _records(store)}
    store.close()
    return found


def _records(store: MessageStore) -> Iterator[Record]:
    for topic, queue_ids in store.queues().items():
        for queue_id in queue_ids:
            offset = store.min_offset(topic, queue_id)
            for _ in range(200):
                if offset >= store.max_offset(topic, queue_id):
                    break
                got = store.get(topic, queue_id, offset, 32)
                yield from decode_records(got.body(), check_crc=True)
                offset = max(got.next_offset, offset + 1)


def _damage(root: Path, data: bytes) -> None:
    """Five bytes each: what is done to which file (one byte is changed, the rest of a page is zero, the file is cut),
    where, and what the byte becomes."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    for at in range(0, min(len(data) - 4, 5 * MOST_CHANGES), 5):
        kind, file = data[at] >> 6, files[(data[at] & 0x3F) % len(files)]
        content = bytearray(file.read_bytes())
        if not content:
            continue
        place = int.from_bytes(data[at + 1 : at + 4], "big") % len(content)
        if kind == 3:
            del content[place:]
        elif kind == 2:
            end = min(len(content), place - place % PAGE_BYTES + PAGE_BYTES)
            content[place:end] = bytes(end - place)
        else:
            content[place] = data[at + 4]
        file.write_bytes(content)


def run_store(data: bytes) -> None:
    """A damaged store is looked at by its tools, repaired and opened: each says what is wrong, or copes."""
    copy = _folder() / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_store_folder(), copy)
    _damage(copy, data)
    _look(copy)
    store = MessageStore(copy, SMALL)
    try:
        store.open()
    except StoreError:
        return
    try:
        for record in _records(store):
            assert record.body == _bodies().get(record.physical_offset, record.body)
        for number in (0, 7, COUNT - 1):
            store.query("orders", f"k{number}", 8, 0, 1 << 60)
        for queue_id in range(3):
            for time in (0, store.earliest_time(), 1 << 60):
                store.offset_by_time("orders", queue_id, time)
            for entry in store.entries("orders", queue_id, store.min_offset("orders", queue_id), 50):
                store.record_bytes_at(entry.physical_offset)
        put = store.put(message(b"after", "later"))
        if put.is_ok:
            assert b"after" in [record.body for record in _records(store)]
    finally:
        store.close()


def _look(root: Path) -> None:
    """As `arrowmq store` does."""
    try:
        view = StoreView(root, SMALL)
        view.stats()
        assert len(list(view.records())) <= COUNT
        StoreCheck(view).run()
        repair(root, SMALL, lambda place: None)
        StoreView(root)
    except StoreError:
        return


def store_corpus() -> list[bytes]:
    return [bytes(5), b"\x01\x00\x00\x10\xff" * 4, bytes(range(100)), b"\x80\x00\x00\x20\x00", b"\xc2\x00\x01\x00\x00"]


# A client's batch, which native code takes apart where it is appended

MOST_LOG_BYTES = 1 << 22


@cache
def _batches() -> MessageStore:
    return opened(_folder() / "batches")


def run_batch(data: bytes) -> None:
    """All messages of a batch are appended, or none."""
    store = _batches()
    before = store.appended
    try:
        items = decode_batch(data)
    except WireError:
        items = []
    put = store.put_client_batch(message(b"", "batches"), data)
    if put.is_ok:
        offset, bodies = put.queue_offset, []
        while len(bodies) < put.count:
            found = decode_records(store.get("batches", 0, offset + len(bodies), 32).body(), check_crc=True)
            assert found
            bodies += [record.body for record in found]
        assert [item.body for item in items] == bodies
    else:
        assert before == store.appended
    if store.appended > MOST_LOG_BYTES:
        store.close()
        shutil.rmtree(store.root)
        _batches.cache_clear()


def batch_corpus() -> list[bytes]:
    properties = [b"", b"KEYS\x01a b\x02TAGS\x01t\x02", b"UNIQ_KEY\x0101\x02WAIT\x01false\x02"]
    items = [(number, b"x" * number, properties[number % 3]) for number in range(12)]
    return [encode_batch(items[:count]) for count in (1, 2, 3, 12)]


# The tables of a broker

VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 2}
TOPIC = {"topicName": "orders", "perm": 6, "readQueueNums": 3, "attributes": {"+message.type": "FIFO"}}
FILTER = {"bloomFilterData": {"bitNum": 64}, "deadTime": 0, "expression": "a > 1", "expressionType": "SQL92"}
ORDER = {"cm": 1, "i": 60000, "l": 2, "o": [5, 1], "popTime": 1_760_000_000_000, "ot": {"5": 7}, "oc": {"5": 1}}
MODE = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
COUNTS = {"orders": {"count": 1, "timeStamp": 1_760_000_000_000}}
TIMER_LOG = "../timerlog/00000000000000000000"
JSON: dict[str, object] = {
    "topics.json": {"topicConfigTable": {"orders": TOPIC}, "dataVersion": VERSION},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": True}},
        "forbiddenTable": {"g": {"orders": 1}},
        "dataVersion": VERSION,
    },
    "consumerOffset.json": {"offsetTable": {"orders@g": {"0": 5, "1": 0}}, "dataVersion": VERSION},
    "delayOffset.json": {"offsetTable": {"3": 5, "18": 0}, "dataVersion": VERSION},
    "consumerFilter.json": {"filterDataByTopic": {"orders": {"groupFilterData": {"g": FILTER}, "topic": "orders"}}},
    "consumerOrderInfo.json": {"table": {"orders@g": {"0": ORDER}}},
    "messageRequestMode.json": {"messageRequestModeMap": {"orders": {"g": MODE}}},
    "timermetrics": {"timingCount": COUNTS, "dataVersion": VERSION},
}
TABLES = {
    **{name: json.dumps(table).encode() for name, table in JSON.items()},
    "broker.properties": b"maxMessageSize=65536\nfileReservedTime=48\n",
    "timercheck": struct.pack(">qqqqqqq", 1_760_000_000_000, 52, 1, 1, 0, 0, 1),
    TIMER_LOG: struct.pack(">iqiqiqiiq", 52, -1, 1, 1_760_000_000_000, 5000, 0, 100, 7, 0),
}
SETTINGS = {"mappedFileSizeTimerLog": "5200", "mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"}


def run_tables(data: bytes) -> None:
    """The first byte says which file of a broker has the others as its content, and whether it has a sound backup. What
    cannot be read, or makes no sense, is named, unless its backup is sound."""
    if not data:
        return
    name = list(TABLES)[(data[0] & 0x7F) % len(TABLES)]
    root = _folder() / "broker"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(_store_folder(), root)
    (root / "timerlog").mkdir()
    for other in ("timercheck", TIMER_LOG):
        _write(root, other, TABLES[other])
    _write(root, name, data[1:])
    if data[0] & 0x80:
        _write(root, f"{name}.bak", TABLES[name])
    _loop().run_until_complete(_open(root))


def _write(root: Path, name: str, content: bytes) -> None:
    size = int(SETTINGS["mappedFileSizeTimerLog"])
    (root / "config" / name).write_bytes(content[:size].ljust(size, b"\0") if name == TIMER_LOG else content)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


async def _open(root: Path) -> None:
    broker = None
    try:
        broker = Broker(BrokerConfig.from_properties(SETTINGS), root, SystemClock())
        broker.open()
        for table in (broker.topics, broker.groups, broker.offsets):
            table.persist()
        broker.services.persist()
    except (ConfigError, StoreError):
        pass
    finally:
        if broker is not None:
            broker.store.close()


def table_corpus() -> list[bytes]:
    return [bytes([number | flag]) + text for number, text in enumerate(TABLES.values()) for flag in (0, 0x80)]


# Files of settings


def run_settings(data: bytes) -> None:
    """The first byte says whose: of a broker, a NameServer, a controller, a proxy; a NameServer's key values; Apache's
    proxy file."""
    if not data:
        return
    text, kind = data[1:].decode("utf-8", "replace"), data[0] % 6
    try:
        if kind < 4:
            found = parse_properties(text)
            if kind == 0:
                BrokerConfig.from_properties(found)
                StoreConfig.from_broker_config(found)
            else:
                (NamesrvConfig, ControllerConfig, ProxyConfig)[kind - 1].from_properties(found)
            return
        path = _folder() / "settings"
        path.write_bytes(data[1:])
        if kind == 4:
            KvConfig(path).load()
        else:
            ProxyConfig.from_properties(read_proxy_file(str(path)))
    except (ConfigError, StoreError):
        return


def settings_corpus() -> list[bytes]:
    return [
        b"\x00a=b\n#c\nd : e\\\n f", b"\x00\\u0041=1",
        b"\x00brokerName=b\nlistenPort=10911\nmessageDelayLevel=1s 5s 1m 2h\n",
        b"\x00flushDiskType=SYNC_FLUSH\nbrokerRole=SLAVE\n",
        b"\x00mappedFileSizeCommitLog=16384\nfileReservedTime=48\ndeleteWhen=04\nmaxMessageSize=65536\nbrokerId=1\n",
        b"\x01kvConfigPath=/x\nlistenPort=9876\nscanNotActiveBrokerInterval=5000\n",
        b"\x02controllerStorePath=/x\nlistenPort=9877\n",
        b"\x03grpcServerPort=8081\nproxyMode=CLUSTER\nnamesrvAddr=127.0.0.1:9876;h:1\n",
        b'\x04{"configTable":{"ns":{"k":"v"}}}', b'\x05{"grpcServerPort":8081,"namesrvAddr":"h:1","enableACL":false}',
    ]  # fmt: skip


TARGETS = {
    "store": Target(store_corpus, run_store),
    "batch": Target(batch_corpus, run_batch),
    "config file": Target(table_corpus, run_tables),
    "settings": Target(settings_corpus, run_settings),
}
