# cython: language_level=3
"""The guard's check of a request in native form: its signature, and the rights of its user as they are remembered.

It passes what is certainly good and hands everything else over: unsigned, wrongly signed, unusually signed and refused
requests are the guard's (`auth/guard.py`), which says why. One HMAC is made for a request, over its bytes where they lie; users
and decisions are asked for once, by the same code that the guard uses, and forgotten when users or rights change. Of the
decisions, those of late stand in a table by a hash of their names, so that they are found without a Python object.

Where the processor can, the HMACs of several requests that came together are made at once (`auth/sha1_lanes.h`), before the
first of them is checked. Such a digest counts for that request and that signer only, and only until users or rights change.

The guard is the pure-Python reference; differential tests show that both let the same requests pass.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from arrowmq.auth._hmac_native cimport (
    ARROWMQ_LANES_WORTH, ARROWMQ_SHA1_DIGEST, HmacKey, arrowmq_hmac_begin, arrowmq_hmac_end, arrowmq_hmac_lane,
    arrowmq_hmac_lane_add, arrowmq_hmac_lane_begin, arrowmq_hmac_lane_end, arrowmq_hmac_lanes, arrowmq_sha1, arrowmq_sha1_add,
    arrowmq_sha1_has_lanes, arrowmq_sha1_lanes_setup
)
from arrowmq.broker.fastpath._router_native cimport MOST_AHEAD, RequestCheck
from arrowmq.wire.in_place._fields cimport PULL_CONSUMER_GROUP, PULL_TOPIC, SEND_TOPIC
from arrowmq.wire.in_place._request_native cimport ALL_FIELDS, Request, Text

from arrowmq.wire.codes import RequestCode

cdef enum:
    SIGNATURE_LETTERS = 28    # of the digest in base64
    MAX_REMEMBERED = 100000
    LATE_DECISIONS = 1024     # a power of two

cdef int SEND_CODE = RequestCode.SEND_MESSAGE_V2
cdef int BATCH_CODE = RequestCode.SEND_BATCH_MESSAGE
cdef int PULL_CODE = RequestCode.PULL_MESSAGE
cdef const char* LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef str SOURCE = "access.source"

arrowmq_sha1_lanes_setup()


cdef bint is_signature(const uint8_t* digest, const uint8_t* given) noexcept nogil:
    """Whether this is the digest in base64. Looks at all of it, so that the time tells nothing."""
    cdef uint8_t letters[SIGNATURE_LETTERS]
    cdef uint8_t difference = 0
    cdef int group, index
    cdef unsigned int bits
    for group in range(7):
        bits = <unsigned int>digest[3 * group] << 16 | <unsigned int>digest[3 * group + 1] << 8
        if group < 6:
            bits |= digest[3 * group + 2]
        letters[4 * group] = LETTERS[bits >> 18 & 63]
        letters[4 * group + 1] = LETTERS[bits >> 12 & 63]
        letters[4 * group + 2] = LETTERS[bits >> 6 & 63]
        letters[4 * group + 3] = LETTERS[bits & 63] if group < 6 else c"="
    for index in range(SIGNATURE_LETTERS):
        difference |= letters[index] ^ given[index]
    return difference == 0


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)


cdef inline bint is_text(bytes name, Text text) noexcept:
    return PyBytes_GET_SIZE(name) == text.size and memcmp(PyBytes_AS_STRING(name), text.data, text.size) == 0


cdef inline uint32_t mix(uint32_t hashed, Text text) noexcept nogil:
    """FNV-1a, and the length, so that names cannot lend each other letters."""
    cdef Py_ssize_t place
    for place in range(text.size):
        hashed = (hashed ^ text.data[place]) * 16777619
    return (hashed ^ <uint32_t>text.size) * 16777619


cdef class Signer:
    """A user who may sign, as remembered."""
    cdef bytes name
    cdef HmacKey key
    cdef bint may_all


cdef class Decision:
    """That this user may do this; what was refused is not remembered here."""
    cdef Signer signer
    cdef int code
    cdef bytes topic
    cdef bytes group
    cdef object source


cdef class SignatureCheck(RequestCheck):
    """`find_user(access key)` gives the user's HMAC key and whether the user may everything, or None; `may(access key,
    code, topic, group, source)` decides; `source_of(connection)` is the address that rules see."""
    cdef object find_user
    cdef object may
    cdef object source_of
    cdef dict signers         # by access key
    cdef Signer last          # who asked last
    cdef set allowed
    cdef list late            # decisions, by the hash of their names
    cdef dict orders          # of a code: the places of its fields in the order of their names, without the signature's
    cdef int key_place
    cdef int signature_place
    cdef int last_code
    cdef bytes last_order     # of its fields
    cdef Request* ahead       # requests that were looked at, if any are good still ...
    cdef int ahead_count
    cdef int64_t ahead_numbers[MOST_AHEAD]
    cdef list ahead_signers   # ... with whose keys; None: no digest was made
    cdef arrowmq_hmac_lane lanes[MOST_AHEAD]
    cdef readonly int64_t passed
    cdef readonly int64_t passed_ahead      # of them, by a digest that was made ahead

    def __init__(self, find_user, may, source_of):
        self.find_user = find_user
        self.may = may
        self.source_of = source_of
        self.orders = {}
        self.looks_ahead = arrowmq_sha1_has_lanes
        self.forget()

    def use(self, int key_place, int signature_place, dict orders):
        """Where the fields stand in a request. Codes without an order are handed over."""
        for order in orders.values():
            if any(place >= ALL_FIELDS for place in order):
                raise ValueError("a place beyond a request's fields")
        self.key_place = key_place
        self.signature_place = signature_place
        self.orders = orders
        self.forget()

    def forget(self):
        """Users or rights are other ones."""
        self.signers = {}
        self.last = None
        self.allowed = set()
        self.late = [None] * LATE_DECISIONS
        self.last_code = -1
        self.last_order = None
        self.drop_ahead()

    cdef int drop_ahead(self) except -1:
        self.ahead = NULL
        self.ahead_count = 0
        self.ahead_signers = [None] * MOST_AHEAD
        return 0

    cdef int look_ahead(self, Request* requests, int count) except -1:
        """Make the digests of these requests together, where their signers are remembered."""
        cdef arrowmq_hmac_lane* filled[MOST_AHEAD]
        cdef Signer signer
        cdef int place, lanes = 0
        self.ahead_count = 0
        if count < ARROWMQ_LANES_WORTH or count > MOST_AHEAD:
            return 0
        for place in range(count):
            signer = self.fill_lane(&self.lanes[place], &requests[place])
            self.ahead_signers[place] = signer
            self.ahead_numbers[place] = requests[place].number
            if signer is not None:
                filled[lanes] = &self.lanes[place]
                lanes += 1
        if lanes >= ARROWMQ_LANES_WORTH:
            arrowmq_hmac_lanes(filled, lanes, True)
            self.ahead = requests
            self.ahead_count = count
        return 0

    cdef Signer fill_lane(self, arrowmq_hmac_lane* lane, Request* request):
        """With what is to be signed; by whom, or None if there will be no digest ahead."""
        cdef bytes order = self.order_of(request.code)
        cdef Signer signer
        cdef const uint8_t* places
        cdef Py_ssize_t index
        cdef Text text = request.fields[self.key_place]
        if order is None or request.fields[self.signature_place].size != SIGNATURE_LETTERS or text.size == 0:
            return None
        signer = self.remembered(text)
        if signer is None:
            return None
        arrowmq_hmac_lane_begin(lane, &signer.key.key)
        places = <const uint8_t*>PyBytes_AS_STRING(order)
        for index in range(PyBytes_GET_SIZE(order)):
            text = request.fields[places[index]]
            if text.size and not arrowmq_hmac_lane_add(lane, text.data, text.size):
                return None
        arrowmq_hmac_lane_end(lane, request.body.data, request.body.size)
        return signer

    cdef const uint8_t* digest_ahead(self, Request* request, Signer signer) noexcept:
        """Of just this reading of a request, with the key of just this signer; NULL if that was not made."""
        cdef Py_ssize_t place
        if self.ahead_count == 0 or request < self.ahead or request >= self.ahead + self.ahead_count:
            return NULL
        place = request - self.ahead
        if self.ahead_numbers[place] != request.number or self.ahead_signers[place] is not signer:
            return NULL
        return self.lanes[place].digest

    cdef bytes order_of(self, int code):
        if code != self.last_code:
            self.last_order = self.orders.get(code)
            self.last_code = code
        return self.last_order

    cdef bint passes(self, connection, Request* request) except -1:
        cdef Text given
        cdef bytes order = self.order_of(request.code)
        cdef Signer signer
        cdef const uint8_t* digest
        cdef uint8_t own[ARROWMQ_SHA1_DIGEST]
        if order is None:
            return False
        given = request.fields[self.signature_place]
        if given.size != SIGNATURE_LETTERS or request.fields[self.key_place].size == 0:
            return False
        signer = self.signer(request.fields[self.key_place])
        if signer is None:
            return False
        if not signer.may_all and not self.is_allowed(connection, request, signer):
            return False
        digest = self.digest_ahead(request, signer)
        if digest == NULL:
            self.make_digest(request, order, signer.key, own)
            digest = own
        if not is_signature(digest, given.data):
            return False
        self.passed += 1
        self.passed_ahead += digest != own
        return True

    cdef Signer remembered(self, Text access_key):
        if self.last is None or not is_text(self.last.name, access_key):
            self.last = self.signers.get(bytes_of(access_key))
        return self.last

    cdef Signer signer(self, Text access_key):
        cdef Signer signer = self.remembered(access_key)
        cdef bytes name
        if signer is not None:
            return signer
        name = bytes_of(access_key)
        found = self.find_user(name)
        if found is None:
            return None
        signer = Signer()
        signer.name = name
        signer.key, signer.may_all = found
        if len(self.signers) >= MAX_REMEMBERED:
            self.signers.clear()
        self.signers[name] = signer
        self.last = signer
        return signer

    cdef bint is_allowed(self, connection, Request* request, Signer signer) except -1:
        """Of a normal user: the right to send to this topic, or to read it in this group."""
        cdef Text topic, group
        cdef Decision decision
        cdef uint32_t place
        cdef dict attributes
        group.data = <const uint8_t*>b""
        group.size = 0
        if request.code == SEND_CODE or request.code == BATCH_CODE:
            topic = request.fields[SEND_TOPIC]
        elif request.code == PULL_CODE:
            topic = request.fields[PULL_TOPIC]
            group = request.fields[PULL_CONSUMER_GROUP]
            if group.size == 0:
                return False
        else:
            return False
        if topic.size == 0:
            return False
        attributes = connection.attributes
        source = attributes.get(SOURCE)
        if source is None:
            source = attributes[SOURCE] = self.source_of(connection)
        place = mix(mix(mix(2166136261 ^ request.code, request.fields[self.key_place]), topic), group) & (LATE_DECISIONS - 1)
        decision = self.late[place]
        if (
            decision is not None and decision.signer is signer and decision.code == request.code
            and is_text(decision.topic, topic) and is_text(decision.group, group)
            and (decision.source is source or decision.source == source)
        ):
            return True
        return self.decide(signer, request.code, bytes_of(topic), bytes_of(group), source, place)

    cdef bint decide(self, Signer signer, int code, bytes topic, bytes group, source, uint32_t place) except -1:
        cdef tuple key = (signer.name, code, topic, group, source)
        cdef Decision decision
        if key not in self.allowed:
            if not self.may(signer.name, code, topic, group, source):
                return False
            if len(self.allowed) >= MAX_REMEMBERED:
                self.allowed.clear()
            self.allowed.add(key)
        decision = Decision()
        decision.signer, decision.code, decision.topic, decision.group, decision.source = signer, code, topic, group, source
        self.late[place] = decision
        return True

    cdef int make_digest(self, Request* request, bytes order, HmacKey key, uint8_t* digest) except -1:
        """Of what is signed: the values of all fields in the order of their names, and the body."""
        cdef arrowmq_sha1 hash
        cdef const uint8_t* places = <const uint8_t*>PyBytes_AS_STRING(order)
        cdef Py_ssize_t index
        cdef Text text
        arrowmq_hmac_begin(&hash, &key.key, 1)
        for index in range(PyBytes_GET_SIZE(order)):
            text = request.fields[places[index]]
            if text.size:
                arrowmq_sha1_add(&hash, text.data, text.size)
        arrowmq_sha1_add(&hash, request.body.data, request.body.size)
        arrowmq_hmac_end(&hash, &key.key, digest)
        return 0
