"""What a core reports, how much it lets a peer do, and the codes of RFC 9113."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

Headers = list[tuple[bytes, bytes]]


class ErrorCode(IntEnum):
    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


#  An event is a tuple: what happened, on which stream (0: the connection), and what came with it.
#
#   HEADERS   stream   Headers            a request has begun
#   DATA      stream   bytes              a piece of its body
#   END       stream   None               nothing more comes of it (after its trailers, which are not reported)
#   RESET     stream   error code         it was cancelled; nothing can be sent on it any more
#   DRAINED   stream   None               everything that waited for the peer's window has been sent
#   PONG      0        bytes              the answer to our ping
#   GOAWAY    0        error code         the peer is about to leave
#   REQUEST   stream   (Headers, bytes)   a whole request: HEADERS, one DATA and END in one, where a core merges them
HEADERS, DATA, END, RESET, DRAINED, PONG, GOAWAY, REQUEST = range(8)

Event = tuple[int, int, Headers | bytes | int | tuple[Headers, bytes] | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may ask of us. A peer that goes beyond is told ENHANCE_YOUR_CALM and hung up on."""

    concurrent_streams: int = 4096
    #: Names and values of one request, with 32 bytes for each as HPACK counts them
    header_list_bytes: int = 64 * 1024
    #: Frames that a header block may be cut into
    continuations: int = 64
    frame_bytes: int = 16 * 1024
    #: Sent to us on one stream before we say that we can take more
    stream_window_bytes: int = 1024 * 1024
    connection_window_bytes: int = 4 * 1024 * 1024
    #: Frames that ask for nothing (SETTINGS, PING, PRIORITY, empty DATA, windows opened by little) between two
    #: requests, or between two calls of `relax`
    idle_frames: int = 1000
    #: Requests that may be cancelled before they are answered, beyond those that were answered; half of them are
    #: forgotten at each `relax`
    cancelled_streams: int = 1000
