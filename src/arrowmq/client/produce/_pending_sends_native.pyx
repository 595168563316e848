"""Sends under way, compiled. `_pending_sends_plain` has the layout and says what is right; this says it faster.

Answers of success with the fields that brokers give are read here; every other answer is decoded and resolved as the reference
does it. All lengths of an answer are checked before they are used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from arrowmq.wire._bytes cimport get32, number, put16, put32

from arrowmq.client.produce.faults import SLOW_FROM_S
from arrowmq.client.produce.outcome import resolve
from arrowmq.client.produce.outgoing import details_bytes
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode, RequestCode
from arrowmq.wire.frames import decode_frame

cdef double slow_from_s = SLOW_FROM_S
cdef object SEND_OK = SendStatus.SEND_OK
cdef int VERSION = CURRENT_VERSION
cdef int LANGUAGE = LanguageCode.PYTHON
cdef int SEND_V2 = RequestCode.SEND_MESSAGE_V2

cdef enum:
    HEAD_BYTES = 29           # of a frame, up to the fields
    FIXED_BYTES = 21          # of a header, without its fields
    ANSWER_BYTES = 21         # of an answer's frame, up to and with its flag
    RESPONSE = 1
    ONEWAY = 2


cdef inline uint32_t read_u32(const uint8_t* at) noexcept nogil:
    return <uint32_t>get32(at)


cdef inline uint8_t* put_u32(uint8_t* at, uint32_t value) noexcept nogil:
    put32(at, value)
    return at + 4


cdef inline uint8_t* put_u16(uint8_t* at, uint32_t value) noexcept nogil:
    put16(at, value)
    return at + 2


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline int decimal(int64_t value, uint8_t* text) noexcept nogil:
    """Writes the number into the 20 bytes at `text`; how many digits it has."""
    cdef uint8_t digits[20]
    cdef int count = 0, written = 0
    cdef bint is_negative = value < 0
    cdef uint32_t digit
    while True:
        digit = <uint32_t>(-(value % 10) if is_negative else value % 10)
        digits[count] = <uint8_t>(48 + digit)
        count += 1
        value = value // 10
        if value == 0:
            break
    if is_negative:
        text[0] = 45
        written = 1
    while count:
        count -= 1
        text[written] = digits[count]
        written += 1
    return written


cdef inline uint8_t* put_field(uint8_t* at, uint8_t name, const void* value, Py_ssize_t size) noexcept nogil:
    at = put_u16(at, 1)
    at[0] = name
    return put(put_u32(at + 1, <uint32_t>size), value, size)


def field(str name, bytes value):
    """One field of a header."""
    cdef bytes key = name.encode()
    cdef uint8_t lengths[6]
    put_u16(lengths, <uint32_t>len(key))
    put_u32(lengths + 2, <uint32_t>len(value))
    return lengths[:2] + key + lengths[2:6] + value


cpdef bytes frame(
    int code,
    int64_t opaque,
    int frame_flag,
    bytes start,
    int32_t sys_flag,
    int32_t flag,
    int64_t born_ms,
    bytes properties,
    bytes body,
):
    """The whole frame of a send; `start` holds the fields that are the same for all messages to that queue."""
    cdef uint8_t born[20]
    cdef uint8_t sys_flag_text[20]
    cdef uint8_t flag_text[20]
    cdef int born_size = decimal(born_ms, born)
    cdef int sys_flag_size = decimal(sys_flag, sys_flag_text)
    cdef int flag_size = decimal(flag, flag_text)
    cdef Py_ssize_t start_size = PyBytes_GET_SIZE(start), properties_size = PyBytes_GET_SIZE(properties)
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t fields = start_size + 28 + sys_flag_size + flag_size + born_size + properties_size
    cdef bytes written = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + fields + body_size)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(written)
    at = put_u32(at, <uint32_t>(HEAD_BYTES - 4 + fields + body_size))
    at = put_u32(at, <uint32_t>((1 << 24) | (FIXED_BYTES + fields)))
    at = put_u16(at, <uint32_t>code)
    at[0] = <uint8_t>LANGUAGE
    at = put_u16(at + 1, <uint32_t>VERSION)
    at = put_u32(at, <uint32_t>opaque)
    at = put_u32(at, <uint32_t>frame_flag)
    at = put_u32(at, 0)
    at = put_u32(at, <uint32_t>fields)
    at = put(at, PyBytes_AS_STRING(start), start_size)
    at = put_field(at, b"f", sys_flag_text, sys_flag_size)
    at = put_field(at, b"h", flag_text, flag_size)
    at = put_field(at, b"g", born, born_size)
    at = put_field(at, b"i", PyBytes_AS_STRING(properties), properties_size)
    put(at, PyBytes_AS_STRING(body), body_size)
    return written


cdef class PendingSend:
    """One send that waits for its answer; `future` gets the receipt, or the error of this attempt."""

    cdef public object opaque, topic, queue, address, connection, msg_id, future, faults
    cdef public double timeout_s, sent_at, deadline

    def __init__(self, opaque, topic, queue, address, connection, msg_id, double timeout_s, future, faults):
        self.opaque = opaque
        self.topic = topic
        self.queue = queue
        self.address = address
        self.connection = connection
        self.msg_id = msg_id
        self.timeout_s = timeout_s
        self.future = future
        self.faults = faults


# ----------------------------------------------------------------------------------------------------------- answers

cdef struct Answer:
    int64_t queue_id          # -1: not given
    int64_t queue_offset
    const uint8_t* msg_id
    Py_ssize_t msg_id_size
    const uint8_t* transaction_id
    Py_ssize_t transaction_id_size
    const uint8_t* recall_handle
    Py_ssize_t recall_handle_size
    const uint8_t* region
    Py_ssize_t region_size


cdef bint read_answer(const uint8_t* header, Py_ssize_t length, Answer* answer) noexcept nogil:
    """The fields of a header that says success. False if it has a remark, is damaged, or says something unusual."""
    cdef Py_ssize_t position = 21, end, name_size, size
    cdef const uint8_t* name
    cdef const uint8_t* value
    if length < FIXED_BYTES or read_u32(header + 13) != 0:
        return False
    if read_u32(header + 17) != <uint32_t>(length - FIXED_BYTES):
        return False
    end = length
    memset(answer, 0, sizeof(Answer))
    answer.queue_id = -1
    answer.queue_offset = -1
    while position < end:
        if end - position < 2:
            return False
        name_size = (<Py_ssize_t>header[position] << 8) | header[position + 1]
        position += 2
        if name_size < 1 or name_size > end - position - 4:
            return False
        name = header + position
        position += name_size
        size = read_u32(header + position)
        position += 4
        if size > end - position:
            return False
        value = header + position
        position += size
        if name_size == 7 and memcmp(name, b"queueId", 7) == 0:
            if not number(value, size, &answer.queue_id):
                return False
        elif name_size == 11 and memcmp(name, b"queueOffset", 11) == 0:
            if not number(value, size, &answer.queue_offset):
                return False
        elif name_size == 5 and memcmp(name, b"msgId", 5) == 0:
            answer.msg_id = value
            answer.msg_id_size = size
        elif name_size == 13 and memcmp(name, b"transactionId", 13) == 0:
            answer.transaction_id = value
            answer.transaction_id_size = size
        elif name_size == 12 and memcmp(name, b"recallHandle", 12) == 0:
            answer.recall_handle = value
            answer.recall_handle_size = size
        elif name_size == 10 and memcmp(name, b"MSG_REGION", 10) == 0:
            answer.region = value
            answer.region_size = size
    return answer.queue_id >= 0 and answer.queue_offset >= 0 and answer.msg_id != NULL


cdef inline object text_or_none(const uint8_t* text, Py_ssize_t size):
    return None if text == NULL else PyUnicode_DecodeUTF8(<const char*>text, size, "replace")


def settle(dict by_opaque, view, monotonic):
    """Give the answers at the beginning of `view` to their pending_sends; how many bytes that took.

    It ends at the first frame that is not whole, not with the binary header, or nobody's here.
    """
    cdef Py_buffer buffer
    cdef const uint8_t* at
    cdef Py_ssize_t position = 0, end, length, header
    cdef uint32_t word
    cdef Answer answer
    cdef object pending, opaque
    cdef double now = -1
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        end = buffer.len
        while end - position >= ANSWER_BYTES:
            at = <const uint8_t*>buffer.buf + position
            length = read_u32(at)
            word = read_u32(at + 4)
            header = word & 0xFFFFFF
            if word >> 24 != 1 or not at[20] & RESPONSE or header < FIXED_BYTES or header + 4 > length:
                break
            if length > end - position - 4:
                break
            opaque = <int32_t>read_u32(at + 13)
            pending = by_opaque.get(opaque)
            if pending is None:
                break
            if now < 0:
                now = monotonic()
            if at[8] or at[9] or not read_answer(at + 8, header, &answer):
                # A frame that cannot be read leaves the pending send where it is, to end with its connection.
                command = decode_frame(PyBytes_FromStringAndSize(<const char*>at + 4, length))
                del by_opaque[opaque]
                resolve(pending, command, monotonic)
            else:
                del by_opaque[opaque]
                arrive(<PendingSend>pending, &answer, now)
            position += 4 + length
        return position
    finally:
        PyBuffer_Release(&buffer)


cdef int arrive(PendingSend pending, Answer* answer, double now) except -1:
    cdef double took_s = now - pending.sent_at
    cdef object faults = pending.faults
    if faults is not None and (took_s >= slow_from_s or faults.suspicions):
        faults.answered(pending.queue.broker_name, took_s * 1000)
    cdef object future = pending.future
    if not future.done():
        future.set_result(
            SendReceipt(
                pending.topic,
                pending.queue.broker_name,
                answer.queue_id,
                answer.queue_offset,
                pending.msg_id,
                PyUnicode_DecodeUTF8(<const char*>answer.msg_id, answer.msg_id_size, "replace"),
                SEND_OK,
                text_or_none(answer.transaction_id, answer.transaction_id_size),
                text_or_none(answer.recall_handle, answer.recall_handle_size),
                text_or_none(answer.region, answer.region_size),
            )
        )
    return 0


# ------------------------------------------------------------------------------------------------------ the fast path

cdef class Target:
    """One queue of a topic: where it is, and what every frame to it begins with."""

    cdef public object queue, address, connection
    cdef public bytes start

    def __init__(self, queue, address, bytes start):
        self.queue = queue
        self.address = address
        self.start = start


cdef class Lane:
    """The fast path of plain messages to one topic, for as long as its route stays the same and its brokers are well.

    What it does not know (None) takes the general path, which says and does the same.
    """

    cdef public object route
    cdef public Py_ssize_t turn
    cdef object _pending_sends, _topic, _faults
    cdef dict _routes
    cdef list _targets
    cdef object _suspicions
    cdef Py_ssize_t _largest_bytes

    def __init__(self, pending_sends, route, dict routes, targets, faults, Py_ssize_t largest_bytes):
        self.route = route
        self.turn = 0
        self._pending_sends = pending_sends
        self._topic = route.topic
        self._routes = routes
        self._targets = list(targets)
        self._faults = faults
        self._suspicions = {} if faults is None else faults.suspicions
        self._largest_bytes = largest_bytes

    def begin(self, body, tag, keys, properties, flag, wait_store, double timeout_s):
        """Send a message; the pending send waits for the answer."""
        cdef Target target = self._target(body, flag)
        if target is None:
            return None
        cdef object pending_sends = self._pending_sends
        cdef object born_ms = pending_sends.now_ms()
        cdef object msg_id = pending_sends.msg_id_at(born_ms)
        cdef object opaque = pending_sends.next_opaque()
        cdef bytes raw = properties_bytes(tag, keys, properties, wait_store, msg_id)
        cdef bytes written = frame(SEND_V2, opaque, 0, target.start, 0, flag, born_ms, raw, body)
        cdef PendingSend pending = PendingSend.__new__(PendingSend)
        pending.opaque = opaque
        pending.topic = self._topic
        pending.queue = target.queue
        pending.address = target.address
        pending.connection = target.connection
        pending.msg_id = msg_id
        pending.timeout_s = timeout_s
        pending.future = pending_sends.new_future()
        pending.faults = self._faults
        pending_sends.begin(pending, written)
        return pending

    def begin_oneway(self, body, tag, keys, properties, flag, wait_store):
        """Send a message that gets no answer; on which connection."""
        cdef Target target = self._target(body, flag)
        if target is None:
            return None
        cdef object pending_sends = self._pending_sends
        cdef object born_ms = pending_sends.now_ms()
        cdef bytes raw = properties_bytes(tag, keys, properties, wait_store, pending_sends.msg_id_at(born_ms))
        cdef object opaque = pending_sends.next_opaque()
        target.connection.write(frame(SEND_V2, opaque, ONEWAY, target.start, 0, flag, born_ms, raw, body))
        return target.connection

    cdef Target _target(self, object body, object flag):
        if self._routes.get(self._topic) is not self.route or self._suspicions:
            return None
        if type(body) is not bytes or not 0 < PyBytes_GET_SIZE(body) <= self._largest_bytes:
            return None
        if type(flag) is not int or not INT32_MIN <= flag <= INT32_MAX:
            return None
        cdef Target target = <Target>self._targets[self.turn % len(self._targets)]
        if target.connection is None or target.connection.closed:
            target.connection = self._pending_sends.connection_to(target.address)
            if target.connection is None:
                return None
        self.turn += 1
        return target


cdef bytes WAITS = b"WAIT\x01true\x02UNIQ_KEY\x01"
cdef bytes DOES_NOT_WAIT = b"WAIT\x01false\x02UNIQ_KEY\x01"


cpdef bytes properties_bytes(tag, keys, properties, wait_store, str msg_id):
    """What `message_properties` gives for such a message, encoded."""
    cdef bytes raw = (WAITS if wait_store else DOES_NOT_WAIT) + msg_id.encode() + b"\x02"
    if tag is not None or keys or properties:
        return details_bytes(tag, keys, properties) + raw
    return raw
