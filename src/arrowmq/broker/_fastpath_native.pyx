"""The short way of a send: from the socket's bytes to the segment and back, without a Python object a message.

In: the bytes of a connection, a whole number of frames and perhaps a part of one. Out: how many bytes were dealt with,
and the answers to them. The short way knows one kind of message: an ordinary one, to a topic that the general path has
shown to it (`teach`), with every check made here again that can differ between two messages. At the first frame it does
not know it stops, and the general path takes that frame. It therefore never refuses anything: only the general path
says no.

The Python twin (`_fastpath_plain.py`) knows no frame at all; a differential test shows that both leave the same files.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from arrowmq.store._tail_native cimport (
    Facts, IndexTail, LogTail, QueueTail, RecordFields, append_fields, count_words, find_facts, index_has_room, record_bytes
)


# --- reading a request header in place ---------------------------------------------------------------------------

cdef struct Text:
    const uint8_t* data
    Py_ssize_t size


cdef enum:
    FIELDS = 14               # the short names a..n of the V2 send header
    SCRATCH_BYTES = 65536     # for JSON strings with escapes; a longer header goes the general way
    SEND_V2 = 310
    SEND_BATCH = 320
    ONEWAY = 2


cdef struct Request:
    int32_t code
    int32_t opaque
    int32_t flag
    bint is_json
    Text fields[FIELDS]
    Text body


cdef inline uint32_t u32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline uint32_t u16(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 8) | <uint32_t>at[1]


cdef inline bint text_is(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.data, word, size) == 0


cdef bint text_to_int(Text text, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """Plain decimal within bounds; anything else is for the general path to judge."""
    cdef Py_ssize_t index = 0
    cdef int64_t total = 0
    cdef bint is_negative = False
    if text.size > 0 and text.data[0] == c"-":
        is_negative = True
        index = 1
    if text.size == index or text.size - index > 18:
        return False
    while index < text.size:
        if text.data[index] < c"0" or text.data[index] > c"9":
            return False
        total = total * 10 + (text.data[index] - c"0")
        index += 1
    if is_negative:
        total = -total
    value[0] = total
    return low <= total <= high


cdef inline bint keep_field(Request* request, Text name, Text value) noexcept nogil:
    """Only the fields of a V2 send header; the first of a name counts as a surprise if it comes twice."""
    cdef int slot
    if name.size != 1:
        return False
    slot = name.data[0] - c"a"
    if slot < 0 or slot >= FIELDS or request.fields[slot].data != NULL:
        return False
    request.fields[slot] = value
    return True


cdef bint read_binary(const uint8_t* at, const uint8_t* end, Request* request) noexcept nogil:
    """The ROCKETMQ header: code 2, language 1, version 2, opaque 4, flag 4, remark, ext map."""
    cdef uint32_t size
    cdef Text name, value
    if end - at < 21:
        return False
    request.code = <int16_t>u16(at)
    if request.code != SEND_V2 and request.code != SEND_BATCH:
        return False
    request.opaque = <int32_t>u32(at + 5)
    request.flag = <int32_t>u32(at + 9)
    if u32(at + 13) != 0:              # a remark; no client sends one with a message
        return False
    size = u32(at + 17)
    at += 21
    if size != <uint32_t>(end - at):
        return False
    while at < end:
        if end - at < 2:
            return False
        name.size = u16(at)
        name.data = at + 2
        at += 2
        if name.size == 0 or name.size > end - at:
            return False
        at += name.size
        if end - at < 4:
            return False
        size = u32(at)
        at += 4
        if size > <uint32_t>(end - at):
            return False
        value.data = at
        value.size = size
        at += size
        if size and not keep_field(request, name, value):
            return False
    return True


cdef struct Scratch:
    uint8_t* data
    Py_ssize_t used


cdef inline int hex_digit(uint8_t character) noexcept nogil:
    if c"0" <= character <= c"9":
        return character - c"0"
    character |= 0x20
    if c"a" <= character <= c"f":
        return character - c"a" + 10
    return -1


cdef const uint8_t* json_string(const uint8_t* at, const uint8_t* end, Text* text, Scratch* scratch) noexcept nogil:
    """A string from behind its opening quote; the position behind its closing quote, or NULL. Only escapes of ASCII."""
    cdef const uint8_t* start = at
    cdef Py_ssize_t length
    cdef int value, index
    cdef uint8_t* target
    while at < end and at[0] != c'"' and at[0] != c"\\":
        if at[0] < 0x20:
            return NULL
        at += 1
    if at == end:
        return NULL
    if at[0] == c'"':
        text.data = start
        text.size = at - start
        return at + 1
    length = at - start
    if scratch.used + (end - start) > SCRATCH_BYTES:
        return NULL
    target = scratch.data + scratch.used
    memcpy(target, start, length)
    while at < end:
        if at[0] == c'"':
            text.data = target
            text.size = length
            scratch.used += length
            return at + 1
        if at[0] != c"\\":
            if at[0] < 0x20:
                return NULL
            target[length] = at[0]
            length += 1
            at += 1
            continue
        if end - at < 2:
            return NULL
        if at[1] == c"u":
            if end - at < 6:
                return NULL
            value = 0
            for index in range(2, 6):
                if hex_digit(at[index]) < 0:
                    return NULL
                value = value * 16 + hex_digit(at[index])
            if value >= 0x80:
                return NULL
            target[length] = <uint8_t>value
            at += 6
        else:
            if at[1] == c'"' or at[1] == c"\\" or at[1] == c"/":
                target[length] = at[1]
            elif at[1] == c"n":
                target[length] = 10
            elif at[1] == c"t":
                target[length] = 9
            elif at[1] == c"r":
                target[length] = 13
            elif at[1] == c"b":
                target[length] = 8
            elif at[1] == c"f":
                target[length] = 12
            else:
                return NULL
            at += 2
        length += 1
    return NULL


cdef const uint8_t* json_word(const uint8_t* at, const uint8_t* end, Text* text) noexcept nogil:
    """A number or a bare word (true, null), as text."""
    text.data = at
    while at < end and (
        c"0" <= at[0] <= c"9" or c"a" <= at[0] <= c"z" or at[0] == c"-" or at[0] == c"+" or at[0] == c"." or at[0] == c"E"
    ):
        at += 1
    text.size = at - text.data
    return at if text.size else NULL


cdef const uint8_t* json_ext(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil:
    """The object of ext fields from behind its brace. Node sends numbers and booleans where others send strings."""
    cdef Text name, value
    if at < end and at[0] == c"}":
        return at + 1
    while at < end:
        if at[0] != c'"':
            return NULL
        at = json_string(at + 1, end, &name, scratch)
        if at == NULL or at == end or at[0] != c":":
            return NULL
        at += 1
        if at < end and at[0] == c'"':
            at = json_string(at + 1, end, &value, scratch)
        else:
            at = json_word(at, end, &value)
            if at != NULL and text_is(value, b"null", 4):
                return NULL
        if at == NULL or at == end or not keep_field(request, name, value):
            return NULL
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at += 1
    return NULL


cdef bint read_json(const uint8_t* at, const uint8_t* end, Request* request, Scratch* scratch) noexcept nogil:
    """The JSON header as clients write it: compact, one level of ext fields."""
    cdef Text name, value
    cdef int64_t number
    cdef bint has_code = False, has_opaque = False, has_ext = False
    # Apache's clients write the code first: a look at it spares other requests the work
    if end - at > 12 and memcmp(at, b'{"code":', 8) == 0 and at[8] != c"3":
        return False
    if at == end or at[0] != c"{":
        return False
    at += 1
    scratch.used = 0
    request.flag = 0
    while at < end:
        if at[0] != c'"':
            return False
        at = json_string(at + 1, end, &name, scratch)
        if at == NULL or at == end or at[0] != c":":
            return False
        at += 1
        if at == end:
            return False
        if at[0] == c"{":
            if has_ext or not text_is(name, b"extFields", 9):
                return False
            has_ext = True
            at = json_ext(at + 1, end, request, scratch)
        elif at[0] == c'"':
            at = json_string(at + 1, end, &value, scratch)
            if at != NULL and value.size and text_is(name, b"remark", 6):
                return False
        else:
            at = json_word(at, end, &value)
            if at != NULL:
                if text_is(name, b"code", 4):
                    if not text_to_int(value, 0, 0x7FFFFFFF, &number):
                        return False
                    request.code = <int32_t>number
                    if request.code != SEND_V2 and request.code != SEND_BATCH:
                        return False
                    has_code = True
                elif text_is(name, b"opaque", 6):
                    if not text_to_int(value, -0x80000000LL, 0x7FFFFFFF, &number):
                        return False
                    request.opaque = <int32_t>number
                    has_opaque = True
                elif text_is(name, b"flag", 4):
                    if not text_to_int(value, 0, 0x7FFFFFFF, &number):
                        return False
                    request.flag = <int32_t>number
        if at == NULL or at == end:
            return False
        if at[0] == c"}":
            return at + 1 == end and has_code and has_opaque and has_ext
        if at[0] != c",":
            return False
        at += 1
    return False


# --- what a message's properties say -------------------------------------------------------------------------------

cdef enum:
    MAX_NAMES = 32            # more properties than that go the general way
    MAX_PROPERTIES = 32767


cdef bint is_unusual_name(Text name) noexcept nogil:
    """Names by which the general path bends a message, or that it sets itself. The first letter sorts most out."""
    cdef const uint8_t* at = name.data
    if name.size < 4:
        return text_is(name, b"TTL", 3)
    if at[0] == c"T":
        return not text_is(name, b"TAGS", 4) and (
            memcmp(at, b"TRAN", 4) == 0 or memcmp(at, b"TIME", 4) == 0 or memcmp(at, b"TRAC", 4) == 0
        )
    if at[0] == c"D":
        return text_is(name, b"DELAY", 5) or memcmp(at, b"DLQ_", 4) == 0 or text_is(name, b"DUP_INFO", 8)
    if at[0] == c"R":
        return memcmp(at, b"RE", 2) == 0
    if at[0] == c"I":
        return memcmp(at, b"INNE", 4) == 0
    if at[0] == c"M":
        return memcmp(at, b"MSG_", 4) == 0 or memcmp(at, b"MAX_", 4) == 0 or memcmp(at, b"MIN_", 4) == 0
    if at[0] == c"P":
        return memcmp(at, b"PGRO", 4) == 0 or memcmp(at, b"POP_", 4) == 0 or memcmp(at, b"PROP", 4) == 0
    if at[0] == c"C":
        return memcmp(at, b"CLUS", 4) == 0 or memcmp(at, b"CHEC", 4) == 0 or memcmp(at, b"CORR", 4) == 0
    if at[0] == c"B":
        return memcmp(at, b"BORN", 4) == 0
    if at[0] == c"_":
        return not text_is(name, b"__SHARDINGKEY", 13)
    return at[0] == c"1"


cdef bint is_plain(Text properties, Text* unique) noexcept nogil:
    """Whether the general path would store these properties just as they came, and with what unique key.

    It parses and writes them anew, so: every item has a name and a value and its two ends, no name comes twice, none
    asks for special treatment, and all is ASCII (what is broken UTF-8 and how it is mended is the general path's field).
    """
    cdef Text names[MAX_NAMES]
    cdef int count = 0, index
    cdef const uint8_t* at = properties.data
    cdef const uint8_t* end = properties.data + properties.size
    cdef Text name, value
    unique.data = NULL
    unique.size = 0
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
        if at == end or at[0] != 2:
            return False
        value.size = at - value.data
        at += 1
        if name.size == 0 or value.size == 0 or count == MAX_NAMES or is_unusual_name(name):
            return False
        for index in range(count):
            if names[index].size == name.size and memcmp(names[index].data, name.data, name.size) == 0:
                return False
        names[count] = name
        count += 1
        if text_is(name, b"UNIQ_KEY", 8):
            unique[0] = value
    return True


cdef bint is_word(Text text) noexcept nogil:
    """Letters, digits and - _ only: stands in JSON as it is."""
    cdef Py_ssize_t index
    cdef uint8_t character
    for index in range(text.size):
        character = text.data[index]
        if not (
            c"0" <= character <= c"9" or c"A" <= character <= c"Z" or c"a" <= character <= c"z"
            or character == c"-" or character == c"_"
        ):
            return False
    return text.size > 0


# --- answers --------------------------------------------------------------------------------------------------------

cdef class Out:
    """The answers of one pass, one after another."""
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __cinit__(self):
        self.room = 1 << 16
        self.size = 0
        self.data = <uint8_t*>malloc(self.room)
        if self.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef uint8_t* grown
        if self.size + more > self.room:
            while self.size + more > self.room:
                self.room *= 2
            grown = <uint8_t*>realloc(self.data, self.room)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
        return 0

    cdef inline void put(self, const void* data, Py_ssize_t size) noexcept:
        memcpy(self.data + self.size, data, size)
        self.size += size

    cdef inline void put_bytes(self, bytes data) noexcept:
        memcpy(self.data + self.size, <const char*>data, len(data))
        self.size += len(data)

    cdef inline void put_u32(self, uint32_t value) noexcept:
        self.set_u32(self.size, value)
        self.size += 4

    cdef inline void set_u32(self, Py_ssize_t at, uint32_t value) noexcept:
        self.data[at] = <uint8_t>(value >> 24)
        self.data[at + 1] = <uint8_t>(value >> 16)
        self.data[at + 2] = <uint8_t>(value >> 8)
        self.data[at + 3] = <uint8_t>value

    cdef inline int put_decimal(self, int64_t value) noexcept:
        """The number as text; how many characters that were."""
        cdef uint8_t digits[20]
        cdef int count = 0, length
        cdef bint is_negative = value < 0
        cdef uint64_t rest = <uint64_t>(-value) if is_negative else <uint64_t>value
        while True:
            digits[count] = c"0" + <uint8_t>(rest % 10)
            count += 1
            rest //= 10
            if rest == 0:
                break
        length = count + is_negative
        if is_negative:
            self.data[self.size] = c"-"
            self.size += 1
        while count:
            count -= 1
            self.data[self.size] = digits[count]
            self.size += 1
        return length


cdef const char* HEX = b"0123456789ABCDEF"


cdef class Answers:
    """The frames of successful sends. The words around the figures come from the general path's own encoder."""
    cdef list json_pieces         # before opaque, msgId, queueId, queueOffset, transactionId, and the end; see `_pieces`
    cdef list json_order          # which figure stands behind which piece
    cdef bytes binary_start       # of the header, up to the opaque
    cdef bytes binary_region      # the ext entries that are always the same

    def __init__(self, list json_pieces, list json_order, bytes binary_start, bytes binary_region):
        self.json_pieces = json_pieces
        self.json_order = json_order
        self.binary_start = binary_start
        self.binary_region = binary_region


cdef enum:
    OPAQUE = 0
    MESSAGE_ID = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    TRANSACTION_ID = 4


cdef class Topic:
    """A topic that the short way may write to."""
    cdef bytes name
    cdef str text
    cdef int queue_count
    cdef list queues
    cdef list counts            # by queue: messages and bytes since they were last taken
    cdef list sizes


cdef class FastPath:
    """Called with a connection and its bytes; see the module."""
    cdef LogTail log
    cdef IndexTail index
    cdef Answers answers
    cdef Out out
    cdef Scratch scratch
    cdef uint8_t* properties
    cdef bytes added            # the properties that the broker adds to every message
    cdef bytes store_host
    cdef bytes id_start         # of an offset message id: the store host in hex
    cdef object find_topic
    cdef object find_queue
    cdef object tell
    cdef object gate
    cdef object now_ms
    cdef object peer_of
    cdef dict topics
    cdef Topic last
    cdef list touched
    cdef int64_t max_body
    cdef bint with_crc
    cdef public bint is_open
    cdef readonly int64_t taken_messages

    def __cinit__(self):
        self.properties = <uint8_t*>malloc(MAX_PROPERTIES + 1)
        self.scratch.data = <uint8_t*>malloc(SCRATCH_BYTES)
        self.scratch.used = 0
        if self.properties == NULL or self.scratch.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.properties)
        free(self.scratch.data)

    def __init__(
        self, LogTail log, IndexTail index, Answers answers, *, bytes added, bytes store_host, find_topic, find_queue,
        tell, gate, now_ms, peer_of, bint with_crc
    ):
        self.log = log
        self.index = index
        self.answers = answers
        self.out = Out()
        self.added = added
        self.store_host = store_host
        self.id_start = store_host.hex().upper().encode()
        self.find_topic = find_topic
        self.find_queue = find_queue
        self.tell = tell
        self.gate = gate
        self.now_ms = now_ms
        self.peer_of = peer_of
        self.max_body = 0
        self.with_crc = with_crc
        self.topics = {}
        self.touched = []
        self.last = None
        self.is_open = True

    def forget(self):
        """A topic changed: ask anew for each."""
        self.topics.clear()
        self.last = None

    def take_counts(self):
        """What was written since the last call, by topic and queue: (topic, queue id, messages, bytes)."""
        cdef Topic topic
        cdef list taken = []
        for topic in self.touched:
            for queue_id in range(topic.queue_count):
                if topic.counts[queue_id]:
                    taken.append((topic.text, queue_id, topic.counts[queue_id], topic.sizes[queue_id]))
            topic.counts = [0] * topic.queue_count
            topic.sizes = [0] * topic.queue_count
        self.touched = [topic for topic in self.touched if self.topics.get(topic.name) is topic]
        return taken

    def __call__(self, connection, buffer):
        """How many bytes of whole frames were dealt with, and the answers to them."""
        cdef Py_buffer view
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef uint32_t length, header_length
        cdef Request request
        cdef bytes born_host
        cdef int64_t now
        cdef Py_ssize_t consumed = 0
        if not self.is_open:
            return 0, None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t*>view.buf
            end = at + view.len
            if not starts_like_send(at, end):
                return 0, None
            self.max_body = self.gate()
            if self.max_body <= 0:
                return 0, None
            born_host = self.peer_of(connection)
            now = self.now_ms()
            self.out.size = 0
            while end - at >= 12:
                length = u32(at)
                if length < 8 or length > 0xFFFFFC or <Py_ssize_t>length > end - at - 4:
                    break
                header_length = u32(at + 4)
                request.is_json = header_length >> 24 == 0
                if header_length >> 24 > 1:
                    break
                header_length &= 0xFFFFFF
                if header_length > length - 4:
                    break
                clear_fields(&request)
                if request.is_json:
                    if not read_json(at + 8, at + 8 + header_length, &request, &self.scratch):
                        break
                elif not read_binary(at + 8, at + 8 + header_length, &request):
                    break
                request.body.data = at + 8 + header_length
                request.body.size = length - 4 - header_length
                if not self.take(&request, born_host, now):
                    break
                at += 4 + length
            consumed = at - <const uint8_t*>view.buf
        finally:
            PyBuffer_Release(&view)
        if self.out.size:
            return consumed, PyBytes_FromStringAndSize(<const char*>self.out.data, self.out.size)
        return consumed, None

    cdef Topic topic_of(self, Text name):
        cdef Topic topic = self.last
        cdef bytes key
        if topic is not None and len(topic.name) == name.size and memcmp(<const char*>topic.name, name.data, name.size) == 0:
            return topic
        key = PyBytes_FromStringAndSize(<const char*>name.data, name.size)
        topic = self.topics.get(key)
        if topic is None:
            count = self.find_topic(key)
            if not count:
                return None
            topic = Topic.__new__(Topic)
            topic.name = key
            topic.text = key.decode()
            topic.queue_count = count
            topic.queues = [None] * count
            topic.counts = [0] * count
            topic.sizes = [0] * count
            self.topics[key] = topic
            self.touched.append(topic)
        self.last = topic
        return topic

    cdef int take(self, Request* request, bytes born_host, int64_t now) except -1:
        """Write the message of a request and its answer. 0 if it is not an ordinary one: then nothing happened."""
        cdef int64_t number
        cdef int32_t queue_id
        cdef RecordFields fields
        cdef Topic topic
        cdef QueueTail queue
        cdef bint is_batch
        cdef Text unique
        if request.flag != 0 and request.flag != ONEWAY:
            return 0
        if request.fields[1].size == 0 or request.body.size == 0 or request.body.size > self.max_body:
            return 0
        topic = self.topic_of(request.fields[1])
        if topic is None:
            return 0
        if not text_to_int(request.fields[4], 0, topic.queue_count - 1, &number):
            return 0
        queue_id = <int32_t>number
        if not text_to_int(request.fields[5], 0, 0x7FF, &number) or number & ~0x701:
            return 0                     # anything beyond compression: transactions, inner batches
        fields.sys_flag = <int32_t>number
        if not text_to_int(request.fields[6], 0, 0x7FFFFFFFFFFFFFF, &fields.born_timestamp):
            return 0
        if not text_to_int(request.fields[7], -0x80000000LL, 0x7FFFFFFF, &number):
            return 0
        fields.flag = <int32_t>number
        number = 0
        if request.fields[9].size and not text_to_int(request.fields[9], 0, 0x7FFFFFFF, &number):
            return 0
        fields.reconsume_times = <int32_t>number
        if request.fields[10].size and not text_is(request.fields[10], b"false", 5):
            return 0
        # d and l are numbers too: the general path says so if they are not
        if not text_to_int(request.fields[3], -0x80000000LL, 0x7FFFFFFF, &number):
            return 0
        if request.fields[11].size and not text_to_int(request.fields[11], -0x80000000LL, 0x7FFFFFFF, &number):
            return 0
        if request.fields[0].data == NULL or request.fields[2].data == NULL:
            return 0
        is_batch = text_is(request.fields[12], b"true", 4)
        if not is_batch and request.fields[12].size and not text_is(request.fields[12], b"false", 5):
            return 0
        if request.fields[8].size > MAX_PROPERTIES - <Py_ssize_t>len(self.added):
            return 0
        if not is_plain(request.fields[8], &unique) or not is_word(unique):
            return 0
        queue = topic.queues[queue_id]
        if queue is None:
            queue = topic.queues[queue_id] = self.find_queue(topic.text, queue_id)
        if queue.delays_ms is not None:
            return 0
        fields.topic = <const uint8_t*><const char*>topic.name
        fields.topic_length = len(topic.name)
        fields.born_host = <const uint8_t*><const char*>born_host
        fields.born_host_length = len(born_host)
        fields.store_host = <const uint8_t*><const char*>self.store_host
        fields.store_host_length = len(self.store_host)
        fields.queue_id = queue_id
        fields.prepared_transaction_offset = 0
        fields.store_timestamp = now
        if is_batch:
            return self.write_batch(request, topic, queue, &fields, unique)
        return self.write_one(request, topic, queue, &fields, unique)

    cdef int write_one(self, Request* request, Topic topic, QueueTail queue, RecordFields* fields, Text unique) except -1:
        cdef int64_t size
        memcpy(self.properties, request.fields[8].data, request.fields[8].size)
        memcpy(self.properties + request.fields[8].size, <const char*>self.added, len(self.added))
        fields.properties = self.properties
        fields.properties_length = request.fields[8].size + len(self.added)
        fields.body = request.body.data
        fields.body_length = request.body.size
        size = append_fields(self.log, queue, self.index, fields, self.with_crc)
        if size <= 0:
            return 0
        self.count(topic, queue, 1, size)
        if queue.watched:
            self.tell(queue, PyBytes_FromStringAndSize(<const char*>self.properties, fields.properties_length))
        if request.flag == 0:
            self.answer(request, queue.queue_id, fields.queue_offset, fields.physical_offset, NULL, 1, unique)
        return 1

    cdef int write_batch(self, Request* request, Topic topic, QueueTail queue, RecordFields* fields, Text unique) except -1:
        """All items or none: sizes are added up first, and a batch that does not fit goes the general way."""
        cdef const uint8_t* at = request.body.data
        cdef const uint8_t* end = at + request.body.size
        cdef Facts facts
        cdef int64_t total = 0, words = 0, size, first_queue_offset = queue.next_offset
        cdef int64_t physical = self.log.start + self.log.position
        cdef int count = 0
        cdef Text item
        while at < end:
            if not batch_item(at, end, fields, &item):
                return 0
            total += record_bytes(fields, self.with_crc)
            find_facts(fields.properties, fields.properties_length, &facts)
            words += count_words(&facts)
            count += 1
            at += item.size
        if count == 0 or self.log.position + total + 8 > self.log.size:
            return 0
        if (queue.next_offset + count) * 20 - queue.file_start > queue.limit:
            return 0
        if self.index.enabled and words and not index_has_room(self.index, words):
            return 0
        at = request.body.data
        cdef int64_t sizes[MAX_BATCH]
        if count > MAX_BATCH:
            return 0
        cdef int number = 0
        while at < end:
            batch_item(at, end, fields, &item)
            size = append_fields(self.log, queue, self.index, fields, self.with_crc)
            if size <= 0:
                raise RuntimeError("room for a whole batch was there, and yet it is missing")
            sizes[number] = size
            number += 1
            if queue.watched:
                self.tell(queue, PyBytes_FromStringAndSize(<const char*>fields.properties, fields.properties_length))
            at += item.size
        self.count(topic, queue, count, total)
        if request.flag == 0:
            self.answer(request, queue.queue_id, first_queue_offset, physical, sizes, count, unique)
        return 1

    cdef inline int count(self, Topic topic, QueueTail queue, int64_t messages, int64_t size) except -1:
        topic.counts[queue.queue_id] += messages
        topic.sizes[queue.queue_id] += size
        self.taken_messages += messages
        return 0

    cdef int answer(
        self, Request* request, int32_t queue_id, int64_t queue_offset, int64_t physical, int64_t* sizes, int count,
        Text unique
    ) except -1:
        cdef Out out = self.out
        cdef Py_ssize_t start = out.size, at
        out.reserve(1024 + count * (len(self.id_start) + 17) + unique.size)
        out.size += 8                    # length and header word, filled in below
        if request.is_json:
            self.answer_json(request, queue_id, queue_offset, physical, sizes, count, unique)
        else:
            self.answer_binary(request, queue_id, queue_offset, physical, sizes, count, unique)
        out.set_u32(start, <uint32_t>(out.size - start - 4))
        out.set_u32(start + 4, <uint32_t>(out.size - start - 8) | (0 if request.is_json else 1 << 24))
        return 0

    cdef void answer_json(
        self, Request* request, int32_t queue_id, int64_t queue_offset, int64_t physical, int64_t* sizes, int count,
        Text unique
    ) noexcept:
        cdef Out out = self.out
        cdef Py_ssize_t index
        cdef int figure
        for index in range(len(self.answers.json_order)):
            out.put_bytes(<bytes>self.answers.json_pieces[index])
            figure = self.answers.json_order[index]
            if figure == OPAQUE:
                out.put_decimal(request.opaque)
            elif figure == MESSAGE_ID:
                self.put_ids(physical, sizes, count)
            elif figure == QUEUE_ID:
                out.put_decimal(queue_id)
            elif figure == QUEUE_OFFSET:
                out.put_decimal(queue_offset)
            else:
                out.put(unique.data, unique.size)
        out.put_bytes(<bytes>self.answers.json_pieces[len(self.answers.json_order)])

    cdef void answer_binary(
        self, Request* request, int32_t queue_id, int64_t queue_offset, int64_t physical, int64_t* sizes, int count,
        Text unique
    ) noexcept:
        cdef Out out = self.out
        cdef Py_ssize_t ext, value
        out.put_bytes(self.answers.binary_start)
        out.put_u32(<uint32_t>request.opaque)
        out.put_u32(1)                   # flag: an answer
        out.put_u32(0)                   # no remark
        ext = out.size
        out.size += 4
        out.put_bytes(self.answers.binary_region)
        out.put(b"\x00\x05msgId", 7)
        value = out.size
        out.size += 4
        self.put_ids(physical, sizes, count)
        out.set_u32(value, <uint32_t>(out.size - value - 4))
        out.put(b"\x00\x07queueId", 9)
        value = out.size
        out.size += 4
        out.set_u32(value, out.put_decimal(queue_id))
        out.put(b"\x00\x0bqueueOffset", 13)
        value = out.size
        out.size += 4
        out.set_u32(value, out.put_decimal(queue_offset))
        out.put(b"\x00\x0dtransactionId", 15)
        out.put_u32(<uint32_t>unique.size)
        out.put(unique.data, unique.size)
        out.set_u32(ext, <uint32_t>(out.size - ext - 4))

    cdef void put_ids(self, int64_t physical, int64_t* sizes, int count) noexcept:
        """Offset message ids, joined by commas."""
        cdef Out out = self.out
        cdef int number, digit
        for number in range(count):
            if number:
                out.data[out.size] = c","
                out.size += 1
            out.put_bytes(self.id_start)
            for digit in range(16):
                out.data[out.size + digit] = HEX[(physical >> (60 - 4 * digit)) & 15]
            out.size += 16
            if sizes != NULL:
                physical += sizes[number]


cdef enum:
    MAX_BATCH = 4096


cdef inline void clear_fields(Request* request) noexcept nogil:
    cdef int slot
    for slot in range(FIELDS):
        request.fields[slot].data = NULL
        request.fields[slot].size = 0


cdef bint starts_like_send(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """A cheap look at the first frame, to spare other requests the rest."""
    cdef uint32_t code
    if end - at < 16:
        return False
    if at[4] == 1:
        code = u16(at + 8)
        return code == SEND_V2 or code == SEND_BATCH
    if at[4] == 0 and memcmp(at + 8, b'{"code":', 8) == 0:
        return end - at > 19 and at[16] == c"3" and (at[17] == c"1" or at[17] == c"2") and at[18] == c"0"
    return at[4] == 0


cdef bint batch_item(const uint8_t* at, const uint8_t* end, RecordFields* fields, Text* item) noexcept nogil:
    """Point the fields at the next item of a batch; False if it does not fit exactly. Layout: `wire.batch`."""
    cdef int64_t size, body, properties
    if end - at < 22:
        return False
    size = <int32_t>u32(at)
    body = <int32_t>u32(at + 16)
    if size < 22 or size > end - at or body < 0 or body > size - 22:
        return False
    properties = <int16_t>u16(at + 20 + body)
    if properties != size - 22 - body:
        return False
    fields.flag = <int32_t>u32(at + 12)
    fields.body = at + 20
    fields.body_length = body
    fields.properties = at + 22 + body
    fields.properties_length = properties
    item.data = at
    item.size = size
    return True
