# cython: language_level=3
"""Where a connection's bytes arrive: the native form of `_intake_plain`, where the idea stands.

What the endpoint's fast path serves whole, and whose answers the kernel takes at once, is done here without a line of
Python; everything else is left to the connection's `_process`. A frame that the fast path has declined is not shown to
it again.
"""
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER
from libc.stdint cimport uint8_t, uint32_t
from posix.unistd cimport write

from arrowmq.wire._bytes cimport get32
from arrowmq.wire.frames._out_native cimport Out

from arrowmq.remoting.large_buffers import SMALL_FRAME_BYTES

cdef enum:
    SMALLEST_FRAME = 8

cdef Py_ssize_t SMALL = SMALL_FRAME_BYTES


cdef inline Py_ssize_t frame_bytes(const uint8_t* at) noexcept nogil:
    """With the length word itself."""
    return 4 + <Py_ssize_t><uint32_t>get32(at)


cdef class FastPath:
    def __cinit__(self, *_arguments, **_named):
        self.replies = Out()
        self.has_declined = True

    cdef Py_ssize_t serve(self, connection, const uint8_t* data, Py_ssize_t size, Out out) except -1:
        return 0

    def __call__(self, connection, buffer):
        """How many bytes of whole frames were served, and the answers to them."""
        cdef Out out = Out()
        cdef Py_buffer view
        cdef Py_ssize_t consumed
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            consumed = self.serve(connection, <const uint8_t*>view.buf, view.len, out)
        finally:
            PyBuffer_Release(&view)
        return consumed, PyBytes_FromStringAndSize(<const char*>out.data, out.size) if out.size else None


cdef class OutboxState:
    def __cinit__(self, *_arguments, **_named):
        self.handle = -1


cdef class Intake:
    cdef public object _endpoint
    cdef public object _outbox
    cdef public object _held
    cdef public object _large
    cdef public Py_ssize_t _large_filled
    cdef public Py_ssize_t _large_wanted
    cdef public bint _is_ending
    cdef public bint _is_fresh
    cdef public bint _is_paused
    cdef public bint _is_processing
    cdef public bint is_active
    cdef public object peer_bytes

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self._held = b""
        self._is_fresh = endpoint.is_listening
        self.is_active = True

    def get_buffer(self, sizehint):
        if self._large is not None:
            return memoryview(self._large)[self._large_filled:self._large_wanted]
        view = self._endpoint.receive_view
        cdef Py_ssize_t held = len(self._held)
        if held:
            view[:held] = self._held
            return view[held:]
        return view

    def buffer_updated(self, Py_ssize_t nbytes):
        self.is_active = True
        cdef object large = self._large
        cdef Py_ssize_t end
        if large is None:
            end = len(self._held) + nbytes
            self._held = b""
            self.process(self._endpoint.receive_view, end)
            return
        self._large_filled += nbytes
        if self._large_filled == self._large_wanted:
            self._large = None
            self.process(memoryview(large)[:self._large_wanted], self._large_wanted)
            self._endpoint.large_buffers.give_back(large)
        elif self._large_filled == len(large):
            self._large = self._endpoint.large_buffers.take(self._large_wanted, self._large_filled)
            self._large[:len(large)] = large

    cdef int process(self, view, Py_ssize_t end) except -1:
        """Serve what came: by the fast path as far as that goes, the rest by the general path. The beginning of a frame that
        is not whole yet is kept."""
        cdef Py_ssize_t position
        cdef bint has_declined = True
        cdef const uint8_t* data
        cdef object fast_path = self._endpoint.fast_path
        if fast_path is None or self._outbox is None or end < SMALLEST_FRAME or (
            self._is_fresh or self._is_paused or self._is_ending
        ):
            self._process(view[:end])
            return 0
        data = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf
        self._is_processing = True
        try:
            if isinstance(fast_path, FastPath):
                position = self.serve(<FastPath>fast_path, data, end)
                has_declined = (<FastPath>fast_path).has_declined
            else:
                position = self.ask(fast_path, view, end)
        finally:
            self._is_processing = False
        if position < end:
            if self._is_paused or self._is_ending or not self.is_unfinished(data, position, end):
                self._process(view[position:end], has_declined)
                return 0
            if end - position < 4 or frame_bytes(data + position) <= SMALL:
                self._held = PyBytes_FromStringAndSize(<const char*>data + position, end - position)
            else:
                self._keep(view[position:end])
        if (<OutboxState>self._outbox).waiting_bytes or self._is_ending:
            self._flush()
        return 0

    cdef Py_ssize_t serve(self, FastPath fast_path, const uint8_t* data, Py_ssize_t end) except -1:
        cdef Py_ssize_t position = 0
        cdef Out replies = fast_path.replies
        try:
            while position < end and not self._is_paused and not self._is_ending:
                position += fast_path.serve(self, data + position, end - position, replies)
                if replies.size:
                    self.send_all(replies)
                if fast_path.has_declined:
                    break
        finally:
            replies.clear()
        return position

    cdef Py_ssize_t ask(self, fast_path, view, Py_ssize_t end) except -1:
        """The same of a fast path in Python."""
        cdef Py_ssize_t position = 0, consumed
        while position < end and not self._is_paused and not self._is_ending:
            taken, reply = fast_path(self, view[position:end])
            consumed = taken
            if reply is not None:
                self.write(reply)
            if not consumed:
                break
            position += consumed
        return position

    cdef bint is_unfinished(self, const uint8_t* data, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether what is left is the beginning of a frame, of a length that is allowed."""
        cdef Py_ssize_t wanted
        if end - position < 4:
            return True
        wanted = frame_bytes(data + position)
        return wanted >= SMALLEST_FRAME and position + wanted > end and wanted <= self._endpoint.limits.frame_bytes

    cdef int send_all(self, Out replies) except -1:
        """Past the outbox while nothing waits in it; what the kernel does not take goes there."""
        cdef OutboxState outbox = self._outbox
        cdef Py_ssize_t written = 0
        if not outbox.waiting_bytes and not outbox.is_blocked:
            if outbox.handle >= 0:
                # The other threads need not get their turn here: the socket is never waited for.
                written = write(outbox.handle, replies.data, replies.size)
                if written < 0:
                    written = 0              # the outbox tries again and finds out why
            elif outbox.tls is not None:
                written = outbox.tls.encrypt(
                    PyMemoryView_FromMemory(<char*>replies.data, replies.size, PyBUF_READ)
                )
            outbox.taken_bytes += written
        if written < replies.size:
            self.write(PyBytes_FromStringAndSize(<const char*>replies.data + written, replies.size - written))
        replies.clear()
        return 0
