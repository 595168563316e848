"""Frames, compiled. `_frames_plain` has the layout and says what is right; this says it faster."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

from arrowmq.wire._bytes cimport get32
from arrowmq.wire.frames._frame_reader_native cimport read_frame
from arrowmq.wire.frames._frame_writer_native cimport write_frame

from arrowmq.wire.frames import _frames_plain as plain
from arrowmq.wire.errors import FrameError


def decode_frame(frame):
    """The command in `frame`, which is a whole frame without its length word."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return read_frame(<const unsigned char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def split(data, Py_ssize_t max_bytes):
    """The commands at the beginning of `data` and the number of bytes they take; a cut-off frame is left for later."""
    cdef Py_buffer view
    cdef Py_ssize_t position = 0, length
    cdef const unsigned char* start
    cdef list commands = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= 4:
            start = <const unsigned char*>view.buf + position
            length = <uint32_t>get32(start)
            try:
                if length < 4 or length > max_bytes - 4:
                    plain.check_length(length, max_bytes, position)
                if view.len - position - 4 < length:
                    break
                commands.append(read_frame(start + 4, length))
            except FrameError:
                if commands:
                    break
                raise
            position += 4 + length
        return commands, position
    finally:
        PyBuffer_Release(&view)


def encode_frame(command):
    """The whole frame of a command, with its length word."""
    cdef object body = command.body
    cdef bytes frame = None
    if type(body) is bytes:
        frame = write_frame(command, PyBytes_GET_SIZE(body), body)
    return plain.encode_frame(command) if frame is None else frame


def encode_head(command, Py_ssize_t body_length):
    """The frame of a command up to its body, for bodies that are written piece by piece."""
    cdef bytes head = write_frame(command, body_length, None) if body_length >= 0 else None
    return plain.encode_head(command, body_length) if head is None else head
