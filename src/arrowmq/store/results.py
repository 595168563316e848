"""What a put and a get answer, with Apache's names for the outcomes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from arrowmq.store.positions import Appended


class PutStatus(Enum):
    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


NOWHERE = Appended(-1)


@dataclass(slots=True)
class Put:
    """Where a message went. `reason` says why a put was refused, in words for the sender."""

    status: PutStatus
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0
    end: Appended = NOWHERE
    count: int = 0
    reason: str | None = None

    @property
    def is_ok(self) -> bool:
        return self.status is PutStatus.PUT_OK


class GetStatus(Enum):
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class EntryFilter(Protocol):
    """Which messages a reader wants: first asked with the queue entry alone, then, if it needs, with the record."""

    needs_record: bool

    @property
    def codes(self) -> Collection[int]:
        """What `matches_entry` looks for in the low 32 bits of an entry's code, signed. Empty: any will do."""

    def matches_entry(self, tags_code: int) -> bool: ...

    def matches_record(self, record: memoryview) -> bool: ...


@dataclass(slots=True)
class Got:
    """The outcome of a read. `pieces` are views of the mapped log: neighbours in the log come as one view."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    pieces: list[memoryview] = field(default_factory=list)
    count: int = 0
    total_bytes: int = 0
    first_physical_offset: int = -1
    last_physical_offset: int = -1
    suggests_slave: bool = False

    def release(self) -> None:
        """Let go of the mapped files; a file that retention deleted meanwhile is given back to the disk then."""
        for piece in self.pieces:
            piece.release()
        self.pieces = []

    def body(self) -> bytes:
        return b"".join(self.pieces)


class Boundary(Enum):
    """Which of the neighbours a search by time means, when no message has exactly that time."""

    LOWER = "LOWER"
    UPPER = "UPPER"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a consume queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class Hole(NamedTuple):
    """Bytes of the log that were forced to disk and are no records any more."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a store found and did."""

    was_clean: bool
    min_physical_offset: int
    end: int
    cut_bytes: int
    records_read: int
    bytes_read: int
    entries_rebuilt: int
    queues: int
    reason: str
    holes: tuple[Hole, ...] = ()
