"""The short way of a pull: from the request's bytes to one block of bytes with the answer's head and its records.

It serves a pull that finds messages in memory, by tag hash or without a filter, for a reader that the general path has
admitted (`admit` asks it, and the answer is kept until anything changes that it rests on). Everything else (nothing
there yet, an offset out of range, SQL92, records on disk) it leaves to the general path, before any effect.

The Python twin (`_fastpull_plain.py`) knows no frame at all; a differential test shows that both answer the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from arrowmq.broker.fastpath._log_window_native cimport LogWindow, address_of
from arrowmq.broker.fastpath._request_native cimport (
    PULL, Request, Scratch, Text, code_of, new_scratch, read_request, text_to_int, u32
)
from arrowmq.remoting._intake_native cimport ShortWay
from arrowmq.store.append._tail_native cimport LogTail, QueueTail
from arrowmq.wire._bytes cimport put32
from arrowmq.wire.records._layout_native cimport Layout, crc_is_right, find_layout
from arrowmq.wire.frames._out_native cimport Out

cdef extern from *:
    """
    /* Tells the processor what will be read soon. */
    static inline void fetch_ahead(const void *place, size_t size) {
        const char *at = (const char *)place, *end = at + size;
        for (; at < end; at += 64) __builtin_prefetch(at, 0, 2);
    }
    """
    void fetch_ahead(const void* place, size_t size) noexcept nogil

cdef extern from "sys/mman.h":
    int mincore(void* address, size_t length, unsigned char* states) nogil

cdef enum:
    ENTRY_BYTES = 20
    MAX_CODES = 64            # a subscription with more tags goes the general way
    MAX_RECORDS = 1024        # in one answer
    SPAN_BYTES = 8 << 20        # of the log that one answer's records may lie apart, where memory has to be asked for them
    PAGE_BYTES = 4096
    SPAN_PAGES = 2050         # SPAN_BYTES in pages, and the two that stick out
    ENTRIES_SPAN = 64 * 1024  # of queue entries for which memory is asked at a time
    PIECE_BYTES = 1 << 20       # of the log for which memory is asked at a time
    KNOWN_PIECES = 64           # of which it is remembered
    BELIEVED_TIMES = 256        # until it is asked again
    SMALLEST_RECORD = 91
    FLAG_COMMIT = 1           # of a pull's sysFlag
    LAST_FIELD = 18
    # figures of an answer, in the order of `fastpath._PULL_FIGURES`
    FIGURE_OPAQUE = 0
    FIGURE_NEXT = 1
    FIGURE_MIN = 2
    FIGURE_MAX = 3
    FIGURE_TOPIC_FLAG = 4
    FIGURE_GROUP_FLAG = 5


cdef list FIELD_NAMES = [
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis",
    "subscription", "subVersion", "expressionType", "maxMsgBytes", "requestSource", "proxyFrowardClientId", "bname", "ns",
    "nsd", "lo", "oway",
]


cdef inline int64_t s64(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t>u32(at) << 32) | u32(at + 4))


cdef struct Wanted:
    int64_t offset
    int64_t max_count
    int64_t max_bytes
    int64_t sys_flag
    int64_t commit_offset


cdef struct Found:
    int count
    int64_t total_bytes
    int64_t next_offset
    int64_t max_offset
    int64_t starts[MAX_RECORDS]
    int32_t sizes[MAX_RECORDS]


cdef struct Piece:
    int64_t number              # which piece of the log was found in memory
    int times                   # for so many answers more that is believed


cdef class Grant:
    """What the general path found for a reader: one group reading one queue with one subscription."""
    cdef object topics_version      # what it rests on
    cdef object groups_version
    cdef object client_changes
    cdef object permission
    cdef str group
    cdef str topic
    cdef int32_t queue_id
    cdef object queue
    cdef QueueTail tail
    cdef bint has_codes
    cdef int code_count
    cdef int32_t codes[MAX_CODES]
    cdef int64_t topic_flag
    cdef int64_t group_flag
    cdef dict pulled
    cdef dict committed              # what the group committed, once it has
    cdef object queue_key
    # the file of queue entries in use
    cdef object entries
    cdef const uint8_t* entries_place
    cdef int64_t entries_start
    cdef int64_t entries_size
    cdef int64_t hot_from            # in the queue: entries between these two were found in memory
    cdef int64_t hot_to
    cdef int64_t min_of              # the log's begin that `min_offset` was found for
    cdef int64_t min_offset
    # since they were last taken
    cdef int64_t times
    cdef int64_t messages
    cdef int64_t size


cdef class FastPull(ShortWay):
    """Called with a connection and its bytes; see the module."""
    cdef LogTail log
    cdef object commit_log
    cdef list json_pieces
    cdef list json_order
    cdef bytes binary_start
    cdef object admit
    cdef object topics
    cdef object groups
    cdef object clients
    cdef object config
    cdef object commit
    cdef object commits_of
    cdef int64_t commits             # written into tables of `commits_of` since they were last taken
    cdef dict resets
    cdef dict grants
    cdef Scratch scratch
    cdef Out key                # of the reader at hand
    cdef int64_t scan_bytes
    cdef int64_t memory_bytes
    cdef int64_t memory_most_bytes
    cdef int64_t memory_most_count
    cdef int64_t disk_most_bytes
    cdef int64_t disk_most_count
    cdef int64_t checked_from
    cdef int64_t hot_bytes
    cdef Piece[KNOWN_PIECES] pieces
    cdef LogWindow window
    cdef readonly int64_t taken_messages

    def __cinit__(self):
        self.scratch = new_scratch()

    def __dealloc__(self):
        free(self.scratch.data)

    def __init__(
        self, LogTail log, commit_log, answers, *, admit, rests_on, commit, commits_of, dict resets, int64_t scan_bytes,
        int64_t memory_bytes, tuple in_memory, tuple on_disk, int64_t checked_from, int64_t hot_bytes
    ):
        self.log = log
        self.commit_log = commit_log
        self.json_pieces, self.json_order, self.binary_start = answers
        self.admit = admit
        self.topics, self.groups, self.clients, self.config = rests_on
        self.commit = commit
        self.commits_of = commits_of
        self.resets = resets
        self.scan_bytes = scan_bytes
        self.memory_bytes = memory_bytes
        self.memory_most_bytes, self.memory_most_count = in_memory
        self.disk_most_bytes, self.disk_most_count = on_disk
        self.checked_from = checked_from
        self.hot_bytes = hot_bytes
        self.grants = {}
        self.key = Out()
        self.window = LogWindow(commit_log)

    def forget(self):
        """Tables that are written here were replaced: ask anew for each reader."""
        cdef Grant grant
        for grant in self.grants.values():
            grant.topics_version = None

    def take_commits(self):
        """How often an offset was committed since the last call."""
        commits, self.commits = self.commits, 0
        return commits

    def take_counts(self):
        """What was read since the last call: (group, topic, queue id, messages, bytes, pulls)."""
        cdef Grant grant
        cdef list taken = []
        for grant in self.grants.values():
            if grant.times:
                taken.append((grant.group, grant.topic, grant.queue_id, grant.messages, grant.size, grant.times))
                grant.times = grant.messages = grant.size = 0
        return taken

    cdef Py_ssize_t serve(self, connection, const uint8_t* data, Py_ssize_t size, Out out) except -1:
        """The first frame and its answer."""
        cdef Request request
        if self.resets or not read_request(data, data + size, &request, &self.scratch):
            return 0
        if request.code == PULL and request.flag == 0 and request.body.size == 0 and self.answer(&request, connection, out):
            return request.frame_size
        return 0

    cdef bint answer(self, Request* request, connection, Out out) except -1:
        cdef Wanted wanted
        cdef int64_t number, queue_id
        cdef Grant grant
        cdef Found found
        if not (
            text_to_int(request.fields[2], 0, 0x7FFFFFFF, &queue_id)
            and text_to_int(request.fields[3], 0, 0x7FFFFFFFFFFFFFF, &wanted.offset)
            and text_to_int(request.fields[4], 1, MAX_RECORDS, &wanted.max_count)
            and text_to_int(request.fields[5], 0, 0x1F, &wanted.sys_flag)
            and text_to_int(request.fields[6], -0x7FFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFF, &wanted.commit_offset)
            and text_to_int(request.fields[7], -0x7FFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFF, &number)
            and text_to_int(request.fields[9], -0x7FFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFF, &number)
        ):
            return False
        wanted.max_bytes = 128 << 20
        if request.fields[11].size:
            if not text_to_int(request.fields[11], -0x80000000LL, 0x7FFFFFFF, &number):
                return False
            wanted.max_bytes = min(max(number, 100), 128 << 20)
        if request.fields[12].size and not text_to_int(request.fields[12], -0x80000000LL, 0x7FFFFFFF, &number):
            return False
        grant = self.grant_of(request, connection)
        if grant is None or not self.find(grant, &wanted, &found, self.commit_log.min_offset):
            return False
        self.write(request, grant, &found, out)
        if wanted.sys_flag & FLAG_COMMIT and wanted.commit_offset >= 0:
            self.note_commit(grant, wanted.commit_offset)
        grant.pulled[grant.queue_key] = found.next_offset
        grant.times += 1
        grant.messages += found.count
        grant.size += found.total_bytes
        self.taken_messages += found.count
        return True

    cdef int note_commit(self, Grant grant, int64_t offset) except -1:
        """As the general path does it, which takes the first of a queue, and one that goes back."""
        cdef PyObject* before = NULL
        if grant.committed is not None:
            before = PyDict_GetItem(grant.committed, grant.queue_key)
        if before == NULL or <int64_t><object>before > offset:
            self.commit(grant.group, grant.topic, grant.queue_id, offset)
            grant.committed = self.commits_of(grant.group, grant.topic)
        else:
            grant.committed[grant.queue_key] = offset
            self.commits += 1
        return 0

    cdef Grant grant_of(self, Request* request, connection):
        """The kept admission of this reader, or a new one, or None. Offsets and amounts are not part of it."""
        cdef int slot
        cdef Grant grant
        cdef bytes key
        cdef Py_ssize_t room = 4 * (LAST_FIELD + 1), size
        cdef uint8_t* at
        for slot in range(LAST_FIELD + 1):
            room += request.fields[slot].size
        self.key.clear()
        self.key.reserve(room)
        at = self.key.data
        for slot in range(LAST_FIELD + 1):
            if slot == 3 or slot == 4 or slot == 6 or slot == 7 or slot == 11 or slot == 12:
                continue
            size = request.fields[slot].size
            put32(at, size)
            memcpy(at + 4, request.fields[slot].data, size)
            at += 4 + size
        key = PyBytes_FromStringAndSize(<const char*>self.key.data, at - self.key.data)
        grant = self.grants.get(key)
        if grant is not None and self.is_current(grant):
            return grant
        fields = {}
        for slot in range(LAST_FIELD + 1):
            if request.fields[slot].data != NULL:
                text = (<const char*>request.fields[slot].data)[: request.fields[slot].size]
                fields[FIELD_NAMES[slot]] = text.decode("utf-8", "replace")
        admitted = self.admit(fields, connection)
        if admitted is None:
            self.grants.pop(key, None)
            return None
        return self.keep(key, admitted, grant)

    cdef bint is_current(self, Grant grant) except -1:
        return (
            grant.topics_version is self.topics.version
            and grant.groups_version is self.groups.version
            and grant.client_changes == self.clients.changes
            and grant.permission == self.config.broker_permission
        )

    cdef Grant keep(self, bytes key, admitted, Grant before):
        cdef Grant grant = Grant.__new__(Grant)
        grant.topics_version, grant.groups_version = self.topics.version, self.groups.version
        grant.client_changes, grant.permission = self.clients.changes, self.config.broker_permission
        (grant.group, grant.topic, grant.queue_id, grant.queue, codes, grant.topic_flag, grant.group_flag, grant.pulled) = admitted
        grant.queue_key = grant.queue_id
        grant.tail = grant.queue.tail
        grant.min_of = -1
        grant.has_codes = codes is not None
        if grant.has_codes:
            if len(codes) > MAX_CODES:
                return None
            for code in codes:
                grant.codes[grant.code_count] = code
                grant.code_count += 1
        if before is not None:
            grant.times, grant.messages, grant.size = before.times, before.messages, before.size
        self.grants[key] = grant
        return grant

    cdef bint find(self, Grant grant, Wanted* wanted, Found* found, int64_t log_begin) except -1:
        """Choose the records by queue entries alone, with the general path's limits. False if it is not plain."""
        cdef int64_t end = self.log.start + self.log.position
        cdef int64_t at, physical, size, limit, most_bytes, most_count, first = 0
        cdef const uint8_t* entry
        cdef int number
        cdef int32_t code
        cdef bint is_wanted
        found.count = 0
        found.total_bytes = 0
        found.max_offset = grant.tail.next_offset
        if wanted.offset >= found.max_offset:
            return False
        at = wanted.offset * ENTRY_BYTES
        if grant.entries is None or at < grant.entries_start or at >= grant.entries_start + grant.entries_size:
            if not self.open_entries(grant, at):
                return False
        limit = (self.scan_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES
        if wanted.max_count > limit:
            limit = wanted.max_count
        limit = min(limit, found.max_offset - wanted.offset, (grant.entries_start + grant.entries_size - at) // ENTRY_BYTES)
        if (at < grant.hot_from or at + limit * ENTRY_BYTES > grant.hot_to) and not entries_are_hot(grant, at, limit * ENTRY_BYTES):
            return False
        if log_begin != grant.min_of:
            grant.min_offset = grant.queue.min_offset(log_begin)
            grant.min_of = log_begin
        if wanted.offset < grant.min_offset:
            return False
        found.next_offset = wanted.offset
        for number in range(<int>limit):
            entry = grant.entries_place + (at - grant.entries_start) + number * ENTRY_BYTES
            physical = s64(entry)
            size = <int32_t>u32(entry + 8)
            if physical < log_begin or size < SMALLEST_RECORD or size == 0x7FFFFFFF or physical + size > end:
                return False
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
            if grant.has_codes:
                code = <int32_t>u32(entry + 16)
                is_wanted = False
                for index in range(grant.code_count):
                    if grant.codes[index] == code:
                        is_wanted = True
                        break
                if not is_wanted:
                    continue
            if found.count == MAX_RECORDS:
                return False
            found.starts[found.count] = physical
            found.sizes[found.count] = <int32_t>size
            found.count += 1
            found.total_bytes += size
        if not found.count:
            return False
        return self.is_at_hand(found, log_begin, end)

    cdef bint open_entries(self, Grant grant, int64_t at) except -1:
        segment = grant.queue.segment_at(at)
        if segment is None:
            return False
        view = segment.view
        grant.entries_place = address_of(view)
        grant.entries = view
        grant.entries_start = segment.start
        grant.entries_size = segment.size
        grant.hot_from = grant.hot_to = 0
        return True

    cdef bint is_at_hand(self, Found* found, int64_t log_begin, int64_t end) except -1:
        """Whether the records lie in one segment, in memory, and are what their entries say."""
        cdef int64_t first = found.starts[0]
        cdef int64_t last = found.starts[found.count - 1] + found.sizes[found.count - 1]
        cdef const uint8_t* record
        cdef int number
        cdef Layout layout
        if not self.window.reach(first, log_begin):
            return False
        if last > self.window.start + self.window.size:
            return False
        if first + self.hot_bytes < end:
            if last - first > SPAN_BYTES:
                return False
            if not self.is_hot(first, last, end):
                return False
        for number in range(found.count):
            fetch_ahead(self.window.place + (found.starts[number] - self.window.start), 64)
        for number in range(found.count):
            record = self.window.place + (found.starts[number] - self.window.start)
            if <int32_t>u32(record) != found.sizes[number] or s64(record + 28) != found.starts[number]:
                return False
            if found.starts[number] < self.checked_from:
                if not find_layout(record, found.sizes[number], &layout) or not crc_is_right(record, &layout):
                    return False
        return True

    cdef bint is_hot(self, int64_t first, int64_t last, int64_t end) noexcept:
        """Whether this part of the log is in memory. It is asked for in large pieces, and the answer is believed for a
        while: readers of one topic go over the same part of the log, queue by queue."""
        cdef int64_t piece, begin, until
        cdef Piece* known
        for piece in range(first // PIECE_BYTES, (last - 1) // PIECE_BYTES + 1):
            known = &self.pieces[piece % KNOWN_PIECES]
            if known.number == piece and known.times > 0:
                known.times -= 1
                continue
            begin = max(piece * PIECE_BYTES, self.window.start)
            until = min((piece + 1) * PIECE_BYTES, self.window.start + self.window.size, end)
            if is_in_memory(self.window.place + (begin - self.window.start), until - begin):
                known.number, known.times = piece, BELIEVED_TIMES
                continue
            begin, until = max(begin, first), min(until, last)
            if not is_in_memory(self.window.place + (begin - self.window.start), until - begin):
                return False
        return True

    cdef int write(self, Request* request, Grant grant, Found* found, Out out) except -1:
        """The whole frame, head and records.

        The kernel could take the records where they lie, but reads memory that no cache holds more slowly than it is copied
        here: measured, an answer of 32 KiB costs a sixth more that way.
        """
        cdef Py_ssize_t start = out.size
        cdef uint8_t* target
        cdef int number
        out.reserve(2048 + found.total_bytes)
        out.size += 8
        if request.is_json:
            self.write_json(request, grant, found, out)
        else:
            self.write_binary(request, grant, found, out)
        out.set_u32(start, <uint32_t>(out.size - start - 4 + found.total_bytes))
        out.set_u32(start + 4, <uint32_t>(out.size - start - 8) | (0 if request.is_json else 1 << 24))
        target = out.data + out.size
        for number in range(found.count):
            if number + 2 < found.count:
                fetch_ahead(self.window.place + (found.starts[number + 2] - self.window.start), found.sizes[number + 2])
            memcpy(target, self.window.place + (found.starts[number] - self.window.start), found.sizes[number])
            target += found.sizes[number]
        out.size = target - out.data
        return 0

    cdef void write_json(self, Request* request, Grant grant, Found* found, Out out) noexcept:
        cdef Py_ssize_t index
        cdef int figure
        cdef int64_t figures[6]
        figures[FIGURE_OPAQUE] = request.opaque
        figures[FIGURE_NEXT] = found.next_offset
        figures[FIGURE_MIN] = grant.min_offset
        figures[FIGURE_MAX] = found.max_offset
        figures[FIGURE_TOPIC_FLAG] = grant.topic_flag
        figures[FIGURE_GROUP_FLAG] = grant.group_flag
        for index in range(6):
            out.put_bytes(<bytes>self.json_pieces[index])
            figure = self.json_order[index]
            out.put_decimal(figures[figure])
        out.put_bytes(<bytes>self.json_pieces[6])

    cdef void write_binary(self, Request* request, Grant grant, Found* found, Out out) noexcept:
        cdef Py_ssize_t ext
        out.put_bytes(self.binary_start)
        out.put_u32(<uint32_t>request.opaque)
        out.put_u32(1)                   # flag: an answer
        out.put_u32(5)
        out.put(b"FOUND", 5)
        ext = out.size
        out.size += 4
        out.put_number_entry(b"suggestWhichBrokerId", 20, 0)
        out.put_number_entry(b"nextBeginOffset", 15, found.next_offset)
        out.put_number_entry(b"minOffset", 9, grant.min_offset)
        out.put_number_entry(b"maxOffset", 9, found.max_offset)
        out.put_number_entry(b"topicSysFlag", 12, grant.topic_flag)
        out.put_number_entry(b"groupSysFlag", 12, grant.group_flag)
        out.set_u32(ext, <uint32_t>(out.size - ext - 4))


cdef bint is_in_memory(const uint8_t* place, int64_t size) noexcept nogil:
    """Whether reading these bytes, SPAN_BYTES at most, waits for no disk."""
    cdef unsigned char states[SPAN_PAGES]
    cdef size_t begin = <size_t>place
    cdef size_t length = <size_t>size + (begin & (PAGE_BYTES - 1)), page
    begin -= begin & (PAGE_BYTES - 1)
    if mincore(<void*>begin, length, states) != 0:
        return False
    for page in range((length + PAGE_BYTES - 1) // PAGE_BYTES):
        if not states[page] & 1:
            return False
    return True


cdef bint entries_are_hot(Grant grant, int64_t at, int64_t size) noexcept:
    """Whether these queue entries are in memory. What was found there is kept: a reader comes back for the next ones."""
    cdef int64_t end = min(
        max(at + ENTRIES_SPAN, at + size), grant.tail.next_offset * ENTRY_BYTES, grant.entries_start + grant.entries_size
    )
    if end - at > SPAN_BYTES or not is_in_memory(grant.entries_place + (at - grant.entries_start), end - at):
        return False
    grant.hot_from, grant.hot_to = at, end
    return True
