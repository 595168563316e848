# cython: language_level=3
"""Where a connection's bytes arrive: the native form of `_intake_plain`, where the idea stands.

What the endpoint's fast path takes whole, and whose answers the kernel takes at once, is worked off here without a
line of Python; everything else is left to the connection's `_process`, which does all of it.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport uint8_t, uint32_t
from posix.uio cimport iovec, writev

cdef enum:
    SMALLEST_FRAME = 8
    SMALL_FRAME_BYTES = 16 * 1024     # as in `connection.py`
    GATHERED_BYTES = 256 * 1024       # of answers before they are sent, and so many
    GATHERED_REPLIES = 64


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
            return memoryview(self._large)[self._large_filled:]
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
            view = self._endpoint.receive_view[:end]
            if not self.is_done_shortly(view, end):
                self._process(view)
            return
        self._large_filled += nbytes
        if self._large_filled == self._large_wanted:
            self._large = None
            self._process(memoryview(large))
        elif self._large_filled == len(large):
            grown = bytearray(min(self._large_wanted, 2 * len(large)))
            grown[: len(large)] = large
            self._large = grown

    cdef bint is_done_shortly(self, view, Py_ssize_t end) except -1:
        """Whether the fast path took all of it. If it took a part, the rest goes the general way from here."""
        cdef Py_ssize_t position = 0, consumed, gathered = 0
        cdef object fast_path = self._endpoint.fast_path
        cdef list replies = []
        if fast_path is None or end < SMALLEST_FRAME or self._is_fresh or self._is_paused or self._is_ending:
            return False
        self._is_processing = True
        try:
            while position < end and not self._is_paused and not self._is_ending:
                taken, reply = fast_path(self, view[position:] if position else view)
                consumed = taken
                if reply is not None:
                    replies.append(reply)
                    gathered += len(reply)
                    if gathered > GATHERED_BYTES or len(replies) == GATHERED_REPLIES:
                        self.send_all(replies)
                        replies, gathered = [], 0
                if not consumed:
                    break
                position += consumed
            if replies:
                self.send_all(replies)
        finally:
            self._is_processing = False
        if position == 0:
            return False
        if position < end:
            if self._is_paused or self._is_ending or not self.is_unfinished(view, position, end):
                self._process(view[position:])
                return True
            self._held = bytes(view[position:])
        if self._outbox.waiting_bytes or self._is_ending:
            self._flush()
        return True

    cdef bint is_unfinished(self, view, Py_ssize_t position, Py_ssize_t end) except -1:
        """Whether what is left is the beginning of a frame, and of one too short for a buffer of its own."""
        cdef const uint8_t* at = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf + position
        cdef uint32_t length
        if end - position < 4:
            return True
        length = <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]
        if length < 4 or length > SMALL_FRAME_BYTES - 4 or position + 4 + <Py_ssize_t>length <= end:
            return False
        return length <= self._endpoint.limits.frame_bytes - 4

    cdef int send_all(self, list replies) except -1:
        """Past the outbox while nothing waits in it; what the kernel does not take goes there."""
        cdef object outbox = self._outbox
        cdef int handle, count = 0
        cdef Py_ssize_t written = 0
        cdef iovec pieces[GATHERED_REPLIES]
        if not outbox.waiting_bytes and not outbox.is_blocked and outbox.handle >= 0:
            handle = outbox.handle
            for reply in replies:
                if type(reply) is not bytes:
                    break
                pieces[count].iov_base = PyBytes_AS_STRING(reply)
                pieces[count].iov_len = PyBytes_GET_SIZE(reply)
                count += 1
            if count:
                with nogil:
                    written = writev(handle, pieces, count)
                if written < 0:
                    written = 0              # the outbox tries again and finds out why
                outbox.taken_bytes += written
        for reply in replies:
            if written >= len(reply):
                written -= len(reply)
            else:
                self.write(memoryview(reply)[written:] if written else reply)
                written = 0
        return 0
