from libc.stdint cimport uint8_t


cdef class Decoder:
    cdef list entries                # the dynamic table, the newest last
    cdef Py_ssize_t size, allowed, limit, max_list_bytes

    cdef list decode(self, const uint8_t* data, Py_ssize_t size)
    cdef Py_ssize_t integer(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, int bits) except -1
    cdef bytes string(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* position)
    cdef tuple entry(self, Py_ssize_t index)
    cdef int insert(self, tuple entry) except -1
    cdef int evict(self) except -1


cdef bytes encoded(list headers)
