# cython: language_level=3
"""Pulls: from the request's bytes to one block of bytes with the answer's head and its records.

The handler serves a pull that finds messages in memory, by tag hash or without a filter, for a reader that the general
path has checked (`check` asks it). That check is cached until anything changes that it rests on: a topic, a group, a
subscription, the permit. How many are cached is bounded; of those that were not used since the last look, the oldest
goes. None of them keeps a file mapped: retention takes the mapping away from under the cursor, which opens another.

Everything else (nothing there yet, an offset out of range, SQL92, records on disk) is left to the general path, before
any effect. There is no Python reference: a differential test shows that both answer the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from arrowmq.broker.fastpath._router_native cimport NativeHandler
from arrowmq.store.read._reader_native cimport FOUND, MAX_CODES, MAX_RECORDS, Cursor, Found, QueueReader, Wanted
from arrowmq.wire._bytes cimport put32
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._answer_native cimport AnswerTemplate, Value, write_answer
from arrowmq.wire.in_place._fields cimport (
    PULL_COMMIT_OFFSET, PULL_FIELDS, PULL_MAX_MSG_BYTES, PULL_MAX_MSG_NUMS, PULL_QUEUE_ID, PULL_QUEUE_OFFSET,
    PULL_REQUEST_SOURCE, PULL_SUB_VERSION, PULL_SUSPEND_TIMEOUT_MILLIS, PULL_SYS_FLAG, PULLED_FIELDS,
    PULLED_GROUP_SYS_FLAG, PULLED_MAX_OFFSET, PULLED_MIN_OFFSET, PULLED_NEXT_BEGIN_OFFSET,
    PULLED_SUGGEST_WHICH_BROKER_ID, PULLED_TOPIC_SYS_FLAG
)
from arrowmq.wire.in_place._request_native cimport Request, text_to_int

from arrowmq.wire.in_place.fields import PULL

cdef enum:
    FLAG_COMMIT = 1           # of a pull's sysFlag

cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFF
cdef int64_t MOST_BYTES = 128 << 20
cdef int64_t FEWEST_BYTES = 100


cdef inline bint is_of_reader(int place) noexcept:
    """Whether a field says who reads what, not from where and how much."""
    return not (
        place == PULL_QUEUE_OFFSET or place == PULL_MAX_MSG_NUMS or place == PULL_COMMIT_OFFSET
        or place == PULL_SUSPEND_TIMEOUT_MILLIS or place == PULL_MAX_MSG_BYTES or place == PULL_REQUEST_SOURCE
    )


cdef class CachedCheck:
    """What the general path found for a reader: one group reading one queue with one subscription."""
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
    cdef bint was_used               # since there was last a look for one that was not
    # since they were last taken
    cdef int64_t times
    cdef int64_t messages
    cdef int64_t size


cdef class PullHandler(NativeHandler):
    """See the module."""
    cdef QueueReader reader
    cdef AnswerTemplate answers
    cdef object check
    cdef object may_read             # asks the permit
    cdef object topics
    cdef object groups
    cdef object clients
    cdef object topics_version       # what the cached checks rest on
    cdef object groups_version
    cdef object client_changes
    cdef object commit
    cdef object commits_of
    cdef int64_t commits             # written into tables of `commits_of` since they were last taken
    cdef dict resets
    cdef dict checks                 # by the fields of a reader; the one that was used or looked at last is the last
    cdef int most_checks
    cdef list dropped                # counts of checks that are not cached any more
    cdef object connection
    cdef Out out
    cdef Out key                     # of the reader at hand
    cdef readonly int64_t taken_messages

    def __init__(
        self, QueueReader reader, tuple answers, *, may_read, check, rests_on, commit, commits_of, dict resets,
        int most_checks
    ):
        self.reader = reader
        self.answers = AnswerTemplate(*answers)
        self.may_read = may_read
        self.check = check
        self.topics, self.groups, self.clients = rests_on
        self.commit = commit
        self.commits_of = commits_of
        self.resets = resets
        self.most_checks = most_checks
        self.checks = {}
        self.dropped = []
        self.key = Out()
        self.asked_ms = -1

    def forget(self):
        """Something changed that the cached checks rest on."""
        cdef CachedCheck check
        for check in self.checks.values():
            self.keep_counts(check)
        self.checks.clear()
        self.ask_again()

    def close(self):
        self.forget()

    @property
    def cached_checks(self):
        return len(self.checks)

    def take_commits(self):
        """How often an offset was committed since the last call."""
        commits, self.commits = self.commits, 0
        return commits

    def take_counts(self):
        """What was read since the last call: (group, topic, queue id, messages, bytes, pulls)."""
        cdef CachedCheck check
        for check in self.checks.values():
            self.keep_counts(check)
        self.drop_old()
        taken, self.dropped = self.dropped, []
        return taken

    cdef int keep_counts(self, CachedCheck check) except -1:
        if check.times:
            self.dropped.append((check.group, check.topic, check.queue_id, check.messages, check.size, check.times))
            check.times = check.messages = check.size = 0
        return 0

    cdef bint ask(self) except -1:
        return self.may_read()

    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if not NativeHandler.begin(self, connection, now, out):
            return False
        self.connection = connection
        self.out = out
        return True

    cdef int finish(self, connection) except -1:
        self.connection = None
        return 0

    cdef bint take(self, Request* request) except -1:
        cdef Wanted wanted
        cdef int64_t number, queue_id, sys_flag, commit_offset
        cdef CachedCheck check
        cdef Found found
        if request.flag != 0 or request.body.size != 0 or self.resets:
            return False
        if not (
            text_to_int(request.fields[PULL_QUEUE_ID], 0, 0x7FFFFFFF, &queue_id)
            and text_to_int(request.fields[PULL_QUEUE_OFFSET], 0, LARGEST, &wanted.offset)
            and text_to_int(request.fields[PULL_MAX_MSG_NUMS], 1, MAX_RECORDS, &wanted.max_count)
            and text_to_int(request.fields[PULL_SYS_FLAG], 0, 0x1F, &sys_flag)
            and text_to_int(request.fields[PULL_COMMIT_OFFSET], -LARGEST, LARGEST, &commit_offset)
            and text_to_int(request.fields[PULL_SUSPEND_TIMEOUT_MILLIS], -LARGEST, LARGEST, &number)
            and text_to_int(request.fields[PULL_SUB_VERSION], -LARGEST, LARGEST, &number)
        ):
            return False
        wanted.max_bytes = MOST_BYTES
        if request.fields[PULL_MAX_MSG_BYTES].size:
            if not text_to_int(request.fields[PULL_MAX_MSG_BYTES], -0x80000000LL, 0x7FFFFFFF, &number):
                return False
            wanted.max_bytes = min(max(number, FEWEST_BYTES), MOST_BYTES)
        if request.fields[PULL_REQUEST_SOURCE].size:
            if not text_to_int(request.fields[PULL_REQUEST_SOURCE], -0x80000000LL, 0x7FFFFFFF, &number):
                return False
        check = self.check_of(request)
        if check is None:
            return False
        wanted.codes = check.codes if check.has_codes else NULL
        wanted.code_count = check.code_count
        if self.reader.find_records(check.cursor, &wanted, &found) != FOUND:
            return False
        self.write(request, check, &found)
        if sys_flag & FLAG_COMMIT and commit_offset >= 0:
            self.note_commit(check, commit_offset)
        check.pulled[check.queue_key] = found.next_offset
        check.times += 1
        check.messages += found.count
        check.size += found.total_bytes
        self.taken_messages += found.count
        return True

    cdef int note_commit(self, CachedCheck check, int64_t offset) except -1:
        """As the general path does it, which takes the first of a queue, and one that goes back."""
        cdef PyObject* before = NULL
        if check.committed is not None:
            before = PyDict_GetItem(check.committed, check.queue_key)
        if before == NULL or <int64_t><object>before > offset:
            self.commit(check.group, check.topic, check.queue_id, offset)
            check.committed = self.commits_of(check.group, check.topic)
        else:
            check.committed[check.queue_key] = offset
            self.commits += 1
        return 0

    # Cached checks

    cdef CachedCheck check_of(self, Request* request):
        """The cached check of this reader, or a new one, or None."""
        cdef CachedCheck check
        cdef bytes key
        cdef int place
        self.drop_old()
        key = self.key_of(request)
        check = self.checks.get(key)
        if check is not None:
            check.was_used = True
            return check
        fields = {}
        for place in range(PULL_FIELDS):
            if request.fields[place].data != NULL:
                text = (<const char*>request.fields[place].data)[: request.fields[place].size]
                fields[PULL.wire_names[place]] = text.decode("utf-8", "replace")
        checked = self.check(fields, self.connection)
        self.drop_old()                  # the check itself may have changed a table: it makes groups
        return None if checked is None else self.keep(key, checked)

    cdef bytes key_of(self, Request* request):
        cdef int place
        cdef Py_ssize_t room = 4 * PULL_FIELDS, size
        cdef uint8_t* at
        for place in range(PULL_FIELDS):
            room += request.fields[place].size
        self.key.clear()
        self.key.reserve(room)
        at = self.key.data
        for place in range(PULL_FIELDS):
            if is_of_reader(place):
                size = request.fields[place].size
                put32(at, size)
                memcpy(at + 4, request.fields[place].data, size)
                at += 4 + size
        return PyBytes_FromStringAndSize(<const char*>self.key.data, at - self.key.data)

    cdef int drop_old(self) except -1:
        """Forget every check if what they rest on has changed."""
        if (
            self.topics_version is self.topics.version and self.groups_version is self.groups.version
            and self.client_changes == self.clients.changes
        ):
            return 0
        self.forget()
        self.topics_version, self.groups_version = self.topics.version, self.groups.version
        self.client_changes = self.clients.changes
        return 0

    cdef CachedCheck keep(self, bytes key, checked):
        cdef CachedCheck check = CachedCheck.__new__(CachedCheck)
        (
            check.group, check.topic, check.queue_id, queue, codes, check.topic_flag, check.group_flag, check.pulled,
            brokers
        ) = checked
        check.broker_id, check.slow_broker_id = brokers
        check.queue_key = check.queue_id
        check.cursor = Cursor(queue)
        check.has_codes = codes is not None
        if check.has_codes:
            if len(codes) > MAX_CODES:
                return None
            for code in codes:
                check.codes[check.code_count] = code
                check.code_count += 1
        if len(self.checks) >= self.most_checks:
            self.drop_one()
        self.checks[key] = check
        return check

    cdef int drop_one(self) except -1:
        """Of the checks, from the oldest on, the first that was not used since it was last looked at."""
        cdef CachedCheck check
        while True:
            key = next(iter(self.checks))
            check = self.checks.pop(key)
            if not check.was_used:
                self.keep_counts(check)
                return 0
            check.was_used = False
            self.checks[key] = check

    # The answer

    cdef int write(self, Request* request, CachedCheck check, Found* found) except -1:
        cdef Value values[PULLED_FIELDS]
        cdef Out out = self.out
        memset(values, 0, sizeof(values))
        values[PULLED_SUGGEST_WHICH_BROKER_ID].number = check.slow_broker_id if found.suggests_slave else check.broker_id
        values[PULLED_NEXT_BEGIN_OFFSET].number = found.next_offset
        values[PULLED_MIN_OFFSET].number = found.min_offset
        values[PULLED_MAX_OFFSET].number = found.max_offset
        values[PULLED_TOPIC_SYS_FLAG].number = check.topic_flag
        values[PULLED_GROUP_SYS_FLAG].number = check.group_flag
        write_answer(out, self.answers, request, values, found.total_bytes)
        out.size = self.reader.copy_records(found, out.data + out.size) - out.data
        return 0
