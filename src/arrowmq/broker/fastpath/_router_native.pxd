# The fast path's handlers as the router sees them; C only.

from libc.stdint cimport int64_t, uint8_t

from arrowmq.remoting._intake_native cimport FastPath
from arrowmq.wire.frames._out_native cimport Out
from arrowmq.wire.in_place._request_native cimport MAX_CODES, Request, RequestReader


cdef enum:
    HANDLERS_A_CODE = 3
    MOST_AHEAD = 16           # requests that are read before the first of them is served


cdef class NativeHandler:
    """Serves requests of some codes, where they are ordinary. All of them are asked for in `begin`, `take`, ..., `finish`."""
    cdef bint has_begun         # to serve frames of the read at hand
    cdef bint is_open           # as the permit said ...
    cdef int64_t asked_ms       # ... at this time; -1: it has to be asked

    # Whether requests may be served at this time, of this connection; their answers are put behind what is in `out`.
    cdef bint begin(self, connection, int64_t now, Out out) except -1
    # Ask the permit; called at most once a millisecond.
    cdef bint ask(self) except -1
    # Serve a request. False if it is not an ordinary one: then nothing happened.
    cdef bint take(self, Request* request) except -1
    # The frames that could be served are.
    cdef int finish(self, connection) except -1


cdef class RequestCheck:
    """A request hook in native form: what it passes, the hook need not see."""
    cdef bint looks_ahead       # at several requests together; they are read ahead for it
    # Requests of a connection, the first of which comes next. They may never come, or users and rights may change before
    # they do: nothing is decided here, and nothing of this is good for any other request.
    cdef int look_ahead(self, Request* requests, int count) except -1
    # Whether the hook would let this request pass. False hands it over, to the hook among others.
    cdef bint passes(self, connection, Request* request) except -1


cdef class Router(FastPath):
    cdef RequestReader reader
    cdef readonly dict handlers             # by name
    cdef list order                         # of all handlers
    cdef list routes                        # of each code in the reader's order: its handlers
    cdef list checks
    cdef object now_ms                      # None: the machine's own time
    cdef bint is_closed
    cdef bint is_serving
    cdef bint looks_ahead                   # for one of the checks
    cdef Request requests[MOST_AHEAD]       # that were read
    cdef int width                          # how many may be read at once

    cdef int read_ahead(self, const uint8_t* at, const uint8_t* end) except -1
    cdef bint take(self, connection, Request* request, int64_t now, Out out) except -1
    cdef int64_t time(self) except -1
