"""Answers of success, written byte by byte around words that the general path's encoder made."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from arrowmq.broker.fastpath._request_native cimport Request
from arrowmq.wire.frames._out_native cimport Out

cdef enum:
    OPAQUE = 0
    MESSAGE_ID = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    TRANSACTION_ID = 4

cdef bytes HEX_PAIRS = "".join(f"{value:02X}" for value in range(256)).encode()


cdef class Answers:
    """The frames of one kind of answer: the words around its figures."""

    def __init__(self, list json_pieces, list json_order, bytes binary_start, bytes binary_entries):
        self.json_pieces = json_pieces
        self.json_order = json_order
        self.binary_start = binary_start
        self.binary_entries = binary_entries


cdef int write_answer(Out out, Answers answers, Request* request, const Figures* figures, bytes id_start) except -1:
    cdef Py_ssize_t start = out.size
    out.reserve(1024 + (0 if figures == NULL else figures.count * (len(id_start) + 17) + figures.unique.size))
    out.size += 8                    # length and header word, filled in below
    if request.is_json:
        write_json(out, answers, request, figures, id_start)
    else:
        write_binary(out, answers, request, figures, id_start)
    out.set_u32(start, <uint32_t>(out.size - start - 4))
    out.set_u32(start + 4, <uint32_t>(out.size - start - 8) | (0 if request.is_json else 1 << 24))
    return 0


cdef void write_json(Out out, Answers answers, Request* request, const Figures* figures, bytes id_start) noexcept:
    cdef Py_ssize_t index
    cdef int figure
    for index in range(len(answers.json_order)):
        out.put_bytes(<bytes>answers.json_pieces[index])
        figure = answers.json_order[index]
        if figure == OPAQUE:
            out.put_decimal(request.opaque)
        elif figure == MESSAGE_ID:
            put_ids(out, id_start, figures)
        elif figure == QUEUE_ID:
            out.put_decimal(figures.queue_id)
        elif figure == QUEUE_OFFSET:
            out.put_decimal(figures.queue_offset)
        else:
            out.put(figures.unique.data, figures.unique.size)
    out.put_bytes(<bytes>answers.json_pieces[len(answers.json_order)])


cdef void write_binary(Out out, Answers answers, Request* request, const Figures* figures, bytes id_start) noexcept:
    cdef Py_ssize_t ext
    out.put_bytes(answers.binary_start)
    out.put_u32(<uint32_t>request.opaque)
    out.put_u32(1)                   # flag: an answer
    out.put_u32(0)                   # no remark
    ext = out.size
    out.size += 4
    out.put_bytes(answers.binary_entries)
    if figures != NULL:
        out.put(b"\x00\x05msgId", 7)
        out.put_u32(<uint32_t>(figures.count * (len(id_start) + 17) - 1))
        put_ids(out, id_start, figures)
        out.put_number_entry(b"queueId", 7, figures.queue_id)
        out.put_number_entry(b"queueOffset", 11, figures.queue_offset)
        if figures.unique.size:
            out.put(b"\x00\x0dtransactionId", 15)
            out.put_u32(<uint32_t>figures.unique.size)
            out.put(figures.unique.data, figures.unique.size)
    out.set_u32(ext, <uint32_t>(out.size - ext - 4))


cdef void put_ids(Out out, bytes id_start, const Figures* figures) noexcept:
    """Offset message ids, joined by commas. Their room is there."""
    cdef const char* pairs = HEX_PAIRS
    cdef const char* start = id_start
    cdef Py_ssize_t start_size = len(id_start)
    cdef uint8_t* at = out.data + out.size
    cdef uint64_t physical = <uint64_t>figures.physical_offset
    cdef int number, octet
    for number in range(figures.count):
        if number:
            at[0] = c","
            at += 1
        memcpy(at, start, start_size)
        at += start_size
        for octet in range(8):
            memcpy(at + 2 * octet, pairs + 2 * ((physical >> (56 - 8 * octet)) & 255), 2)
        at += 16
        if figures.sizes != NULL:
            physical += figures.sizes[number]
    out.size = at - out.data
