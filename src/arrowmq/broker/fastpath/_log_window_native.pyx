"""The mapped file of the log that was read last: most reads want the same one again, and need no Python then."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


cdef class LogWindow:
    def __init__(self, commit_log):
        self.commit_log = commit_log

    cdef bint reach(self, int64_t physical, int64_t log_begin) except -1:
        if self.start < log_begin:
            self.leave()                 # retention deleted it: let the disk have its bytes back
        if self.view is None or physical < self.start or physical >= self.start + self.size:
            segment = self.commit_log.segment_at(physical)
            if segment is None:
                return False
            view = segment.view
            self.place = address_of(view)
            self.view = view
            self.start = segment.start
            self.size = segment.size
        return True

    cdef void leave(self) noexcept:
        self.view = None


cdef const uint8_t* address_of(object view) except NULL:
    cdef Py_buffer buffer
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    cdef const uint8_t* place = <const uint8_t*>buffer.buf
    PyBuffer_Release(&buffer)
    return place
