# cython: language_level=3
"""One queue as one group pops it, and writing to the revive topic. C for the handlers of pops and acks.

`revive_messages.py` says how a check point and an ack are written; differential tests show that the bytes are the same.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from arrowmq.broker.pop.check_points._table_native cimport CheckPoint, Lane
from arrowmq.store.append._tail_native cimport QueueTail, RecordFields, append_fields, index_has_room
from arrowmq.store.read._reader_native cimport Cursor
from arrowmq.wire.frames._out_native cimport Out

from arrowmq.broker.pop import revive_messages
from arrowmq.wire import properties as keys

import msgspec

cdef enum:
    RECORD_BYTES = 512           # of a record and its JSON and properties, without names and offsets
    OFFSET_BYTES = 21            # of an offset with its comma
    NAMES = 3                    # so often each name may stand in a record

cdef bytes DELIVER = f"{keys.TIMER_DELIVER_MS}\x01".encode()
cdef bytes UNIQUE = f"\x02{keys.UNIQ_KEY}\x01".encode()
cdef bytes AS_CHECK_POINT = f"@{revive_messages.CHECK_POINT_TAG}\x02{keys.TAGS}\x01{revive_messages.CHECK_POINT_TAG}\x02".encode()
cdef bytes AS_ACK = f"@{revive_messages.ACK_TAG}\x02{keys.TAGS}\x01{revive_messages.ACK_TAG}\x02".encode()
cdef bytes AS_BATCH = f"@{revive_messages.ACK_TAG}\x02{keys.TAGS}\x01{revive_messages.BATCH_ACK_TAG}\x02".encode()


cdef class Tally:
    pass


cdef class Lanes:
    def __init__(self, table, positions, commit_log, *, find_queue, commits_of, str kind):
        self.table = table
        self.positions = positions
        self.commit_log = commit_log
        self.find_queue = find_queue
        self.commits_of = commits_of
        self.kind = kind
        self.tallies = {}

    def take_stored(self):
        """What was stored since the last call, as `PopCounts` wants it."""
        cdef Tally tally
        cdef list taken = []
        for key, tally in self.tallies.items():
            if tally.count:
                taken.append((key, tally.count))
                tally.count = 0
        return taken

    cdef PopLane make(self, str topic, str group, int32_t queue_id, bint is_retry):
        cdef PopLane lane = PopLane.__new__(PopLane)
        lane.topic = topic
        lane.group = group
        lane.queue_id = queue_id
        lane.queue_key = queue_id
        lane.is_retry = is_retry
        lane.topic_json = msgspec.json.encode(topic)
        lane.group_json = msgspec.json.encode(group)
        lane.topic_raw = topic.encode()
        lane.group_raw = group.encode()
        lane.stored = self.tallies.setdefault((group, topic, self.kind, "PUT_OK"), Tally())
        return lane

    cdef int refresh(self, PopLane lane) except -1:
        if lane.lane is None or lane.lane.is_forgotten:
            lane.lane = self.table.lane(lane.topic, lane.group, lane.queue_id)
        if lane.cursor is None:
            queue = self.find_queue(lane.topic, lane.queue_id)
            if queue is not None:
                lane.cursor = Cursor(queue)
        if lane.committed is None:
            lane.committed = self.commits_of(lane.group, lane.topic)
        return 0

    cdef int bounds(self, PopLane lane, int64_t* lowest, int64_t* highest) except -1:
        cdef Cursor cursor = lane.cursor
        cdef int64_t begin
        lowest[0] = highest[0] = 0
        if cursor is None:
            return 0
        begin = self.commit_log.min_offset
        highest[0] = cursor.readable_max(self.positions.confirmed())
        if begin != cursor.min_of:
            cursor.min_offset = cursor.queue.min_offset(begin)
            cursor.min_of = begin
        lowest[0] = min(cursor.min_offset, highest[0])
        return 0


cdef class ReviveWriter:
    def __init__(
        self, log, index, *, bytes topic, bytes store_host, str broker_name, int queues, find_queue, notify, watchers
    ):
        self.log = log
        self.index = index
        self.topic = topic
        self.store_host = store_host
        self.broker_name = broker_name
        self.broker_json = msgspec.json.encode(broker_name)
        self.broker_raw = broker_name.encode()
        self.tails = [None] * queues
        self.find_queue = find_queue
        self.notify = notify
        self.watchers = watchers
        self.keys = [(topic.decode(), queue_id) for queue_id in range(queues)]
        self.body = Out()
        self.properties = Out()

    def forget(self):
        """The store may have other queues."""
        self.tails = [None] * len(self.tails)

    cdef QueueTail tail(self, int32_t queue_id):
        cdef QueueTail tail = self.tails[queue_id]
        if tail is None:
            tail = self.tails[queue_id] = self.find_queue(self.topic.decode(), queue_id)
        return tail

    cdef bint is_heard(self, int32_t queue_id) except -1:
        """Whether anybody but the revive log itself listens to a revive queue."""
        cdef PyObject* found = PyDict_GetItem(self.watchers, self.keys[queue_id])
        return found != NULL and <object>found > 1

    cdef bint has_room(self, int32_t queue_id, int count, int64_t size) except -1:
        cdef QueueTail queue
        if not 0 <= queue_id < len(self.tails):
            return False
        queue = self.tail(queue_id)
        if queue.place == NULL or queue.next_offset * 20 < queue.file_start or queue.delays_ms is not None:
            return False
        if (queue.next_offset + count) * 20 - queue.file_start > queue.limit:
            return False
        if self.index.enabled and not index_has_room(self.index, 2 * count):
            return False
        size += count * (RECORD_BYTES + len(self.topic) + NAMES * len(self.broker_json))
        return self.log.place != NULL and self.log.position + size + 8 <= self.log.size

    cdef int begin_properties(self, PopLane lane, int64_t offset, int64_t pop_time, int64_t now) except -1:
        cdef Out out = self.properties
        out.clear()
        out.reserve(RECORD_BYTES + NAMES * (len(lane.topic_raw) + len(lane.group_raw) + len(self.broker_raw)))
        out.put_bytes(DELIVER)
        out.put_decimal(now)
        out.put_bytes(UNIQUE)
        out.put_bytes(lane.topic_raw)
        out.put(b"@", 1)
        out.put_decimal(lane.queue_id)
        out.put(b"@", 1)
        out.put_decimal(offset)
        out.put(b"@", 1)
        out.put_bytes(lane.group_raw)
        out.put(b"@", 1)
        out.put_decimal(pop_time)
        out.put(b"@", 1)
        out.put_bytes(self.broker_raw)
        return 0

    cdef int write_check_point(
        self, PopLane lane, int32_t queue_id, int64_t start, int64_t pop_time, int64_t invisible_ms,
        const int64_t* offsets, int count, int64_t now
    ) except -1:
        cdef Out out = self.body
        cdef int number
        out.clear()
        out.reserve(
            RECORD_BYTES + NAMES * (len(lane.topic_json) + len(lane.group_json) + len(self.broker_json))
            + OFFSET_BYTES * count
        )
        out.put(b'{"bm":0,"bn":', 13)
        out.put_bytes(self.broker_json)
        out.put(b',"c":', 5)
        out.put_bytes(lane.group_json)
        out.put(b',"d":[', 6)
        for number in range(count):
            if number:
                out.put(b",", 1)
            out.put_decimal(offsets[number] - start)
        out.put(b'],"it":', 7)
        out.put_decimal(invisible_ms)
        out.put(b',"n":', 5)
        out.put_decimal(count)
        out.put(b',"pt":', 6)
        out.put_decimal(pop_time)
        out.put(b',"q":', 5)
        out.put_decimal(lane.queue_id)
        out.put(b',"reviveTime":', 14)
        out.put_decimal(pop_time + invisible_ms)
        out.put(b',"ro":0,"so":', 13)
        out.put_decimal(start)
        out.put(b',"sp":false,"t":', 16)
        out.put_bytes(lane.topic_json)
        out.put(b"}", 1)
        self.begin_properties(lane, start, pop_time, now)
        self.properties.put_bytes(AS_CHECK_POINT)
        return self.write(queue_id, now)

    cdef int write_ack(
        self, PopLane lane, CheckPoint check_point, const int64_t* offsets, int count, bint is_batch, int64_t now
    ) except -1:
        cdef Out out = self.body
        cdef int number
        out.clear()
        out.reserve(
            RECORD_BYTES + NAMES * (len(lane.topic_json) + len(lane.group_json) + len(self.broker_json))
            + OFFSET_BYTES * count
        )
        out.put(b'{"ao":', 6)
        out.put_decimal(-1 if is_batch else offsets[0])
        if is_batch:
            out.put(b',"aol":[', 8)
            for number in range(count):
                if number:
                    out.put(b",", 1)
                out.put_decimal(offsets[number])
            out.put(b"]", 1)
        out.put(b',"bn":', 6)
        out.put_bytes(self.broker_json)
        out.put(b',"c":', 5)
        out.put_bytes(lane.group_json)
        out.put(b',"pt":', 6)
        out.put_decimal(check_point.pop_time)
        out.put(b',"q":', 5)
        out.put_decimal(lane.queue_id)
        out.put(b',"so":', 6)
        out.put_decimal(check_point.start_offset)
        out.put(b',"t":', 5)
        out.put_bytes(lane.topic_json)
        out.put(b"}", 1)
        self.begin_properties(lane, -1 if is_batch else offsets[0], check_point.pop_time, now)
        self.properties.put_bytes(AS_BATCH if is_batch else AS_ACK)
        return self.write(check_point.revive_queue, now)

    cdef int write(self, int32_t queue_id, int64_t now) except -1:
        """Its room was looked for before."""
        cdef QueueTail queue = self.tail(queue_id)
        cdef RecordFields fields
        fields.topic = <const uint8_t*><const char*>self.topic
        fields.topic_length = len(self.topic)
        fields.queue_id = queue_id
        fields.sys_flag = fields.flag = fields.reconsume_times = 0
        fields.born_timestamp = fields.store_timestamp = now
        fields.born_host = fields.store_host = <const uint8_t*><const char*>self.store_host
        fields.born_host_length = fields.store_host_length = len(self.store_host)
        fields.prepared_transaction_offset = 0
        fields.body = self.body.data
        fields.body_length = self.body.size
        fields.properties = self.properties.data
        fields.properties_length = self.properties.size
        if append_fields(self.log, queue, self.index, &fields, False) <= 0:
            raise RuntimeError("the revive topic has no room, although there was some")
        self.queue_offset = fields.queue_offset
        if queue.watched and self.is_heard(queue_id):
            self.notify(queue, PyBytes_FromStringAndSize(<const char*>self.properties.data, self.properties.size))
        return 0
