"""A frame's bytes to a command: C for `_frames_native`, no Python interface.

JSON headers are read by a small parser for the form that Java, Go and our own client write: one flat object without spaces,
ext values as strings. Anything else (Node's numbers, spaces, surrogate escapes, unknown members) and everything that is
wrong is handed to `_frames_plain`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint32_t
from libc.string cimport memcmp

from arrowmq.wire._bytes cimport get16, get32

from arrowmq.wire.frames import _frames_plain as plain
from arrowmq.wire.codes import TRUNCATED_CODES, LanguageCode
from arrowmq.wire.command import Command

cdef dict truncated_codes = TRUNCATED_CODES
cdef dict language_codes = {code.name.encode(): int(code) for code in LanguageCode}
cdef int OTHER = int(LanguageCode.OTHER)
cdef int JAVA = int(LanguageCode.JAVA)


cdef object read_frame(const unsigned char* frame, Py_ssize_t length):
    cdef uint32_t word
    cdef Py_ssize_t header_length
    cdef object command = None
    if length >= 4:
        word = <uint32_t>get32(frame)
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
    flag = get32(header + 9)
    remark_length = get32(header + 13)
    if remark_length < 0 or remark_length > length - position - 4:
        return None
    if remark_length:
        remark = PyUnicode_DecodeUTF8(<const char*>header + position, remark_length, "replace")
    position += remark_length
    ext_length = get32(header + position)
    position += 4
    if ext_length < 0 or ext_length > length - position:
        return None
    end = position + ext_length
    while position < end:
        if end - position < 2:
            return None
        key_length = get16(header + position)
        position += 2
        if key_length < 0 or key_length > end - position - 4:
            return None
        key = PyUnicode_DecodeUTF8(<const char*>header + position, key_length, "replace")
        position += key_length
        value_length = get32(header + position)
        position += 4
        if value_length < 0 or value_length > end - position:
            return None
        if key_length:
            ext[key] = PyUnicode_DecodeUTF8(<const char*>header + position, value_length, "replace")
        position += value_length
    code = get16(header)
    if not flag & 1:
        code = truncated_codes.get(code, code)
    return Command(
        code,
        get32(header + 5),
        flag,
        get16(header + 3),
        header[2],
        remark,
        ext,
        PyBytes_FromStringAndSize(<const char*>body, body_length),
        1,
    )


# Where the JSON parser stands. `failed` means: not the plain form, let the reference look at it.
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
    """A string; sets `failed` for anything that only the reference can judge."""
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
                # A surrogate is half a character: the reference joins it with the other half.
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
