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
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

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


def by_age(CheckPoint check_point not None):
    return check_point.pop_time, check_point.start_offset


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

    def oldest(self, Py_ssize_t most):
        """Those that were popped first, the first one first. Of a million it makes no list."""
        cdef Page page
        cdef CheckPoint found
        cdef int place
        cdef list oldest = []
        cdef int64_t latest = INT64_MAX
        if most <= 0:
            return oldest
        for page in self.pages.values():
            for place in range(PAGE_OFFSETS):
                found = <CheckPoint>page.places[place] if page.places[place] != NULL else None
                while found is not None:
                    if found.pop_time <= latest:
                        oldest.append(found)
                        if len(oldest) >= 2 * most:
                            oldest.sort(key=by_age)
                            del oldest[most:]
                            latest = (<CheckPoint>oldest[most - 1]).pop_time
                    found = found.following
        oldest.sort(key=by_age)
        return oldest[:most]

    def find(self, start_offset, pop_time):
        if not (-(1 << 62) < start_offset < 1 << 62 and -(1 << 62) < pop_time < 1 << 62):
            return None
        return self.get(start_offset, pop_time)

    def moved_to(self, offset, pop_time):
        """What an older receipt of a message means since its invisible time was changed. One of another delivery, from
        before a reset perhaps, means nothing."""
        moved = self.moved.get(offset)
        return moved[0] if moved is not None and moved[1] <= pop_time < (<CheckPoint>moved[0]).pop_time else None

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


@cython.no_gc
cdef class Bucket:
    def __dealloc__(self):
        self.empty()

    cdef list empty(self):
        """All that were in it."""
        cdef list found = []
        cdef PyObject* place = self.first
        cdef CheckPoint check_point
        self.first = NULL
        while place != NULL:
            check_point = <CheckPoint>place
            place = check_point.due_after
            check_point.due_before = check_point.due_after = NULL
            check_point.bucket = -1
            found.append(check_point)
            Py_DECREF(check_point)
        return found


cdef class CheckPointBuckets:
    """Each bucket is a list through its check points, so none needs memory beside them. The last few buckets that were
    added to stay when they are empty: what is popped and acknowledged at once would make and drop them all the time."""

    def __init__(self):
        self.buckets = {}

    def __len__(self):
        return len(self.buckets)

    def __iter__(self):
        return iter(self.buckets)

    def __contains__(self, number):
        return number in self.buckets

    def add(self, CheckPoint check_point not None, int64_t number):
        """True if there was no such bucket."""
        return self.put(check_point, number)

    def remove(self, CheckPoint check_point not None, int64_t number):
        if check_point.bucket == number:
            self.drop(check_point)

    def take(self, int64_t number):
        """All of a bucket, which is gone with that."""
        cdef Bucket bucket = self.buckets.pop(number, None)
        if bucket is None:
            return []
        if self.recent[number & RECENT_MASK] == <PyObject*>bucket:
            self.recent[number & RECENT_MASK] = NULL
        return bucket.empty()

    def clear(self):
        for number in list(self.buckets):
            self.take(number)

    cdef bint put(self, CheckPoint check_point, int64_t number) except -1:
        cdef Bucket bucket, other
        cdef PyObject* place = self.recent[number & RECENT_MASK]
        cdef bint is_new = False
        if check_point.bucket >= 0:
            self.drop(check_point)
        if place != NULL and (<Bucket>place).number == number:
            bucket = <Bucket>place
        else:
            bucket = self.buckets.get(number)
            if bucket is None:
                bucket = Bucket()
                bucket.number = number
                self.buckets[number] = bucket
                is_new = True
            if place != NULL:
                other = <Bucket>place
                if other.first == NULL:
                    del self.buckets[other.number]
            self.recent[number & RECENT_MASK] = <PyObject*>bucket     # which the table of buckets keeps
        check_point.bucket = number
        check_point.due_before = NULL
        check_point.due_after = bucket.first
        if bucket.first != NULL:
            (<CheckPoint>bucket.first).due_before = <PyObject*>check_point
        bucket.first = <PyObject*>check_point
        Py_INCREF(check_point)
        return is_new

    cdef int drop(self, CheckPoint check_point) except -1:
        cdef int64_t number = check_point.bucket
        cdef Bucket bucket
        cdef PyObject* place
        if number < 0:
            return 0
        if check_point.due_after != NULL:
            (<CheckPoint>check_point.due_after).due_before = check_point.due_before
        if check_point.due_before != NULL:
            (<CheckPoint>check_point.due_before).due_after = check_point.due_after
        else:
            place = self.recent[number & RECENT_MASK]
            if place != NULL and (<Bucket>place).number == number:
                (<Bucket>place).first = check_point.due_after
            else:
                bucket = self.buckets[number]
                bucket.first = check_point.due_after
                if bucket.first == NULL:
                    del self.buckets[number]
        check_point.due_before = check_point.due_after = NULL
        check_point.bucket = -1
        Py_DECREF(check_point)
        return 0


cdef class CheckPoints:
    """All open check points, by lane; those to be taken back also by their moment."""

    def __init__(self):
        self.lanes = {}
        self.due = CheckPointBuckets()
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

    def move(self, offset, CheckPoint to not None, since_ms):
        """From now on every receipt of this message means `to`, of a delivery that began with the pop of that time."""
        to.lane.moved[offset] = (to, since_ms)

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
            if check_point.count == 1 and lane.moved:
                moved = lane.moved.get(check_point.start_offset)
                if moved is not None and moved[0] is check_point:
                    del lane.moved[check_point.start_offset]
            self.due.drop(check_point)
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
