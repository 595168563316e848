# HMAC-SHA1 over parts where they lie, of one content or of several at once; C only.

from libc.stdint cimport uint8_t

cdef extern from "arrowmq/auth/sha1_blocks.h" nogil:
    enum:
        ARROWMQ_SHA1_DIGEST

    ctypedef struct arrowmq_hmac_key:
        pass

    ctypedef struct arrowmq_sha1:
        pass

    void arrowmq_hmac_key_of(arrowmq_hmac_key* key, const uint8_t* secret, size_t size)
    void arrowmq_hmac_begin(arrowmq_sha1* hash, const arrowmq_hmac_key* key, int wants_ni)
    void arrowmq_sha1_add(arrowmq_sha1* hash, const uint8_t* data, size_t size)
    void arrowmq_hmac_end(arrowmq_sha1* hash, const arrowmq_hmac_key* key, uint8_t* digest)

cdef extern from "arrowmq/auth/sha1_lanes.h" nogil:
    enum:
        ARROWMQ_LANES
        ARROWMQ_LANES_WORTH

    ctypedef struct arrowmq_hmac_lane:
        uint8_t digest[20]

    int arrowmq_sha1_has_lanes
    void arrowmq_sha1_lanes_setup()
    void arrowmq_hmac_lane_begin(arrowmq_hmac_lane* lane, const arrowmq_hmac_key* key)
    bint arrowmq_hmac_lane_add(arrowmq_hmac_lane* lane, const uint8_t* data, size_t size)
    void arrowmq_hmac_lane_end(arrowmq_hmac_lane* lane, const uint8_t* body, size_t size)
    void arrowmq_hmac_lanes(arrowmq_hmac_lane** lanes, int count, int wants_lanes)


cdef class HmacKey:
    cdef arrowmq_hmac_key key
