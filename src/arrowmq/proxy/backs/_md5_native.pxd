# MD5 for the other native modules of this package.

from libc.stdint cimport uint8_t

# The 32 digits of the checksum.
cdef void md5_hex(const uint8_t* data, Py_ssize_t size, uint8_t* digits) noexcept nogil
