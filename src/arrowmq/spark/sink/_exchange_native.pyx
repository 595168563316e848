"""Requests and answers of the exactly-once sink, compiled. `_exchange_plain` says what is right; this says it faster.

All lengths of an answer are checked before they are used. What is unusual is left to the general decoder.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from arrowmq.wire._bytes cimport get32, number, put32

from arrowmq.spark.sink._exchange_plain import DONE as _DONE
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode, RequestCode

DONE = _DONE

cdef int VERSION = CURRENT_VERSION
cdef int LANGUAGE = LanguageCode.PYTHON
cdef int END_TRANSACTION = RequestCode.END_TRANSACTION

cdef enum:
    FIXED_BYTES = 21          # of a header, without its fields
    NUMBER_BYTES = 20         # of the longest number
    NAMES_BYTES = 5 + 20 + 15 + 3 * 6    # of the fields that differ: names and lengths
    RESPONSE = 1


cdef inline uint32_t read_u32(const uint8_t* at) noexcept nogil:
    return <uint32_t>get32(at)


cdef inline uint8_t* put_u32(uint8_t* at, uint32_t value) noexcept nogil:
    put32(at, value)
    return at + 4


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef int decimal(int64_t value, uint8_t* text) noexcept nogil:
    """Writes a number into the 20 bytes at `text`; how many characters it has."""
    cdef uint8_t digits[NUMBER_BYTES]
    cdef int count = 0, written = 0
    cdef bint is_negative = value < 0
    while True:
        digits[count] = <uint8_t>(48 + (-(value % 10) if is_negative else value % 10))
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


cdef uint8_t* put_field(uint8_t* at, const char* name, int name_size, const void* value, int size) noexcept nogil:
    at[0] = 0
    at[1] = <uint8_t>name_size
    at = put(at + 2, name, name_size)
    return put(put_u32(at, <uint32_t>size), value, size)


cdef bytes entry(str name, bytes value):
    return len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value


def end_frames(str group, str broker, places, int decision, int64_t first_opaque):
    """END_TRANSACTION for half messages, one frame after another."""
    cdef bytes start = b"".join((
        entry("producerGroup", group.encode()), entry("bname", broker.encode()),
        entry("commitOrRollback", str(decision).encode()), entry("fromTransactionCheck", b"false"),
    ))
    cdef Py_ssize_t start_size = PyBytes_GET_SIZE(start), fields
    cdef Py_ssize_t most = 8 + FIXED_BYTES + start_size + NAMES_BYTES + 3 * NUMBER_BYTES
    cdef bytes written = PyBytes_FromStringAndSize(NULL, most * len(places))
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(written)
    cdef uint8_t* begin = at
    cdef uint8_t queue_text[NUMBER_BYTES]
    cdef uint8_t log_text[NUMBER_BYTES]
    cdef int queue_size, log_size
    cdef int64_t opaque = first_opaque, queue_offset, log_offset
    cdef tuple place
    cdef Py_ssize_t left = len(places)
    for place in places:
        if left == 0:
            raise ValueError("there are more places than were counted")
        left -= 1
        queue_offset, log_offset = place
        queue_size = decimal(queue_offset, queue_text)
        log_size = decimal(log_offset, log_text)
        fields = start_size + NAMES_BYTES + 2 * log_size + queue_size
        at = put_u32(at, <uint32_t>(4 + FIXED_BYTES + fields))
        at = put_u32(at, <uint32_t>((1 << 24) | (FIXED_BYTES + fields)))
        at[0] = <uint8_t>(END_TRANSACTION >> 8)
        at[1] = <uint8_t>END_TRANSACTION
        at[2] = <uint8_t>LANGUAGE
        at[3] = <uint8_t>(VERSION >> 8)
        at[4] = <uint8_t>VERSION
        at = put_u32(at + 5, <uint32_t>opaque)
        at = put_u32(at, 0)
        at = put_u32(at, 0)
        at = put_u32(at, <uint32_t>fields)
        at = put(at, PyBytes_AS_STRING(start), start_size)
        at = put_field(at, b"msgId", 5, log_text, log_size)
        at = put_field(at, b"tranStateTableOffset", 20, queue_text, queue_size)
        at = put_field(at, b"commitLogOffset", 15, log_text, log_size)
        opaque += 1
    return written[:at - begin]


cdef bint offset_in_id(const uint8_t* text, Py_ssize_t size, int64_t* value) noexcept nogil:
    """The log offset of an offset message id: its last 16 hexadecimal digits."""
    cdef Py_ssize_t at
    cdef int64_t found = 0
    cdef uint8_t character
    cdef int digit
    if size != 32 and size != 56:
        return False
    for at in range(size):
        character = text[at]
        if 48 <= character <= 57:
            digit = character - 48
        else:
            character |= 0x20
            if not 97 <= character <= 102:
                return False
            digit = character - 87
        if at == size - 16 and digit > 7:
            return False                 # negative
        if at >= size - 16:
            found = (found << 4) | digit
    value[0] = found
    return True


cdef int place_in(const uint8_t* header, Py_ssize_t length, int64_t* queue_offset, int64_t* log_offset) noexcept nogil:
    """Reads a header that says success: 1 if it names a place, 2 if it does not, 0 if it is for the general decoder."""
    cdef Py_ssize_t position = FIXED_BYTES, name_size, size
    cdef const uint8_t* name
    cdef const uint8_t* value
    cdef bint has_queue = False, has_log = False
    if read_u32(header + 13) != 0 or read_u32(header + 17) != <uint32_t>(length - FIXED_BYTES):
        return 0
    while position < length:
        if length - position < 2:
            return 0
        name_size = (<Py_ssize_t>header[position] << 8) | header[position + 1]
        position += 2
        if name_size < 1 or name_size > length - position - 4:
            return 0
        name = header + position
        position += name_size
        size = read_u32(header + position)
        position += 4
        if size > length - position:
            return 0
        value = header + position
        position += size
        if name_size == 11 and memcmp(name, b"queueOffset", 11) == 0:
            if has_queue or not number(value, size, queue_offset):
                return 0
            has_queue = True
        elif name_size == 5 and memcmp(name, b"msgId", 5) == 0:
            if has_log or not offset_in_id(value, size, log_offset):
                return 0
            has_log = True
    if has_queue != has_log:
        return 0
    return 1 if has_queue else 2


def read_answers(view, int64_t first_opaque, list found, Py_ssize_t most):
    """Takes in the answers at the beginning of `view`, at most `most`; how many bytes and answers that were.

    It ends at a frame that is not whole, not an answer to this run, or does not simply say success.
    """
    cdef Py_buffer buffer
    cdef const uint8_t* at
    cdef Py_ssize_t position = 0, length, header, taken = 0
    cdef uint32_t word
    cdef int64_t index, queue_offset = 0, log_offset = 0
    cdef int kind
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        while taken < most and buffer.len - position >= 8 + FIXED_BYTES:
            at = <const uint8_t*>buffer.buf + position
            length = read_u32(at)
            if length > buffer.len - position - 4:
                break
            word = read_u32(at + 4)
            header = word & 0xFFFFFF
            # binary, without a body; code 0; an answer
            if word >> 24 != 1 or header < FIXED_BYTES or header + 4 != length or at[8] or at[9]:
                break
            if read_u32(at + 17) != RESPONSE:
                break
            index = <int32_t>read_u32(at + 13) - first_opaque
            if index < 0 or index >= len(found) or found[index] is not None:
                break
            kind = place_in(at + 8, header, &queue_offset, &log_offset)
            if kind == 0:
                break
            found[index] = (queue_offset, log_offset) if kind == 1 else DONE
            position += 4 + length
            taken += 1
        return position, taken
    finally:
        PyBuffer_Release(&buffer)
