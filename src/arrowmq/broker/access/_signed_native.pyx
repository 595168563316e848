# cython: language_level=3
"""The guard's check of a request in native form: its signature, and the rights of its user as they are remembered.

It passes what is certainly good and hands everything else over: unsigned, wrongly signed, unusually signed and refused
requests are the guard's (`auth/guard.py`), which says why. One HMAC is made for a request; users and decisions are asked for
once, by the same code that the guard uses, and forgotten when users or rights change.

The guard is the pure-Python reference; differential tests show that both let the same requests pass.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from arrowmq.broker.fastpath._router_native cimport RequestCheck
from arrowmq.wire.in_place._fields cimport PULL_CONSUMER_GROUP, PULL_TOPIC, SEND_TOPIC
from arrowmq.wire.in_place._request_native cimport ALL_FIELDS, Request, Text

from arrowmq.wire.codes import RequestCode

cdef enum:
    DIGEST_BYTES = 20
    SIGNATURE_LETTERS = 28    # of the digest in base64
    MAX_CONTENT_BYTES = 1 << 20     # more is hashed by the general path, which has it as one object already
    MAX_REMEMBERED = 100000

cdef int SEND_CODE = RequestCode.SEND_MESSAGE_V2
cdef int BATCH_CODE = RequestCode.SEND_BATCH_MESSAGE
cdef int PULL_CODE = RequestCode.PULL_MESSAGE
cdef const char* LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef str SOURCE = "access.source"


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


cdef class SignatureCheck(RequestCheck):
    """`find_user(access key)` gives two begun hashes of HMAC and whether the user may everything, or None; `may(access key,
    code, topic, group, source)` decides; `source_of(connection)` is the address that rules see."""
    cdef object find_user
    cdef object may
    cdef object source_of
    cdef dict users           # by access key
    cdef set allowed
    cdef dict orders          # of a code: the places of its fields in the order of their names, without the signature's
    cdef int key_place
    cdef int signature_place
    cdef readonly int64_t passed

    def __init__(self, find_user, may, source_of):
        self.find_user = find_user
        self.may = may
        self.source_of = source_of
        self.orders = {}
        self.forget()

    def use(self, int key_place, int signature_place, dict orders):
        """Where the fields stand in a request. Codes without an order are handed over."""
        for order in orders.values():
            if any(place >= ALL_FIELDS for place in order):
                raise ValueError("a place beyond a request's fields")
        self.key_place = key_place
        self.signature_place = signature_place
        self.orders = orders

    def forget(self):
        """Users or rights are other ones."""
        self.users = {}
        self.allowed = set()

    cdef bint passes(self, connection, Request* request) except -1:
        cdef Text given
        cdef bytes digest, name
        cdef object order = self.orders.get(request.code)
        cdef tuple user
        if order is None:
            return False
        given = request.fields[self.signature_place]
        if given.size != SIGNATURE_LETTERS or request.fields[self.key_place].size == 0:
            return False
        name = bytes_of(request.fields[self.key_place])
        user = self.users.get(name)
        if user is None:
            user = self.find_user(name)
            if user is None:
                return False
            if len(self.users) >= MAX_REMEMBERED:
                self.users.clear()
            self.users[name] = user
        if not user[2] and not self.is_allowed(connection, request, name):
            return False
        content = self.content(request, order)
        if content is None:
            return False
        inner = user[0].copy()
        inner.update(content)
        outer = user[1].copy()
        outer.update(inner.digest())
        digest = outer.digest()
        if len(digest) != DIGEST_BYTES or not is_signature(<const uint8_t*>PyBytes_AS_STRING(digest), given.data):
            return False
        self.passed += 1
        return True

    cdef bint is_allowed(self, connection, Request* request, bytes name) except -1:
        """Of a normal user: the right to send to this topic, or to read it in this group."""
        cdef bytes topic, group = b""
        if request.code == SEND_CODE or request.code == BATCH_CODE:
            if request.fields[SEND_TOPIC].size == 0:
                return False
            topic = bytes_of(request.fields[SEND_TOPIC])
        elif request.code == PULL_CODE:
            if request.fields[PULL_TOPIC].size == 0 or request.fields[PULL_CONSUMER_GROUP].size == 0:
                return False
            topic = bytes_of(request.fields[PULL_TOPIC])
            group = bytes_of(request.fields[PULL_CONSUMER_GROUP])
        else:
            return False
        attributes = connection.attributes
        source = attributes.get(SOURCE)
        if source is None:
            source = attributes[SOURCE] = self.source_of(connection)
        key = (name, request.code, topic, group, source)
        if key in self.allowed:
            return True
        if not self.may(name, request.code, topic, group, source):
            return False
        if len(self.allowed) >= MAX_REMEMBERED:
            self.allowed.clear()
        self.allowed.add(key)
        return True

    cdef bytes content(self, Request* request, object order):
        """What is signed: the values of all fields in the order of their names, and the body."""
        cdef Py_ssize_t size = request.body.size
        cdef const uint8_t* places = <const uint8_t*>PyBytes_AS_STRING(<bytes>order)
        cdef Py_ssize_t count = len(<bytes>order), index
        cdef bytes made
        cdef char* at
        cdef Text text
        for index in range(count):
            size += request.fields[places[index]].size
        if size > MAX_CONTENT_BYTES:
            return None
        made = PyBytes_FromStringAndSize(NULL, size)
        at = PyBytes_AS_STRING(made)
        for index in range(count):
            text = request.fields[places[index]]
            if text.size:
                memcpy(at, text.data, text.size)
                at += text.size
        memcpy(at, request.body.data, request.body.size)
        return made
