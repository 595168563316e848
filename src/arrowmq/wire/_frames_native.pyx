"""Frames, compiled. `_frames_plain` has the layout and says what is right; this says it faster.

JSON headers are read by a small parser for the form that Java, Go and our own client write: one flat object without spaces,
ext values as strings. Anything else (Node's numbers, spaces, surrogate escapes, unknown members) and everything that is
wrong is handed to the plain twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from arrowmq.wire import _frames_plain as plain
from arrowmq.wire.codes import TRUNCATED_CODES, LanguageCode
from arrowmq.wire.command import Command
from arrowmq.wire.errors import FrameError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef dict truncated_codes = TRUNCATED_CODES
cdef dict language_codes = {code.name.encode(): int(code) for code in LanguageCode}
cdef dict language_names = {int(code): code.name for code in LanguageCode}
cdef int OTHER = int(LanguageCode.OTHER)
cdef int JAVA = int(LanguageCode.JAVA)

cdef inline uint32_t read_uint32(const unsigned char* data) noexcept nogil:
    return (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]


cdef inline int32_t read_int16(const unsigned char* data) noexcept nogil:
    return <int32_t>(<short>((<uint16_t>data[0] << 8) | data[1]))


cdef inline void put_uint32(unsigned char* target, uint32_t value) noexcept nogil:
    target[0] = <unsigned char>(value >> 24)
    target[1] = <unsigned char>(value >> 16)
    target[2] = <unsigned char>(value >> 8)
    target[3] = <unsigned char>value


# --------------------------------------------------------------------------------------------------------- reading


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
            length = read_uint32(start)
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


cdef object read_frame(const unsigned char* frame, Py_ssize_t length):
    cdef uint32_t word
    cdef Py_ssize_t header_length
    cdef object command = None
    if length >= 4:
        word = read_uint32(frame)
        header_length = word & 0xFFFFFF
        if header_length <= length - 4:
            if word >> 24 == 0:
                command = read_json(frame + 4, header_length, frame + 4 + header_length, length - 4 - header_length)
            elif word >> 24 == 1:
                command = read_binary(frame + 4, header_length, frame + 4 + header_length, length - 4 - header_length)
    if command is None:
        return plain.decode_frame(PyBytes_FromStringAndSize(<const char*>frame, length))
    return command


cdef object read_binary(
    const unsigned char* header, Py_ssize_t length, const unsigned char* body, Py_ssize_t body_length
):
    """The command, or None if the header is damaged."""
    cdef Py_ssize_t position = 17, remark_length, ext_length, end, key_length, value_length
    cdef int32_t flag
    cdef object remark = None, key
    cdef dict ext = {}
    if length < 21:
        return None
    flag = <int32_t>read_uint32(header + 9)
    remark_length = <int32_t>read_uint32(header + 13)
    if remark_length < 0 or remark_length > length - position - 4:
        return None
    if remark_length:
        remark = PyUnicode_DecodeUTF8(<const char*>header + position, remark_length, "replace")
    position += remark_length
    ext_length = <int32_t>read_uint32(header + position)
    position += 4
    if ext_length < 0 or ext_length > length - position:
        return None
    end = position + ext_length
    while position < end:
        if end - position < 2:
            return None
        key_length = read_int16(header + position)
        position += 2
        if key_length < 0 or key_length > end - position - 4:
            return None
        key = PyUnicode_DecodeUTF8(<const char*>header + position, key_length, "replace")
        position += key_length
        value_length = <int32_t>read_uint32(header + position)
        position += 4
        if value_length < 0 or value_length > end - position:
            return None
        if key_length:
            ext[key] = PyUnicode_DecodeUTF8(<const char*>header + position, value_length, "replace")
        position += value_length
    code = read_int16(header)
    if not flag & 1:
        code = truncated_codes.get(code, code)
    return Command(
        code,
        <int32_t>read_uint32(header + 5),
        flag,
        read_int16(header + 3),
        header[2],
        remark,
        ext,
        PyBytes_FromStringAndSize(<const char*>body, body_length),
        1,
    )


# Where the JSON parser stands. `failed` means: not the plain form, let the twin look at it.
cdef struct Reader:
    const unsigned char* at
    const unsigned char* end
    bint failed


cdef object read_json(
    const unsigned char* header, Py_ssize_t length, const unsigned char* body, Py_ssize_t body_length
):
    cdef Reader reader
    cdef int64_t code = 0, flag = 0, opaque = 0, version = 0
    cdef int language = JAVA
    cdef object remark = None
    cdef dict ext = None
    cdef const unsigned char* key
    cdef Py_ssize_t key_length
    reader.at = header
    reader.end = header + length
    reader.failed = False
    if length < 2 or header[0] != b"{" or header[length - 1] != b"}":
        return None
    reader.at += 1
    while True:
        key = plain_string(&reader, &key_length)
        if reader.failed or not take(&reader, b":"):
            return None
        if key_length == 4 and memcmp(key, b"code", 4) == 0:
            code = read_number(&reader)
        elif key_length == 4 and memcmp(key, b"flag", 4) == 0:
            flag = read_number(&reader)
        elif key_length == 6 and memcmp(key, b"opaque", 6) == 0:
            opaque = read_number(&reader)
        elif key_length == 7 and memcmp(key, b"version", 7) == 0:
            version = read_number(&reader)
        elif key_length == 8 and memcmp(key, b"language", 8) == 0:
            key = plain_string(&reader, &key_length)
            if reader.failed:
                return None
            language = language_codes.get(PyBytes_FromStringAndSize(<const char*>key, key_length), OTHER)
        elif key_length == 6 and memcmp(key, b"remark", 6) == 0:
            remark = read_string(&reader)
        elif key_length == 9 and memcmp(key, b"extFields", 9) == 0:
            ext = read_fields(&reader)
        elif key_length == 23 and memcmp(key, b"serializeTypeCurrentRPC", 23) == 0:
            plain_string(&reader, &key_length)
        else:
            return None
        if reader.failed:
            return None
        if take(&reader, b","):
            continue
        if take(&reader, b"}") and reader.at == reader.end:
            break
        return None
    return Command(
        code,
        opaque,
        flag,
        version,
        language,
        remark,
        ext,
        PyBytes_FromStringAndSize(<const char*>body, body_length),
        0,
    )


cdef inline bint take(Reader* reader, unsigned char wanted) noexcept nogil:
    if reader.at < reader.end and reader.at[0] == wanted:
        reader.at += 1
        return True
    return False


cdef int64_t read_number(Reader* reader) noexcept nogil:
    """A 32-bit integer."""
    cdef bint is_negative = take(reader, b"-")
    cdef int64_t value = 0
    cdef int digits = 0
    while reader.at < reader.end and 48 <= reader.at[0] <= 57 and digits < 11:
        value = value * 10 + (reader.at[0] - 48)
        reader.at += 1
        digits += 1
    if is_negative:
        value = -value
    if digits == 0 or digits > 10 or value > INT32_MAX or value < INT32_MIN:
        reader.failed = True
    return value


cdef const unsigned char* plain_string(Reader* reader, Py_ssize_t* length) noexcept nogil:
    """The inside of a string of printable ASCII without escapes."""
    cdef const unsigned char* start
    if not take(reader, b'"'):
        reader.failed = True
        return NULL
    start = reader.at
    while reader.at < reader.end:
        if reader.at[0] == b'"':
            length[0] = reader.at - start
            reader.at += 1
            return start
        if reader.at[0] < 0x20 or reader.at[0] >= 0x7F or reader.at[0] == b"\\":
            break
        reader.at += 1
    reader.failed = True
    return NULL


cdef dict read_fields(Reader* reader):
    cdef dict ext = {}
    cdef object key, value
    if not take(reader, b"{"):
        reader.failed = True
        return None
    if take(reader, b"}"):
        return ext
    while True:
        key = read_string(reader)
        if reader.failed or not take(reader, b":"):
            reader.failed = True
            return None
        value = read_string(reader)
        if reader.failed:
            return None
        ext[key] = value
        if take(reader, b","):
            continue
        if not take(reader, b"}"):
            reader.failed = True
        return ext


cdef object read_string(Reader* reader):
    """A string; sets `failed` for anything that only the twin can judge."""
    cdef const unsigned char* start
    cdef Py_ssize_t escapes = 0
    cdef unsigned char letter
    if not take(reader, b'"'):
        reader.failed = True
        return None
    start = reader.at
    while reader.at < reader.end:
        letter = reader.at[0]
        reader.at += 1
        if letter == b'"':
            break
        if letter < 0x20:
            reader.failed = True
            return None
        if letter == b"\\":
            escapes += 1
            reader.at += 1  # what follows it is looked at when the string is unescaped
    else:
        reader.failed = True
        return None
    if escapes:
        return unescaped(reader, start, reader.at - 1)
    return decoded(reader, start, reader.at - 1 - start)


cdef object decoded(Reader* reader, const unsigned char* start, Py_ssize_t length):
    try:
        return PyUnicode_DecodeUTF8(<const char*>start, length, NULL)
    except UnicodeDecodeError:
        reader.failed = True
        return None


cdef object unescaped(Reader* reader, const unsigned char* at, const unsigned char* end):
    # No escape is shorter than what it stands for.
    cdef unsigned char* text = <unsigned char*>PyMem_Malloc(end - at)
    cdef Py_ssize_t length = 0
    cdef unsigned char letter
    cdef int32_t unit
    if text == NULL:
        raise MemoryError
    try:
        while at < end:
            if at[0] != b"\\":
                text[length] = at[0]
                length += 1
                at += 1
                continue
            if end - at < 2:
                reader.failed = True
                return None
            letter = at[1]
            at += 2
            if letter == b"u":
                unit = hexadecimal(at, end)
                at += 4
                # A surrogate is half a character: the twin joins it with the other half.
                if unit < 0 or 0xD800 <= unit <= 0xDFFF:
                    reader.failed = True
                    return None
                length += put_utf8(text + length, unit)
                continue
            if letter == b"n":
                letter = 10
            elif letter == b"t":
                letter = 9
            elif letter == b"r":
                letter = 13
            elif letter == b"b":
                letter = 8
            elif letter == b"f":
                letter = 12
            elif letter != b'"' and letter != b"\\" and letter != b"/":
                reader.failed = True
                return None
            text[length] = letter
            length += 1
        return decoded(reader, text, length)
    finally:
        PyMem_Free(text)


cdef int32_t hexadecimal(const unsigned char* at, const unsigned char* end) noexcept nogil:
    cdef int32_t value = 0
    cdef int index
    cdef unsigned char digit
    if end - at < 4:
        return -1
    for index in range(4):
        digit = at[index]
        if 48 <= digit <= 57:
            digit -= 48
        elif 65 <= digit <= 70:
            digit -= 55
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return -1
        value = value << 4 | digit
    return value


cdef Py_ssize_t put_utf8(unsigned char* target, int32_t unit) noexcept nogil:
    if unit < 0x80:
        target[0] = unit
        return 1
    if unit < 0x800:
        target[0] = 0xC0 | (unit >> 6)
        target[1] = 0x80 | (unit & 0x3F)
        return 2
    target[0] = 0xE0 | (unit >> 12)
    target[1] = 0x80 | ((unit >> 6) & 0x3F)
    target[2] = 0x80 | (unit & 0x3F)
    return 3


# --------------------------------------------------------------------------------------------------------- writing


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
            target[4] = b"0" + (letter >> 4)
            target[5] = (b"0" if letter & 15 < 10 else b"W") + (letter & 15)
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


cdef int put_word(Writer* writer, uint32_t value) except -1:
    need(writer, 4)
    put_uint32(writer.data + writer.length, value)
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
    writer.data[writer.length] = <unsigned char>(code >> 8)
    writer.data[writer.length + 1] = <unsigned char>code
    writer.data[writer.length + 2] = command.language & 0xFF
    writer.data[writer.length + 3] = <unsigned char>(version >> 8)
    writer.data[writer.length + 4] = <unsigned char>version
    writer.length += 5
    put_word(writer, <uint32_t>opaque)
    put_word(writer, <uint32_t>flag)
    if remark:
        text = PyUnicode_AsUTF8AndSize(<str?>remark, &length)
        put_word(writer, <uint32_t>length)
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
        writer.data[writer.length] = <unsigned char>(length >> 8)
        writer.data[writer.length + 1] = <unsigned char>length
        writer.length += 2
        put(writer, text, length)
        text = PyUnicode_AsUTF8AndSize(<str?><object>value, &length)
        put_word(writer, <uint32_t>length)
        put(writer, text, length)
    put_uint32(writer.data + ext_start, <uint32_t>(writer.length - ext_start - 4))
    return 0


cdef bytes write_frame(object command, Py_ssize_t body_length, bytes body):
    """The frame with `body`, or without it if that is None; None if the twin must find out what is wrong."""
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
        put_uint32(writer.data, <uint32_t>(4 + header_length + body_length))
        put_uint32(writer.data + 4, (<uint32_t>kind << 24) | <uint32_t>header_length)
        if body is None or body_length == 0:
            return PyBytes_FromStringAndSize(<const char*>writer.data, writer.length)
        frame = PyBytes_FromStringAndSize(NULL, writer.length + body_length)
        memcpy(PyBytes_AS_STRING(frame), writer.data, writer.length)
        memcpy(PyBytes_AS_STRING(frame) + writer.length, PyBytes_AS_STRING(body), body_length)
        return frame
    finally:
        PyMem_Free(writer.data)


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
