# cython: language_level=3
"""Pops: from the request's bytes to check points in the log and one block of bytes with the answer.

A pop is first read as a whole: every queue that it would look at, and what each gives, copied aside. Only if all of that
is ordinary and there is room for the check points, they are written, entered into the table, and answered. So what is
left to the general path has had no effect: a queue whose group has no offset yet, retries to hand out, records on disk,
a queue that another pop reads, nothing to be had (the request waits), a second pop of the same millisecond.

There is no Python reference: `broker/pop/service.py` is what says how a pop goes, and a differential test shows that
both answer and leave the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from arrowmq.broker.fastpath._router_native cimport NativeHandler
from arrowmq.broker.fastpath.pop._lanes_native cimport Lanes, PopLane, ReviveWriter
from arrowmq.broker.pop.check_points._queues_native cimport Chance, QueueTurn, ReviveQueue
from arrowmq.broker.pop.check_points._table_native cimport CheckPoint, CheckPoints
from arrowmq.store._positions_native cimport Marks
from arrowmq.store.read._reader_native cimport FOUND, MAX_CODES, NOTHING, Found, QueueReader, Wanted
from arrowmq.wire._bytes cimport get64, put32
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._answer_native cimport AnswerTemplate, Value, write_answer
from arrowmq.wire.in_place._fields cimport (
    POP_ATTEMPT_ID, POP_BORN_TIME, POP_CONSUMER_GROUP, POP_FIELDS, POP_INIT_MODE, POP_INVISIBLE_TIME, POP_MAX_MSG_NUMS,
    POP_ORDER, POP_POLL_TIME, POP_QUEUE_ID, POP_TOPIC, POPPED_FIELDS, POPPED_INVISIBLE_TIME, POPPED_MSG_OFFSET_INFO,
    POPPED_POP_TIME, POPPED_REST_NUM, POPPED_REVIVE_QID, POPPED_START_OFFSET_INFO
)
from arrowmq.wire.in_place._request_native cimport Request, Text, text_is, text_to_int

from arrowmq.wire.in_place.fields import POP

cdef enum:
    MOST = 32                # messages of a pop
    MAX_BYTES = 64 << 20
    LATE_MS = 500
    QUEUE_OFFSET_AT = 20     # of a record: where its queue offset lies
    INFO_BYTES = 40          # of one queue in the texts of offsets, and of an offset

cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFF


cdef struct Taken:
    PyObject* lane           # a PopLane, which the plan keeps
    int64_t start
    int64_t next_offset
    int64_t size
    int first                # of its messages among all
    int count


cdef class Plan:
    """What the general path found for one group popping one topic: which queues, and its filter."""
    cdef str group
    cdef tuple key           # of those that wait
    cdef list normal         # of PopLane
    cdef list retries        # of lists of PopLane
    cdef int retry_chance    # out of a hundred, that retries come first
    cdef bint is_ascending
    cdef bint has_codes
    cdef int code_count
    cdef int32_t codes[MAX_CODES]
    cdef bint was_used


cdef class PopHandler(NativeHandler):
    """See the module."""
    cdef QueueReader reader
    cdef Marks positions
    cdef Lanes lanes
    cdef ReviveWriter writer
    cdef CheckPoints table
    cdef AnswerTemplate answers
    cdef object check            # lets the general path check a group
    cdef object limits           # asks the permit: the longest invisible time, or -1
    cdef object topics, groups, topics_version, groups_version
    cdef object commit
    cdef dict resets
    cdef Chance chance
    cdef dict last_pops          # when a group popped last
    cdef list revive_queues
    cdef QueueTurn turn
    cdef object bucket_opened    # there is a moment more at which something is due
    cdef int64_t bucket_ms
    cdef dict waiting            # pops that wait, by who waits for what
    cdef object wake
    cdef object flush_soon
    cdef dict plans
    cdef int most_plans
    cdef list dropped
    cdef object connection
    cdef str client
    cdef Out out
    cdef Out key
    cdef Out records
    cdef Out starts
    cdef Out offsets_text
    cdef int64_t longest_ms
    cdef int64_t now
    cdef int64_t commits
    cdef int64_t answered
    cdef bint has_written
    cdef Taken taken[MOST]
    cdef int64_t offsets[MOST]
    cdef readonly int64_t taken_pops
    cdef readonly int64_t taken_messages

    def __init__(
        self, QueueReader reader, Marks positions, Lanes lanes, ReviveWriter writer, tuple answers, *, check, limits,
        rests_on, commit, dict resets, service, flush_soon, int most_plans
    ):
        self.reader = reader
        self.positions = positions
        self.lanes = lanes
        self.writer = writer
        self.table = lanes.table
        self.answers = AnswerTemplate(*answers)
        self.check = check
        self.limits = limits
        self.topics, self.groups = rests_on
        self.commit = commit
        self.resets = resets
        self.chance = service.chance
        self.last_pops = service.last_pops
        self.revive_queues = service.log.queues
        self.turn = service.log.turn
        self.bucket_opened = service.revive.due.opened
        self.bucket_ms = service.revive.due.width_ms
        self.waiting = service.polling.lines
        self.wake = service.polling.wake
        self.flush_soon = flush_soon
        self.most_plans = most_plans
        self.plans = {}
        self.dropped = []
        self.key, self.records, self.starts, self.offsets_text = Out(), Out(), Out(), Out()
        self.asked_ms = -1

    def forget(self):
        """Something changed that the plans rest on."""
        cdef Plan plan
        for plan in self.plans.values():
            self.keep_counts(plan)
        self.plans.clear()
        self.writer.forget()
        self.ask_again()

    def close(self):
        self.forget()

    def take_commits(self):
        """How often an offset was committed since the last call."""
        commits, self.commits = self.commits, 0
        return commits

    def take_counts(self):
        """What was popped since the last call: (group, topic, queue id, messages, bytes, times)."""
        cdef Plan plan
        for plan in self.plans.values():
            self.keep_counts(plan)
        taken, self.dropped = self.dropped, []
        return taken

    def take_answered(self):
        """How many pops were answered since the last call."""
        answered, self.answered = self.answered, 0
        return answered

    cdef int keep_counts(self, Plan plan) except -1:
        cdef PopLane lane
        for lane in plan.normal:
            if lane.times:
                self.dropped.append((lane.group, lane.topic, lane.queue_id, lane.messages, lane.size, lane.times))
                lane.times = lane.messages = lane.size = 0
        return 0

    cdef bint ask(self) except -1:
        self.longest_ms = self.limits()
        return self.longest_ms >= 0

    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if not NativeHandler.begin(self, connection, now, out):
            return False
        self.connection = connection
        self.client = None
        self.now = now
        self.out = out
        self.has_written = False
        return True

    cdef int finish(self, connection) except -1:
        self.connection = None
        if self.has_written and self.positions.needs_flush:
            self.flush_soon()
        return 0

    cdef bint take(self, Request* request) except -1:
        cdef int64_t queue_id, most, invisible_ms, poll_ms, born_ms = 0, number, rest = 0
        cdef Plan plan
        cdef int lanes
        if request.flag != 0 or request.body.size != 0 or self.resets:
            return False
        if not (
            text_to_int(request.fields[POP_QUEUE_ID], -1, 0x7FFFFFFF, &queue_id)
            and text_to_int(request.fields[POP_MAX_MSG_NUMS], 1, MOST, &most)
            and text_to_int(request.fields[POP_INVISIBLE_TIME], 0, self.longest_ms, &invisible_ms)
            and text_to_int(request.fields[POP_POLL_TIME], -LARGEST, LARGEST, &poll_ms)
        ):
            return False
        if request.fields[POP_BORN_TIME].size:
            if not text_to_int(request.fields[POP_BORN_TIME], -LARGEST, LARGEST, &born_ms):
                return False
        if request.fields[POP_INIT_MODE].size:
            if not text_to_int(request.fields[POP_INIT_MODE], -0x80000000LL, 0x7FFFFFFF, &number):
                return False
        if request.fields[POP_ORDER].size and not text_is(request.fields[POP_ORDER], b"false", 5):
            return False
        if (self.now - born_ms if born_ms else 0) - poll_ms > LATE_MS:
            return False
        plan = self.plan_of(request)
        if plan is None:
            return False
        lanes = self.read(plan, <int>most, &rest)
        if lanes <= 0:
            return False
        return self.hand_out(request, plan, lanes, invisible_ms, rest)

    # Reading

    cdef int read(self, Plan plan, int most, int64_t* rest) except -1:
        """Find what the pop takes, of so many lanes; 0 if the general path has to look."""
        cdef int chance = self.chance.value
        cdef bint retries_first = chance < plan.retry_chance
        cdef int lanes = 0, count = 0
        cdef list some
        self.records.clear()
        if retries_first:
            for some in plan.retries:
                if not self.read_some(plan, some, chance, most, &lanes, &count, rest):
                    return 0
        if not self.read_some(plan, plan.normal, chance, most, &lanes, &count, rest):
            return 0
        if not retries_first:
            for some in plan.retries:
                if not self.read_some(plan, some, chance, most, &lanes, &count, rest):
                    return 0
        return lanes

    cdef bint read_some(
        self, Plan plan, list some, int chance, int most, int* lanes, int* count, int64_t* rest
    ) except -1:
        cdef int size = len(some), place, index
        for place in range(size):
            index = (size - 1 - place + chance) % size if plan.is_ascending else (place + chance) % size
            if not self.read_lane(plan, <PopLane>some[index], most, lanes, count, rest):
                return False
        return True

    cdef bint read_lane(self, Plan plan, PopLane lane, int most, int* lanes, int* count, int64_t* rest) except -1:
        cdef Wanted wanted
        cdef Found found
        cdef int outcome, number
        cdef int64_t lowest, highest
        cdef uint8_t* record
        cdef Taken* taken
        self.lanes.refresh(lane)
        if lane.lane.is_busy or lane.lane.steps or lane.committed is None:
            return False
        committed = lane.committed.get(lane.queue_key)
        if committed is None:
            return False
        wanted.offset = committed
        self.lanes.bounds(lane, &lowest, &highest)
        if count[0] >= most:
            rest[0] += max(<int64_t>0, highest - wanted.offset)
            return True
        if wanted.offset == highest and lowest <= highest:
            return True
        if lane.is_retry:
            return False             # to be handed out with receipts of their own
        wanted.max_count = most - count[0]
        wanted.max_bytes = MAX_BYTES
        wanted.codes = plan.codes if plan.has_codes else NULL
        wanted.code_count = plan.code_count
        outcome = self.reader.find_records(lane.cursor, &wanted, &found)
        if outcome != FOUND or found.count > MOST - count[0]:
            return False
        if lane.lane.get(wanted.offset, self.now) is not None:
            return False             # the group was sent back within this millisecond
        taken = &self.taken[lanes[0]]
        taken.lane = <PyObject*>lane
        taken.start = wanted.offset
        taken.next_offset = found.next_offset
        taken.size = found.total_bytes
        taken.first = count[0]
        taken.count = found.count
        self.records.reserve(found.total_bytes)
        record = self.records.data + self.records.size
        self.records.size = self.reader.copy_records(&found, record) - self.records.data
        for number in range(found.count):
            self.offsets[count[0] + number] = get64(record + QUEUE_OFFSET_AT)
            record += found.sizes[number]
        count[0] += found.count
        lanes[0] += 1
        rest[0] += max(<int64_t>0, found.max_offset - found.next_offset)
        return True

    # Handing out

    cdef bint hand_out(self, Request* request, Plan plan, int lanes, int64_t invisible_ms, int64_t rest) except -1:
        cdef int32_t revive_queue = self.turn.upcoming
        cdef ReviveQueue queue
        cdef int64_t size = 0
        cdef int number
        cdef PopLane lane
        for number in range(lanes):
            lane = <PopLane>self.taken[number].lane
            size += 3 * (len(lane.topic_json) + len(lane.group_json)) + 21 * self.taken[number].count
        if not self.writer.has_room(revive_queue, lanes, size):
            return False
        self.turn.take()
        self.chance.draw()
        self.last_pops[plan.group] = self.now
        queue = self.revive_queues[revive_queue]
        if self.client is None:
            self.client = self.connection.peer_text
        self.has_written = True
        for number in range(lanes):
            self.keep(&self.taken[number], queue, revive_queue, invisible_ms)
        self.write(request, lanes, revive_queue, invisible_ms, rest)
        self.taken_pops += 1
        self.answered += 1
        self.taken_messages += self.taken[lanes - 1].first + self.taken[lanes - 1].count
        if rest > 0 and self.waiting:
            self.wake(plan.key)
        return True

    cdef int keep(self, Taken* taken, ReviveQueue queue, int32_t revive_queue, int64_t invisible_ms) except -1:
        """The check point of what a lane gave: in the log, in the table, and the group's offset behind it."""
        cdef PopLane lane = <PopLane>taken.lane
        cdef CheckPoint made
        cdef int64_t* offsets = &self.offsets[taken.first]
        cdef int number
        cdef int64_t bucket
        self.writer.write_check_point(
            lane, revive_queue, taken.start, self.now, invisible_ms, offsets, taken.count, self.now
        )
        made = CheckPoint.__new__(CheckPoint)
        made.lane = lane.lane
        made.start_offset = taken.start
        made.pop_time = self.now
        made.invisible_ms = invisible_ms
        made.count = taken.count
        if offsets[0] != taken.start or offsets[taken.count - 1] - taken.start != taken.count - 1:
            made.diffs = tuple([offsets[number] - taken.start for number in range(taken.count)])
        made.revive_queue = revive_queue
        made.revive_offset = self.writer.queue_offset
        made.broker_name = self.writer.broker_name
        made.client = self.client
        if queue.read_offset == made.revive_offset:
            queue.read_offset = made.revive_offset + 1
        queue.open.push(made)
        made.bucket = -1
        self.table.add(made)
        bucket = (self.now + invisible_ms + self.bucket_ms - 1) // self.bucket_ms
        if self.table.due.put(made, bucket):
            self.bucket_opened(bucket)
        lane.stored.count += 1
        if taken.next_offset < lane.committed[lane.queue_key]:
            self.commit(lane.group, lane.topic, lane.queue_id, taken.next_offset)
        else:
            lane.committed[lane.queue_key] = taken.next_offset
            self.commits += 1
        lane.times += 1
        lane.messages += taken.count
        lane.size += taken.size
        return 0

    cdef int write(
        self, Request* request, int lanes, int32_t revive_queue, int64_t invisible_ms, int64_t rest
    ) except -1:
        cdef Value values[POPPED_FIELDS]
        cdef Out out = self.out
        cdef Text starts, offsets
        self.write_offsets(lanes)
        starts.data, starts.size = self.starts.data, self.starts.size
        offsets.data, offsets.size = self.offsets_text.data, self.offsets_text.size
        memset(values, 0, sizeof(values))
        values[POPPED_POP_TIME].number = self.now
        values[POPPED_INVISIBLE_TIME].number = invisible_ms
        values[POPPED_REVIVE_QID].number = revive_queue
        values[POPPED_REST_NUM].number = rest
        values[POPPED_START_OFFSET_INFO].text = &starts
        values[POPPED_MSG_OFFSET_INFO].text = &offsets
        write_answer(out, self.answers, request, values, self.records.size)
        out.put(self.records.data, self.records.size)
        return 0

    cdef int write_offsets(self, int lanes) except -1:
        """The two texts of the answer: where each queue was read from, and the offsets of its messages."""
        cdef int number, index
        cdef Taken* taken
        cdef PopLane lane
        self.starts.clear()
        self.starts.reserve(INFO_BYTES * lanes)
        self.offsets_text.clear()
        self.offsets_text.reserve(INFO_BYTES * (lanes + MOST))
        for number in range(lanes):
            taken = &self.taken[number]
            lane = <PopLane>taken.lane
            if number:
                self.starts.put(b";", 1)
                self.offsets_text.put(b";", 1)
            self.starts.put(b"0 ", 2)
            self.starts.put_decimal(lane.queue_id)
            self.starts.put(b" ", 1)
            self.starts.put_decimal(taken.start)
            self.offsets_text.put(b"0 ", 2)
            self.offsets_text.put_decimal(lane.queue_id)
            for index in range(taken.count):
                self.offsets_text.put(b"," if index else b" ", 1)
                self.offsets_text.put_decimal(self.offsets[taken.first + index])
        return 0

    # Plans

    cdef Plan plan_of(self, Request* request):
        """The plan of this group, or a new one, or None."""
        cdef Plan plan
        cdef bytes key
        cdef int place
        self.drop_old()
        key = self.key_of(request)
        plan = self.plans.get(key)
        if plan is not None:
            plan.was_used = True
            return plan
        fields = {}
        for place in range(POP_FIELDS):
            if request.fields[place].data != NULL:
                text = (<const char*>request.fields[place].data)[: request.fields[place].size]
                fields[POP.wire_names[place]] = text.decode("utf-8", "replace")
        checked = self.check(fields, self.connection)
        self.drop_old()                  # the check itself may have changed a table: it makes groups
        return None if checked is None else self.keep_plan(key, checked)

    cdef bytes key_of(self, Request* request):
        """Who pops what; not how much, and for how long."""
        cdef int place
        cdef Py_ssize_t room = 4 * POP_FIELDS, size
        cdef uint8_t* at
        for place in range(POP_FIELDS):
            room += request.fields[place].size
        self.key.clear()
        self.key.reserve(room)
        at = self.key.data
        for place in range(POP_FIELDS):
            if not (
                place == POP_MAX_MSG_NUMS or place == POP_INVISIBLE_TIME or place == POP_POLL_TIME
                or place == POP_BORN_TIME or place == POP_INIT_MODE or place == POP_ORDER or place == POP_ATTEMPT_ID
            ):
                size = request.fields[place].size
                put32(at, size)
                memcpy(at + 4, request.fields[place].data, size)
                at += 4 + size
        return PyBytes_FromStringAndSize(<const char*>self.key.data, at - self.key.data)

    cdef int drop_old(self) except -1:
        """Forget every plan if what they rest on has changed."""
        if self.topics_version is self.topics.version and self.groups_version is self.groups.version:
            return 0
        self.forget()
        self.topics_version, self.groups_version = self.topics.version, self.groups.version
        return 0

    cdef Plan keep_plan(self, bytes key, checked):
        cdef Plan plan = Plan.__new__(Plan)
        (topic, plan.group, queue_id, queues, retries, codes, plan.retry_chance, plan.is_ascending) = checked
        plan.key = (topic, plan.group, queue_id)
        plan.normal = [self.lanes.make(topic, plan.group, number, False) for number in queues]
        plan.retries = [
            [self.lanes.make(name, plan.group, number, True) for number in range(count)] for name, count in retries
        ]
        plan.has_codes = codes is not None
        if plan.has_codes:
            if len(codes) > MAX_CODES:
                return None
            for code in codes:
                plan.codes[plan.code_count] = code
                plan.code_count += 1
        if len(self.plans) >= self.most_plans:
            self.drop_one()
        self.plans[key] = plan
        return plan

    cdef int drop_one(self) except -1:
        """Of the plans, from the oldest on, the first that was not used since it was last looked at."""
        cdef Plan plan
        while True:
            key = next(iter(self.plans))
            plan = self.plans.pop(key)
            if not plan.was_used:
                self.keep_counts(plan)
                return 0
            plan.was_used = False
            self.plans[key] = plan
