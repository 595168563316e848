# cython: language_level=3
"""HMAC-SHA1 with a key that is kept ready, for checks that make no Python object a message.

The standard library's `hmac` is the pure-Python reference, and what the general path uses; a differential test feeds both
the same. Its own objects have to be copied for each message, which costs more than hashing a short one.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

arrowmq_sha1_lanes_setup()
HAS_LANES = bool(arrowmq_sha1_has_lanes)


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


cdef bint fill(arrowmq_hmac_lane* lane, HmacKey key, tuple parts) except -1:
    """False if what comes before the last part is too long for a lane."""
    cdef bytes part
    cdef Py_ssize_t index
    arrowmq_hmac_lane_begin(lane, &key.key)
    for index in range(len(parts) - 1):
        part = parts[index]
        if not arrowmq_hmac_lane_add(lane, <const uint8_t*>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)):
            return False
    part = parts[len(parts) - 1] if parts else b""
    arrowmq_hmac_lane_end(lane, <const uint8_t*>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    return True


cdef int take_digests(list found, list places, arrowmq_hmac_lane* lanes, bint wants_lanes) except -1:
    cdef arrowmq_hmac_lane* filled[ARROWMQ_LANES]
    cdef int lane
    for lane in range(len(places)):
        filled[lane] = &lanes[lane]
    arrowmq_hmac_lanes(filled, len(places), wants_lanes)
    for lane in range(len(places)):
        found[places[lane]] = PyBytes_FromStringAndSize(<const char*>lanes[lane].digest, ARROWMQ_SHA1_DIGEST)
    places.clear()
    return 0


def digests(list keys, list contents, bint wants_lanes=True):
    """Of contents in parts, each with its key, sixteen at a time; for the tests. None for one that no lane can take.
    Without `wants_lanes` as on a processor that has no such registers."""
    cdef arrowmq_hmac_lane lanes[ARROWMQ_LANES]
    cdef list found = [None] * len(contents)
    cdef list places = []             # of the contents in the lanes
    for place, (key, parts) in enumerate(zip(keys, contents, strict=True)):
        if fill(&lanes[len(places)], key, parts):
            places.append(place)
        if len(places) == ARROWMQ_LANES:
            take_digests(found, places, lanes, wants_lanes)
    take_digests(found, places, lanes, wants_lanes)
    return found
