"""A command to a frame's bytes: C for `_frames_native`, no Python interface."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.string cimport memcpy

from arrowmq.wire._bytes cimport put16, put32

from arrowmq.wire.codes import LanguageCode

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef dict language_names = {int(code): code.name for code in LanguageCode}


cdef struct Writer:
    unsigned char* data
    Py_ssize_t length
    Py_ssize_t room


cdef int need(Writer* writer, Py_ssize_t more) except -1:
    cdef unsigned char* grown
    cdef Py_ssize_t room
    if writer.room - writer.length >= more:
        return 0
    room = (writer.length + more) * 2
    grown = <unsigned char*>PyMem_Realloc(writer.data, room)
    if grown == NULL:
        raise MemoryError
    writer.data = grown
    writer.room = room
    return 0


cdef int put(Writer* writer, const char* data, Py_ssize_t length) except -1:
    need(writer, length)
    memcpy(writer.data + writer.length, data, length)
    writer.length += length
    return 0


cdef int put_number(Writer* writer, int32_t number) except -1:
    cdef int64_t value = number
    cdef unsigned char digits[20]
    cdef int count = 0
    need(writer, 21)
    if value < 0:
        writer.data[writer.length] = b"-"
        writer.length += 1
        value = -value
    while True:
        digits[count] = 48 + value % 10
        count += 1
        value //= 10
        if value == 0:
            break
    while count:
        count -= 1
        writer.data[writer.length] = digits[count]
        writer.length += 1
    return 0


cdef int put_string(Writer* writer, str text) except -1:
    cdef Py_ssize_t length, index
    cdef const unsigned char* source = <const unsigned char*>PyUnicode_AsUTF8AndSize(text, &length)
    cdef unsigned char* target
    cdef unsigned char letter, short_form
    need(writer, 6 * length + 2)
    target = writer.data + writer.length
    target[0] = b'"'
    target += 1
    for index in range(length):
        letter = source[index]
        if letter >= 0x20 and letter != b'"' and letter != b"\\":
            target[0] = letter
            target += 1
            continue
        short_form = 0
        if letter == b'"' or letter == b"\\":
            short_form = letter
        elif letter == 8:
            short_form = b"b"
        elif letter == 9:
            short_form = b"t"
        elif letter == 10:
            short_form = b"n"
        elif letter == 12:
            short_form = b"f"
        elif letter == 13:
            short_form = b"r"
        target[0] = b"\\"
        if short_form:
            target[1] = short_form
            target += 2
        else:
            target[1] = b"u"
            target[2] = b"0"
            target[3] = b"0"
            target[4] = 48 + (letter >> 4)
            target[5] = (48 if letter & 15 < 10 else 87) + (letter & 15)
            target += 6
    target[0] = b'"'
    writer.length = target + 1 - writer.data
    return 0


cdef int write_json(Writer* writer, object command) except -1:
    cdef dict ext = command.ext
    cdef PyObject* key
    cdef PyObject* value
    cdef Py_ssize_t position = 0
    cdef bint is_first = True
    put(writer, b'{"code":', 8)
    put_number(writer, command.code)
    if ext:
        put(writer, b',"extFields":{', 14)
        while PyDict_Next(ext, &position, &key, &value):
            if not is_first:
                put(writer, b",", 1)
            is_first = False
            put_string(writer, <str?><object>key)
            put(writer, b":", 1)
            put_string(writer, <str?><object>value)
        put(writer, b"}", 1)
    put(writer, b',"flag":', 8)
    put_number(writer, command.flag)
    put(writer, b',"language":', 12)
    put_string(writer, language_names.get(command.language, "OTHER"))
    put(writer, b',"opaque":', 10)
    put_number(writer, command.opaque)
    remark = command.remark
    if remark is not None:
        put(writer, b',"remark":', 10)
        put_string(writer, <str?>remark)
    put(writer, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    put_number(writer, command.version)
    put(writer, b"}", 1)
    return 0


cdef int put_word(Writer* writer, int64_t value) except -1:
    need(writer, 4)
    put32(writer.data + writer.length, value)
    writer.length += 4
    return 0


cdef int write_binary(Writer* writer, object command) except -1:
    cdef dict ext = command.ext
    cdef PyObject* key
    cdef PyObject* value
    cdef Py_ssize_t position = 0, length, ext_start
    cdef const char* text
    cdef int64_t code = command.code, version = command.version
    cdef int32_t opaque = command.opaque, flag = command.flag
    cdef object remark = command.remark
    need(writer, 32)
    put16(writer.data + writer.length, code)
    writer.data[writer.length + 2] = command.language & 0xFF
    put16(writer.data + writer.length + 3, version)
    writer.length += 5
    put_word(writer, opaque)
    put_word(writer, flag)
    if remark:
        text = PyUnicode_AsUTF8AndSize(<str?>remark, &length)
        put_word(writer, length)
        put(writer, text, length)
    else:
        put_word(writer, 0)
    ext_start = writer.length
    put_word(writer, 0)
    while PyDict_Next(ext, &position, &key, &value):
        text = PyUnicode_AsUTF8AndSize(<str?><object>key, &length)
        if length > 0x7FFF:
            raise ValueError("the key is too long")
        need(writer, 2)
        put16(writer.data + writer.length, length)
        writer.length += 2
        put(writer, text, length)
        text = PyUnicode_AsUTF8AndSize(<str?><object>value, &length)
        put_word(writer, length)
        put(writer, text, length)
    put32(writer.data + ext_start, writer.length - ext_start - 4)
    return 0


cdef bytes write_frame(object command, Py_ssize_t body_length, bytes body):
    """The frame with `body`, or without it if that is None; None if the reference must find out what is wrong."""
    cdef Writer writer
    cdef Py_ssize_t header_length
    cdef int kind = command.serialize_type
    if kind != 0 and kind != 1:
        return None
    writer.room = 512
    writer.length = 8
    writer.data = <unsigned char*>PyMem_Malloc(writer.room)
    if writer.data == NULL:
        raise MemoryError
    try:
        try:
            if kind == 0:
                write_json(&writer, command)
            else:
                write_binary(&writer, command)
        except (TypeError, ValueError, OverflowError):  # a lone surrogate, a number too large, a value that is no text
            return None
        header_length = writer.length - 8
        if header_length > 0xFFFFFF or body_length > INT32_MAX - 4 - header_length:
            return None
        put32(writer.data, 4 + header_length + body_length)
        put32(writer.data + 4, (kind << 24) | header_length)
        if body is None or body_length == 0:
            return PyBytes_FromStringAndSize(<const char*>writer.data, writer.length)
        frame = PyBytes_FromStringAndSize(NULL, writer.length + body_length)
        memcpy(PyBytes_AS_STRING(frame), writer.data, writer.length)
        memcpy(PyBytes_AS_STRING(frame) + writer.length, PyBytes_AS_STRING(body), body_length)
        return frame
    finally:
        PyMem_Free(writer.data)
