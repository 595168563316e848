"""The short way of a send: from the socket's bytes to the segment and back, without a Python object a message.

In: the bytes of a connection, a whole number of frames and perhaps a part of one. Out: how many bytes were dealt with,
and the answers to them. The short way knows one kind of message: an ordinary one, to a topic that the general path has
shown to it (`teach`), with every check made here again that can differ between two messages. At the first frame it does
not know it stops, and the general path takes that frame. It therefore never refuses anything: only the general path
says no.

The Python twin (`_fastsend_plain.py`) knows no frame at all; a differential test shows that both leave the same files.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from arrowmq.broker.fastpath._answers_native cimport Answers, Figures, write_answer
from arrowmq.broker.fastpath._known_topics_native cimport KnownTopics, Topic
from arrowmq.broker.fastpath._ordinary cimport SHARDING_KEY, UNIQUE_KEY, UNUSUAL, WAIT, is_word, read_figures
from arrowmq.broker.fastpath._request_native cimport (
    ONEWAY, PULL, SEND_BATCH, SEND_V2, Request, Scratch, Text, code_of, new_scratch, read_request, text_is,
    u16, u32
)
from arrowmq.remoting._intake_native cimport ShortWay
from arrowmq.store.append._tail_native cimport (
    Facts, IndexTail, LogTail, QueueTail, RecordFields, append_fields, append_known, count_words, expect_key, find_facts,
    index_has_room, record_bytes, write_header
)
from arrowmq.wire._names_native cimport NameTable, number_of
from arrowmq.wire.frames._out_native cimport Out

from arrowmq.wire import properties as keys

# --- what a message's properties say -------------------------------------------------------------------------------

cdef enum:
    MAX_BATCH = 4096
    MAX_NAMES = 32            # more properties than that go the general way
    MAX_PROPERTIES = 32767
    COMPRESSION = 0x701       # the flags that an ordinary message may have


cdef bint is_plain(
    Text properties, NameTable known, Text* unique, bint* is_ordered, bint may_wait
) noexcept nogil:
    """Whether the general path would store these properties just as they came, with what unique key, and with a
    sharding key or without.

    It parses and writes them anew, so: every item has a name and a value and their ends, no name comes twice, none
    asks for special treatment, and all is ASCII (what is broken UTF-8 and how it is mended is the general path's field).
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
    SIZE_CLASSES = 16           # room for them; how many there are, `FastSend` is told


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
    int64_t words


cdef class FastSend(ShortWay):
    """Called with a connection and its bytes; see the module."""
    cdef LogTail log
    cdef IndexTail index
    cdef Answers answers
    cdef Answers nameless        # of batches without a unique key of their own
    cdef Out held               # answers that have to wait for the disk
    cdef Out out                # where answers go now
    cdef Scratch scratch
    cdef uint8_t* properties
    cdef Item* items            # of the batch at hand, and how long their records are
    cdef int64_t* sizes
    cdef int item_room
    cdef bytes added            # the properties that the broker adds to every message
    cdef bytes store_host
    cdef bytes id_start         # of an offset message id: the store host in hex
    cdef object find_queue
    cdef object make_room
    cdef object notify
    cdef object gate
    cdef object now_ms          # None: the machine's own time
    cdef object peer_of
    cdef object hold            # under SYNC_FLUSH: takes a pass's answers until the disk has its messages
    cdef KnownTopics topics
    cdef NameTable names        # of properties
    cdef int64_t max_body       # of a single message; 0: there are no ordinary ones now
    cdef int64_t max_batch      # of a batch, the same
    cdef int64_t gate_ms        # when the gate was asked
    cdef bint with_crc
    cdef public ShortWay pull       # the short way of pulls, asked for what begins with one
    cdef public ShortWay transactions   # the short way of transactions, asked for what begins with neither
    cdef bint is_open
    cdef int64_t size_bounds[SIZE_CLASSES]
    cdef int size_bound_count
    cdef int64_t answered[2][2]     # since they were last taken: single sends and batches, with an answer and without
    cdef readonly int64_t taken_messages

    def __cinit__(self):
        self.properties = <uint8_t*>malloc(MAX_PROPERTIES + 1)
        self.scratch = new_scratch()
        self.item_room = 64
        self.items = <Item*>malloc(self.item_room * sizeof(Item))
        self.sizes = <int64_t*>malloc(self.item_room * sizeof(int64_t))
        if self.properties == NULL or self.items == NULL or self.sizes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.properties)
        free(self.items)
        free(self.sizes)
        free(self.scratch.data)

    def __init__(
        self, LogTail log, IndexTail index, tuple answers, tuple nameless, *, bytes added, bytes store_host, find_topic, find_queue,
        make_room, notify, gate, now_ms, peer_of, bint with_crc, hold, tuple size_bounds
    ):
        self.log = log
        self.index = index
        self.answers = Answers(*answers)
        self.nameless = Answers(*nameless)
        self.held = None if hold is None else Out()
        self.added = added
        self.store_host = store_host
        self.id_start = store_host.hex().upper().encode()
        self.find_queue = find_queue
        self.make_room = make_room
        self.notify = notify
        self.gate = gate
        self.now_ms = now_ms
        self.peer_of = peer_of
        self.max_body = self.max_batch = 0
        self.names = NameTable({})
        self.gate_ms = -1
        self.with_crc = with_crc
        self.hold = hold
        if len(size_bounds) >= SIZE_CLASSES:
            raise ValueError(f"{len(size_bounds)} bounds of sizes; there is room for {SIZE_CLASSES - 1}")
        for number, bound in enumerate(size_bounds):
            self.size_bounds[number] = bound
        self.size_bound_count = len(size_bounds)
        self.topics = KnownTopics(find_topic, SendTopic)
        self.is_open = True

    def close(self):
        """From now on everything goes the general way."""
        self.is_open = False
        self.pull = None
        if self.transactions is not None:
            self.transactions.close()
            self.transactions = None

    def use(self, unusual):
        """The permit changed: these properties make a message unusual; all else has to be asked again."""
        names = {keys.UNIQ_KEY: UNIQUE_KEY, keys.WAIT: WAIT, keys.SHARDING_KEY: SHARDING_KEY}
        self.names = NameTable({**names, **dict.fromkeys(unusual, UNUSUAL)})
        self.gate_ms = -1
        self.topics.forget()

    def forget(self):
        """A topic changed: ask anew for each."""
        self.topics.forget()

    def ask_again(self):
        """A setting changed: what the gate said is not good any more."""
        self.gate_ms = -1

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
        self.topics.let_go()
        return taken

    def take_answered(self):
        """How many requests these were: (code, whether without an answer, times)."""
        cdef int kind, oneway
        cdef list taken = []
        for kind in range(2):
            for oneway in range(2):
                if self.answered[kind][oneway]:
                    taken.append((SEND_BATCH if kind else SEND_V2, bool(oneway), self.answered[kind][oneway]))
                    self.answered[kind][oneway] = 0
        return taken

    cdef Py_ssize_t serve(self, connection, const uint8_t* data, Py_ssize_t size, Out out) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + size
        cdef Request request
        cdef bytes born_host
        cdef int32_t code
        cdef int64_t now
        if not self.is_open:
            return 0
        code = code_of(at, end)
        if code < 0:
            return 0 if self.transactions is None else self.transactions.serve(connection, data, size, out)
        if code == PULL:
            return 0 if self.pull is None else self.pull.serve(connection, data, size, out)
        now = self.time_of_gate()
        if self.max_body <= 0 and self.max_batch <= 0:
            return 0
        born_host = connection.peer_bytes
        if born_host is None:
            born_host = self.peer_of(connection)
        self.out = out if self.hold is None else self.held
        while read_request(at, end, &request, &self.scratch):
            if request.code == PULL or not self.take(&request, born_host, now):
                break
            at += request.frame_size
        if at == data:
            return 0 if self.transactions is None else self.transactions.serve(connection, data, size, out)
        if self.hold is not None and self.held.size:
            answers = PyBytes_FromStringAndSize(<const char*>self.held.data, self.held.size)
            self.held.clear()
            self.hold(connection, answers)
        return at - data

    cdef int64_t time_of_gate(self) except -1:
        """The time, with `max_body` as it is at this time. By the machine's time the gate is asked once a millisecond: what
        it looks at, flush lag and disk and memory, is not known more exactly than that."""
        cdef timespec time
        cdef int64_t now
        if self.now_ms is not None:
            self.max_body, self.max_batch = self.gate()
            return self.now_ms()
        clock_gettime(CLOCK_REALTIME, &time)
        now = <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1000000
        if now != self.gate_ms:
            self.max_body, self.max_batch = self.gate()
            self.gate_ms = now
        return now

    cdef int take(self, Request* request, bytes born_host, int64_t now) except -1:
        """Write the message of a request and its answer. 0 if it is not an ordinary one: then nothing happened."""
        cdef RecordFields fields
        cdef SendTopic topic
        cdef QueueTail queue
        cdef bint is_batch, is_ordered
        cdef Text unique
        if request.fields[1].size == 0 or request.body.size == 0:
            return 0
        topic = self.topics.find(request.fields[1])
        if topic is None or not read_figures(request, topic.queue_count, COMPRESSION, &fields, &is_batch):
            return 0
        if request.body.size > (self.max_batch if is_batch else self.max_body):
            return 0
        if request.fields[8].size >= MAX_PROPERTIES - <Py_ssize_t>len(self.added):
            return 0
        if not is_plain(request.fields[8], self.names, &unique, &is_ordered, self.hold is None):
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
        fields.born_host = <const uint8_t*><const char*>born_host
        fields.born_host_length = len(born_host)
        fields.store_host = <const uint8_t*><const char*>self.store_host
        fields.store_host_length = len(self.store_host)
        fields.prepared_transaction_offset = 0
        fields.store_timestamp = now
        if is_batch:
            return self.write_batch(request, topic, queue, &fields, unique)
        return self.write_one(request, topic, queue, &fields, unique, is_ordered)

    cdef int write_one(
        self, Request* request, SendTopic topic, QueueTail queue, RecordFields* fields, Text unique, bint is_ordered
    ) except -1:
        cdef int64_t size
        cdef Text given = request.fields[8]
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
        """All items or none: sizes are added up first, and a batch that does not fit goes the general way."""
        cdef const uint8_t* at = request.body.data
        cdef const uint8_t* end = at + request.body.size
        cdef int64_t total = 0, words = 0, size, first_queue_offset = queue.next_offset
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
            item.words = 0
            if self.index.enabled:
                item.words = count_words(&item.facts)
                expect_key(queue, self.index, &item.facts)
            total += self.sizes[count]
            words += item.words
            count += 1
            at += size
        if count == 0 or self.log.position + total + 8 > self.log.size:
            return 0
        if not self.has_room(queue, count, words):
            if not self.make_room(topic.text, queue.queue_id, count, words) or not self.has_room(queue, count, words):
                return 0
        for number in range(count):
            item = self.items + number
            point_at(fields, item)
            append_known(
                self.log, queue, self.index, fields, &item.facts, self.sizes[number], item.words, self.with_crc
            )
            if queue.watched:
                self.notify(queue, PyBytes_FromStringAndSize(<const char*>fields.properties, fields.properties_length))
        if words:
            write_header(self.index)
        self.count(request, topic, queue, count, total, False)
        if request.flag == 0:
            self.answer(request, queue.queue_id, first_queue_offset, physical, self.sizes, count, unique)
        return 1

    cdef bint has_room(self, QueueTail queue, int count, int64_t words) noexcept:
        if queue.place == NULL or (queue.next_offset + count) * 20 - queue.file_start > queue.limit:
            return False
        return not words or index_has_room(self.index, words)

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
        self.answered[request.code == SEND_BATCH][request.flag == ONEWAY] += 1
        self.taken_messages += messages
        return 0

    cdef int answer(
        self, Request* request, int32_t queue_id, int64_t queue_offset, int64_t physical, int64_t* sizes, int count,
        Text unique
    ) except -1:
        cdef Figures figures
        figures.queue_id = queue_id
        figures.queue_offset = queue_offset
        figures.physical_offset = physical
        figures.sizes = sizes
        figures.count = count
        figures.unique = unique
        return write_answer(self.out, self.answers if unique.size else self.nameless, request, &figures, self.id_start)


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
