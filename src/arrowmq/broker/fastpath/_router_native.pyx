# cython: language_level=3
"""From a frame to the native handler of its code, without a Python object a request.

In: the bytes of a connection, a whole number of frames and perhaps a part of one. Out: how many bytes were served, and
the answers to them. A frame is read once and shown to the handlers of its code one after the other. At the first that
none of them takes the router stops: the general path serves that frame. It therefore never refuses anything.

Where a check of requests can do its work for several sooner than for each, some frames are read ahead and shown to it
together. They are still checked and served one by one.

The pure-Python reference (`_router_plain.py`) knows no frame at all; differential tests show that both leave the same.
"""
from libc.stdint cimport int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._names_native cimport NameTable
from arrowmq.wire.in_place._request_native cimport Request, RequestReader

cdef enum:
    GATHERED_BYTES = 256 * 1024       # of answers before they are sent


cdef class NativeHandler:
    cdef bint begin(self, connection, int64_t now, Out out) except -1:
        if self.asked_ms != now:
            self.is_open = self.ask()
            self.asked_ms = now
        return self.is_open

    cdef bint ask(self) except -1:
        return False

    cdef bint take(self, Request* request) except -1:
        return False

    cdef int finish(self, connection) except -1:
        return 0

    def close(self):
        """Nothing of the store is needed any more."""

    def ask_again(self):
        """What the permit said is not good any more."""
        self.asked_ms = -1


cdef class RequestCheck:
    """This one passes nothing: every request is handed over."""

    cdef int look_ahead(self, Request* requests, int count) except -1:
        return 0

    cdef bint passes(self, connection, Request* request) except -1:
        return False


cdef class Router(FastPath):
    """Called with a connection and its bytes; see the module."""

    def __init__(self, now_ms):
        self.reader = RequestReader()
        self.handlers = {}
        self.order = []
        self.routes = []
        self.checks = []
        self.now_ms = now_ms
        self.width = MOST_AHEAD

    def add(self, str name, NativeHandler handler not None, codes):
        """One more handler. It is asked for requests of these codes that the handlers before it have left."""
        self.handlers[name] = handler
        if handler not in self.order:
            self.order.append(handler)
        for code in codes:
            self.reader.use(code, NameTable({}))
            place = self.reader.place_of(code)
            if place == len(self.routes):
                self.routes.append([])
            self.routes[place].append(handler)

    def use_fields(self, int code, dict numbers):
        """Requests of this code may have these fields, and no others."""
        self.reader.use(code, NameTable(numbers))

    def use_checks(self, list checks):
        """Every request has to pass these."""
        for check in checks:
            if not isinstance(check, RequestCheck):
                raise TypeError(f"{check!r} is no native check of requests")
        self.checks = checks
        self.looks_ahead = any((<RequestCheck>check).looks_ahead for check in checks)

    def close(self):
        """From now on everything is left to the general path."""
        cdef NativeHandler handler
        self.is_closed = True
        for handler in self.order:
            handler.close()

    cdef Py_ssize_t serve(self, connection, const uint8_t* data, Py_ssize_t size, Out out) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + size
        cdef Request* request
        cdef NativeHandler handler
        cdef int count = 0, place = 0
        cdef int64_t now = -1
        self.has_declined = True
        if self.is_closed or self.is_serving:
            return 0
        self.is_serving = True       # what was read belongs to this call
        try:
            while True:
                if place == count:
                    count = self.read_ahead(at, end)
                    place = 0
                    if count == 0:
                        break
                request = &self.requests[place]
                place += 1
                if now < 0:
                    now = self.time()
                if not self.take(connection, request, now, out):
                    self.width = 1
                    break
                at += request.frame_size
                if out.size > GATHERED_BYTES:
                    self.has_declined = False
                    break
        finally:
            self.is_serving = False
            if now >= 0:
                for handler in self.order:
                    if handler.has_begun:
                        handler.has_begun = False
                        handler.finish(connection)
        return at - data

    cdef int read_ahead(self, const uint8_t* at, const uint8_t* end) except -1:
        """How many requests were read: the next one and, where a check looks ahead, some behind it. Behind one that was handed
        over there are none at first, then ever more: of a stream that takes the general path little is read in vain."""
        cdef RequestCheck check
        cdef int count = 1
        if not self.reader.read(at, end, &self.requests[0]):
            return 0
        if not self.looks_ahead:
            return 1
        while count < self.width:
            at += self.requests[count - 1].frame_size
            if not self.reader.read_behind(at, end, &self.requests[count]):
                break
            count += 1
        self.width = min(2 * self.width, MOST_AHEAD)
        for check in self.checks:
            check.look_ahead(self.requests, count)
        return count

    cdef bint take(self, connection, Request* request, int64_t now, Out out) except -1:
        cdef NativeHandler handler
        cdef RequestCheck check
        for check in self.checks:
            if not check.passes(connection, request):
                return False
        for handler in <list>self.routes[request.place]:
            if not handler.has_begun:
                if not handler.begin(connection, now, out):
                    continue
                handler.has_begun = True
            if handler.take(request):
                return True
        return False

    cdef int64_t time(self) except -1:
        """By the machine's time a permit is asked once a millisecond: what it looks at, flush lag and disk and memory, is not
        known more exactly than that. Where a test moves the time, it is asked for each read."""
        cdef timespec time
        cdef NativeHandler handler
        if self.now_ms is not None:
            for handler in self.order:
                handler.asked_ms = -1
            return self.now_ms()
        clock_gettime(CLOCK_REALTIME, &time)
        return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1000000
