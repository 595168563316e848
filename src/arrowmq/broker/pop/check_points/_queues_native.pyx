# cython: language_level=3
"""Revive queues as they are kept in memory, and whose turn it is: the native form of `_queues_plain`, which says what is
right."""
cimport cython

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t

from arrowmq.broker.pop.check_points._table_native cimport CheckPoint


@cython.no_gc
cdef class Block:
    def __dealloc__(self):
        cdef int place
        for place in range(BLOCK):
            if self.places[place] != NULL:
                Py_DECREF(<object>self.places[place])


@cython.no_gc
cdef class OpenCheckPoints:
    """Check points in the order of their places in a revive queue, in blocks of memory that never move."""
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
        self.push(check_point)

    cdef int push(self, CheckPoint check_point) except -1:
        cdef Block block
        cdef int number
        for number in range(LEAVING_AT_ONCE):      # so that never many have to leave at once
            if not self.blocks or (<CheckPoint>(<Block>self.blocks[0]).places[self.begin]).has_open():
                break
            self.popleft()
        if not self.blocks or self.end == BLOCK:
            self.blocks.append(Block())
            self.end = 0
        block = self.blocks[len(self.blocks) - 1]
        Py_INCREF(check_point)
        block.places[self.end] = <PyObject*>check_point
        self.end += 1
        return 0

    def estimate_open(self, Py_ssize_t looks):
        """How many are open, by a look at so many at even distances; of no more than that it is the exact number."""
        cdef Py_ssize_t stored = len(self), step = max(1, -(-stored // looks)), found = 0, place = self.begin
        cdef Py_ssize_t end = self.begin + stored
        while place < end:
            found += (<CheckPoint>(<Block>self.blocks[place // BLOCK]).places[place % BLOCK]).has_open()
            place += step
        return min(found * step, stored)

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


cdef class ReviveQueue:
    """What is known of one queue of the revive topic."""

    def __init__(self, int queue_id):
        self.queue_id = queue_id
        self.noted = -1
        self.open = OpenCheckPoints()

    def first_open(self):
        return self.open.first()


cdef class QueueTurn:
    """The revive queue of the next pop: one after the other."""

    def __init__(self, int count):
        self.count = count
        self.upcoming = 1 % count

    cpdef int take(self) except -1:
        cdef int taken = self.upcoming
        self.upcoming = (taken + 1) % self.count
        return taken


cdef class Chance:
    """A number below a hundred for each pop, by chance (splitmix64)."""

    def __init__(self, seed):
        self.seed(seed)

    def seed(self, seed):
        self.state = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        self.draw()

    cpdef int draw(self) except -1:
        """Another number from now on."""
        cdef uint64_t mixed
        self.state += <uint64_t>0x9E3779B97F4A7C15
        mixed = (self.state ^ self.state >> 30) * <uint64_t>0xBF58476D1CE4E5B9
        mixed = (mixed ^ mixed >> 27) * <uint64_t>0x94D049BB133111EB
        self.value = <int>((mixed ^ mixed >> 31) % 100)
        return 0
