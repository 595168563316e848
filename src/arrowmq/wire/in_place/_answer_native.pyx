# cython: language_level=3
"""Answers of success, written around the parts of a template that the general encoder made (`templates.py`).

C for other native modules: `wire.frames` is what says how an answer is written.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._request_native cimport Request

cdef enum:
    OPAQUE = -1
    NUMBER_BYTES = 20
    ID_BYTES = 16             # of an offset message id, behind the store host

cdef bytes HEX_PAIRS = "".join(f"{value:02X}" for value in range(256)).encode()


cdef class AnswerTemplate:
    """The frames of one kind of answer."""

    def __init__(
        self, list json_parts, list json_places, bytes binary_start, bytes binary_remark, bytes binary_entries,
        list binary_names, list binary_places
    ):
        self.json_parts = json_parts
        self.json_count = len(json_places)
        for index, place in enumerate(json_places):
            self.json_places[index] = place
        self.binary_start = binary_start
        self.binary_remark = binary_remark
        self.binary_entries = binary_entries
        self.binary_names = binary_names
        self.binary_count = len(binary_places)
        for index, place in enumerate(binary_places):
            self.binary_places[index] = place


cdef int write_answer(
    Out out, AnswerTemplate template, Request* request, const Value* values, Py_ssize_t body_bytes
) except -1:
    cdef Py_ssize_t start = out.size
    out.reserve(bytes_of(template, values) + body_bytes)
    out.size += 8                    # length and header word, filled in below
    if request.is_json:
        write_json(out, template, request, values)
    else:
        write_binary(out, template, request, values)
    out.set_u32(start, <uint32_t>(out.size - start - 4 + body_bytes))
    out.set_u32(start + 4, <uint32_t>(out.size - start - 8) | (0 if request.is_json else 1 << 24))
    return 0


cdef Py_ssize_t bytes_of(AnswerTemplate template, const Value* values) noexcept:
    """Enough for the head of an answer in either form."""
    cdef Py_ssize_t size = 1024
    cdef int index, place
    for index in range(template.binary_count):
        place = template.binary_places[index]
        if values[place].ids != NULL:
            size += values[place].ids.count * (values[place].ids.start_size + ID_BYTES + 1)
        elif values[place].text != NULL:
            size += values[place].text.size
    return size


cdef void write_json(Out out, AnswerTemplate template, Request* request, const Value* values) noexcept:
    cdef int index, place
    for index in range(template.json_count):
        out.put_bytes(<bytes>template.json_parts[index])
        place = template.json_places[index]
        if place == OPAQUE:
            out.put_decimal(request.opaque)
        else:
            put_value(out, values + place)
    out.put_bytes(<bytes>template.json_parts[template.json_count])


cdef void write_binary(Out out, AnswerTemplate template, Request* request, const Value* values) noexcept:
    cdef Py_ssize_t ext, at
    cdef int index
    out.put_bytes(template.binary_start)
    out.put_u32(<uint32_t>request.opaque)
    out.put_u32(1)                   # flag: an answer
    out.put_bytes(template.binary_remark)
    ext = out.size
    out.size += 4
    out.put_bytes(template.binary_entries)
    for index in range(template.binary_count):
        out.put_bytes(<bytes>template.binary_names[index])
        at = out.size
        out.size += 4
        put_value(out, values + template.binary_places[index])
        out.set_u32(at, <uint32_t>(out.size - at - 4))
    out.set_u32(ext, <uint32_t>(out.size - ext - 4))


cdef inline void put_value(Out out, const Value* value) noexcept:
    """Its room is there."""
    if value.ids != NULL:
        put_ids(out, value.ids)
    elif value.text != NULL:
        out.put(value.text.data, value.text.size)
    else:
        out.put_decimal(value.number)


cdef void put_ids(Out out, const MessageIds* ids) noexcept:
    """Offset message ids, joined by commas."""
    cdef const char* pairs = HEX_PAIRS
    cdef uint8_t* at = out.data + out.size
    cdef uint64_t physical = <uint64_t>ids.physical_offset
    cdef int number, octet
    for number in range(ids.count):
        if number:
            at[0] = c","
            at += 1
        memcpy(at, ids.start, ids.start_size)
        at += ids.start_size
        for octet in range(8):
            memcpy(at + 2 * octet, pairs + 2 * ((physical >> (56 - 8 * octet)) & 255), 2)
        at += ID_BYTES
        if ids.sizes != NULL:
            physical += ids.sizes[number]
    out.size = at - out.data
