# cython: language_level=3
"""Acks, one or a batch: from the request's bytes to the ack in the revive topic, the table, and the answer.

Served are acks of messages whose check point is open here and stored. First everything that a request acknowledges is
found; if all of it is ordinary and there is room for its acks, they are written and settled. All else is left to the
general path before any effect: stale and forged receipts, acks in order, of a check point that was moved or is merged.

There is no Python reference: `broker/pop/acks.py` is what says how an ack goes, and a differential test shows that both
answer and leave the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from arrowmq.broker.fastpath._router_native cimport NativeHandler
from arrowmq.broker.fastpath.pop._batch_native cimport BatchPart, read_batch
from arrowmq.broker.fastpath.pop._lanes_native cimport Lanes, PopLane, ReviveWriter
from arrowmq.broker.pop.check_points._queues_native cimport ReviveQueue
from arrowmq.broker.pop.check_points._table_native cimport CheckPoint, CheckPoints
from arrowmq.store._positions_native cimport Marks
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._answer_native cimport AnswerTemplate, write_answer
from arrowmq.wire.in_place._fields cimport ACK_CONSUMER_GROUP, ACK_EXTRA_INFO, ACK_OFFSET, ACK_QUEUE_ID, ACK_TOPIC
from arrowmq.wire.in_place._request_native cimport Request, Text, text_is, text_to_int

from arrowmq.wire.codes import RequestCode

cdef enum:
    MOST_PARTS = 64          # of a batch
    MOST_BITS = 64           # messages of a check point
    MOST_NAME = 512
    ORDERED = 999            # the revive queue of receipts in order
    RECEIPT_PARTS = 9
    RECENT_LANES = 16

cdef int32_t ACK_CODE = RequestCode.ACK_MESSAGE
cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFF


cdef struct Settled:
    PyObject* lane           # a PopLane and a CheckPoint, which `kept` keeps
    PyObject* check_point
    uint64_t bits
    int first                # of its offsets among all
    int count


cdef class KnownLane:
    """A lane, and what receipts say of it."""
    cdef bytes topic, group, flag
    cdef int64_t queue_id
    cdef PopLane lane

    cdef bint is_named(self, Text topic, Text group, Text flag, int64_t queue_id):
        return (
            self.queue_id == queue_id and text_is(topic, self.topic, len(self.topic))
            and text_is(group, self.group, len(self.group)) and text_is(flag, self.flag, len(self.flag))
        )


cdef class AckHandler(NativeHandler):
    """See the module."""
    cdef Marks positions
    cdef Lanes lanes
    cdef ReviveWriter writer
    cdef CheckPoints table
    cdef AnswerTemplate answers
    cdef object check            # the topic that a receipt means, if it and the queue are there
    cdef object is_permitted
    cdef object topics, topics_version
    cdef list revive_queues
    cdef object send_when_kept
    cdef dict known              # lanes by what a receipt says of them
    cdef list recent             # of these the last, by the queue
    cdef int most_lanes
    cdef list kept
    cdef Out out
    cdef Out pending
    cdef int64_t now
    cdef Settled settled[MOST_PARTS]
    cdef int64_t offsets[MOST_PARTS * MOST_BITS]
    cdef int64_t answered_acks
    cdef int64_t answered_batches
    cdef readonly int64_t taken_acks
    cdef readonly int64_t taken_batches

    def __init__(
        self, Marks positions, Lanes lanes, ReviveWriter writer, tuple answers, *, check, is_permitted, topics,
        revive_queues, send_when_kept, int most_lanes
    ):
        self.positions = positions
        self.lanes = lanes
        self.writer = writer
        self.table = lanes.table
        self.answers = AnswerTemplate(*answers)
        self.check = check
        self.is_permitted = is_permitted
        self.topics = topics
        self.revive_queues = revive_queues
        self.send_when_kept = send_when_kept
        self.most_lanes = most_lanes
        self.known = {}
        self.recent = [None] * RECENT_LANES
        self.kept = []
        self.pending = Out()
        self.asked_ms = -1

    def forget(self):
        """Something changed that the lanes rest on."""
        self.known.clear()
        self.recent = [None] * RECENT_LANES
        self.writer.forget()
        self.ask_again()

    def close(self):
        self.forget()

    def take_answered(self):
        """Acks and batches of them that were answered since the last call."""
        taken = self.answered_acks, self.answered_batches
        self.answered_acks = self.answered_batches = 0
        return taken

    cdef bint ask(self) except -1:
        return self.is_permitted()

    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if not NativeHandler.begin(self, connection, now, out):
            return False
        self.now = now
        self.out = out
        return True

    cdef int finish(self, connection) except -1:
        if self.pending.size:
            answers = PyBytes_FromStringAndSize(<const char*>self.pending.data, self.pending.size)
            self.pending.clear()
            self.send_when_kept(connection, answers)
        return 0

    cdef bint take(self, Request* request) except -1:
        cdef int count
        cdef bint is_batch = request.code != ACK_CODE, is_done
        if request.flag != 0:
            return False
        count = self.find_batch(request) if is_batch else self.find_one(request)
        is_done = count > 0 and self.settle(count, is_batch)
        self.kept.clear()
        if not is_done:
            return False
        write_answer(
            self.pending if self.positions.needs_flush or self.positions.needs_replicas else self.out,
            self.answers, request, NULL, 0
        )
        if is_batch:
            self.taken_batches += 1
            self.answered_batches += 1
        else:
            self.taken_acks += 1
            self.answered_acks += 1
        return True

    # Finding

    cdef int find_one(self, Request* request) except -1:
        """The check point of one ack: 1, or 0 if the general path has to look."""
        cdef int64_t queue_id, offset, start, pop_time, number
        cdef Text parts[RECEIPT_PARTS]
        cdef int count = split_receipt(request.fields[ACK_EXTRA_INFO], parts), place
        if request.body.size != 0 or count < 8:
            return 0
        if not (
            text_to_int(request.fields[ACK_QUEUE_ID], 0, 0x7FFFFFFF, &queue_id)
            and text_to_int(request.fields[ACK_OFFSET], 0, LARGEST, &offset)
            and text_to_int(parts[0], 0, LARGEST, &start)
            and text_to_int(parts[1], 0, LARGEST, &pop_time)
            and text_to_int(parts[2], -LARGEST, LARGEST, &number)
            and text_to_int(parts[3], 0, 0x7FFFFFFF, &number)
        ):
            return 0
        if number == ORDERED:
            return 0
        for place in range(6, count):
            if not text_to_int(parts[place], -LARGEST, LARGEST, &number):
                return 0
        self.offsets[0] = offset
        return self.find(
            0, request.fields[ACK_TOPIC], request.fields[ACK_CONSUMER_GROUP], parts[4], queue_id, start, pop_time, 0, 1
        )

    cdef int find_batch(self, Request* request) except -1:
        """How many check points a batch acknowledges messages of; 0 if the general path has to look."""
        cdef BatchPart parts[MOST_PARTS]
        cdef int count = read_batch(request.body, parts, MOST_PARTS), number, first = 0, bit, other
        for number in range(count):
            if parts[number].revive_queue == ORDERED or parts[number].bits == 0:
                return 0
            bit = first
            while parts[number].bits:
                if parts[number].bits & 1:
                    self.offsets[bit] = parts[number].start
                    bit += 1
                parts[number].bits >>= 1
                parts[number].start += 1
            if not self.find(
                number, parts[number].topic, parts[number].group, parts[number].flag, parts[number].queue_id,
                parts[number].first, parts[number].pop_time, first, bit - first
            ):
                return 0
            for other in range(number):
                if self.settled[other].check_point == self.settled[number].check_point:
                    return 0
            first = bit
        return count

    cdef int find(
        self, int place, Text topic, Text group, Text flag, int64_t queue_id, int64_t start, int64_t pop_time, int first,
        int count
    ) except -1:
        """Whether these offsets are open messages of a check point that is stored; notes them at `place`."""
        cdef PopLane lane = self.lane_of(topic, group, flag, queue_id)
        cdef CheckPoint check_point
        cdef int64_t lowest, highest
        cdef int number, index
        cdef uint64_t bits = 0
        if lane is None:
            return 0
        self.lanes.refresh(lane)
        check_point = lane.lane.get(start, pop_time)
        if check_point is None or check_point.revive_offset < 0 or check_point.count > MOST_BITS:
            return 0
        if check_point.broker_name is not self.writer.broker_name and check_point.broker_name != self.writer.broker_name:
            return 0
        self.lanes.bounds(lane, &lowest, &highest)
        for number in range(first, first + count):
            index = check_point.index(self.offsets[number])
            if index < 0 or check_point.is_acked(index) or not lowest <= self.offsets[number] <= highest:
                return 0
            bits |= <uint64_t>1 << index
        self.kept.append(lane)
        self.kept.append(check_point)
        self.settled[place].lane = <PyObject*>lane
        self.settled[place].check_point = <PyObject*>check_point
        self.settled[place].bits = bits
        self.settled[place].first = first
        self.settled[place].count = count
        return 1

    cdef PopLane lane_of(self, Text topic, Text group, Text flag, int64_t queue_id):
        """The lane that a receipt names, or None. Such lanes are kept until a topic changes."""
        cdef KnownLane found
        cdef tuple key
        if topic.size == 0 or group.size == 0 or topic.size + group.size + flag.size > MOST_NAME:
            return None
        if self.topics_version is not self.topics.version:
            self.forget()
            self.topics_version = self.topics.version
        found = self.recent[queue_id % RECENT_LANES]
        if found is not None and found.is_named(topic, group, flag, queue_id):
            return found.lane
        key = (bytes_of(topic), bytes_of(group), bytes_of(flag), queue_id)
        found = self.known.get(key)
        if found is None:
            real = self.check(*key)
            if real is None:
                return None
            if len(self.known) >= self.most_lanes:
                self.known.clear()
            found = self.known[key] = KnownLane.__new__(KnownLane)
            found.topic, found.group, found.flag, found.queue_id = key
            found.lane = self.lanes.make(real, key[1].decode("utf-8", "replace"), <int32_t>queue_id, False)
        self.recent[queue_id % RECENT_LANES] = found
        return found.lane

    # Settling

    cdef bint settle(self, int count, bint is_batch) except -1:
        """Writes what was found and settles it; False if the revive topic has no room for it as it is."""
        cdef int number
        cdef int64_t size = 0
        cdef PopLane lane
        cdef CheckPoint check_point
        cdef ReviveQueue queue
        cdef Settled* settled
        for number in range(count):
            lane = <PopLane>self.settled[number].lane
            size += 3 * (len(lane.topic_json) + len(lane.group_json)) + 21 * self.settled[number].count
        for number in range(count):
            check_point = <CheckPoint>self.settled[number].check_point
            # that one queue has room for all of them is more than has to be, and is nearly always so
            if not self.writer.has_room(check_point.revive_queue, count, size):
                return False
        for number in range(count):
            settled = &self.settled[number]
            lane = <PopLane>settled.lane
            check_point = <CheckPoint>settled.check_point
            self.writer.write_ack(
                lane, check_point, &self.offsets[settled.first], settled.count, is_batch, self.now
            )
            queue = self.revive_queues[check_point.revive_queue]
            if queue.read_offset == self.writer.queue_offset:
                queue.read_offset = self.writer.queue_offset + 1
            lane.stored.count += 1
            self.table.settle_low(check_point, settled.bits)
        return True


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)


cdef int split_receipt(Text text, Text* parts) noexcept nogil:
    """The parts of a receipt, which are 8 or 9; 0 if it has another form."""
    cdef int count = 0
    cdef const uint8_t* at = text.data
    cdef const uint8_t* end = text.data + text.size
    if text.size == 0:
        return 0
    parts[0].data = at
    while at < end:
        if at[0] == c" ":
            parts[count].size = at - parts[count].data
            count += 1
            if count == RECEIPT_PARTS:
                return 0
            parts[count].data = at + 1
        at += 1
    parts[count].size = end - parts[count].data
    count += 1
    return count if count >= 8 else 0
