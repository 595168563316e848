# What the short ways may take as it is: the figures of a send, names and values of properties.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from arrowmq.broker.fastpath._request_native cimport ONEWAY, Request, Text, text_is, text_to_int
from arrowmq.store.append._tail_native cimport RecordFields


cdef inline bint read_figures(
    Request* request, int queue_count, int32_t allowed_flags, RecordFields* fields, bint* is_batch
) noexcept nogil:
    """Whether a send's figures are such that nothing has to be said about them; then `fields` has them, and the body."""
    cdef int64_t number
    if request.flag != 0 and request.flag != ONEWAY:
        return False
    if not text_to_int(request.fields[4], 0, queue_count - 1, &number):
        return False
    fields.queue_id = <int32_t>number
    if not text_to_int(request.fields[5], 0, 0x7FF, &number) or number & ~allowed_flags:
        return False
    fields.sys_flag = <int32_t>number
    if not text_to_int(request.fields[6], 0, 0x7FFFFFFFFFFFFFF, &fields.born_timestamp):
        return False
    if not text_to_int(request.fields[7], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    fields.flag = <int32_t>number
    number = 0
    if request.fields[9].size and not text_to_int(request.fields[9], 0, 0x7FFFFFFF, &number):
        return False
    fields.reconsume_times = <int32_t>number
    if request.fields[10].size and not text_is(request.fields[10], b"false", 5):
        return False
    # d and l are numbers too: the general path says so if they are not
    if not text_to_int(request.fields[3], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    if request.fields[11].size and not text_to_int(request.fields[11], -0x80000000LL, 0x7FFFFFFF, &number):
        return False
    if request.fields[0].data == NULL or request.fields[2].data == NULL:
        return False
    is_batch[0] = text_is(request.fields[12], b"true", 4)
    if not is_batch[0] and request.fields[12].size and not text_is(request.fields[12], b"false", 5):
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
