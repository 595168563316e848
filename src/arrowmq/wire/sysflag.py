"""Bits of the flags that travel with messages, pulls, topics and permissions."""

from __future__ import annotations

# A message's sys flag
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_NOT = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300
COMPRESSION_MASK = 0x700

# The sys flag of a pull request
PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10

# A topic's sys flag
TOPIC_UNIT = 0x1
TOPIC_UNIT_SUBSCRIPTION = 0x2

# Permissions of a topic or broker
PERM_PRIORITY = 0x8
PERM_READ = 0x4
PERM_WRITE = 0x2
PERM_INHERIT = 0x1


def transaction_type(sys_flag: int) -> int:
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    return (sys_flag & ~TRANSACTION_MASK) | transaction
