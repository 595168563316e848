# cython: language_level=3
"""HMAC-SHA1 with a key that is kept ready, for checks that make no Python object a message.

The standard library's `hmac` is the pure-Python reference, and what the general path uses; a differential test feeds both
the same. Its own objects have to be copied for each message, which costs more than hashing a short one.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

arrowmq_sha1_setup()


cdef bytes digest_of(const arrowmq_hmac_key* key, tuple parts, bint wants_ni):
    cdef arrowmq_sha1 hash
    cdef bytes part
    cdef uint8_t digest[ARROWMQ_SHA1_DIGEST]
    arrowmq_hmac_begin(&hash, key, wants_ni)
    for part in parts:
        arrowmq_sha1_add(&hash, <const uint8_t*>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    arrowmq_hmac_end(&hash, key, digest)
    return PyBytes_FromStringAndSize(<const char*>digest, ARROWMQ_SHA1_DIGEST)


cdef class HmacKey:
    """A secret, with the hashes of HMAC's two first blocks made."""

    def __init__(self, bytes secret not None):
        arrowmq_hmac_key_of(&self.key, <const uint8_t*>PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))

    def digest(self, *parts):
        """Of these bytes, one behind the other."""
        return digest_of(&self.key, parts, True)

    def digest_written_out(self, *parts):
        """The same without the processor's SHA instructions, for the tests."""
        return digest_of(&self.key, parts, False)
