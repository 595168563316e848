# cython: language_level=3
"""Sends from the socket's bytes to the segment and back, without a Python object a message.

The handler knows one kind of message: an ordinary one, to a topic that the general path has shown to it, with every
check made here again that can differ between two messages. What that means for a broker and a topic is said by the
permit (`permit.py`) and by `sends.py`. It has no Python reference: the general path says what is right, and a
differential test shows that both leave the same files.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from arrowmq.broker.fastpath._known_topics_native cimport KnownTopics, Topic
from arrowmq.broker.fastpath._ordinary cimport SHARDING_KEY, UNIQUE_KEY, UNUSUAL, WAIT, is_word, read_send_fields
from arrowmq.broker.fastpath._router_native cimport NativeHandler
from arrowmq.store._positions_native cimport Marks
from arrowmq.store.append._tail_native cimport (
    Facts, IndexTail, LogTail, QueueTail, RecordFields, append_fields, append_known, count_index_keys, find_facts,
    index_has_room, prefetch_key, record_bytes, write_header
)
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._answer_native cimport AnswerTemplate, MessageIds, Value, write_answer
from arrowmq.wire.in_place._fields cimport (
    SEND_PROPERTIES, SEND_TOPIC, SENT_FIELDS, SENT_MSG_ID, SENT_QUEUE_ID, SENT_QUEUE_OFFSET, SENT_TRANSACTION_ID
)
from arrowmq.wire.in_place._names_native cimport NameTable, number_of
from arrowmq.wire.in_place._request_native cimport ONEWAY, Request, Text, text_is, u16, u32

from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode

# --- what a message's properties say -------------------------------------------------------------------------------

cdef int32_t SEND_CODE = RequestCode.SEND_MESSAGE_V2
cdef int32_t BATCH_CODE = RequestCode.SEND_BATCH_MESSAGE

cdef enum:
    MAX_BATCH = 4096
    MAX_NAMES = 32            # a message with more properties is left to the general path
    MAX_PROPERTIES = 32767
    COMPRESSION = 0x701       # the flags that an ordinary message may have


cdef bint is_plain(
    Text properties, NameTable known, Text* unique, bint* is_ordered, bint may_wait
) noexcept nogil:
    """Whether the general path would store these properties just as they came, with what unique key, and with a
    sharding key or without.

    It parses and writes them anew, so: every item has a name and a value and their ends, no name comes twice, none
    asks for special treatment, and all is ASCII (what is broken UTF-8 and what becomes of it is the general path's field).
    `may_wait` says whether WAIT=false, by which a sender need not wait for the disk, makes no difference.
    """
    cdef Text names[MAX_NAMES]
    cdef int count = 0, index, meaning
    cdef const uint8_t* at = properties.data
    cdef const uint8_t* end = properties.data + properties.size
    cdef Text name, value
    unique.data = NULL
    unique.size = 0
    is_ordered[0] = False
    while at < end:
        name.data = at
        while at < end and at[0] > 2 and at[0] < 0x80:
            at += 1
        if at == end or at[0] != 1:
            return False
        name.size = at - name.data
        at += 1
        value.data = at
        while at < end and at[0] > 2 and at[0] < 0x80:
            at += 1
        if at < end and at[0] != 2:
            return False
        value.size = at - value.data
        at += 1                          # past the end of the text too: some clients leave the last 0x02 away
        if name.size == 0 or value.size == 0 or count == MAX_NAMES:
            return False
        meaning = number_of(known, name.data, name.size)
        if meaning == UNUSUAL:
            return False
        if meaning == UNIQUE_KEY:
            unique[0] = value
        elif meaning == SHARDING_KEY:
            is_ordered[0] = True
        elif meaning == WAIT and not may_wait and not text_is(value, b"true", 4):
            return False
        for index in range(count):
            if names[index].size == name.size and memcmp(names[index].data, name.data, name.size) == 0:
                return False
        names[count] = name
        count += 1
    return True


cdef enum:
    SIZE_CLASSES = 16           # room for them; how many there are, the handler is told


cdef struct Sizes:
    int64_t counts[SIZE_CLASSES]
    int64_t total
    int64_t largest


cdef class SendTopic(Topic):
    cdef Sizes sizes[2]         # of messages without and with a sharding key; of those of a batch, their mean

    cdef bint is_taken(self) except -1:
        return not self.sizes[0].total and not self.sizes[1].total and Topic.is_taken(self)


cdef struct Item:
    const uint8_t* body
    int64_t body_length
    const uint8_t* properties
    int64_t properties_length
    int32_t flag
    Facts facts
    int64_t index_keys


cdef class SendHandler(NativeHandler):
    """See the module."""
    cdef LogTail log
    cdef IndexTail index
    cdef Marks positions
    cdef AnswerTemplate answers
    cdef AnswerTemplate nameless    # of batches without a unique key of their own
    cdef Out pending            # answers that have to wait until what is promised is true
    cdef Out out                # where answers go now
    cdef bint must_wait
    cdef uint8_t* properties
    cdef Item* items            # of the batch at hand, and how long their records are
    cdef int64_t* sizes
    cdef int item_room
    cdef bytes added            # the properties that the broker adds to every message
    cdef bytes store_host
    cdef bytes id_start         # of an offset message id: the store host in hex
    cdef bytes born_host
    cdef object find_queue
    cdef object make_room
    cdef object notify
    cdef object limits          # asks the permit
    cdef object peer_of
    cdef object send_when_kept  # takes a pass's answers until its messages are as safe as the broker promises
    cdef KnownTopics topics
    cdef NameTable names        # of properties
    cdef int64_t now
    cdef int64_t max_body       # of a single message; 0: there are no ordinary ones now
    cdef int64_t max_batch      # of a batch, the same
    cdef bint with_crc
    cdef int64_t size_bounds[SIZE_CLASSES]
    cdef int size_bound_count
    cdef int64_t answered[2][2]     # since they were last taken: single sends and batches, with an answer and without
    cdef readonly int64_t taken_messages

    def __cinit__(self):
        self.properties = <uint8_t*>malloc(MAX_PROPERTIES + 1)
        self.item_room = 64
        self.items = <Item*>malloc(self.item_room * sizeof(Item))
        self.sizes = <int64_t*>malloc(self.item_room * sizeof(int64_t))
        if self.properties == NULL or self.items == NULL or self.sizes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.properties)
        free(self.items)
        free(self.sizes)

    def __init__(
        self, LogTail log, IndexTail index, Marks positions, tuple answers, tuple nameless, *, bytes added,
        bytes store_host, find_topic, find_queue, make_room, notify, limits, peer_of, bint with_crc, send_when_kept,
        tuple size_bounds
    ):
        self.log = log
        self.index = index
        self.positions = positions
        self.answers = AnswerTemplate(*answers)
        self.nameless = AnswerTemplate(*nameless)
        self.pending = Out()
        self.added = added
        self.store_host = store_host
        self.id_start = store_host.hex().upper().encode()
        self.find_queue = find_queue
        self.make_room = make_room
        self.notify = notify
        self.limits = limits
        self.peer_of = peer_of
        self.with_crc = with_crc
        self.send_when_kept = send_when_kept
        self.asked_ms = -1
        self.names = NameTable({})
        if len(size_bounds) >= SIZE_CLASSES:
            raise ValueError(f"{len(size_bounds)} bounds of sizes; there is room for {SIZE_CLASSES - 1}")
        for number, bound in enumerate(size_bounds):
            self.size_bounds[number] = bound
        self.size_bound_count = len(size_bounds)
        self.topics = KnownTopics(find_topic, SendTopic)

    def use(self, unusual):
        """The permit changed: these properties make a message unusual; all else has to be asked again."""
        names = {keys.UNIQ_KEY: UNIQUE_KEY, keys.WAIT: WAIT, keys.SHARDING_KEY: SHARDING_KEY}
        self.names = NameTable({**names, **dict.fromkeys(unusual, UNUSUAL)})
        self.ask_again()
        self.topics.forget()

    def forget(self):
        """A topic changed: ask anew for each."""
        self.topics.forget()

    def take_counts(self):
        """What was written since the last call, by topic and queue: (topic, queue id, messages, bytes)."""
        return self.topics.take_written()

    def take_sizes(self):
        """The sizes of the same messages: (topic, whether they have a sharding key, how many by size, sum, largest)."""
        cdef SendTopic topic
        cdef int kind
        cdef list taken = []
        for topic in self.topics.touched:
            for kind in range(2):
                if topic.sizes[kind].total:
                    counts = [topic.sizes[kind].counts[place] for place in range(self.size_bound_count + 1)]
                    taken.append((topic.text, bool(kind), counts, topic.sizes[kind].total, topic.sizes[kind].largest))
                    memset(&topic.sizes[kind], 0, sizeof(Sizes))
        self.topics.drop_forgotten()
        return taken

    def take_answered(self):
        """How many requests these were: (code, whether without an answer, times)."""
        cdef int kind, oneway
        cdef list taken = []
        for kind in range(2):
            for oneway in range(2):
                if self.answered[kind][oneway]:
                    taken.append((BATCH_CODE if kind else SEND_CODE, bool(oneway), self.answered[kind][oneway]))
                    self.answered[kind][oneway] = 0
        return taken

    cdef bint ask(self) except -1:
        self.max_body, self.max_batch = self.limits()
        return self.max_body > 0 or self.max_batch > 0

    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if not NativeHandler.begin(self, connection, now, out):
            return False
        self.born_host = connection.peer_bytes
        if self.born_host is None:
            self.born_host = self.peer_of(connection)
        self.now = now
        self.must_wait = self.positions.needs_flush or self.positions.needs_replicas
        self.out = self.pending if self.must_wait else out
        return True

    cdef int finish(self, connection) except -1:
        if self.pending.size:
            answers = PyBytes_FromStringAndSize(<const char*>self.pending.data, self.pending.size)
            self.pending.clear()
            self.send_when_kept(connection, answers)
        return 0

    cdef bint take(self, Request* request) except -1:
        """Write the message of a request and its answer."""
        cdef RecordFields fields
        cdef SendTopic topic
        cdef QueueTail queue
        cdef bint is_batch, is_ordered
        cdef Text unique
        if request.fields[SEND_TOPIC].size == 0 or request.body.size == 0:
            return 0
        topic = self.topics.find(request.fields[SEND_TOPIC])
        if topic is None or not read_send_fields(request, topic.queue_count, COMPRESSION, &fields, &is_batch):
            return 0
        if request.body.size > (self.max_batch if is_batch else self.max_body):
            return 0
        if request.fields[SEND_PROPERTIES].size >= MAX_PROPERTIES - <Py_ssize_t>len(self.added):
            return 0
        if not is_plain(request.fields[SEND_PROPERTIES], self.names, &unique, &is_ordered, not self.must_wait):
            return 0
        if not is_word(unique) and (unique.size or not is_batch):
            return 0
        queue = topic.queues[fields.queue_id]
        if queue is None:
            queue = topic.queues[fields.queue_id] = self.find_queue(topic.text, fields.queue_id)
        if queue.delays_ms is not None:
            return 0
        fields.topic = <const uint8_t*><const char*>topic.name
        fields.topic_length = len(topic.name)
        fields.born_host = <const uint8_t*><const char*>self.born_host
        fields.born_host_length = len(self.born_host)
        fields.store_host = <const uint8_t*><const char*>self.store_host
        fields.store_host_length = len(self.store_host)
        fields.prepared_transaction_offset = 0
        fields.store_timestamp = self.now
        if is_batch:
            return self.write_batch(request, topic, queue, &fields, unique)
        return self.write_one(request, topic, queue, &fields, unique, is_ordered)

    cdef int write_one(
        self, Request* request, SendTopic topic, QueueTail queue, RecordFields* fields, Text unique, bint is_ordered
    ) except -1:
        cdef int64_t size
        cdef Text given = request.fields[SEND_PROPERTIES]
        memcpy(self.properties, given.data, given.size)
        if given.data[given.size - 1] != 2:
            self.properties[given.size] = 2
            given.size += 1
        memcpy(self.properties + given.size, <const char*>self.added, len(self.added))
        fields.properties = self.properties
        fields.properties_length = given.size + len(self.added)
        size = append_fields(self.log, queue, self.index, fields, self.with_crc)
        if size <= 0:
            return 0
        self.count(request, topic, queue, 1, size, is_ordered)
        if queue.watched:
            self.notify(queue, PyBytes_FromStringAndSize(<const char*>self.properties, fields.properties_length))
        if request.flag == 0:
            self.answer(request, queue.queue_id, fields.queue_offset, fields.physical_offset, NULL, 1, unique)
        return 1

    cdef int write_batch(self, Request* request, SendTopic topic, QueueTail queue, RecordFields* fields, Text unique) except -1:
        """All items or none: sizes are added up first, and a batch that does not fit is left to the general path."""
        cdef const uint8_t* at = request.body.data
        cdef const uint8_t* end = at + request.body.size
        cdef int64_t total = 0, index_keys = 0, size, first_queue_offset = queue.next_offset
        cdef int64_t physical = self.log.start + self.log.position
        cdef int count = 0, number
        cdef Item* item
        while at < end:
            if count == MAX_BATCH:
                return 0
            item = self.item(count)
            size = read_item(at, end, item)
            if size == 0:
                return 0
            point_at(fields, item)
            self.sizes[count] = record_bytes(fields, self.with_crc)
            if self.sizes[count] <= 0:
                return 0
            find_facts(fields.properties, fields.properties_length, &item.facts)
            item.index_keys = 0
            if self.index.enabled:
                item.index_keys = count_index_keys(&item.facts)
                prefetch_key(queue, self.index, &item.facts)
            total += self.sizes[count]
            index_keys += item.index_keys
            count += 1
            at += size
        if count == 0 or self.log.position + total + 8 > self.log.size:
            return 0
        if not self.has_room(queue, count, index_keys):
            if not self.make_room(topic.text, queue.queue_id, count, index_keys) or not self.has_room(queue, count, index_keys):
                return 0
        for number in range(count):
            item = self.items + number
            point_at(fields, item)
            append_known(
                self.log, queue, self.index, fields, &item.facts, self.sizes[number], item.index_keys, self.with_crc
            )
            if queue.watched:
                self.notify(queue, PyBytes_FromStringAndSize(<const char*>fields.properties, fields.properties_length))
        if index_keys:
            write_header(self.index)
        self.count(request, topic, queue, count, total, False)
        if request.flag == 0:
            self.answer(request, queue.queue_id, first_queue_offset, physical, self.sizes, count, unique)
        return 1

    cdef bint has_room(self, QueueTail queue, int count, int64_t index_keys) noexcept:
        if queue.place == NULL or (queue.next_offset + count) * 20 - queue.file_start > queue.limit:
            return False
        return not index_keys or index_has_room(self.index, index_keys)

    cdef Item* item(self, int number) except NULL:
        """Room for what is found out about a message of a batch."""
        cdef void* items
        cdef void* sizes
        if number >= self.item_room:
            items = realloc(self.items, 2 * self.item_room * sizeof(Item))
            if items == NULL:
                raise MemoryError()
            self.items = <Item*>items
            sizes = realloc(self.sizes, 2 * self.item_room * sizeof(int64_t))
            if sizes == NULL:
                raise MemoryError()
            self.sizes = <int64_t*>sizes
            self.item_room *= 2
        return self.items + number

    cdef int count(
        self, Request* request, SendTopic topic, QueueTail queue, int64_t messages, int64_t size, bint is_ordered
    ) except -1:
        cdef Sizes* sizes = &topic.sizes[is_ordered]
        cdef int64_t each = size // messages
        cdef int place = 0
        while place < self.size_bound_count and each > self.size_bounds[place]:
            place += 1
        sizes.counts[place] += messages
        sizes.total += size
        sizes.largest = max(sizes.largest, each)
        topic.written[queue.queue_id].messages += messages
        topic.written[queue.queue_id].size += size
        self.answered[request.code == BATCH_CODE][request.flag == ONEWAY] += 1
        self.taken_messages += messages
        return 0

    cdef int answer(
        self, Request* request, int32_t queue_id, int64_t queue_offset, int64_t physical, int64_t* sizes, int count,
        Text unique
    ) except -1:
        cdef MessageIds ids
        cdef Value values[SENT_FIELDS]
        memset(values, 0, sizeof(values))
        ids.start = self.id_start
        ids.start_size = len(self.id_start)
        ids.physical_offset = physical
        ids.sizes = sizes
        ids.count = count
        values[SENT_MSG_ID].ids = &ids
        values[SENT_QUEUE_ID].number = queue_id
        values[SENT_QUEUE_OFFSET].number = queue_offset
        values[SENT_TRANSACTION_ID].text = &unique
        return write_answer(self.out, self.answers if unique.size else self.nameless, request, values, 0)


cdef int64_t read_item(const uint8_t* at, const uint8_t* end, Item* item) noexcept nogil:
    """Find the parts of the next item of a batch; its size, or 0 if it does not fit exactly. Layout: `wire.batch`."""
    cdef int64_t size, body, properties
    if end - at < 22:
        return 0
    size = <int32_t>u32(at)
    body = <int32_t>u32(at + 16)
    if size < 22 or size > end - at or body < 0 or body > size - 22:
        return 0
    properties = <int16_t>u16(at + 20 + body)
    if properties != size - 22 - body:
        return 0
    item.flag = <int32_t>u32(at + 12)
    item.body = at + 20
    item.body_length = body
    item.properties = at + 22 + body
    item.properties_length = properties
    return size


cdef inline void point_at(RecordFields* fields, const Item* item) noexcept nogil:
    fields.flag = item.flag
    fields.body = item.body
    fields.body_length = item.body_length
    fields.properties = item.properties
    fields.properties_length = item.properties_length
