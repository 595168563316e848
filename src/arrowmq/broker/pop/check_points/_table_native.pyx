# cython: language_level=3
"""Check points by their receipts: the native form of `_table_plain`, which says what is right.

A lane finds a check point by the offset it begins at: offsets in flight lie close together, so they are kept in small
pages of places, which need no rehashing when there are a million of them. None of these objects is the garbage
collector's to look at. A closed check point leaves its lane, so no cycle is left behind; `clear` empties the pages.
"""
cimport cython
from collections import deque

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    int __builtin_popcountll(unsigned long long bits) noexcept nogil

NOT_WRITTEN = -1


@cython.no_gc
cdef class CheckPoint:
    def __init__(
        self, Lane lane not None, int64_t start_offset, int64_t pop_time, int64_t invisible_ms, offsets, int revive_queue,
        str broker_name not None, *, bint is_suspend=False, int tries=0, str client not None=""
    ):
        if len(offsets) > MOST_MESSAGES:
            raise ValueError(f"a check point counts {MOST_MESSAGES} messages at most, not {len(offsets)}")
        self.lane = lane
        self.start_offset = start_offset
        self.pop_time = pop_time
        self.invisible_ms = invisible_ms
        self.count = len(offsets)
        if self.count and (offsets[0] != start_offset or offsets[self.count - 1] - start_offset != self.count - 1):
            self.diffs = tuple([offset - start_offset for offset in offsets])
        self.revive_queue = revive_queue
        self.revive_offset = -1
        self.broker_name = broker_name
        self.is_suspend = is_suspend
        self.tries = tries
        self.client = client
        self.bucket = -1

    @property
    def key(self):
        return self.start_offset, self.pop_time

    @property
    def revive_time(self):
        return self.pop_time + self.invisible_ms

    @property
    def acked(self):
        return self.low | <object>self.high << 64

    @property
    def all_bits(self):
        return (1 << self.count) - 1

    @property
    def is_open(self):
        return self.has_open()

    @property
    def open_count(self):
        return self.count - __builtin_popcountll(self.low) - __builtin_popcountll(self.high)

    cdef bint has_open(self) noexcept:
        return __builtin_popcountll(self.low) + __builtin_popcountll(self.high) != self.count

    cdef bint is_acked(self, int index) noexcept:
        return (self.low >> index if index < 64 else self.high >> (index - 64)) & 1

    def offset_at(self, int index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.start_offset + (index if self.diffs is None else self.diffs[index])

    def offsets(self):
        return [self.offset_at(index) for index in range(self.count)]

    def open_offsets(self):
        return [self.offset_at(index) for index in range(self.count) if not self.is_acked(index)]

    def acked_offsets(self):
        return [self.offset_at(index) for index in range(self.count) if self.is_acked(index)]

    def index_of(self, int64_t offset):
        """Which of its messages has this offset; -1 if none."""
        return self.index(offset)

    cdef int index(self, int64_t offset) except -2:
        cdef int64_t diff = offset - self.start_offset
        if self.diffs is None:
            return <int>diff if 0 <= diff < self.count else -1
        return self.diffs.index(diff) if diff in self.diffs else -1

    @property
    def end_offset(self):
        """The offset behind its last message."""
        return self.offset_at(self.count - 1) + 1 if self.count else self.start_offset


cdef class Step:
    """The group's offset after a pop, in the order of the pops: it counts when the check point needs no memory."""
    cdef readonly int64_t next_offset
    cdef readonly CheckPoint check_point

    def __init__(self, int64_t next_offset, CheckPoint check_point):
        self.next_offset = next_offset
        self.check_point = check_point

    @property
    def is_done(self):
        cdef CheckPoint found = self.check_point
        return found is None or found.revive_offset != -1 or not found.has_open()


@cython.no_gc
cdef class Page:
    def __dealloc__(self):
        cdef int place
        for place in range(PAGE_OFFSETS):
            if self.places[place] != NULL:
                Py_DECREF(<object>self.places[place])
                self.places[place] = NULL


@cython.no_gc
cdef class Lane:
    def __init__(self, str topic not None, str group not None, int queue_id):
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.pages = {}
        self.moved = {}
        self.steps = deque()

    @property
    def is_idle(self):
        return not self.count and not self.steps and not self.is_busy

    def __iter__(self):
        cdef Page page
        cdef CheckPoint found
        cdef int place
        cdef list all = []
        for page in self.pages.values():
            for place in range(PAGE_OFFSETS):
                found = <CheckPoint>page.places[place] if page.places[place] != NULL else None
                while found is not None:
                    all.append(found)
                    found = found.following
        return iter(all)

    def __len__(self):
        return self.count

    def __bool__(self):
        return True

    def find(self, start_offset, pop_time):
        if not (-(1 << 62) < start_offset < 1 << 62 and -(1 << 62) < pop_time < 1 << 62):
            return None
        return self.get(start_offset, pop_time)

    cdef CheckPoint get(self, int64_t start_offset, int64_t pop_time):
        cdef CheckPoint found
        cdef PyObject* place
        cdef Page page = self.pages.get(start_offset >> 5)
        if page is None:
            return None
        place = page.places[start_offset & 31]
        if place == NULL:
            return None
        found = <CheckPoint>place
        while found is not None and found.pop_time != pop_time:
            found = found.following
        return found

    def enter(self, CheckPoint check_point not None):
        cdef int place = <int>(check_point.start_offset & 31)
        cdef Page page
        assert self.get(check_point.start_offset, check_point.pop_time) is None, "two check points with one receipt"
        page = self.pages.get(check_point.start_offset >> 5)
        if page is None:
            page = self.pages[check_point.start_offset >> 5] = Page()
        if page.places[place] != NULL:
            check_point.following = <CheckPoint>page.places[place]
            Py_DECREF(check_point.following)
        Py_INCREF(check_point)
        page.places[place] = <PyObject*>check_point
        page.count += 1
        self.count += 1

    def leave(self, CheckPoint check_point not None):
        cdef Page page = self.pages[check_point.start_offset >> 5]
        cdef int place = <int>(check_point.start_offset & 31)
        cdef CheckPoint before
        if page.places[place] == <PyObject*>check_point:
            page.places[place] = NULL
            if check_point.following is not None:
                Py_INCREF(check_point.following)
                page.places[place] = <PyObject*>check_point.following
            Py_DECREF(check_point)
        else:
            before = <CheckPoint>page.places[place] if page.places[place] != NULL else None
            while before is not None and before.following is not check_point:
                before = before.following
            if before is None:
                raise KeyError(check_point.key)
            before.following = check_point.following
        check_point.following = None
        page.count -= 1
        self.count -= 1
        if page.count == 0:
            del self.pages[check_point.start_offset >> 5]

    def free_pop_time(self, int64_t start_offset, int64_t now_ms):
        """A pop time that no other check point of this offset has: two of a millisecond would be taken for one."""
        while self.get(start_offset, now_ms) is not None:
            now_ms += 1
        return now_ms

    cdef int forget(self) except -1:
        self.is_forgotten = True
        self.pages = {}
        return 0


cdef class CheckPoints:
    """All open check points, by lane."""

    def __init__(self):
        self.lanes = {}
        self.on_closed = []

    def __iter__(self):
        return (found for lane in list(self.lanes.values()) for found in lane)

    def lane(self, topic, group, queue_id):
        key = (topic, group, queue_id)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(topic, group, queue_id)
        return lane

    def find_lane(self, topic, group, queue_id):
        return self.lanes.get((topic, group, queue_id))

    cpdef add(self, CheckPoint check_point):
        cdef Lane lane = check_point.lane
        cdef int64_t count = check_point.open_count
        lane.enter(check_point)
        lane.in_flight += count
        self.in_flight += count
        self.count += 1

    def move(self, offset, CheckPoint to not None):
        """From now on every receipt of this message means `to`."""
        to.lane.moved[offset] = to

    def settle(self, CheckPoint check_point not None, bits):
        """These messages are acknowledged, or were taken back. The last of them closes the check point."""
        if bits >> check_point.count:
            raise ValueError("bits of messages that the check point does not have")
        self.settle_bits(check_point, bits & 0xFFFFFFFFFFFFFFFF, bits >> 64)

    cdef int settle_low(self, CheckPoint check_point, uint64_t bits) except -1:
        return self.settle_bits(check_point, bits, 0)

    cdef int settle_bits(self, CheckPoint check_point, uint64_t low, uint64_t high) except -1:
        cdef Lane lane = check_point.lane
        cdef int64_t settled = (
            __builtin_popcountll(low & ~check_point.low) + __builtin_popcountll(high & ~check_point.high)
        )
        if not settled:
            return 0
        check_point.low |= low
        check_point.high |= high
        lane.in_flight -= settled
        self.in_flight -= settled
        if not check_point.has_open():
            lane.leave(check_point)
            self.count -= 1
            if check_point.count == 1 and lane.moved and lane.moved.get(check_point.start_offset) is check_point:
                del lane.moved[check_point.start_offset]
            for notify in self.on_closed:
                notify(check_point)
        return 0

    def forget_idle_lanes(self):
        for key in [key for key, lane in self.lanes.items() if lane.is_idle]:
            (<Lane>self.lanes.pop(key)).forget()

    def clear(self):
        for lane in self.lanes.values():
            (<Lane>lane).forget()
        self.lanes.clear()
        self.in_flight = self.count = 0


cdef enum:
    BLOCK = 512


@cython.no_gc
cdef class Block:
    cdef PyObject* places[BLOCK]

    def __dealloc__(self):
        cdef int place
        for place in range(BLOCK):
            if self.places[place] != NULL:
                Py_DECREF(<object>self.places[place])


@cython.no_gc
cdef class OpenCheckPoints:
    """Check points in the order of their places in a revive queue, in blocks of memory that never move."""
    cdef list blocks           # each a Block, the first one begins at `begin`
    cdef Py_ssize_t begin
    cdef Py_ssize_t end        # in the last block

    def __init__(self):
        self.clear()

    def clear(self):
        self.blocks = []
        self.begin = self.end = 0

    def __len__(self):
        return 0 if not self.blocks else (len(self.blocks) - 1) * BLOCK + self.end - self.begin

    def __iter__(self):
        cdef Py_ssize_t number, place
        cdef Block block
        for number, block in enumerate(list(self.blocks)):
            for place in range(
                self.begin if number == 0 else 0, self.end if number == len(self.blocks) - 1 else BLOCK
            ):
                yield <object>block.places[place]

    def append(self, CheckPoint check_point not None):
        cdef Block block
        if not self.blocks or self.end == BLOCK:
            self.blocks.append(Block())
            self.end = 0
        block = self.blocks[len(self.blocks) - 1]
        Py_INCREF(check_point)
        block.places[self.end] = <PyObject*>check_point
        self.end += 1

    def appendleft(self, CheckPoint check_point not None):
        cdef Block block
        if not self.blocks:
            self.append(check_point)
            return
        if self.begin == 0:
            self.blocks.insert(0, Block())
            self.begin = BLOCK
        self.begin -= 1
        block = self.blocks[0]
        Py_INCREF(check_point)
        block.places[self.begin] = <PyObject*>check_point

    def popleft(self):
        cdef Block block
        if not len(self):
            raise IndexError("there is none")
        block = self.blocks[0]
        found = <object>block.places[self.begin]
        block.places[self.begin] = NULL
        Py_DECREF(found)
        self.begin += 1
        if self.begin == BLOCK or (len(self.blocks) == 1 and self.begin == self.end):
            del self.blocks[0]
            self.begin = 0
            if not self.blocks:
                self.end = 0
        return found

    def first(self):
        """The first that is open."""
        cdef CheckPoint found
        while self.blocks:
            found = <CheckPoint>(<Block>self.blocks[0]).places[self.begin]
            if found.has_open():
                return found
            self.popleft()
        return None
