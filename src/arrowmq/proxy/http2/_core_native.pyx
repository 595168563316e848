# cython: language_level=3
"""The core in native code: frames, states of streams, flow control and limits; HPACK by `_hpack_native`.

The native form of `_core_plain`, whose tests it passes as well. It is stricter than that in one thing: where a peer breaks
the rules of one stream only, it ends that stream and not the connection.

#  A frame (RFC 9113, 4.1), big endian
#   0  3  length of what follows these nine bytes
#   3  1  type
#   4  1  flags
#   5  4  stream, 31 bits
"""
from collections import deque

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from arrowmq.proxy.http2._hpack_native cimport Decoder, encoded
from arrowmq.wire._bytes cimport get16, get32, put16, put32

from arrowmq.proxy.http2._hpack_native import HpackError

cdef enum:
    FRAME_HEAD = 9
    PREFACE_BYTES = 24
    DEFAULT_WINDOW = 65535
    LARGEST_WINDOW = 2147483647
    KNOWN_RESETS = 1024              # streams that we ended and whose last frames may still be on their way
    SMALL_WINDOW_UPDATE = 256
    LARGEST_OUT_FRAME = 65536

cdef enum:
    F_DATA = 0
    F_HEADERS = 1
    F_PRIORITY = 2
    F_RST_STREAM = 3
    F_SETTINGS = 4
    F_PUSH_PROMISE = 5
    F_PING = 6
    F_GOAWAY = 7
    F_WINDOW_UPDATE = 8
    F_CONTINUATION = 9

cdef enum:
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    WITH_PRIORITY = 32

cdef enum:
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11

# Of `events.py`
cdef enum:
    E_HEADERS = 0
    E_DATA = 1
    E_END = 2
    E_RESET = 3
    E_DRAINED = 4
    E_PONG = 5
    E_GOAWAY = 6
    E_REQUEST = 7

cdef const char* PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
cdef frozenset PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
cdef frozenset OF_CONNECTIONS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
cdef bytes TOO_LARGE = encoded([(b":status", b"431")])

# Blocks of headers that are sent again and again: those of lists that live as long as the process.
cdef dict KEPT_BLOCKS = {}
cdef enum:
    KEPT_LISTS = 64


cdef bytes block_of(list headers):
    cdef tuple kept = <tuple>KEPT_BLOCKS.get(id(headers))
    cdef bytes block
    if kept is not None and kept[0] is headers and kept[2] == len(headers):
        return <bytes>kept[1]
    block = encoded(headers)
    if len(KEPT_BLOCKS) < KEPT_LISTS and len(headers) <= 2:
        KEPT_BLOCKS[id(headers)] = (headers, block, len(headers))
    return block


cdef class Stream:
    cdef uint32_t number
    cdef bint peer_may_send
    cdef int64_t send_window, receive_window, expected, received
    cdef Py_ssize_t unreturned, waiting
    cdef object pieces               # a deque of bytes that wait for the window, or None
    cdef Py_ssize_t offset           # sent of the first of them
    cdef list trailers


cdef class Http2Core:
    cdef public bint is_ended, merges_requests
    cdef Decoder decoder
    cdef bytes rest
    cdef bint has_preface, has_settings, is_going, has_new_table
    cdef dict streams, resets, waiting
    cdef uint32_t last_stream
    cdef int64_t send_window, receive_window, initial_window
    cdef Py_ssize_t unreturned, frame_out, held_back
    # A header block that is not whole
    cdef uint32_t block_stream
    cdef bint block_ends_stream
    cdef Py_ssize_t block_frames
    cdef bytearray block
    # What counts against the limits
    cdef Py_ssize_t idle_frames, cancelled
    cdef Py_ssize_t max_streams, max_list, max_block_frames, max_frame, max_idle, max_cancelled
    cdef int64_t stream_window, connection_window
    cdef uint8_t* out
    cdef Py_ssize_t out_size, out_room

    def __cinit__(self, limits):
        self.out = NULL
        self.out_size = self.out_room = 0
        self.is_ended = self.merges_requests = self.has_preface = self.has_settings = self.is_going = self.has_new_table = False
        self.max_streams = limits.concurrent_streams
        self.max_list = limits.header_list_bytes
        self.max_block_frames = limits.continuations
        self.max_frame = limits.frame_bytes
        self.max_idle = limits.idle_frames
        self.max_cancelled = limits.cancelled_streams
        self.stream_window = limits.stream_window_bytes
        self.connection_window = limits.connection_window_bytes
        self.decoder = Decoder(self.max_list)
        self.rest = b""
        self.streams, self.resets, self.waiting = {}, {}, {}
        self.last_stream = 0
        self.send_window = self.initial_window = DEFAULT_WINDOW
        self.receive_window = self.connection_window
        self.unreturned = self.held_back = 0
        self.frame_out = 16384
        self.block_stream = 0
        self.block_frames = 0
        self.block = None
        self.idle_frames = self.cancelled = 0
        self.greet()

    def __dealloc__(self):
        free(self.out)

    @property
    def open_streams(self):
        return len(self.streams)

    @property
    def unsent_total(self):
        return self.held_back

    def is_open(self, uint32_t number):
        return not self.is_ended and number in self.streams

    def unsent(self, uint32_t number):
        cdef Stream stream = <Stream>self.streams.get(number)
        return 0 if stream is None else stream.waiting

    # --- output -------------------------------------------------------------------------------------------------------

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.out_room if self.out_room else 512
        cdef uint8_t* grown
        if self.out_size + more <= self.out_room:
            return 0
        while room < self.out_size + more:
            room *= 2
        grown = <uint8_t*>realloc(self.out, room)
        if grown == NULL:
            raise MemoryError
        self.out, self.out_room = grown, room
        return 0

    cdef int put_frame(self, int kind, int flags, uint32_t stream, const void* data, Py_ssize_t size) except -1:
        cdef uint8_t* at
        self.reserve(FRAME_HEAD + size)
        at = self.out + self.out_size
        at[0], at[1], at[2] = <uint8_t>(size >> 16), <uint8_t>(size >> 8), <uint8_t>size
        at[3], at[4] = <uint8_t>kind, <uint8_t>flags
        put32(at + 5, stream)
        if size:
            memcpy(at + FRAME_HEAD, data, size)
        self.out_size += FRAME_HEAD + size
        return 0

    cdef int put_number(self, int kind, uint32_t stream, uint32_t value) except -1:
        cdef uint8_t payload[4]
        put32(payload, value)
        return self.put_frame(kind, 0, stream, payload, 4)

    cdef int put_headers(self, uint32_t stream, list headers, bint is_last) except -1:
        cdef bytes block = block_of(headers)
        if self.has_new_table:  # we keep no table, and say so before the first block that could use a smaller one
            block = b"\x20" + block
            self.has_new_table = False
        return self.put_block(stream, block, is_last)

    cdef int put_block(self, uint32_t stream, bytes block, bint is_last) except -1:
        cdef const char* data = PyBytes_AS_STRING(block)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block), position = 0, piece
        cdef int kind = F_HEADERS, flags
        while True:
            piece = min(size - position, self.frame_out)
            flags = END_HEADERS if position + piece == size else 0
            if kind == F_HEADERS and is_last:
                flags |= END_STREAM
            self.put_frame(kind, flags, stream, data + position, piece)
            position += piece
            kind = F_CONTINUATION
            if position == size:
                return 0

    cdef int greet(self) except -1:
        cdef uint8_t settings[24]
        put16(settings, 3)
        put32(settings + 2, self.max_streams)
        put16(settings + 6, 4)
        put32(settings + 8, self.stream_window)
        put16(settings + 12, 5)
        put32(settings + 14, self.max_frame)
        put16(settings + 18, 6)
        put32(settings + 20, self.max_list)
        self.put_frame(F_SETTINGS, 0, 0, settings, 24)
        return self.put_number(F_WINDOW_UPDATE, 0, <uint32_t>(self.connection_window - DEFAULT_WINDOW))

    def take(self):
        cdef bytes taken
        if self.out_size == 0:
            return b""
        taken = PyBytes_FromStringAndSize(<char*>self.out, self.out_size)
        free(self.out)
        self.out = NULL
        self.out_size = self.out_room = 0
        return taken

    # --- in -----------------------------------------------------------------------------------------------------------

    def receive(self, data):
        cdef list events = []
        cdef Py_buffer buffer
        cdef bytes whole
        if self.is_ended:
            return events
        if self.rest:
            whole = self.rest + bytes(data)
            self.rest = b""
            self.parse(<const uint8_t*>PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole), events)
        else:
            PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
            try:
                self.parse(<const uint8_t*>buffer.buf, buffer.len, events)
            finally:
                PyBuffer_Release(&buffer)
        if self.waiting and not self.is_ended:
            self.flush(events)
        return events

    cdef int parse(self, const uint8_t* data, Py_ssize_t size, list events) except -1:
        cdef Py_ssize_t position = 0, length
        cdef int kind
        cdef uint32_t stream
        if not self.has_preface:
            length = min(size, PREFACE_BYTES)
            if memcmp(data, PREFACE, length) != 0:
                return self.fail(PROTOCOL_ERROR)
            if size >= PREFACE_BYTES:
                self.has_preface = True
                position = PREFACE_BYTES
            else:
                self.rest = PyBytes_FromStringAndSize(<const char*>data, size)
                return 0
        while size - position >= FRAME_HEAD and not self.is_ended:
            length = (<Py_ssize_t>data[position] << 16) | (<Py_ssize_t>data[position + 1] << 8) | data[position + 2]
            kind = data[position + 3]
            if length > self.max_frame:
                return self.fail(FRAME_SIZE_ERROR)
            if size - position - FRAME_HEAD < length:
                break
            stream = <uint32_t>get32(data + position + 5) & 0x7FFFFFFF
            if not self.has_settings and (kind != F_SETTINGS or data[position + 4] & ACK):
                return self.fail(PROTOCOL_ERROR)
            if self.block_stream and (kind != F_CONTINUATION or stream != self.block_stream):
                return self.fail(PROTOCOL_ERROR)
            self.frame(kind, data[position + 4], stream, data + position + FRAME_HEAD, length, events)
            position += FRAME_HEAD + length
        if not self.is_ended and position < size:
            self.rest = PyBytes_FromStringAndSize(<const char*>data + position, size - position)
        return 0

    cdef int frame(
        self, int kind, int flags, uint32_t stream, const uint8_t* data, Py_ssize_t size, list events
    ) except -1:
        if kind == F_DATA:
            return self.on_data(flags, stream, data, size, events)
        if kind == F_HEADERS:
            return self.on_headers(flags, stream, data, size, events)
        if kind == F_WINDOW_UPDATE:
            return self.on_window_update(stream, data, size, events)
        if kind == F_SETTINGS:
            return self.on_settings(flags, stream, data, size)
        if kind == F_PING:
            if stream:
                return self.fail(PROTOCOL_ERROR)
            if size != 8:
                return self.fail(FRAME_SIZE_ERROR)
            if flags & ACK:
                events.append((E_PONG, 0, PyBytes_FromStringAndSize(<const char*>data, 8)))
                return 0
            self.put_frame(F_PING, ACK, 0, data, 8)
            return self.idle_frame()
        if kind == F_RST_STREAM:
            return self.on_reset(stream, data, size, events)
        if kind == F_CONTINUATION:
            return self.on_continuation(flags, stream, data, size, events)
        if kind == F_PRIORITY:
            if stream == 0:
                return self.fail(PROTOCOL_ERROR)
            if size != 5:
                return self.fail(FRAME_SIZE_ERROR)
            if <uint32_t>get32(data) & 0x7FFFFFFF == stream:
                return self.fail(PROTOCOL_ERROR)
            return self.idle_frame()
        if kind == F_GOAWAY:
            if stream:
                return self.fail(PROTOCOL_ERROR)
            if size < 8:
                return self.fail(FRAME_SIZE_ERROR)
            events.append((E_GOAWAY, 0, <uint32_t>get32(data + 4)))
            return 0
        if kind == F_PUSH_PROMISE:
            return self.fail(PROTOCOL_ERROR)
        return self.idle_frame()  # a type that does not exist yet

    cdef bint merged(self, uint32_t number, const uint8_t* data, Py_ssize_t size, list events) except -1:
        """Makes one event of a request whose headers were the last that happened."""
        cdef tuple last
        cdef Py_ssize_t place = len(events) - 1
        if place < 0:
            return False
        last = <tuple>events[place]
        if <int>last[0] != E_HEADERS or <uint32_t>last[1] != number:
            return False
        events[place] = (E_REQUEST, number, (last[2], PyBytes_FromStringAndSize(<const char*>data, size)))
        return True

    cdef int on_data(self, int flags, uint32_t number, const uint8_t* data, Py_ssize_t size, list events) except -1:
        cdef Stream stream
        cdef Py_ssize_t whole = size, padding
        if number == 0 or number > self.last_stream:
            return self.fail(PROTOCOL_ERROR)
        if flags & PADDED:
            if size < 1 or data[0] >= size:
                return self.fail(PROTOCOL_ERROR)
            padding = data[0]
            data += 1
            size -= 1 + padding
        self.receive_window -= whole
        if self.receive_window < 0:
            return self.fail(FLOW_CONTROL_ERROR)
        self.unreturned += whole
        if self.unreturned * 2 >= self.connection_window:
            self.put_number(F_WINDOW_UPDATE, 0, <uint32_t>self.unreturned)
            self.receive_window += self.unreturned
            self.unreturned = 0
        stream = <Stream>self.streams.get(number)
        if stream is None:
            if number in self.resets:
                return 0
            self.put_number(F_RST_STREAM, number, STREAM_CLOSED)
            self.know_reset(number)
            return self.idle_frame()
        if not stream.peer_may_send:
            return self.end_stream(stream, STREAM_CLOSED, events)
        stream.receive_window -= whole
        if stream.receive_window < 0:
            return self.end_stream(stream, FLOW_CONTROL_ERROR, events)
        stream.received += size
        if stream.expected >= 0 and (
            stream.received > stream.expected or (flags & END_STREAM and stream.received != stream.expected)
        ):
            return self.end_stream(stream, PROTOCOL_ERROR, events)
        if size and flags & END_STREAM and self.merges_requests and self.merged(number, data, size, events):
            stream.peer_may_send = False
            return 0
        if size:
            events.append((E_DATA, number, PyBytes_FromStringAndSize(<const char*>data, size)))
        elif not flags & END_STREAM:
            return self.idle_frame()
        if flags & END_STREAM:
            stream.peer_may_send = False
            events.append((E_END, number, None))
            return 0
        stream.unreturned += whole
        if stream.unreturned * 2 >= self.stream_window:
            self.put_number(F_WINDOW_UPDATE, number, <uint32_t>stream.unreturned)
            stream.receive_window += stream.unreturned
            stream.unreturned = 0
        return 0

    cdef int on_headers(self, int flags, uint32_t number, const uint8_t* data, Py_ssize_t size, list events) except -1:
        cdef Py_ssize_t padding = 0
        if number & 1 == 0:
            return self.fail(PROTOCOL_ERROR)
        if flags & PADDED:
            if size < 1:
                return self.fail(PROTOCOL_ERROR)
            padding = data[0]
            data += 1
            size -= 1
        if flags & WITH_PRIORITY:
            if size < 5 or <uint32_t>get32(data) & 0x7FFFFFFF == number:
                return self.fail(PROTOCOL_ERROR)
            data += 5
            size -= 5
        if padding > size:
            return self.fail(PROTOCOL_ERROR)
        size -= padding
        if flags & END_HEADERS:
            return self.headers(number, data, size, flags & END_STREAM, events)
        self.block_stream = number
        self.block_ends_stream = flags & END_STREAM
        self.block_frames = 1
        self.block = bytearray(PyBytes_FromStringAndSize(<const char*>data, size))
        return 0

    cdef int on_continuation(
        self, int flags, uint32_t number, const uint8_t* data, Py_ssize_t size, list events
    ) except -1:
        cdef bytes whole
        if self.block_stream == 0:
            return self.fail(PROTOCOL_ERROR)
        self.block_frames += 1
        self.block += PyBytes_FromStringAndSize(<const char*>data, size)
        # No list that is allowed has a block that is longer than twice its size.
        if self.block_frames > self.max_block_frames or len(self.block) > 2 * self.max_list:
            return self.fail(ENHANCE_YOUR_CALM)
        if not flags & END_HEADERS:
            return 0
        whole = bytes(self.block)
        self.block = None
        self.block_stream = 0
        return self.headers(
            number,
            <const uint8_t*>PyBytes_AS_STRING(whole),
            PyBytes_GET_SIZE(whole),
            self.block_ends_stream,
            events,
        )

    cdef int headers(self, uint32_t number, const uint8_t* data, Py_ssize_t size, bint is_last, list events) except -1:
        cdef list found
        cdef Stream stream
        cdef int64_t expected
        try:
            found = self.decoder.decode(data, size)
        except HpackError:
            return self.fail(COMPRESSION_ERROR)
        stream = <Stream>self.streams.get(number)
        if stream is not None:
            return self.trailers(stream, found, is_last, events)
        if number <= self.last_stream:
            return 0 if number in self.resets else self.fail(STREAM_CLOSED)
        self.last_stream = number
        self.idle_frames = 0
        if self.is_going or len(self.streams) >= self.max_streams:
            self.put_number(F_RST_STREAM, number, REFUSED_STREAM)
            self.know_reset(number)
            return 0
        if found is None:
            self.put_block(number, TOO_LARGE, True)
            if not is_last:
                self.put_number(F_RST_STREAM, number, NO_ERROR)
            self.know_reset(number)
            return 0
        expected = request_length(found)
        if expected == -2 or (is_last and expected > 0):
            self.put_number(F_RST_STREAM, number, PROTOCOL_ERROR)
            self.know_reset(number)
            return self.idle_frame()
        stream = Stream.__new__(Stream)
        stream.number = number
        stream.peer_may_send = not is_last
        stream.send_window = self.initial_window
        stream.receive_window = self.stream_window
        stream.expected = expected
        stream.received = 0
        stream.unreturned = stream.waiting = stream.offset = 0
        stream.pieces = None
        stream.trailers = None
        self.streams[number] = stream
        events.append((E_HEADERS, number, found))
        if is_last:
            events.append((E_END, number, None))
        return 0

    cdef int trailers(self, Stream stream, list found, bint is_last, list events) except -1:
        if not stream.peer_may_send:
            return self.end_stream(stream, STREAM_CLOSED, events)
        if not is_last or found is None or not are_trailers(found):
            return self.end_stream(stream, PROTOCOL_ERROR, events)
        if stream.expected >= 0 and stream.received != stream.expected:
            return self.end_stream(stream, PROTOCOL_ERROR, events)
        stream.peer_may_send = False
        events.append((E_END, stream.number, None))
        return 0

    cdef int on_window_update(self, uint32_t number, const uint8_t* data, Py_ssize_t size, list events) except -1:
        cdef Stream stream
        cdef uint32_t more
        if size != 4:
            return self.fail(FRAME_SIZE_ERROR)
        more = <uint32_t>get32(data) & 0x7FFFFFFF
        if number == 0:
            if more == 0:
                return self.fail(PROTOCOL_ERROR)
            self.send_window += more
            if self.send_window > LARGEST_WINDOW:
                return self.fail(FLOW_CONTROL_ERROR)
        else:
            if number > self.last_stream:
                return self.fail(PROTOCOL_ERROR)
            stream = <Stream>self.streams.get(number)
            if stream is not None:
                if more == 0:
                    return self.end_stream(stream, PROTOCOL_ERROR, events)
                stream.send_window += more
                if stream.send_window > LARGEST_WINDOW:
                    return self.end_stream(stream, FLOW_CONTROL_ERROR, events)
            elif more == 0 and number not in self.resets:
                self.put_number(F_RST_STREAM, number, PROTOCOL_ERROR)
                self.know_reset(number)
        return self.idle_frame() if more < SMALL_WINDOW_UPDATE else 0

    cdef int on_settings(self, int flags, uint32_t number, const uint8_t* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t position
        cdef uint16_t name
        cdef uint32_t value
        cdef int64_t difference
        cdef Stream stream
        if number:
            return self.fail(PROTOCOL_ERROR)
        if flags & ACK:
            return self.fail(FRAME_SIZE_ERROR) if size else 0
        if size % 6:
            return self.fail(FRAME_SIZE_ERROR)
        self.has_settings = True
        for position in range(0, size, 6):
            name, value = <uint16_t>get16(data + position), <uint32_t>get32(data + position + 2)
            if name == 1:
                if value < 4096:
                    self.has_new_table = True
            elif name == 2:
                if value > 1:
                    return self.fail(PROTOCOL_ERROR)
            elif name == 4:
                if value > LARGEST_WINDOW:
                    return self.fail(FLOW_CONTROL_ERROR)
                difference = <int64_t>value - self.initial_window
                self.initial_window = value
                for stream in self.streams.values():
                    stream.send_window += difference
                    if stream.send_window > LARGEST_WINDOW:
                        return self.fail(FLOW_CONTROL_ERROR)
            elif name == 5:
                if value < 16384 or value > 16777215:
                    return self.fail(PROTOCOL_ERROR)
                self.frame_out = min(value, LARGEST_OUT_FRAME)
        self.put_frame(F_SETTINGS, ACK, 0, NULL, 0)
        return self.idle_frame()

    cdef int on_reset(self, uint32_t number, const uint8_t* data, Py_ssize_t size, list events) except -1:
        cdef Stream stream
        if size != 4:
            return self.fail(FRAME_SIZE_ERROR)
        if number == 0 or number > self.last_stream:
            return self.fail(PROTOCOL_ERROR)
        stream = <Stream>self.streams.get(number)
        if stream is None:
            return self.idle_frame()
        self.forget(stream)
        events.append((E_RESET, number, <uint32_t>get32(data)))
        self.cancelled += 1
        return self.fail(ENHANCE_YOUR_CALM) if self.cancelled > self.max_cancelled else 0

    cdef int idle_frame(self) except -1:
        self.idle_frames += 1
        return self.fail(ENHANCE_YOUR_CALM) if self.idle_frames > self.max_idle else 0

    cdef int fail(self, int code) except -1:
        """The connection cannot go on."""
        self.put_goaway(code, self.last_stream)
        self.is_ended = True
        self.rest = b""
        return 0

    cdef int end_stream(self, Stream stream, int code, list events) except -1:
        """This one stream cannot go on."""
        self.forget(stream)
        self.put_number(F_RST_STREAM, stream.number, code)
        self.know_reset(stream.number)
        events.append((E_RESET, stream.number, code))
        return self.idle_frame()

    cdef int put_goaway(self, int code, uint32_t last) except -1:
        cdef uint8_t payload[8]
        put32(payload, last)
        put32(payload + 4, code)
        return self.put_frame(F_GOAWAY, 0, 0, payload, 8)

    cdef int know_reset(self, uint32_t number) except -1:
        self.resets[number] = None
        if len(self.resets) > KNOWN_RESETS:
            del self.resets[next(iter(self.resets))]
        return 0

    cdef int forget(self, Stream stream) except -1:
        self.streams.pop(stream.number, None)
        if stream.waiting:
            self.held_back -= stream.waiting
            stream.waiting = 0
        self.waiting.pop(stream.number, None)
        return 0

    # --- out ----------------------------------------------------------------------------------------------------------

    def send_headers(self, uint32_t number, list headers, *, bint end=False):
        cdef Stream stream = <Stream>self.streams.get(number)
        if stream is None or self.is_ended:
            return
        self.put_headers(number, headers, end)
        if end:
            self.ended_by_us(stream)

    def send_data(self, uint32_t number, bytes data):
        cdef Stream stream = <Stream>self.streams.get(number)
        if stream is not None and not self.is_ended and PyBytes_GET_SIZE(data):
            self.data(stream, data)

    cdef int data(self, Stream stream, bytes data) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if stream.waiting == 0 and size <= self.frame_out and size <= stream.send_window and size <= self.send_window:
            stream.send_window -= size
            self.send_window -= size
            return self.put_frame(F_DATA, 0, stream.number, PyBytes_AS_STRING(data), size)
        if stream.pieces is None:
            stream.pieces = deque()
        stream.pieces.append(data)
        stream.waiting += size
        self.held_back += size
        self.waiting[stream.number] = stream
        return self.send_waiting(stream)

    cdef int send_waiting(self, Stream stream) except -1:
        cdef bytes piece
        cdef Py_ssize_t size, rest
        while stream.waiting:
            piece = <bytes>stream.pieces[0]
            rest = PyBytes_GET_SIZE(piece) - stream.offset
            size = <Py_ssize_t>min(<int64_t>min(rest, self.frame_out), stream.send_window, self.send_window)
            if size <= 0:
                return 0
            self.put_frame(F_DATA, 0, stream.number, PyBytes_AS_STRING(piece) + stream.offset, size)
            stream.send_window -= size
            self.send_window -= size
            stream.waiting -= size
            self.held_back -= size
            if size == rest:
                stream.pieces.popleft()
                stream.offset = 0
            else:
                stream.offset += size
        self.waiting.pop(stream.number, None)
        if stream.trailers is not None:
            self.put_headers(stream.number, stream.trailers, True)
            self.ended_by_us(stream)
        return 0

    cdef int flush(self, list events) except -1:
        cdef Stream stream
        for stream in list(self.waiting.values()):
            if self.send_window <= 0:
                return 0
            self.send_waiting(stream)
            if stream.waiting == 0 and stream.number in self.streams:
                events.append((E_DRAINED, stream.number, None))
        return 0

    def send_trailers(self, uint32_t number, list trailers):
        cdef Stream stream = <Stream>self.streams.get(number)
        if stream is None or self.is_ended:
            return
        self.end_with(stream, trailers)

    cdef int end_with(self, Stream stream, list trailers) except -1:
        if stream.waiting:
            stream.trailers = trailers
            return 0
        self.put_headers(stream.number, trailers, True)
        return self.ended_by_us(stream)

    def respond(self, uint32_t number, list headers, bytes data, list trailers):
        cdef Stream stream = <Stream>self.streams.get(number)
        if stream is None or self.is_ended:
            return
        self.put_headers(number, headers, False)
        if PyBytes_GET_SIZE(data):
            self.data(stream, data)
        self.end_with(stream, trailers)

    cdef int ended_by_us(self, Stream stream) except -1:
        self.streams.pop(stream.number, None)
        if self.cancelled:
            self.cancelled -= 1
        if stream.peer_may_send:  # it need not go on with what nobody reads
            self.put_number(F_RST_STREAM, stream.number, NO_ERROR)
            self.know_reset(stream.number)
        return 0

    def reset(self, uint32_t number, uint32_t code):
        cdef Stream stream = <Stream>self.streams.get(number)
        if stream is None or self.is_ended:
            return
        self.forget(stream)
        self.put_number(F_RST_STREAM, number, code)
        self.know_reset(number)

    def relax(self):
        self.idle_frames = 0
        self.cancelled //= 2

    def ping(self, bytes data):
        if len(data) != 8:
            raise ValueError("a ping has eight bytes")
        if not self.is_ended:
            self.put_frame(F_PING, 0, 0, PyBytes_AS_STRING(data), 8)

    def goaway(self, int code=0, *, bint is_final=True):
        if self.is_ended:
            return
        if is_final:
            self.is_going = True
        self.put_goaway(code, self.last_stream if is_final else LARGEST_WINDOW)


cdef bint is_name(bytes name):
    """A header's name as it may travel: lower case, no blanks, no colon but the first of a pseudo header."""
    cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(name)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name), position
    cdef uint8_t letter
    if size == 0:
        return False
    for position in range(size):
        letter = text[position]
        if letter <= 32 or letter >= 127 or (c"A" <= letter <= c"Z") or (letter == c":" and position):
            return False
    return True


cdef bint is_value(bytes value):
    cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(value)
    cdef Py_ssize_t position
    for position in range(PyBytes_GET_SIZE(value)):
        if text[position] == 0 or text[position] == 10 or text[position] == 13:
            return False
    return True


cdef int64_t request_length(list headers):
    """The length that a request announces, -1 if none; -2 if its headers are not those of a request."""
    cdef bint is_past_pseudo = False, has_method = False, has_scheme = False, has_path = False, has_authority = False
    cdef bint is_connect = False
    cdef int64_t length = -1
    cdef bytes name, value
    for pair in headers:
        name, value = <bytes>(<tuple>pair)[0], <bytes>(<tuple>pair)[1]
        if not is_name(name) or not is_value(value):
            return -2
        if PyBytes_AS_STRING(name)[0] == c":":
            if is_past_pseudo or name not in PSEUDO:
                return -2
            if name == b":method":
                if has_method:
                    return -2
                has_method = True
                is_connect = value == b"CONNECT"
            elif name == b":scheme":
                if has_scheme:
                    return -2
                has_scheme = True
            elif name == b":path":
                if has_path or not value:
                    return -2
                has_path = True
            elif has_authority:
                return -2
            else:
                has_authority = True
            continue
        is_past_pseudo = True
        if name in OF_CONNECTIONS or (name == b"te" and value.lower() != b"trailers"):
            return -2
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                return -2
            length = int(value)
    if not has_method or (not is_connect and not (has_scheme and has_path)):
        return -2
    return length


cdef bint are_trailers(list headers):
    cdef bytes name
    for pair in headers:
        name = <bytes>(<tuple>pair)[0]
        if not is_name(name) or PyBytes_AS_STRING(name)[0] == c":" or not is_value(<bytes>(<tuple>pair)[1]):
            return False
    return True
