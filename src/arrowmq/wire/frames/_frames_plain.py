"""Frames in plain Python: the reference that the native module must agree with.

frame    0  4  length: the bytes that follow it
         4  4  header word: serialize type (0 JSON, 1 binary) in the top byte, header length in the other three
         8  H  header
       8+H  …  body

binary   0  2  code        2  1  language     3  2  version
header   5  4  opaque      9  4  flag        13  4  remark length, remark
            … 4  length of the ext map, then for each entry: 2 key length, key, 4 value length, value
"""

from __future__ import annotations

import re
import struct
from typing import Any

import msgspec

from arrowmq.wire import fastjson
from arrowmq.wire.codes import TRUNCATED_CODES, LanguageCode
from arrowmq.wire.command import RESPONSE_FLAG, SERIALIZE_JSON, SERIALIZE_ROCKETMQ, Command
from arrowmq.wire.errors import BodyError, FrameError

_WORD = struct.Struct(">I")
_SIGNED_WORD = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")
_BINARY_START = struct.Struct(">hBhiii")  # up to and with the remark's length
_FRAME_START = struct.Struct(">II")
_INT32 = 1 << 31
_DECIMAL = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)

_LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}
_LANGUAGE_CODES = {code.name: int(code) for code in LanguageCode}
_OTHER = int(LanguageCode.OTHER)

Buffer = bytes | bytearray | memoryview


class _JsonHeader(msgspec.Struct):
    code: int = 0
    extFields: dict[str, str] | None = None
    flag: int = 0
    language: str | None = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


_json_header = msgspec.json.Decoder(_JsonHeader)


def decode_frame(frame: Buffer) -> Command:
    """The command in `frame`, which is a whole frame without its length word."""
    if len(frame) < 4:
        raise FrameError(f"a frame of {len(frame)} bytes has no room for its header word", 0)
    word = _WORD.unpack_from(frame)[0]
    kind, header_length = word >> 24, word & 0xFFFFFF
    if header_length > len(frame) - 4:
        raise FrameError(f"the header claims {header_length} bytes, the frame holds {len(frame) - 4}", 0)
    header = bytes(frame[4 : 4 + header_length])
    if kind == SERIALIZE_JSON:
        command = _decode_json(header)
    elif kind == SERIALIZE_ROCKETMQ:
        command = _decode_binary(header)
    else:
        raise FrameError(f"serialize type {kind} does not exist", 0)
    command.body = bytes(frame[4 + header_length :])
    return command


def split(data: Buffer, max_bytes: int) -> tuple[list[Command], int]:
    """The commands at the beginning of `data` and the number of bytes they take; a cut-off frame is left for later.

    What cannot be read is an error only if no whole frame stands before it: the frames before it are served first.
    """
    commands: list[Command] = []
    position, end = 0, len(data)
    view = memoryview(data)
    while end - position >= 4:
        length = _WORD.unpack_from(view, position)[0]
        try:
            check_length(length, max_bytes, position)
            if end - position - 4 < length:
                break
            commands.append(decode_frame(view[position + 4 : position + 4 + length]))
        except FrameError:
            if commands:
                break
            raise
        position += 4 + length
    return commands, position


def check_length(length: int, max_bytes: int, position: int) -> None:
    if length < 4 or length > max_bytes - 4:
        raise FrameError(f"a frame of {length} bytes is not between 4 and {max_bytes - 4}", position)


def encode_frame(command: Command) -> bytes:
    """The whole frame of a command, with its length word."""
    body = command.body
    head = encode_head(command, len(body))
    return head + body if body else head


def encode_head(command: Command, body_length: int) -> bytes:
    """The frame of a command up to its body, for bodies that are written piece by piece."""
    for name, value in command.ext.items():
        # A Go client drops the connection over an ext value that is no string.
        if not isinstance(name, str) or not isinstance(value, str):
            raise FrameError(f"the ext field {name!r} holds {value!r}, and only text can be sent")
    if body_length < 0:
        raise FrameError(f"a body of {body_length} bytes does not exist")
    if command.serialize_type == SERIALIZE_JSON:
        header = _encode_json(command)
    elif command.serialize_type == SERIALIZE_ROCKETMQ:
        header = _encode_binary(command)
    else:
        raise FrameError(f"serialize type {command.serialize_type} does not exist")
    if len(header) > 0xFFFFFF:
        raise FrameError(f"a header of {len(header)} bytes does not fit in a frame")
    if body_length + len(header) + 4 > 0x7FFFFFFF:
        raise FrameError(f"a body of {body_length} bytes does not fit in a frame")
    word = (command.serialize_type << 24) | len(header)
    return _FRAME_START.pack(4 + len(header) + body_length, word) + header


# ------------------------------------------------------------------------------------------------------------- JSON


def _decode_json(header: bytes) -> Command:
    try:
        fields = _json_header.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_json_general(header)
    language = fields.language
    return Command(
        _int32(fields.code, "code"),
        _int32(fields.opaque, "opaque"),
        _int32(fields.flag, "flag"),
        _int32(fields.version, "version"),
        _OTHER if language is None else _LANGUAGE_CODES.get(language, _OTHER),
        fields.remark,
        fields.extFields,
    )


def decode_json_general(header: bytes) -> Command:
    """Reads what is not the plain form: fastjson's dialect, and ext values that are no strings (Node sends numbers)."""
    try:
        fields = fastjson.loads(header)
    except BodyError as wrong:
        raise FrameError(f"the JSON header cannot be read: {wrong.reason}", wrong.position) from wrong
    if not isinstance(fields, dict):
        raise FrameError("the JSON header is no object", 0)
    ext_fields = fields.get("extFields")
    if ext_fields is not None and not isinstance(ext_fields, dict):
        raise FrameError("extFields is no object", 0)
    remark = fields.get("remark")
    language = fields.get("language", "JAVA")
    return Command(
        _number(fields, "code"),
        _number(fields, "opaque"),
        _number(fields, "flag"),
        _number(fields, "version"),
        _LANGUAGE_CODES.get(language, _OTHER) if isinstance(language, str) else _OTHER,
        None if remark is None else as_text(remark),
        {str(name): as_text(value) for name, value in (ext_fields or {}).items() if value is not None},
    )


def as_text(value: Any) -> str:
    """A JSON value as Java turns it into text: signatures are made over this form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return fastjson.dumps(value).decode()


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise FrameError(f"{name} is {value[:40]!r}, which is no integer")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrameError(f"{name} is no integer")
    return _int32(value, name)


def _int32(value: int, name: str) -> int:
    if not -_INT32 <= value < _INT32:
        raise FrameError(f"{name} is {value}, which does not fit in 32 bits")
    return value


_encoder = msgspec.json.Encoder()


def _encode_json(command: Command) -> bytes:
    for name in ("code", "flag", "opaque", "version"):
        _int32(getattr(command, name), name)
    fields: dict[str, Any] = {"code": command.code}
    if command.ext:
        fields["extFields"] = command.ext
    fields["flag"] = command.flag
    fields["language"] = _LANGUAGE_NAMES.get(command.language, "OTHER")
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    try:
        return _encoder.encode(fields)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form; Java writes a question mark for it.
        return fastjson.dumps(fields)


# ----------------------------------------------------------------------------------------------------------- binary


def _decode_binary(header: bytes) -> Command:
    if len(header) < 21:
        raise FrameError(f"a binary header has at least 21 bytes, not {len(header)}", 4)
    code, language, version, opaque, flag, remark_length = _BINARY_START.unpack_from(header)
    position = _BINARY_START.size
    if not 0 <= remark_length <= len(header) - position - 4:
        raise FrameError(f"the remark claims {remark_length} bytes of a header of {len(header)}", position)
    remark = _text(header, position, remark_length) if remark_length else None
    position += remark_length
    ext_length = _SIGNED_WORD.unpack_from(header, position)[0]
    position += 4
    if not 0 <= ext_length <= len(header) - position:
        raise FrameError(f"the ext map claims {ext_length} bytes of a header of {len(header)}", position)
    if not flag & RESPONSE_FLAG:
        code = TRUNCATED_CODES.get(code, code)
    ext = _decode_map(header, position, position + ext_length)
    return Command(code, opaque, flag, version, language, remark, ext, b"", SERIALIZE_ROCKETMQ)


def _decode_map(header: bytes, position: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while position < end:
        if end - position < 2:
            raise FrameError("the ext map ends inside a key's length", position)
        key_length = _KEY_LENGTH.unpack_from(header, position)[0]
        position += 2
        if not 0 <= key_length <= end - position - 4:
            raise FrameError(f"a key of the ext map claims {key_length} bytes", position)
        key = _text(header, position, key_length)
        position += key_length
        value_length = _SIGNED_WORD.unpack_from(header, position)[0]
        position += 4
        if not 0 <= value_length <= end - position:
            raise FrameError(f"the value of {key[:40]!r} claims {value_length} bytes", position)
        if key:
            ext[key] = _text(header, position, value_length)
        position += value_length
    return ext


def _text(header: bytes, position: int, length: int) -> str:
    # Java replaces what is no UTF-8, and so do we: a bad byte in a remark is no reason to drop a connection.
    return header[position : position + length].decode("utf-8", "replace")


def _encode_binary(command: Command) -> bytes:
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    pieces: list[bytes] = []
    for key, value in command.ext.items():
        key_bytes, value_bytes = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key_bytes) > 0x7FFF:
            raise FrameError(f"the key {key[:40]!r} has {len(key_bytes)} bytes, the header allows 32767")
        pieces += (_KEY_LENGTH.pack(len(key_bytes)), key_bytes, _SIGNED_WORD.pack(len(value_bytes)), value_bytes)
    ext = b"".join(pieces)
    # A code above 32767 is cut, as Java cuts it; `full_code` undoes that for the pop requests.
    code = ((command.code & 0xFFFF) ^ 0x8000) - 0x8000
    version = ((command.version & 0xFFFF) ^ 0x8000) - 0x8000
    try:
        start = _BINARY_START.pack(code, command.language & 0xFF, version, command.opaque, command.flag, len(remark))
    except struct.error as wrong:
        raise FrameError(f"opaque {command.opaque} or flag {command.flag} does not fit in 32 bits") from wrong
    return b"".join((start, remark, _SIGNED_WORD.pack(len(ext)), ext))
