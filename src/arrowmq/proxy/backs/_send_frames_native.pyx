# cython: language_level=3
"""From the bytes of a SendMessageRequest to the frame of a SEND_MESSAGE_V2, for the broker's fast path.

It knows one kind of message: a single, normal one, to a topic that was shown to it, with nothing in it that would need a
second look. What it does not know it leaves (None): the general path decodes, checks and refuses. It has no reference of
its own, therefore; a test shows that both ways store the same record.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from arrowmq.proxy.backs._protobuf cimport Reader, Text, number, number_size, put_number, text
from arrowmq.wire._bytes cimport get16, get32, put16, put32
from arrowmq.wire._bytes cimport number as decimal

cdef enum:
    ROOM = 24 * 1024                 # of the header and its properties; what is longer is left
    SEND_MESSAGE_V2 = 310
    MAX_PROPERTIES = 64
    PREFIX = 5                       # of gRPC, before a message


cdef inline bint is_plain(Text found) noexcept nogil:
    """Printable ASCII that is not only blanks."""
    cdef Py_ssize_t position
    cdef bint is_blank = True
    for position in range(found.size):
        if found.data[position] < 32 or found.data[position] > 126:
            return False
        if found.data[position] != 32:
            is_blank = False
    return not is_blank


cdef inline uint8_t* put_status(uint8_t* at, bytes status):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(status)
    at[0], at[1] = 10, <uint8_t>size
    memcpy(at + 2, PyBytes_AS_STRING(status), size)
    return at + 2 + size


cdef class SendFrames:
    """Topics that normal messages may be sent to are shown to it with the number of their queues."""
    cdef dict topics
    cdef frozenset reserved
    cdef Py_ssize_t max_body, max_properties, turn
    cdef uint8_t head[ROOM]

    def __init__(self, reserved, Py_ssize_t max_body, Py_ssize_t max_properties):
        self.topics = {}
        self.reserved = frozenset(reserved)
        self.max_body, self.max_properties = max_body, max_properties
        self.turn = 0

    def show(self, bytes topic, int queues):
        self.topics[topic] = queues

    def forget(self):
        self.topics.clear()

    def answer(self, bytes reply, bytes identity, bytes status):
        """SendMessageResponse{status, entries: [{status, message_id, transaction_id, offset}]} behind gRPC's prefix, for
        the frame that the broker answered with; None if that does not say that the message is stored."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(reply)
        cdef const uint8_t* end = at + PyBytes_GET_SIZE(reply)
        cdef int64_t offset = -1
        cdef Py_ssize_t name_size, size, id_size = PyBytes_GET_SIZE(identity), status_size = PyBytes_GET_SIZE(status)
        cdef bytes made
        cdef uint8_t* begin
        cdef uint8_t* out
        # length (4), serialization and header length (4), code, language, version, opaque, flag, remark, ext length
        if end - at < 29 or at[4] != 1 or get16(at + 8) != 0 or status_size > 100:
            return None
        size = <Py_ssize_t>get32(at + 21)
        if size < 0 or size > end - at - 29:
            return None
        at += 29 + size
        while end - at >= 6:
            name_size = <uint16_t>get16(at)
            if name_size + 6 > end - at:
                return None
            size = <Py_ssize_t>get32(at + 2 + name_size)
            if size < 0 or size > end - at - 6 - name_size:
                return None
            if name_size == 11 and memcmp(at + 2, b"queueOffset", 11) == 0:
                if not decimal(at + 6 + name_size, size, &offset):
                    return None
            at += 6 + name_size + size
        if offset < 0:
            return None
        size = 2 + status_size + 2 * (1 + number_size(id_size) + id_size)
        if offset:
            size += 1 + number_size(offset)
        made = PyBytes_FromStringAndSize(NULL, PREFIX + 2 + status_size + 1 + number_size(size) + size)
        begin = <uint8_t*>PyBytes_AS_STRING(made)
        begin[0] = 0
        put32(begin + 1, PyBytes_GET_SIZE(made) - PREFIX)
        out = put_status(begin + PREFIX, status)
        out[0] = 18
        out = put_status(put_number(out + 1, <uint64_t>size), status)
        out[0] = 18
        out = put_number(out + 1, <uint64_t>id_size)
        memcpy(out, PyBytes_AS_STRING(identity), id_size)
        out += id_size
        out[0] = 26
        out = put_number(out + 1, <uint64_t>id_size)
        memcpy(out, PyBytes_AS_STRING(identity), id_size)
        out += id_size
        if offset:
            out[0] = 32
            put_number(out + 1, <uint64_t>offset)
        return made

    def frame(self, bytes request, bytes born_host):
        """The frame and the message's id, or None."""
        cdef Reader whole, inner, system, pair
        cdef Text message, topic, body, part, tag, identity, host
        cdef Text names[MAX_PROPERTIES]
        cdef Text values[MAX_PROPERTIES]
        cdef Text keys[MAX_PROPERTIES]
        cdef int properties = 0, key_count = 0, index
        cdef uint64_t key, value, seconds = 0, nanos = 0
        cdef Py_ssize_t total = 0, size
        cdef int64_t born
        cdef uint8_t* out
        topic.data = body.data = tag.data = identity.data = host.data = NULL
        topic.size = body.size = tag.size = identity.size = host.size = 0
        whole.at = <const uint8_t*>PyBytes_AS_STRING(request)
        whole.end = whole.at + PyBytes_GET_SIZE(request)
        if not number(&whole, &key) or key != 10 or not text(&whole, &message) or whole.at != whole.end:
            return None
        inner.at, inner.end = message.data, message.data + message.size
        while inner.at < inner.end:
            if not number(&inner, &key) or key & 7 != 2 or not text(&inner, &part):
                return None
            if key == 10:                                                    # topic
                pair.at, pair.end = part.data, part.data + part.size
                while pair.at < pair.end:
                    if not number(&pair, &key) or not text(&pair, &topic) or (key != 18 and key != 10):
                        return None
                    if key == 10 and topic.size:
                        return None
            elif key == 18:                                                  # a user property
                if properties == MAX_PROPERTIES:
                    return None
                pair.at, pair.end = part.data, part.data + part.size
                if not number(&pair, &key) or key != 10 or not text(&pair, &names[properties]):
                    return None
                if not number(&pair, &key) or key != 18 or not text(&pair, &values[properties]) or pair.at != pair.end:
                    return None
                if not is_plain(names[properties]) or not is_plain(values[properties]):
                    return None
                total += names[properties].size + values[properties].size
                properties += 1
            elif key == 26:                                                  # what the system knows of it
                system.at, system.end = part.data, part.data + part.size
                while system.at < system.end:
                    if not number(&system, &key):
                        return None
                    if key == 10:
                        if not text(&system, &tag):
                            return None
                    elif key == 18:
                        if key_count == MAX_PROPERTIES or not text(&system, &keys[key_count]):
                            return None
                        if not is_plain(keys[key_count]):
                            return None
                        total += keys[key_count].size
                        key_count += 1
                    elif key == 26:
                        if not text(&system, &identity):
                            return None
                    elif key == 40 or key == 48:                             # encoding, type: identity and normal are 1
                        if not number(&system, &value) or value > 1:
                            return None
                    elif key == 58:
                        if not text(&system, &part):
                            return None
                        pair.at, pair.end = part.data, part.data + part.size
                        while pair.at < pair.end:
                            if not number(&pair, &key) or not number(&pair, &value):
                                return None
                            if key == 8:
                                seconds = value
                            elif key == 16:
                                nanos = value
                            else:
                                return None
                    elif key == 66:
                        if not text(&system, &host):
                            return None
                    elif key == 104:                                         # a queue id, which means nothing here
                        if not number(&system, &value):
                            return None
                    else:
                        return None
            elif key == 34:
                body = part
            else:
                return None
        if tag.size:
            if not is_plain(tag):
                return None
            for size in range(tag.size):
                if tag.data[size] == c"|":
                    return None
            total += tag.size
        if not is_plain(identity) or body.size == 0 or body.size > self.max_body or total > self.max_properties:
            return None
        if host.size == 0 or not is_plain(host):
            host.data, host.size = <const uint8_t*>PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host)
        if total + identity.size + 2 * topic.size + host.size + 1024 > ROOM or seconds > 253402300799:
            return None
        queues = self.topics.get(PyBytes_FromStringAndSize(<const char*>topic.data, topic.size))
        if queues is None:
            return None
        for index in range(properties):
            if PyBytes_FromStringAndSize(<const char*>names[index].data, names[index].size) in self.reserved:
                return None
        born = <int64_t>(seconds * 1000 + nanos // 1000000)
        out = self.header(topic, born, queues, names, values, properties, tag, keys, key_count, identity, host)
        size = out - self.head
        frame = PyBytes_FromStringAndSize(NULL, size + body.size)
        memcpy(PyBytes_AS_STRING(frame), self.head, size)
        memcpy(PyBytes_AS_STRING(frame) + size, body.data, body.size)
        put32(<uint8_t*>PyBytes_AS_STRING(frame), size + body.size - 4)
        return frame, PyBytes_FromStringAndSize(<const char*>identity.data, identity.size)

    cdef uint8_t* header(
        self, Text topic, int64_t born, int queues, Text* names, Text* values, int properties, Text tag, Text* keys,
        int key_count, Text identity, Text host
    ):
        cdef uint8_t* at = self.head
        cdef uint8_t* ext
        cdef uint8_t* length
        cdef char digits[24]
        cdef int index, size
        # length (4), serialization and header length (4), code, language, version, opaque, flag, remark, ext length
        put16(at + 8, SEND_MESSAGE_V2)
        at[10] = 3
        put16(at + 11, 513)
        put32(at + 13, 1)
        put32(at + 17, 0)
        put32(at + 21, 0)
        ext = at + 29
        at = entry(ext, c"a", topic.data, topic.size)
        at = entry(at, c"b", topic.data, topic.size)
        at = entry(at, c"c", <const uint8_t*>b"TBW102", 6)
        at = entry(at, c"d", <const uint8_t*>b"4", 1)
        self.turn += 1
        size = snprintf(digits, 24, "%d", <int>(self.turn % queues))
        at = entry(at, c"e", <const uint8_t*>digits, size)
        at = entry(at, c"f", <const uint8_t*>b"0", 1)
        size = snprintf(digits, 24, "%lld", <long long>born)
        at = entry(at, c"g", <const uint8_t*>digits, size)
        at = entry(at, c"h", <const uint8_t*>b"0", 1)
        at[0], at[1], at[2] = 0, 1, c"i"
        length = at + 3
        at += 7
        for index in range(properties):
            at = item(at, names[index], values[index])
        if tag.size:
            at = named(at, b"TAGS", tag.data, tag.size)
        if key_count:
            memcpy(at, b"KEYS\x01", 5)
            at += 5
            for index in range(key_count):
                if index:
                    at[0] = 32
                    at += 1
                memcpy(at, keys[index].data, keys[index].size)
                at += keys[index].size
            at[0] = 2
            at += 1
        at = named(at, b"UNIQ_KEY", identity.data, identity.size)
        at = named(at, b"RECONSUME_TIME", <const uint8_t*>b"0", 1)
        at = named(at, b"PGROUP", topic.data, topic.size)
        if host.size:
            at = named(at, b"__BORNHOST", host.data, host.size)
        at = named(at, b"BORN_TIMESTAMP", <const uint8_t*>digits, size)
        put32(length, at - length - 4)
        at = entry(at, c"j", <const uint8_t*>b"0", 1)
        put32(self.head + 25, at - ext)
        put32(self.head + 4, (1 << 24) | (at - self.head - 8))
        return at


cdef inline uint8_t* entry(uint8_t* at, uint8_t letter, const uint8_t* data, Py_ssize_t size) noexcept:
    at[0], at[1], at[2] = 0, 1, letter
    put32(at + 3, size)
    memcpy(at + 7, data, size)
    return at + 7 + size


cdef inline uint8_t* item(uint8_t* at, Text name, Text value) noexcept:
    memcpy(at, name.data, name.size)
    at += name.size
    at[0] = 1
    memcpy(at + 1, value.data, value.size)
    at += 1 + value.size
    at[0] = 2
    return at + 1


cdef inline uint8_t* named(uint8_t* at, bytes name, const uint8_t* data, Py_ssize_t size):
    cdef Text key, value
    key.data, key.size = <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
    value.data, value.size = data, size
    return item(at, key, value)
