# cython: language_level=3
"""Transactions: half messages in, their ends to the topics, without a Python object a message.

Two kinds of requests are served here, in the form that nothing has to be judged about:

  a half message     to a topic that the general path would store as it came, with the properties the broker adds
  its first end      a commit or rollback by the producer itself, of a half message that is open

Publishing and the op record are written one right after the other, and only if there is room for both, as the general
path does it (`transactions/log.py` says why). Whatever else comes (an answer to a check, an end that comes twice or late,
a half message that asks for something, a delay) is left to the general path, which decides. There is no Python reference:
a differential test shows that both leave the same files.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from arrowmq.broker.fastpath._half_native cimport Said, is_ascii, put, put_number, read_properties
from arrowmq.broker.fastpath._known_topics_native cimport KnownTopics, Topic, Written
from arrowmq.broker.fastpath._ordinary cimport (
    PRODUCER_GROUP, REAL_QUEUE, REAL_TOPIC, TRANSACTION_MARK, UNIQUE_KEY, UNUSUAL, WAIT, read_send_fields
)
from arrowmq.broker.fastpath._router_native cimport NativeHandler
from arrowmq.broker.transactions._offset_set_native cimport OffsetSet
from arrowmq.store._positions_native cimport Marks
from arrowmq.store.append._tail_native cimport (
    Facts, IndexTail, LogTail, QueueTail, RecordFields, append_fields, append_known, count_index_keys, find_facts,
    index_has_room, record_bytes, write_header
)
from arrowmq.store.read._reader_native cimport LogWindow
from arrowmq.wire._bytes cimport get32, get64
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._answer_native cimport AnswerTemplate, MessageIds, Value, write_answer
from arrowmq.wire.in_place._fields cimport (
    END_COMMIT_LOG_OFFSET, END_COMMIT_OR_ROLLBACK, END_FIELDS, END_FROM_TRANSACTION_CHECK, END_PRODUCER_GROUP,
    END_TRAN_STATE_TABLE_OFFSET, SEND_PROPERTIES, SEND_TOPIC, SENT_FIELDS, SENT_MSG_ID, SENT_QUEUE_ID, SENT_QUEUE_OFFSET,
    SENT_TRANSACTION_ID
)
from arrowmq.wire.in_place._names_native cimport NameTable
from arrowmq.wire.in_place._request_native cimport ONEWAY, Request, Text, text_is, text_to_int
from arrowmq.wire.records._layout_native cimport Layout, crc_is_right, find_layout

from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode

cdef int32_t END_CODE = RequestCode.END_TRANSACTION

cdef enum:
    MAX_PROPERTIES = 32767
    NUMBER_BYTES = 20
    COMMIT = 8
    ROLLBACK = 12
    TRANSACTION_BITS = 12
    HALF_FLAGS = 0x70D        # compression, and the marks of a transaction
    IPV6_BITS = 0x30
    HOST_BYTES = 8            # an IPv4 address and a port

cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFF

cdef class HalfTopic(Topic):
    """A topic that half messages may be for; `written` is what was published."""
    cdef int64_t rolled_back
    cdef int64_t counted        # of those that ended, so many had been counted as open
    cdef dict latency           # how many commits came how many seconds after the birth

    def __cinit__(self):
        self.latency = {}

    cdef bint is_taken(self) except -1:
        return not self.rolled_back and not self.latency and Topic.is_taken(self)


cdef class TransactionHandler(NativeHandler):
    """See the module."""
    cdef LogTail log
    cdef IndexTail index
    cdef OffsetSet ended
    cdef Marks positions
    cdef AnswerTemplate half_answers
    cdef AnswerTemplate end_answers
    cdef Out pending_halves     # answers that have to wait until what is promised is true
    cdef Out pending_ends
    cdef Out out                # where answers go now, unless they wait
    cdef bint must_wait
    cdef uint8_t* properties
    cdef uint8_t* op_properties
    cdef bytes added            # the properties that the broker adds to every message
    cdef bytes store_host
    cdef bytes id_start         # of an offset message id: the store host in hex
    cdef bytes half_topic
    cdef bytes op_topic
    cdef bytes commit_start     # the properties of an op record up to the transaction's id
    cdef bytes rollback_start
    cdef bytes born_host
    cdef object find_queue, notify, limits, counted_up_to, peer_of
    # take a pass's answers until its messages are as safe as the broker promises
    cdef object send_halves_when_kept, send_ends_when_kept
    cdef KnownTopics topics
    cdef NameTable half_names   # of properties: of a half message that comes, and of one that is stored
    cdef NameTable stored_names
    cdef QueueTail half_queue
    cdef QueueTail op_queue
    cdef LogWindow window       # where the last half message was found
    cdef int64_t now
    cdef int64_t max_body       # of a half message; 0: there are no ordinary ones now
    cdef int64_t max_committed  # of one that ends, the same
    cdef int64_t counted_before
    cdef Written halves
    cdef int64_t answered_ends
    cdef int64_t oneway_ends
    cdef readonly int64_t taken_halves
    cdef readonly int64_t taken_ends

    def __cinit__(self):
        self.properties = <uint8_t*>malloc(MAX_PROPERTIES + 1)
        self.op_properties = <uint8_t*>malloc(MAX_PROPERTIES + 1)
        if self.properties == NULL or self.op_properties == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.properties)
        free(self.op_properties)

    def __init__(
        self, LogTail log, IndexTail index, Marks positions, OffsetSet ended, commit_log, *, tuple half_answers,
        tuple end_answers, bytes added, bytes store_host, bytes half_topic, bytes op_topic, bytes commit_start,
        bytes rollback_start, find_topic, find_queue, notify, limits, counted_up_to, peer_of, send_halves_when_kept,
        send_ends_when_kept
    ):
        self.log = log
        self.index = index
        self.ended = ended
        self.positions = positions
        self.half_answers = AnswerTemplate(*half_answers)
        self.end_answers = AnswerTemplate(*end_answers)
        self.pending_halves, self.pending_ends = Out(), Out()
        self.added = added
        self.store_host = store_host
        self.id_start = store_host.hex().upper().encode()
        self.half_topic = half_topic
        self.op_topic = op_topic
        self.commit_start = commit_start
        self.rollback_start = rollback_start
        self.find_queue = find_queue
        self.notify = notify
        self.limits = limits
        self.counted_up_to = counted_up_to
        self.peer_of = peer_of
        self.send_halves_when_kept = send_halves_when_kept
        self.send_ends_when_kept = send_ends_when_kept
        self.asked_ms = -1
        self.topics = KnownTopics(find_topic, HalfTopic)
        self.half_queue = self.op_queue = None
        self.half_names = self.stored_names = NameTable({})
        self.window = LogWindow(commit_log)

    def close(self):
        self.window.leave()
        self.half_queue = self.op_queue = None

    def use(self, unusual_of_halves, unusual_of_stored):
        """The permit changed: these properties make a half message that comes, or one that is stored, unusual."""
        names = {
            keys.TRAN_MSG: TRANSACTION_MARK, keys.PGROUP: PRODUCER_GROUP, keys.UNIQ_KEY: UNIQUE_KEY, keys.WAIT: WAIT
        }
        stored_names = {**names, keys.REAL_TOPIC: REAL_TOPIC, keys.REAL_QID: REAL_QUEUE}
        self.half_names = NameTable({**names, **dict.fromkeys(unusual_of_halves, UNUSUAL)})
        self.stored_names = NameTable({**stored_names, **dict.fromkeys(unusual_of_stored, UNUSUAL)})
        self.ask_again()
        self.forget()

    def forget(self):
        """A topic changed: ask anew for each."""
        self.topics.forget()
        self.half_queue = self.op_queue = None

    cdef bint ask(self) except -1:
        self.max_body, self.max_committed = self.limits()
        return self.max_body > 0 or self.max_committed > 0

    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if not NativeHandler.begin(self, connection, now, out):
            return False
        self.born_host = connection.peer_bytes
        if self.born_host is None:
            self.born_host = self.peer_of(connection)
        self.now = now
        self.counted_before = self.counted_up_to()
        self.must_wait = self.positions.needs_flush or self.positions.needs_replicas
        self.out = out
        return True

    cdef bint take(self, Request* request) except -1:
        if request.code == END_CODE:
            return self.max_committed > 0 and self.take_end(request)
        return self.max_body > 0 and self.take_half(request)

    cdef int finish(self, connection) except -1:
        if self.pending_halves.size:
            self.send_halves_when_kept(connection, taken_from(self.pending_halves))
        if self.pending_ends.size:
            self.send_ends_when_kept(connection, taken_from(self.pending_ends))
        return 0

    # The beginning

    cdef int take_half(self, Request* request) except -1:
        """Write a half message and its answer. 0 if it is not an ordinary one: then nothing happened."""
        cdef int64_t size
        cdef RecordFields fields
        cdef HalfTopic topic
        cdef Said said
        cdef MessageIds ids
        cdef Value values[SENT_FIELDS]
        cdef bint is_batch
        cdef int32_t queue_id
        if request.fields[SEND_TOPIC].size == 0 or request.body.size == 0 or request.body.size > self.max_body:
            return 0
        topic = self.topics.find(request.fields[SEND_TOPIC])
        if topic is None or not read_send_fields(request, topic.queue_count, HALF_FLAGS, &fields, &is_batch) or is_batch:
            return 0
        queue_id = fields.queue_id
        fields.sys_flag &= ~TRANSACTION_BITS
        if not read_properties(request.fields[SEND_PROPERTIES], self.half_names, &said, False, not self.must_wait):
            return 0
        if self.half_queue is None:
            self.half_queue = self.find_queue(self.half_topic.decode(), 0)
        fields.properties_length = self.write_half_properties(request.fields[SEND_PROPERTIES], said.unique, topic, queue_id)
        if fields.properties_length == 0:
            return 0
        fields.properties = self.properties
        fields.topic = <const uint8_t*><const char*>self.half_topic
        fields.topic_length = len(self.half_topic)
        fields.queue_id = 0
        fields.born_host = <const uint8_t*><const char*>self.born_host
        fields.born_host_length = len(self.born_host)
        fields.store_host = <const uint8_t*><const char*>self.store_host
        fields.store_host_length = len(self.store_host)
        fields.prepared_transaction_offset = 0
        fields.store_timestamp = self.now
        size = append_fields(self.log, self.half_queue, self.index, &fields, False)
        if size <= 0:
            return 0
        self.halves.messages += 1
        self.halves.size += size
        self.taken_halves += 1
        if self.half_queue.watched:
            self.notify(self.half_queue, PyBytes_FromStringAndSize(<const char*>self.properties, fields.properties_length))
        if request.flag == 0:
            memset(values, 0, sizeof(values))
            ids.start = self.id_start
            ids.start_size = len(self.id_start)
            ids.physical_offset = fields.physical_offset
            ids.sizes = NULL
            ids.count = 1
            values[SENT_MSG_ID].ids = &ids
            values[SENT_QUEUE_ID].number = queue_id
            values[SENT_QUEUE_OFFSET].number = fields.queue_offset
            values[SENT_TRANSACTION_ID].text = &said.unique
            write_answer(self.pending_halves if self.must_wait else self.out, self.half_answers, request, values, 0)
        return 1

    cdef int64_t write_half_properties(self, Text given, Text unique, HalfTopic topic, int32_t queue_id) except -1:
        """What was given, what the broker adds to every message, and what it notes of a half message; 0 if too long."""
        cdef uint8_t* at = self.properties
        cdef int64_t length = given.size + 1 + len(self.added) + unique.size + len(topic.name) + 64
        if length > MAX_PROPERTIES:
            return 0
        at = put(at, given.data, given.size)
        if given.data[given.size - 1] != 2:
            at = put(at, b"\x02", 1)
        at = put(at, <const char*>self.added, len(self.added))
        at = put(put(at, b"__transactionId__\x01", 18), unique.data, unique.size)
        at = put(put(at, b"\x02REAL_TOPIC\x01", 12), <const char*>topic.name, len(topic.name))
        at = put(at, b"\x02REAL_QID\x01", 10)
        at = put_number(at, queue_id)
        at = put(at, b"\x02", 1)
        return at - self.properties

    # The end

    cdef const uint8_t* half_at(self, int64_t physical, Layout* layout) except? NULL:
        """The half message that begins there, checked as the general path checks it; NULL if that has to look."""
        cdef int64_t room
        cdef const uint8_t* data
        if not self.window.reach(physical):
            return NULL
        room = min(self.window.start + self.window.size, self.log.start + self.log.position) - physical
        data = self.window.place + (physical - self.window.start)
        if room <= 0 or not find_layout(data, room, layout) or get64(data + 28) != physical:
            return NULL
        if layout.topic_length != len(self.half_topic):
            return NULL
        if memcmp(data + layout.topic, <const char*>self.half_topic, layout.topic_length) != 0:
            return NULL
        return data if crc_is_right(data, layout) else NULL

    cdef int take_end(self, Request* request) except -1:
        """End a half message as its producer says, and write the answer. 0 if the general path has to decide."""
        cdef int64_t offset, physical, decision, number = 0
        cdef const uint8_t* half
        cdef Layout layout
        cdef Text stored, check, group = request.fields[END_PRODUCER_GROUP]
        cdef Said said
        cdef HalfTopic topic
        cdef int place
        if request.flag != 0 and request.flag != ONEWAY:
            return 0
        if request.fields[END_PRODUCER_GROUP].size == 0:
            return 0
        if not text_to_int(request.fields[END_TRAN_STATE_TABLE_OFFSET], 0, LARGEST, &offset):
            return 0
        if not text_to_int(request.fields[END_COMMIT_LOG_OFFSET], 0, LARGEST, &physical):
            return 0
        if not text_to_int(request.fields[END_COMMIT_OR_ROLLBACK], 0, 0x7FFFFFFF, &decision):
            return 0
        if decision != COMMIT and decision != ROLLBACK:
            return 0
        check = request.fields[END_FROM_TRANSACTION_CHECK]
        if check.data != NULL and not text_is(check, b"false", 5):
            return 0                     # the answer to a check: it may come for a half message that was renewed
        for place in range(END_FIELDS):
            if place != END_PRODUCER_GROUP and not is_ascii(request.fields[place]):
                return 0
        if offset < self.ended.floor or self.ended.has(offset):
            return 0
        half = self.half_at(physical, &layout)
        if half == NULL or get64(half + 20) != offset or layout.sys_flag & IPV6_BITS:
            return 0
        stored.data = half + layout.properties
        stored.size = layout.properties_length
        if not read_properties(stored, self.stored_names, &said, True, True) or not said.topic.size:
            return 0
        if said.group.size != group.size or memcmp(said.group.data, group.data, group.size):
            return 0
        topic = self.topics.find(said.topic)
        if topic is None or not text_to_int(said.queue, 0, topic.queue_count - 1, &number):
            return 0
        if not self.write_end(half, &layout, &said, topic, <int32_t>number, decision == COMMIT, offset, self.now):
            return 0
        if request.flag == 0:
            self.answered_ends += 1
            write_answer(self.pending_ends if self.must_wait else self.out, self.end_answers, request, NULL, 0)
        else:
            self.oneway_ends += 1
        return 1

    cdef int write_end(
        self, const uint8_t* half, Layout* layout, Said* said, HalfTopic topic, int32_t queue_id, bint is_commit,
        int64_t offset, int64_t now
    ) except -1:
        """The message for its topic, if it is a commit, and the op record behind it: both, or none of them."""
        cdef RecordFields message, op
        cdef Facts message_facts, op_facts
        cdef int64_t message_size = 0, op_size, message_keys = 0, op_keys = 0, seconds
        cdef uint8_t body[NUMBER_BYTES + 2]
        cdef QueueTail queue = None
        self.describe_op(&op, said, is_commit, offset, body, now)
        op_size = record_bytes(&op, False)
        find_facts(op.properties, op.properties_length, &op_facts)
        if is_commit:
            queue = self.queue_of(topic, queue_id)
            if queue.delays_ms is not None or not has_room(queue):
                return 0
            self.describe_message(&message, half, layout, said, topic, queue_id, now)
            message_size = record_bytes(&message, False)
            if message_size <= 0 or layout.body_length > self.max_committed:
                return 0
            find_facts(message.properties, message.properties_length, &message_facts)
        if self.index.enabled:
            message_keys = count_index_keys(&message_facts) if is_commit else 0
            op_keys = count_index_keys(&op_facts)
            if not index_has_room(self.index, message_keys + op_keys):
                return 0
        if self.op_queue is None:
            self.op_queue = self.find_queue(self.op_topic.decode(), 0)
        if op_size <= 0 or not has_room(self.op_queue) or self.log.place == NULL:
            return 0
        if self.log.position + message_size + op_size + 8 > self.log.size:
            return 0
        if is_commit:
            append_known(self.log, queue, self.index, &message, &message_facts, message_size, message_keys, False)
        self.ended.take_in(offset)
        append_known(self.log, self.op_queue, self.index, &op, &op_facts, op_size, op_keys, False)
        if message_keys + op_keys:
            write_header(self.index)
        self.taken_ends += 1
        if offset < self.counted_before:
            topic.counted += 1
        if not is_commit:
            topic.rolled_back += 1
        else:
            topic.written[queue_id].messages += 1
            topic.written[queue_id].size += message_size
            seconds = max(<int64_t>0, now - message.born_timestamp) // 1000
            topic.latency[seconds] = topic.latency.get(seconds, 0) + 1
            if queue.watched:
                self.notify(queue, PyBytes_FromStringAndSize(<const char*>message.properties, message.properties_length))
        if self.op_queue.watched:
            self.notify(self.op_queue, PyBytes_FromStringAndSize(<const char*>op.properties, op.properties_length))
        return 1

    cdef QueueTail queue_of(self, HalfTopic topic, int32_t queue_id):
        cdef QueueTail queue = topic.queues[queue_id]
        if queue is None:
            queue = topic.queues[queue_id] = self.find_queue(topic.text, queue_id)
        return queue

    cdef int describe_message(
        self, RecordFields* message, const uint8_t* half, Layout* layout, Said* said, HalfTopic topic, int32_t queue_id,
        int64_t now
    ) except -1:
        """The half message as its topic gets it: what the broker noted of its place is taken out again."""
        cdef const uint8_t* at = half + layout.properties
        cdef const uint8_t* end = at + layout.properties_length
        cdef const uint8_t* topic_item = said.topic.data - 11
        cdef const uint8_t* queue_item = said.queue.data - 9
        cdef const uint8_t* item
        cdef uint8_t* target = self.properties
        while at < end:
            item = at
            while at[0] != 2:                # every item has its end: `read_properties` has seen it
                at += 1
            at += 1
            if item != topic_item and item != queue_item:
                target = put(target, item, at - item)
        message.topic = <const uint8_t*><const char*>topic.name
        message.topic_length = len(topic.name)
        message.queue_id = queue_id
        message.flag = get32(half + 16)
        message.sys_flag = (layout.sys_flag & ~TRANSACTION_BITS) | COMMIT
        message.born_timestamp = get64(half + 40)
        message.born_host = half + 48
        message.born_host_length = HOST_BYTES
        message.store_host = half + layout.store_host
        message.store_host_length = HOST_BYTES
        message.reconsume_times = get32(half + layout.store_host + HOST_BYTES)
        message.prepared_transaction_offset = get64(half + 28)
        message.body = half + layout.body
        message.body_length = layout.body_length
        message.properties = self.properties
        message.properties_length = target - self.properties
        message.store_timestamp = now
        return 0

    cdef int describe_op(
        self, RecordFields* op, Said* said, bint is_commit, int64_t offset, uint8_t* body, int64_t now
    ) except -1:
        """The op record: which half message ended, and how; found again by the transaction's id."""
        cdef bytes start = self.commit_start if is_commit else self.rollback_start
        cdef uint8_t* target = put(self.op_properties, <const char*>start, len(start))
        cdef uint8_t* stop
        target = put(put(target, said.unique.data, said.unique.size), b"\x02", 1)
        stop = put(put_number(body, offset), b",", 1)
        op.topic = <const uint8_t*><const char*>self.op_topic
        op.topic_length = len(self.op_topic)
        op.queue_id = op.flag = op.sys_flag = op.reconsume_times = 0
        op.born_timestamp = op.store_timestamp = now
        op.born_host = op.store_host = <const uint8_t*><const char*>self.store_host
        op.born_host_length = op.store_host_length = len(self.store_host)
        op.prepared_transaction_offset = 0
        op.body = body
        op.body_length = stop - body
        op.properties = self.op_properties
        op.properties_length = target - self.op_properties
        return 0

    # Counts

    def take_answered(self):
        """Since the last call: half messages and their bytes, ends that were answered, ends that wanted no answer."""
        taken = self.halves.messages, self.halves.size, self.answered_ends, self.oneway_ends
        self.halves.messages = self.halves.size = self.answered_ends = self.oneway_ends = 0
        return taken

    def take_published(self):
        """What was published since the last call: (topic, queue id, messages, bytes)."""
        taken = self.topics.take_written()
        self.topics.drop_forgotten()
        return taken

    def take_ended(self):
        """How transactions ended since the last call: (topic, rolled back, commits by seconds, had been counted)."""
        cdef HalfTopic topic
        cdef list taken = []
        for topic in self.topics.touched:
            if topic.rolled_back or topic.latency:
                taken.append((topic.text, topic.rolled_back, topic.latency, topic.counted))
                topic.rolled_back = topic.counted = 0
                topic.latency = {}
        self.topics.drop_forgotten()
        return taken


cdef inline bint has_room(QueueTail queue) noexcept:
    """Whether the next entry fits into the file that the queue writes to."""
    return (
        queue.place != NULL and queue.next_offset * 20 >= queue.file_start
        and (queue.next_offset + 1) * 20 - queue.file_start <= queue.limit
    )


cdef bytes taken_from(Out pending):
    answers = PyBytes_FromStringAndSize(<const char*>pending.data, pending.size)
    pending.clear()
    return answers
