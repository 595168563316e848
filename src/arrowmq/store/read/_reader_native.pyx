# cython: language_level=3
"""Finding the records that a read wants, without touching what lies on disk only: the native form of `_reader_plain`.

Python is called where another file has to be opened or the log begins elsewhere; all else is C. The kernel is asked for
large parts at once, and its answer is believed for a while: readers of one topic go over the same part of the log.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from arrowmq.store._positions_native cimport Marks
from arrowmq.store.append._tail_native cimport LogTail, QueueTail
from arrowmq.store.log._pin_native cimport Pin
from arrowmq.store.log._walk_native cimport CHECK_BODY_CRC, CHECK_RECORD_CRC, Parts, check
from arrowmq.wire._bytes cimport get32, get64

from arrowmq.store.read import _reader_plain as plain

cdef extern from *:
    """
    /* Says what will be read soon. */
    static inline void arrowmq_prefetch(const void *place, size_t size) {
        const char *at = (const char *)place, *end = at + size;
        for (; at < end; at += 64) __builtin_prefetch(at, 0, 2);
    }
    """
    void arrowmq_prefetch(const void* place, size_t size) noexcept nogil

cdef extern from "sys/mman.h":
    int mincore(void* address, size_t length, unsigned char* states) nogil

cdef enum:
    ENTRY_BYTES = 20
    SMALLEST_RECORD = 91
    FILLER_SIZE = 0x7FFFFFFF
    PAGE_BYTES = 4096
    STEP_PAGES = 512          # asked for at a time
    ENTRIES_SPAN = 64 * 1024  # of queue entries for which memory is asked at a time
    PART_BYTES = 1 << 20      # of the log for which memory is asked at a time
    BELIEVED_TIMES = 256      # until it is asked again

cdef int64_t SPAN_BYTES = plain.SPAN_BYTES
cdef int64_t HOT_BYTES = plain.HOT_BYTES


cdef bint pages_are_resident(const uint8_t* place, int64_t size) noexcept nogil:
    """Whether reading these bytes waits for no disk; where that is not known, the read must do."""
    cdef unsigned char states[STEP_PAGES]
    cdef size_t at = <size_t>place & ~<size_t>(PAGE_BYTES - 1)
    cdef size_t end = <size_t>place + <size_t>size
    cdef size_t length, page
    while at < end:
        length = min(end - at, <size_t>(STEP_PAGES * PAGE_BYTES))
        if mincore(<void*>at, length, states) != 0:
            return True
        for page in range((length + PAGE_BYTES - 1) // PAGE_BYTES):
            if not states[page] & 1:
                return False
        at += length
    return True


def is_resident(view, int64_t position, int64_t size):
    """Whether all pages of a part of a mapped file are in memory."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if position < 0 or size < 0 or position + size > buffer.len:
            raise ValueError("the place lies outside of the file")
        return pages_are_resident(<const uint8_t*>buffer.buf + position, size)
    finally:
        PyBuffer_Release(&buffer)


cdef class LogWindow:
    def __init__(self, commit_log):
        self.commit_log = commit_log

    cdef bint reach(self, int64_t physical) except -1:
        if self.pin is None or self.pin.place == NULL or physical < self.start or physical >= self.start + self.size:
            self.pin = None
            segment = self.commit_log.segment_at(physical)
            if segment is None:
                return False
            self.pin = segment.pin
            self.place = self.pin.place
            self.start = self.pin.start
            self.size = self.pin.size
        return True

    cdef void leave(self) noexcept:
        self.pin = None


cdef class Cursor:
    """One reader's place in one queue."""

    def __init__(self, queue):
        self.queue = queue
        self.tail = queue.tail
        self.min_of = -1

    cdef bint open(self, int64_t position) except -1:
        """Pin the file with this byte of the queue."""
        if (
            self.pin is None or self.pin.place == NULL or position < self.pin.start
            or position >= self.pin.start + self.pin.size
        ):
            self.pin = None
            self.hot_from = self.hot_to = 0
            segment = self.queue.segment_at(position)
            if segment is None:
                return False
            self.pin = segment.pin
        return True

    cdef int64_t readable_max(self, int64_t confirmed) except -1:
        """The max offset that a reader may see. Messages that are not confirmed yet are few, and lie at the end."""
        cdef QueueTail tail = self.tail
        cdef int64_t first = tail.file_start // ENTRY_BYTES
        cdef int64_t low, high = tail.next_offset, middle, step = 1
        if tail.max_physical <= confirmed:
            return tail.next_offset
        if tail.place == NULL or high * ENTRY_BYTES - tail.file_start > tail.limit:
            return self.queue.confirmed_max(confirmed)
        low = high
        while low > first and not is_confirmed(tail, low - 1, confirmed):
            high = low - 1
            low = max(first, low - step)
            step *= 2
        if low == first and first > 0 and (high == first or not is_confirmed(tail, first, confirmed)):
            return self.queue.confirmed_max(confirmed)
        while low < high:
            middle = (low + high) // 2
            if is_confirmed(tail, middle, confirmed):
                low = middle + 1
            else:
                high = middle
        return low


cdef inline bint is_confirmed(QueueTail tail, int64_t offset, int64_t confirmed) noexcept:
    cdef const uint8_t* entry = tail.place + offset * ENTRY_BYTES - tail.file_start
    cdef int32_t size = get32(entry + 8)
    return size == FILLER_SIZE or get64(entry) + size <= confirmed


cdef class QueueReader:
    def __init__(self, commit_log, limits, Marks positions not None):
        self.commit_log = commit_log
        self.tail = commit_log.tail
        self.positions = positions
        self.limits = limits
        self.scan_bytes, self.memory_bytes, in_memory, on_disk = limits
        self.memory_most_bytes, self.memory_most_count = in_memory
        self.disk_most_bytes, self.disk_most_count = on_disk
        self.window = LogWindow(commit_log)

    def find(self, Cursor cursor not None, int64_t offset, int64_t max_count, int64_t max_bytes, codes):
        """The confirmed records for an answer, of messages with one of these tag codes."""
        cdef Wanted wanted
        cdef Found found
        cdef int32_t numbers[MAX_CODES]
        cdef int outcome, index
        wanted.offset, wanted.max_count, wanted.max_bytes = offset, max_count, max_bytes
        wanted.codes = NULL
        wanted.code_count = 0
        if codes is not None:
            wanted.codes = numbers
            wanted.code_count = len(codes)
            if wanted.code_count <= MAX_CODES:
                for index, code in enumerate(codes):
                    numbers[index] = code
        outcome = self.find_records(cursor, &wanted, &found)
        if outcome != FOUND:
            return plain.Found(outcome)
        return plain.Found(
            FOUND, found.min_offset, found.max_offset, found.next_offset,
            tuple([found.starts[index] for index in range(found.count)]),
            tuple([found.sizes[index] for index in range(found.count)]), found.suggests_slave,
        )

    cdef int find_records(self, Cursor cursor, const Wanted* wanted, Found* found) except -1:
        cdef int64_t begin = self.commit_log.min_offset
        cdef int64_t position = wanted.offset * ENTRY_BYTES
        cdef int64_t limit = max((self.scan_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES, wanted.max_count)
        cdef int64_t confirmed = self.positions.confirmed()
        cdef int outcome
        found.max_offset = cursor.readable_max(confirmed)
        if wanted.offset < 0 or wanted.offset >= found.max_offset:
            return NOTHING
        if wanted.code_count > MAX_CODES or not cursor.open(position):
            return ODD
        limit = min(
            limit, found.max_offset - wanted.offset, (cursor.pin.start + cursor.pin.size - position) // ENTRY_BYTES
        )
        if limit < 1:
            return ODD
        if not self.entries_are_hot(cursor, position, limit * ENTRY_BYTES):
            return COLD
        if begin != cursor.min_of:
            cursor.min_offset = cursor.queue.min_offset(begin)
            cursor.min_of = begin
            if cursor.pin.place == NULL:     # other entries had to be read, which may have unmapped these
                return ODD
        found.min_offset = min(cursor.min_offset, found.max_offset)
        if wanted.offset < found.min_offset:
            return NOTHING
        outcome = self.scan(cursor, wanted, limit, confirmed, found)
        if outcome != FOUND:
            return outcome
        return self.look(found)

    cdef int scan(self, Cursor cursor, const Wanted* wanted, int64_t limit, int64_t confirmed, Found* found) except -1:
        """Choose records by their entries alone, with the limits of an answer."""
        cdef int64_t end = self.tail.start + self.tail.position
        cdef int64_t previous = cursor.min_of, last_scanned = end
        cdef int64_t number, physical, size, most_bytes, most_count
        cdef const uint8_t* entry
        cdef int32_t code
        cdef int index
        cdef bint is_wanted
        found.count = 0
        found.total_bytes = 0
        found.next_offset = wanted.offset
        entry = cursor.pin.place + (wanted.offset * ENTRY_BYTES - cursor.pin.start)
        for number in range(limit):
            physical = get64(entry)
            size = get32(entry + 8)
            code = get32(entry + 16)
            entry += ENTRY_BYTES
            # Entries are in the log's order; one that goes back points into a record.
            if physical < previous or size < SMALLEST_RECORD or size == FILLER_SIZE or physical > confirmed - size:
                return ODD
            if found.count:
                if found.count + 1 > wanted.max_count or found.total_bytes + size > wanted.max_bytes:
                    break
                if physical >= end - self.memory_bytes:
                    most_bytes, most_count = self.memory_most_bytes, self.memory_most_count
                else:
                    most_bytes, most_count = self.disk_most_bytes, self.disk_most_count
                if found.total_bytes + size > most_bytes or found.count >= most_count:
                    break
            found.next_offset = wanted.offset + number + 1
            previous = physical + size
            last_scanned = physical
            if wanted.codes != NULL:
                is_wanted = False
                for index in range(wanted.code_count):
                    if wanted.codes[index] == code:
                        is_wanted = True
                        break
                if not is_wanted:
                    continue
            if found.count == MAX_RECORDS:
                return ODD
            found.starts[found.count] = physical
            found.sizes[found.count] = <int32_t>size
            found.count += 1
            found.total_bytes += size
        found.suggests_slave = end - last_scanned > self.memory_bytes
        return FOUND if found.count else NOTHING

    cdef int look(self, Found* found) except -1:
        """Whether the records lie in one file, in memory, and are what their entries say. They are in the log's order."""
        cdef int64_t first = found.starts[0]
        cdef int64_t last = found.starts[found.count - 1] + found.sizes[found.count - 1]
        cdef const uint8_t* record
        cdef int number
        cdef Parts parts
        if not self.window.reach(first) or last > self.window.start + self.window.size:
            return ODD
        if first < self.hot_from():
            if last - first > SPAN_BYTES:
                return ODD
            if not self.log_is_hot(first, last):
                return COLD
        for number in range(found.count):
            arrowmq_prefetch(self.window.place + (found.starts[number] - self.window.start), 64)
        for number in range(found.count):
            record = self.window.place + (found.starts[number] - self.window.start)
            if get32(record) != found.sizes[number] or get64(record + 28) != found.starts[number]:
                return ODD
            if found.starts[number] < self.checked_from:
                if found.sizes[number] != check(
                    record, 0, found.sizes[number], found.starts[number], CHECK_BODY_CRC | CHECK_RECORD_CRC, &parts
                ):
                    return ODD
        return FOUND

    cdef int64_t hot_from(self) noexcept:
        return max(self.checked_from, self.tail.start + self.tail.position - HOT_BYTES)

    cdef bint asks(self, Pin pin, int64_t position, int64_t size) except -1:
        if self.residency is not None:
            return self.residency(pin.view, position, size)
        return pages_are_resident(pin.place + position, size)

    cdef bint entries_are_hot(self, Cursor cursor, int64_t position, int64_t size) except -1:
        """Whether these queue entries are in memory; a reader comes back for the next ones."""
        cdef Pin pin = cursor.pin
        cdef int64_t end = min(
            position + max(<int64_t>ENTRIES_SPAN, size), cursor.tail.next_offset * ENTRY_BYTES, pin.start + pin.size
        )
        if position >= cursor.hot_from and position + size <= cursor.hot_to and cursor.hot_times > 0:
            cursor.hot_times -= 1
            return True
        if self.asks(pin, position - pin.start, end - position):
            cursor.hot_from, cursor.hot_to, cursor.hot_times = position, end, BELIEVED_TIMES
            return True
        return self.asks(pin, position - pin.start, size)

    cdef bint log_is_hot(self, int64_t first, int64_t last) except -1:
        """Whether this part of the file in the window is in memory."""
        cdef int64_t part, begin, until
        cdef int64_t end = min(self.window.start + self.window.size, self.tail.start + self.tail.position)
        cdef KnownPart* known
        for part in range(first // PART_BYTES, (last - 1) // PART_BYTES + 1):
            known = &self.known[part % KNOWN_PARTS]
            if known.number == part and known.times > 0:
                known.times -= 1
                continue
            begin = max(part * PART_BYTES, self.window.start)
            until = min((part + 1) * PART_BYTES, end)
            if self.asks(self.window.pin, begin - self.window.start, until - begin):
                known.number, known.times = part, BELIEVED_TIMES
                continue
            begin, until = max(begin, first), min(until, last)
            if not self.asks(self.window.pin, begin - self.window.start, until - begin):
                return False
        return True

    def is_in_memory(self, int64_t physical, int64_t size):
        """Whether this part of the log can be read without waiting for the disk."""
        if size <= 0 or physical >= self.hot_from() or not self.window.reach(physical):
            return True
        return self.log_is_hot(physical, min(physical + size, self.window.start + self.window.size))

    cdef uint8_t* copy_records(self, const Found* found, uint8_t* target) noexcept:
        """The kernel could take the records where they lie, but reads memory that no cache holds more slowly than it is
        copied here: measured, an answer of 32 KiB costs a sixth more that way."""
        cdef const uint8_t* base = self.window.place
        cdef int64_t start = self.window.start
        cdef int number
        for number in range(found.count):
            if number + 2 < found.count:
                arrowmq_prefetch(base + (found.starts[number + 2] - start), found.sizes[number + 2])
            memcpy(target, base + (found.starts[number] - start), found.sizes[number])
            target += found.sizes[number]
        return target

    def copy(self, found):
        """The bytes of the records that were found, one behind the other."""
        cdef Found records
        cdef int index
        records.count = min(len(found.starts), MAX_RECORDS)
        records.total_bytes = 0
        for index in range(records.count):
            records.starts[index] = found.starts[index]
            records.sizes[index] = found.sizes[index]
            records.total_bytes += records.sizes[index]
            if not self.window.reach(records.starts[0]) or records.starts[index] < self.window.start or (
                records.sizes[index] < 0
                or records.starts[index] + records.sizes[index] > self.window.start + self.window.size
            ):
                raise ValueError("the records do not lie in one file of the log")
        body = PyBytes_FromStringAndSize(NULL, records.total_bytes)
        if records.count:
            self.copy_records(&records, <uint8_t*>PyBytes_AS_STRING(body))
        return body
