# Where a connection's bytes arrive, as C sees it: what a fast path must be to be called without a Python object.

from libc.stdint cimport int64_t, uint8_t

from arrowmq.wire.frames._out_native cimport Out


cdef class FastPath:
    """It serves whole frames at the beginning of some bytes, as far as it knows them."""
    cdef Out replies            # to what one read of a connection brought
    # After a call: whether it left a frame because it is not for it. Else it stopped to have its answers sent first.
    cdef public bint has_declined

    # How many bytes were served; the answers to them are put behind what is in `out`.
    cdef Py_ssize_t serve(self, connection, const uint8_t* data, Py_ssize_t size, Out out) except -1


cdef class OutboxState:
    cdef public Py_ssize_t waiting_bytes
    cdef public int64_t taken_bytes
    cdef public bint is_blocked
    cdef public int handle
    cdef public object tls
