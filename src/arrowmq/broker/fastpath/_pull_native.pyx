"""The short way of a pull: from the request's bytes to one block of bytes with the answer's head and its records.

It serves a pull that finds messages in memory, by tag hash or without a filter, for a reader that the general path has
admitted (`admit` asks it, and the answer is kept until anything changes that it rests on). Everything else (nothing
there yet, an offset out of range, SQL92, records on disk) it leaves to the general path, before any effect.

The Python twin (`_fastpull_plain.py`) knows no frame at all; a differential test shows that both answer the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from arrowmq.broker.fastpath._request_native cimport (
    PULL, Request, Scratch, Text, code_of, new_scratch, read_request, text_to_int
)
from arrowmq.remoting._intake_native cimport ShortWay
from arrowmq.store.read._reader_native cimport FOUND, MAX_CODES, MAX_RECORDS, Cursor, Found, QueueReader, Wanted
from arrowmq.wire._bytes cimport put32
from arrowmq.wire.frames._out_native cimport Out

cdef enum:
    FLAG_COMMIT = 1           # of a pull's sysFlag
    LAST_FIELD = 18
    # figures of an answer, in the order of `fastpath._PULL_FIGURES`
    FIGURE_OPAQUE = 0
    FIGURE_BROKER = 1
    FIGURE_NEXT = 2
    FIGURE_MIN = 3
    FIGURE_MAX = 4
    FIGURE_TOPIC_FLAG = 5
    FIGURE_GROUP_FLAG = 6
    FIGURES = 7


cdef list FIELD_NAMES = [
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis",
    "subscription", "subVersion", "expressionType", "maxMsgBytes", "requestSource", "proxyFrowardClientId", "bname", "ns",
    "nsd", "lo", "oway",
]


cdef class Grant:
    """What the general path found for a reader: one group reading one queue with one subscription."""
    cdef object topics_version      # what it rests on
    cdef object groups_version
    cdef object client_changes
    cdef str group
    cdef str topic
    cdef int32_t queue_id
    cdef Cursor cursor
    cdef bint has_codes
    cdef int code_count
    cdef int32_t codes[MAX_CODES]
    cdef int64_t topic_flag
    cdef int64_t group_flag
    cdef int64_t broker_id           # where the group reads on while it keeps up
    cdef int64_t slow_broker_id      # and when it reads what lies far back
    cdef dict pulled
    cdef dict committed              # what the group committed, once it has
    cdef object queue_key
    # since they were last taken
    cdef int64_t times
    cdef int64_t messages
    cdef int64_t size


cdef class FastPull(ShortWay):
    """Called with a connection and its bytes; see the module."""
    cdef QueueReader reader
    cdef list json_pieces
    cdef list json_order
    cdef bytes binary_start
    cdef object admit
    cdef object is_open
    cdef object topics
    cdef object groups
    cdef object clients
    cdef object commit
    cdef object commits_of
    cdef int64_t commits             # written into tables of `commits_of` since they were last taken
    cdef dict resets
    cdef dict grants
    cdef Scratch scratch
    cdef Out key                # of the reader at hand
    cdef readonly int64_t taken_messages

    def __cinit__(self):
        self.scratch = new_scratch()

    def __dealloc__(self):
        free(self.scratch.data)

    def __init__(
        self, QueueReader reader, answers, *, is_open, admit, rests_on, commit, commits_of, dict resets
    ):
        self.reader = reader
        self.json_pieces, self.json_order, self.binary_start = answers
        self.is_open = is_open
        self.admit = admit
        self.topics, self.groups, self.clients = rests_on
        self.commit = commit
        self.commits_of = commits_of
        self.resets = resets
        self.grants = {}
        self.key = Out()

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
        if self.resets or not self.is_open() or not read_request(data, data + size, &request, &self.scratch):
            return 0
        if request.code == PULL and request.flag == 0 and request.body.size == 0 and self.answer(&request, connection, out):
            return request.frame_size
        return 0

    cdef bint answer(self, Request* request, connection, Out out) except -1:
        cdef Wanted wanted
        cdef int64_t number, queue_id, sys_flag, commit_offset
        cdef Grant grant
        cdef Found found
        if not (
            text_to_int(request.fields[2], 0, 0x7FFFFFFF, &queue_id)
            and text_to_int(request.fields[3], 0, 0x7FFFFFFFFFFFFFF, &wanted.offset)
            and text_to_int(request.fields[4], 1, MAX_RECORDS, &wanted.max_count)
            and text_to_int(request.fields[5], 0, 0x1F, &sys_flag)
            and text_to_int(request.fields[6], -0x7FFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFF, &commit_offset)
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
        if grant is None:
            return False
        wanted.codes = grant.codes if grant.has_codes else NULL
        wanted.code_count = grant.code_count
        if self.reader.find_records(grant.cursor, &wanted, &found) != FOUND:
            return False
        self.write(request, grant, &found, out)
        if sys_flag & FLAG_COMMIT and commit_offset >= 0:
            self.note_commit(grant, commit_offset)
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
        )

    cdef Grant keep(self, bytes key, admitted, Grant before):
        cdef Grant grant = Grant.__new__(Grant)
        grant.topics_version, grant.groups_version = self.topics.version, self.groups.version
        grant.client_changes = self.clients.changes
        (grant.group, grant.topic, grant.queue_id, queue, codes, grant.topic_flag, grant.group_flag, grant.pulled, brokers) = admitted
        grant.broker_id, grant.slow_broker_id = brokers
        grant.queue_key = grant.queue_id
        grant.cursor = Cursor(queue)
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

    cdef int write(self, Request* request, Grant grant, Found* found, Out out) except -1:
        """The whole frame, head and records."""
        cdef Py_ssize_t start = out.size
        out.reserve(2048 + found.total_bytes)
        out.size += 8
        if request.is_json:
            self.write_json(request, grant, found, out)
        else:
            self.write_binary(request, grant, found, out)
        out.set_u32(start, <uint32_t>(out.size - start - 4 + found.total_bytes))
        out.set_u32(start + 4, <uint32_t>(out.size - start - 8) | (0 if request.is_json else 1 << 24))
        out.size = self.reader.copy_records(found, out.data + out.size) - out.data
        return 0

    cdef void write_json(self, Request* request, Grant grant, Found* found, Out out) noexcept:
        cdef Py_ssize_t index
        cdef int figure
        cdef int64_t figures[FIGURES]
        figures[FIGURE_OPAQUE] = request.opaque
        figures[FIGURE_BROKER] = grant.slow_broker_id if found.suggests_slave else grant.broker_id
        figures[FIGURE_NEXT] = found.next_offset
        figures[FIGURE_MIN] = found.min_offset
        figures[FIGURE_MAX] = found.max_offset
        figures[FIGURE_TOPIC_FLAG] = grant.topic_flag
        figures[FIGURE_GROUP_FLAG] = grant.group_flag
        for index in range(FIGURES):
            out.put_bytes(<bytes>self.json_pieces[index])
            figure = self.json_order[index]
            out.put_decimal(figures[figure])
        out.put_bytes(<bytes>self.json_pieces[FIGURES])

    cdef void write_binary(self, Request* request, Grant grant, Found* found, Out out) noexcept:
        cdef Py_ssize_t ext
        out.put_bytes(self.binary_start)
        out.put_u32(<uint32_t>request.opaque)
        out.put_u32(1)                   # flag: an answer
        out.put_u32(5)
        out.put(b"FOUND", 5)
        ext = out.size
        out.size += 4
        out.put_number_entry(b"suggestWhichBrokerId", 20, grant.slow_broker_id if found.suggests_slave else grant.broker_id)
        out.put_number_entry(b"nextBeginOffset", 15, found.next_offset)
        out.put_number_entry(b"minOffset", 9, found.min_offset)
        out.put_number_entry(b"maxOffset", 9, found.max_offset)
        out.put_number_entry(b"topicSysFlag", 12, grant.topic_flag)
        out.put_number_entry(b"groupSysFlag", 12, grant.group_flag)
        out.set_u32(ext, <uint32_t>(out.size - ext - 4))
