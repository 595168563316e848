# What the fast path may take as it is: the header fields of a send, names and values of properties.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from arrowmq.store.append._tail_native cimport RecordFields
from arrowmq.wire.in_place._fields cimport (
    SEND_BATCH, SEND_BORN_TIMESTAMP, SEND_DEFAULT_TOPIC, SEND_DEFAULT_TOPIC_QUEUE_NUMS, SEND_FLAG,
    SEND_MAX_RECONSUME_TIMES, SEND_PRODUCER_GROUP, SEND_QUEUE_ID, SEND_RECONSUME_TIMES, SEND_SYS_FLAG, SEND_UNIT_MODE
)
from arrowmq.wire.in_place._request_native cimport ONEWAY, Request, Text, text_is, text_to_int


cdef inline bint read_send_fields(
    Request* request, int queue_count, int32_t allowed_flags, RecordFields* fields, bint* is_batch
) noexcept nogil:
    """Whether a send's header is such that nothing has to be said about it; then `fields` has its numbers, and the body."""
    cdef int64_t number
    if request.flag != 0 and request.flag != ONEWAY:
        return False
    if not text_to_int(request.fields[SEND_QUEUE_ID], 0, queue_count - 1, &number):
        return False
    fields.queue_id = <int32_t>number
    if not text_to_int(request.fields[SEND_SYS_FLAG], 0, 0x7FF, &number) or number & ~allowed_flags:
        return False
    fields.sys_flag = <int32_t>number
    if not text_to_int(request.fields[SEND_BORN_TIMESTAMP], 0, 0x7FFFFFFFFFFFFFF, &fields.born_timestamp):
        return False
    if not text_to_int(request.fields[SEND_FLAG], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    fields.flag = <int32_t>number
    number = 0
    if request.fields[SEND_RECONSUME_TIMES].size and not text_to_int(request.fields[SEND_RECONSUME_TIMES], 0, 0x7FFFFFFF, &number):
        return False
    fields.reconsume_times = <int32_t>number
    if request.fields[SEND_UNIT_MODE].size and not text_is(request.fields[SEND_UNIT_MODE], b"false", 5):
        return False
    # Nothing is done with these two, but the general path says so if they are no numbers
    if not text_to_int(request.fields[SEND_DEFAULT_TOPIC_QUEUE_NUMS], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    if request.fields[SEND_MAX_RECONSUME_TIMES].size and not text_to_int(request.fields[SEND_MAX_RECONSUME_TIMES], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    if request.fields[SEND_PRODUCER_GROUP].data == NULL or request.fields[SEND_DEFAULT_TOPIC].data == NULL:
        return False
    is_batch[0] = text_is(request.fields[SEND_BATCH], b"true", 4)
    if not is_batch[0] and request.fields[SEND_BATCH].size and not text_is(request.fields[SEND_BATCH], b"false", 5):
        return False
    fields.body = request.body.data
    fields.body_length = request.body.size
    return True


# What the name of a property means to the fast path; a name that is not in its table means nothing.
cdef enum:
    UNUSUAL = 1              # a step of the general path looks at it, or the broker writes it itself
    UNIQUE_KEY = 2
    WAIT = 3
    SHARDING_KEY = 4
    TRANSACTION_MARK = 5
    PRODUCER_GROUP = 6
    REAL_TOPIC = 7
    REAL_QUEUE = 8


cdef inline bint is_word(Text text) noexcept nogil:
    """Letters, digits and - _ only: stands in JSON, and in a message's keys, as it is."""
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
