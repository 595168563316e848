# What other native modules may use: no Python objects, no GIL, nothing read past the lengths given.

from libc.stdint cimport int32_t, uint32_t

# CRC-32 with the top bit cleared.
cdef uint32_t crc32_bytes(const unsigned char* data, size_t length) noexcept nogil

# Java's hash of UTF-8 text. False if the bytes are no UTF-8.
cdef bint java_hash_utf8(const unsigned char* text, Py_ssize_t length, int32_t* hashed) noexcept nogil
