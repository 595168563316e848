# cython: language_level=3
"""From the bytes of a ReceiveMessageRequest or an AckMessageRequest to frames of POP_MESSAGE and ACK_MESSAGE.

What such a request says of topic, group and filter comes first in it and is the same in each request of a client. It is
not read here: who has checked it in the general path shows its bytes, with the header that they come to. What is left is
read in place. Whatever was not shown or has another form is left (None), so there is no reference of its own; a test
shows that both ways answer the same.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from arrowmq.proxy.backs._protobuf cimport Reader, Text, milliseconds, number, put_number, text, within
from arrowmq.wire._bytes cimport number as decimal
from arrowmq.wire._bytes cimport put32

cdef enum:
    HEAD_BYTES = 8           # of a frame, before its header: two lengths
    NUMBER_BYTES = 20
    MOST_BATCH = 32
    MOST_ENTRIES = 64        # of one AckMessageRequest
    MOST_HANDLE = 1024
    MOST_KNOWN = 4096
    RECEIPT_PARTS = 9
    PREFIX = 5               # of gRPC, before a message

cdef const char* TAIL = b'"},"flag":0,"opaque":1,"version":513}'
cdef Py_ssize_t TAIL_BYTES = 37


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t* put_decimal(uint8_t* at, int64_t value) noexcept nogil:
    return at + snprintf(<char*>at, NUMBER_BYTES + 1, "%lld", <long long>value)


cdef inline uint8_t* end(uint8_t* frame, uint8_t* at) noexcept nogil:
    """Closes the last field and the header, whose codes are too large for the binary form: it is JSON."""
    at = put(at, TAIL, TAIL_BYTES)
    put32(frame, at - frame - 4)
    put32(frame + 4, at - frame - HEAD_BYTES)
    return at


cdef bint is_plain(Text found) noexcept nogil:
    """Printable ASCII."""
    cdef Py_ssize_t position
    for position in range(found.size):
        if found.data[position] < 32 or found.data[position] > 126:
            return False
    return True


def header(int code, dict fields):
    """The beginning of a header in JSON, open for further fields; None if one of these would have to be escaped."""
    cdef list parts = []
    for name, value in fields.items():
        if not value.isascii() or not value.isprintable() or '"' in value or "\\" in value:
            return None
        parts.append(f'"{name}":"{value}"')
    return f'{{"code":{code},"extFields":{{{",".join(parts)}'.encode()


cdef class PopFrames:
    """Of ReceiveMessage."""
    cdef dict known
    cdef uint64_t least_invisible, most_invisible, renewed_ms
    cdef bint may_renew

    def __init__(self, *, least_invisible, most_invisible, renewed_ms, may_renew):
        self.known = {}
        self.least_invisible, self.most_invisible = least_invisible, most_invisible
        self.renewed_ms, self.may_renew = renewed_ms, may_renew

    def show(self, bytes request, bytes header, object subject):
        """A request like this one is served with these fields; `subject` is given back with its frame."""
        cdef bytes key = self.key_of(request)
        if key is not None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = (header, subject)
            if self.frame(request) is None:  # what comes behind may have changed what its beginning says
                del self.known[key]

    def forget(self):
        self.known.clear()

    cdef bytes key_of(self, bytes request):
        """Group, queue and filter, which a request begins with."""
        cdef Reader reader
        cdef uint64_t key
        cdef Text part
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(request)
        cdef const uint8_t* last
        reader.at, reader.end = start, start + PyBytes_GET_SIZE(request)
        last = start
        while reader.at < reader.end:
            if not number(&reader, &key) or (key != 10 and key != 18 and key != 26):
                break
            if not text(&reader, &part):
                return None
            last = reader.at
        return PyBytes_FromStringAndSize(<const char*>start, last - start)

    def frame(self, bytes request):
        """The frame, its subject, and whether its messages are to be renewed; or None."""
        cdef bytes key = self.key_of(request), header, made
        cdef Reader reader
        cdef Text part
        cdef uint64_t field, batch = 0, invisible_ms = 0, poll_ms = 0, is_renewed = 0
        cdef uint8_t* out
        cdef uint8_t* at
        if key is None:
            return None
        known = self.known.get(key)
        if known is None:
            return None
        reader.at = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(key)
        reader.end = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(request)
        while reader.at < reader.end:
            if not number(&reader, &field):
                return None
            if field == 32:
                if not number(&reader, &batch):
                    return None
            elif field == 42:
                if not text(&reader, &part) or not milliseconds(part, &invisible_ms):
                    return None
            elif field == 48:
                if not number(&reader, &is_renewed):
                    return None
            elif field == 58:
                if not text(&reader, &part) or not milliseconds(part, &poll_ms):
                    return None
            elif field == 66:                                # names an attempt, which counts in order only
                if not text(&reader, &part):
                    return None
            else:
                return None
        if batch == 0 or batch > 0x7FFFFFFF or is_renewed > 1:
            return None
        if is_renewed and self.may_renew:
            invisible_ms = self.renewed_ms
        elif invisible_ms < self.least_invisible or 0 < self.most_invisible < invisible_ms:
            return None
        else:
            is_renewed = 0
        header = <bytes>(<tuple>known)[0]
        made = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + PyBytes_GET_SIZE(header) + 2 * NUMBER_BYTES + 40 + TAIL_BYTES)
        out = <uint8_t*>PyBytes_AS_STRING(made)
        at = put(out + HEAD_BYTES, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
        at = put_decimal(put(at, b',"maxMsgNums":"', 15), <int64_t>min(batch, <uint64_t>MOST_BATCH))
        at = put_decimal(put(at, b'","invisibleTime":"', 19), <int64_t>invisible_ms)
        at = end(out, at)
        return memoryview(made)[: at - out], (<tuple>known)[1], bool(is_renewed)


cdef class AckFrames:
    """Of AckMessage."""
    cdef dict known
    cdef bytes broker, status

    def __init__(self, bytes broker, bytes ok_status):
        self.known = {}
        self.broker = broker
        self.status = ok_status

    def show(self, bytes request, bytes header, object subject, int64_t now_ms):
        cdef bytes key = self.key_of(request)
        if key is not None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = (header, subject)
            if self.frames(request, now_ms) is None:
                del self.known[key]

    def forget(self):
        self.known.clear()

    cdef bytes key_of(self, bytes request):
        """Group and topic, which a request begins with."""
        cdef Reader reader
        cdef uint64_t key
        cdef Text part
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(request)
        cdef const uint8_t* last
        reader.at, reader.end = start, start + PyBytes_GET_SIZE(request)
        last = start
        while reader.at < reader.end:
            if not number(&reader, &key) or (key != 10 and key != 18):
                break
            if not text(&reader, &part):
                return None
            last = reader.at
        return PyBytes_FromStringAndSize(<const char*>start, last - start)

    def entries(self, bytes request):
        """What was shown with such a request, and the id and the handle of each of its entries; or None."""
        cdef bytes key = self.key_of(request)
        cdef Reader reader, inner
        cdef Text part, identity, handle
        cdef uint64_t field
        known = None if key is None else self.known.get(key)
        if known is None:
            return None
        found = []
        reader.at = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(key)
        reader.end = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(request)
        while reader.at < reader.end:
            if not number(&reader, &field) or field != 26 or not text(&reader, &part):
                return None
            inner = within(part)
            if not number(&inner, &field) or field != 10 or not text(&inner, &identity):
                return None
            if not number(&inner, &field) or field != 18 or not text(&inner, &handle) or inner.at != inner.end:
                return None
            if not is_plain(identity) or not is_plain(handle):
                return None
            found.append(((<const char*>identity.data)[:identity.size].decode(),
                          (<const char*>handle.data)[:handle.size].decode()))
        return (<tuple>known)[1], found

    def frames(self, bytes request, int64_t now_ms):
        """Frames, one for each entry, and the answer if all of them succeed; or None."""
        cdef bytes key = self.key_of(request), header, made, answer
        cdef Reader reader
        cdef Text entries[MOST_ENTRIES]
        cdef Text handles[MOST_ENTRIES]
        cdef Text queues[MOST_ENTRIES]
        cdef Text offsets[MOST_ENTRIES]
        cdef uint64_t field
        cdef int count = 0, place
        cdef Py_ssize_t room = 0, answer_room, status_size
        cdef uint8_t* out
        cdef uint8_t* at
        if key is None:
            return None
        known = self.known.get(key)
        if known is None:
            return None
        header = <bytes>(<tuple>known)[0]
        status_size = PyBytes_GET_SIZE(self.status)
        answer_room = 2 + status_size
        reader.at = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(key)
        reader.end = <const uint8_t*>PyBytes_AS_STRING(request) + PyBytes_GET_SIZE(request)
        while reader.at < reader.end:
            if count == MOST_ENTRIES or not number(&reader, &field) or field != 26 or not text(&reader, &entries[count]):
                return None
            if not self.read_entry(entries[count], &handles[count], &queues[count], &offsets[count], now_ms):
                return None
            room += HEAD_BYTES + PyBytes_GET_SIZE(header) + 50 + handles[count].size
            room += queues[count].size + offsets[count].size + TAIL_BYTES
            answer_room += 12 + entries[count].size + status_size
            count += 1
        if count == 0:
            return None
        made = PyBytes_FromStringAndSize(NULL, room)
        at = <uint8_t*>PyBytes_AS_STRING(made)
        for place in range(count):
            out = at
            at = put(out + HEAD_BYTES, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
            at = put(put(at, b',"queueId":"', 12), queues[place].data, queues[place].size)
            at = put(put(at, b'","extraInfo":"', 15), handles[place].data, handles[place].size)
            at = put(put(at, b'","offset":"', 12), offsets[place].data, offsets[place].size)
            at = end(out, at)
        answer = self.answer(entries, count, answer_room)
        return memoryview(made)[: at - <uint8_t*>PyBytes_AS_STRING(made)], count, answer

    cdef bint read_entry(self, Text whole, Text* handle, Text* queue, Text* offset, int64_t now_ms) noexcept:
        """The parts of an entry, if it is one of this broker's own messages, not of a retry topic, and not too late."""
        cdef Reader reader = within(whole)
        cdef Text identity
        cdef Text parts[RECEIPT_PARTS]
        cdef uint64_t field
        cdef int count = 0, place
        cdef int64_t value, pop_time = 0, invisible_ms = 0
        cdef const uint8_t* at
        if not number(&reader, &field) or field != 10 or not text(&reader, &identity):
            return False
        if not is_plain(identity):
            return False
        if not number(&reader, &field) or field != 18 or not text(&reader, handle) or reader.at != reader.end:
            return False
        if handle.size == 0 or handle.size > MOST_HANDLE:
            return False
        at = parts[0].data = handle.data
        while at < handle.data + handle.size:
            if at[0] == c" ":
                parts[count].size = at - parts[count].data
                count += 1
                if count == RECEIPT_PARTS:
                    return False
                parts[count].data = at + 1
            elif at[0] < 32 or at[0] > 126 or at[0] == c'"' or at[0] == c"\\":
                return False
            at += 1
        parts[count].size = at - parts[count].data
        count += 1
        if count < 8:
            return False
        for place in range(count):
            if place != 5 and not decimal(parts[place].data, parts[place].size, &value):
                return False
            if place == 1:
                pop_time = value
            elif place == 2:
                invisible_ms = value
            elif place == 4 and value != 0:
                return False
        if parts[4].size != 1 or parts[5].size != PyBytes_GET_SIZE(self.broker):
            return False
        if memcmp(parts[5].data, PyBytes_AS_STRING(self.broker), parts[5].size) != 0:
            return False
        queue[0], offset[0] = parts[6], parts[7]
        return pop_time + invisible_ms > now_ms

    cdef bytes answer(self, Text* entries, int count, Py_ssize_t room):
        """AckMessageResponse{status, entries: [{message_id, receipt_handle, status}]} behind gRPC's prefix: an entry of
        the request, whose fields have the same numbers, and its status."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, PREFIX + room)
        cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(made)
        cdef uint8_t* at = begin + PREFIX
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.status)
        cdef int place
        at[0], at[1] = 10, <uint8_t>size
        memcpy(at + 2, PyBytes_AS_STRING(self.status), size)
        at += 2 + size
        for place in range(count):
            at[0] = 18
            at = put_number(at + 1, <uint64_t>(entries[place].size + 2 + size))
            memcpy(at, entries[place].data, entries[place].size)
            at += entries[place].size
            at[0], at[1] = 26, <uint8_t>size
            memcpy(at + 2, PyBytes_AS_STRING(self.status), size)
            at += 2 + size
        begin[0] = 0
        put32(begin + 1, at - begin - PREFIX)
        return made[: at - begin]
