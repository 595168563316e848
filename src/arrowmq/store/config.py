"""The store's settings: Apache's keys, in Python's spelling, with Apache's defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from arrowmq.store.errors import StoreError

SYNC_FLUSH = "SYNC_FLUSH"
ASYNC_FLUSH = "ASYNC_FLUSH"

#: Names whose Apache spelling does not follow from ours.
_SPELLINGS = {
    "check_crc_on_recover": "checkCRCOnRecover",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
}
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def apache_key(name: str) -> str:
    """`flush_disk_type` -> `flushDiskType`."""
    return _SPELLINGS.get(name) or re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), name)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`"1s 5s 1m"` -> milliseconds of level 1, 2, 3."""
    levels = []
    for word in text.split():
        if not re.fullmatch(r"[0-9]+[smhd]", word):
            raise StoreError(f"messageDelayLevel: {word!r} is no delay; write a number and s, m, h or d, as 5m")
        levels.append(int(word[:-1]) * _DELAY_UNITS_MS[word[-1]])
    if not levels:
        raise StoreError("messageDelayLevel is empty; write at least one delay, as in '1s 5s 10s'")
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Sizes in bytes, times in milliseconds unless the name says otherwise; ratios in percent, as Apache has them."""

    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000
    mapper_file_size_batch_consume_queue: int = 13_800_000
    max_message_size: int = 4_194_304
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    check_crc_on_recover: bool = True

    flush_disk_type: str = ASYNC_FLUSH
    sync_flush_timeout: int = 5000
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000

    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    access_message_in_memory_max_ratio: int = 40
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    max_filter_message_size: int = 16_000

    delete_when: str = "04"
    file_reserved_time: int = 72
    delete_commit_log_files_interval: int = 100
    delete_file_batch_max: int = 10
    clean_resource_interval: int = 10_000
    clean_file_forcibly_enable: bool = True
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    #: ArrowMQ's own: keep at most so many bytes of commit log; 0 means no such limit.
    commit_log_max_bytes: int = 0
    #: ArrowMQ's own: how fast the log is read again in the background to find what a disk has changed; 0: not at all.
    scrub_bytes_per_second: int = 0

    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False

    def __post_init__(self) -> None:
        if self.flush_disk_type not in (SYNC_FLUSH, ASYNC_FLUSH):
            raise StoreError(f"flushDiskType is {self.flush_disk_type!r}; it must be SYNC_FLUSH or ASYNC_FLUSH")
        if self.mapped_file_size_commit_log < 4096:
            raise StoreError("mappedFileSizeCommitLog must be at least 4096 bytes")
        if self.max_hash_slot_num < 1 or self.max_index_num < 2:
            raise StoreError("maxHashSlotNum must be at least 1 and maxIndexNum at least 2")
        parse_delay_levels(self.message_delay_level)

    @classmethod
    def from_broker_config(cls, settings: dict[str, str]) -> StoreConfig:
        """Picks the store's keys out of a broker's settings; keys that are not the store's are left to others."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = settings.get(apache_key(field.name))
            if text is not None:
                values[field.name] = _parse(apache_key(field.name), text, field.type)
        return cls(**values)

    @property
    def is_sync_flush(self) -> bool:
        return self.flush_disk_type == SYNC_FLUSH

    @property
    def queue_file_bytes(self) -> int:
        """The size of a consume queue file: Apache rounds the setting up to whole entries."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def index_file_bytes(self) -> int:
        return 40 + 4 * self.max_hash_slot_num + 20 * self.max_index_num

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        return parse_delay_levels(self.message_delay_level)


def _parse(key: str, text: str, kind: Any) -> object:
    if kind == "bool":
        if text.strip().lower() not in ("true", "false"):
            raise StoreError(f"{key} is {text!r}; it must be true or false")
        return text.strip().lower() == "true"
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise StoreError(f"{key} is {text!r}; it must be a whole number") from None
    return text
