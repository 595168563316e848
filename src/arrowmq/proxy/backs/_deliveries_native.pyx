# cython: language_level=3
"""From the records that a pop gave to the stream of ReceiveMessageResponses that a client is sent.

The stream is a status, the messages, and the time of delivery, each with the five bytes that gRPC puts before a message.
Ordinary are records of the topic itself, delivered for the first time, neither compressed nor delayed, with properties in
ASCII. If one of them is not, the whole pop is left (None) to the general path: `service/receiving.py` and
`service/message_form.py` say what a client is given, and a test shows that both ways give the same.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy

from arrowmq.proxy.backs._md5_native cimport md5_hex
from arrowmq.proxy.backs._protobuf cimport Text, number_size, put_number
from arrowmq.wire._bytes cimport get32, get64, put32
from arrowmq.wire._bytes cimport number as decimal
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.records._layout_native cimport Layout, find_layout

cdef enum:
    COMPRESSED = 1
    V6_HOSTS = 0x30
    MOST_HANDLE = 512
    PREFIX = 5               # of gRPC, before a message

cdef enum:                   # of MessageType
    NORMAL = 1
    FIFO = 2
    COMMITTED = 4


cdef struct Cursor:
    # One of the two texts of a pop's answer
    const uint8_t* at
    const uint8_t* end


cdef bint next_number(Cursor* cursor, uint8_t ending, int64_t* value) noexcept nogil:
    """The digits up to `ending`, or to the end or a semicolon if that is 0."""
    cdef const uint8_t* start = cursor.at
    while cursor.at < cursor.end and c"0" <= cursor.at[0] <= c"9":
        cursor.at += 1
    if not decimal(start, cursor.at - start, value):
        return False
    if ending == 0:
        return cursor.at == cursor.end or cursor.at[0] == c";" or cursor.at[0] == c","
    if cursor.at == cursor.end or cursor.at[0] != ending:
        return False
    cursor.at += 1
    return True


cdef inline bint is_named(Text name, const char* wanted, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.data, wanted, size) == 0


cdef inline uint8_t* put_text(uint8_t* at, uint8_t key, const void* data, Py_ssize_t size) noexcept nogil:
    at[0] = key
    at = put_number(at + 1, <uint64_t>size)
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t* put_millis(uint8_t* at, uint8_t key, int64_t millis) noexcept nogil:
    """A Timestamp as a field."""
    cdef uint8_t* length
    cdef uint64_t seconds = <uint64_t>millis // 1000, nanos = <uint64_t>millis % 1000 * 1000000
    at[0] = key
    length = at + 1
    at += 2
    if seconds:
        at[0] = 8
        at = put_number(at + 1, seconds)
    if nanos:
        at[0] = 16
        at = put_number(at + 1, nanos)
    length[0] = <uint8_t>(at - length - 1)
    return at


cdef class Deliveries:
    cdef frozenset reserved, unusual
    cdef bytes status, broker
    cdef Out out
    cdef Out system
    cdef Out user
    # Of the pop at hand
    cdef bytes topic
    cdef frozenset tags
    cdef int64_t pop_time, invisible_ms, revive_queue, start
    cdef list handed

    def __init__(self, reserved, unusual, bytes ok_status, bytes broker):
        self.reserved, self.unusual = frozenset(reserved), frozenset(unusual)
        self.status, self.broker = ok_status, broker
        self.out, self.system, self.user = Out(), Out(), Out()

    def stream(
        self, const uint8_t[::1] records, bytes topic, frozenset tags, dict popped, int64_t now_ms, list handed
    ):
        """What the client is sent, or None. The id and the handle of each message are put into `handed`, if that is
        one. Of the tags that are wanted none means all."""
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef Layout layout
        cdef Cursor starts, offsets
        cdef bytes starts_text, offsets_text
        cdef int64_t queue_id = -1, other, offset
        cdef bint is_open = False
        self.topic, self.tags, self.handed = topic, tags, handed
        try:
            self.pop_time, self.invisible_ms = int(popped["popTime"]), int(popped["invisibleTime"])
            self.revive_queue = int(popped["reviveQid"])
            starts_text, offsets_text = popped["startOffsetInfo"].encode(), popped["msgOffsetInfo"].encode()
        except (KeyError, ValueError):
            return None
        starts.at = <const uint8_t*>PyBytes_AS_STRING(starts_text)
        starts.end = starts.at + PyBytes_GET_SIZE(starts_text)
        offsets.at = <const uint8_t*>PyBytes_AS_STRING(offsets_text)
        offsets.end = offsets.at + PyBytes_GET_SIZE(offsets_text)
        if records.shape[0] == 0:
            return None
        at = &records[0]
        end = at + records.shape[0]
        self.out.clear()
        self.put_status()
        while at < end:
            if not find_layout(at, end - at, &layout):
                return None
            if not is_open:
                # "0 queue start" and "0 queue offset,offset,…", both of the same queue
                if not next_number(&starts, c" ", &other) or other != 0:
                    return None
                if not next_number(&starts, c" ", &queue_id) or not next_number(&starts, 0, &self.start):
                    return None
                if not next_number(&offsets, c" ", &other) or other != 0:
                    return None
                if not next_number(&offsets, c" ", &other) or other != queue_id:
                    return None
                is_open = True
            if not next_number(&offsets, 0, &offset):
                return None
            if get32(at + 12) != queue_id or get64(at + 20) != offset:
                return None
            if offsets.at < offsets.end:
                if offsets.at[0] == c";":
                    if starts.at == starts.end or starts.at[0] != c";":
                        return None
                    starts.at += 1
                    is_open = False
                offsets.at += 1
            if not self.message(at, &layout):
                return None
            at += layout.size
        if offsets.at != offsets.end or starts.at != starts.end:
            return None
        self.put_delivery(now_ms)
        return PyBytes_FromStringAndSize(<const char*>self.out.data, self.out.size)

    cdef int put_status(self) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.status)
        cdef uint8_t* at
        self.out.reserve(PREFIX + 2 + size)
        at = self.out.data
        at[0] = 0
        put32(at + 1, size + 2)
        at[5], at[6] = 10, <uint8_t>size
        memcpy(at + 7, PyBytes_AS_STRING(self.status), size)
        self.out.size = PREFIX + 2 + size
        return 0

    cdef int put_delivery(self, int64_t now_ms) except -1:
        cdef uint8_t* at
        cdef uint8_t* begin
        self.out.reserve(PREFIX + 24)
        begin = self.out.data + self.out.size
        at = put_millis(begin + PREFIX, 26, now_ms)
        begin[0] = 0
        put32(begin + 1, at - begin - PREFIX)
        self.out.size = at - self.out.data
        return 0

    cdef bint message(self, const uint8_t* record, Layout* layout) except -1:
        """Put one message behind the others. False if it is not an ordinary one."""
        cdef Py_ssize_t size, whole, topic_size = PyBytes_GET_SIZE(self.topic)
        cdef uint8_t* at
        if layout.sys_flag & (COMPRESSED | V6_HOSTS) or get32(record + layout.body - 16) != 0:
            return False
        if layout.topic_length != topic_size or memcmp(record + layout.topic, PyBytes_AS_STRING(self.topic), topic_size):
            return False
        if not self.properties(record, layout):
            return False
        # Message{topic: {name}, user_properties, system_properties, body}
        size = 1 + number_size(topic_size + 1 + number_size(topic_size)) + 1 + number_size(topic_size) + topic_size
        size += self.user.size
        size += 1 + number_size(self.system.size) + self.system.size
        if layout.body_length:
            size += 1 + number_size(layout.body_length) + layout.body_length
        whole = 1 + number_size(size) + size
        self.out.reserve(PREFIX + whole)
        at = self.out.data + self.out.size
        at[0] = 0
        put32(at + 1, whole)
        at[5] = 18
        at = put_number(at + 6, <uint64_t>size)
        at[0] = 10
        at = put_number(at + 1, <uint64_t>(1 + number_size(topic_size) + topic_size))
        at = put_text(at, 18, PyBytes_AS_STRING(self.topic), topic_size)
        memcpy(at, self.user.data, self.user.size)
        at += self.user.size
        at = put_text(at, 26, self.system.data, self.system.size)
        if layout.body_length:
            at = put_text(at, 34, record + layout.body, layout.body_length)
        self.out.size = at - self.out.data
        return True

    cdef bint properties(self, const uint8_t* record, Layout* layout) except -1:
        """The properties of the user and what the system knows of the message, each in its own buffer."""
        cdef const uint8_t* at = record + layout.properties
        cdef const uint8_t* end = at + layout.properties_length
        cdef const uint8_t* stop
        cdef const uint8_t* middle
        cdef Py_ssize_t position
        cdef Text name, value, tag, keys, identity, host, group, trace
        cdef int kind = NORMAL
        for position in range(layout.properties_length):
            if at[position] > 126 or at[position] == 0:
                return False
        tag.data = keys.data = identity.data = host.data = group.data = trace.data = NULL
        tag.size = keys.size = identity.size = host.size = group.size = trace.size = 0
        self.user.clear()
        self.user.reserve(4 * layout.properties_length + 16)
        while at < end:
            stop = <const uint8_t*>memchr(at, 2, end - at)
            if stop == NULL:
                stop = end
            middle = <const uint8_t*>memchr(at, 1, stop - at)
            if middle != NULL and middle > at and middle + 1 < stop:
                name.data, name.size = at, middle - at
                value.data, value.size = middle + 1, stop - middle - 1
                if is_named(name, b"UNIQ_KEY", 8):
                    identity = value
                elif is_named(name, b"TAGS", 4):
                    tag = value
                elif is_named(name, b"KEYS", 4):
                    keys = value
                elif is_named(name, b"__BORNHOST", 10):
                    host = value
                elif is_named(name, b"__SHARDINGKEY", 13):
                    group = value
                    self.put_pair(name, value)
                elif is_named(name, b"TRACE_CONTEXT", 13):
                    trace = value
                    self.put_pair(name, value)
                elif is_named(name, b"TRAN_MSG", 8):
                    if not is_named(value, b"true", 4):
                        return False
                    kind = COMMITTED
                else:
                    key = PyBytes_FromStringAndSize(<const char*>name.data, name.size)
                    if key in self.unusual:
                        return False
                    if key not in self.reserved:
                        self.put_pair(name, value)
            at = stop + 1
        if not identity.size or (self.tags and (tag.data == NULL or bytes_of(tag) not in self.tags)):
            return False             # a tag may have the hash of another, and is then not for this client
        if group.data != NULL and kind == NORMAL:
            kind = FIFO
        return self.put_system(record, layout, kind, tag, keys, identity, host, group, trace)

    cdef int put_pair(self, Text name, Text value) except -1:
        """An entry of user_properties; a later one of the same name counts."""
        cdef uint8_t* at = self.user.data + self.user.size
        at[0] = 18
        at = put_number(at + 1, <uint64_t>(2 + number_size(name.size) + name.size + number_size(value.size) + value.size))
        at = put_text(at, 10, name.data, name.size)
        at = put_text(at, 18, value.data, value.size)
        self.user.size = at - self.user.data
        return 0

    cdef bint put_system(
        self, const uint8_t* record, Layout* layout, int kind, Text tag, Text keys, Text identity, Text host, Text group,
        Text trace
    ) except -1:
        cdef uint8_t* at
        cdef const uint8_t* stop
        cdef const uint8_t* store = record + layout.store_host
        cdef char digits[MOST_HANDLE]
        cdef int size, handle_size
        cdef int32_t queue_id = get32(record + 12)
        cdef int64_t offset = get64(record + 20), born_ms = get64(record + 40), stored_ms = get64(store - 8)
        if born_ms < 0 or stored_ms < 0 or queue_id < 0 or PyBytes_GET_SIZE(self.broker) > MOST_HANDLE - 200:
            return False
        self.system.clear()
        self.system.reserve(4 * layout.properties_length + MOST_HANDLE + 256)
        at = self.system.data
        if tag.data != NULL:
            at = put_text(at, 10, tag.data, tag.size)
        if keys.data != NULL:
            while True:
                stop = <const uint8_t*>memchr(keys.data, c" ", keys.size)
                if stop == NULL:
                    at = put_text(at, 18, keys.data, keys.size)
                    break
                at = put_text(at, 18, keys.data, stop - keys.data)
                keys.size -= stop + 1 - keys.data
                keys.data = stop + 1
        at = put_text(at, 26, identity.data, identity.size)
        at[0], at[1], at[2], at[3], at[4], at[5] = 34, 36, 8, 2, 18, 32       # Digest{type: MD5, checksum}
        md5_hex(record + layout.body, layout.body_length, at + 6)
        at += 38
        at[0], at[1], at[2], at[3] = 40, 1, 48, <uint8_t>kind                 # as it is, and what it is
        at = put_millis(at + 4, 58, born_ms)
        if host.data != NULL:
            at = put_text(at, 66, host.data, host.size)
        else:
            size = snprintf(digits, 32, "%d.%d.%d.%d", record[48], record[49], record[50], record[51])
            at = put_text(at, 66, digits, size)
        at = put_millis(at, 74, stored_ms)
        size = snprintf(digits, 32, "%d.%d.%d.%d:%d", store[0], store[1], store[2], store[3], get32(store + 4))
        at = put_text(at, 82, digits, size)
        handle_size = snprintf(
            digits, MOST_HANDLE, "%lld %lld %lld %lld 0 %s %d %lld %lld", <long long>self.start, <long long>self.pop_time,
            <long long>self.invisible_ms, <long long>self.revive_queue, PyBytes_AS_STRING(self.broker), queue_id,
            <long long>offset, <long long>get64(record + 28)
        )
        at = put_text(at, 98, digits, handle_size)
        if queue_id:
            at[0] = 104
            at = put_number(at + 1, <uint64_t>queue_id)
        at[0] = 112
        at = put_number(at + 1, <uint64_t>offset)
        at[0], at[1], at[2] = 128, 1, 1                                       # the first attempt
        at += 3
        if group.data != NULL:
            at[0] = 138
            at = put_text(at + 1, 1, group.data, group.size)
        if trace.data != NULL:
            at[0] = 146
            at = put_text(at + 1, 1, trace.data, trace.size)
        self.system.size = at - self.system.data
        if self.handed is not None:
            self.handed.append((bytes_of(identity).decode(), (<char*>digits)[:handle_size].decode()))
        return True


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)
