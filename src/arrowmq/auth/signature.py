"""Signatures of requests: HMAC-SHA1 with the password, in base64, over the header's values and the body.

    content     the values of all header fields but `Signature`, in the order of their names, then the body's bytes
    remoting    fields `AccessKey`, `Signature` and, of temporary credentials, `SecurityToken`
    gRPC        `authorization: MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=…, Signature=HEX`; the content is the
                value of `x-mq-date-time`

Clients differ in what they sign, and each of these forms binds everything a server acts on:

    clients up to 4.9.3       leave `_UNIQUE_KEY_QUERY` out, as Apache's broker does for them
    an empty value            is signed as the word `null` by clients that hold no text there, else as nothing
    zones                     `__ZONE_NAME`, `__ZONE_MODE` are added by the Java client after it has signed
    Go, temporary keys        sends the token and does not sign it
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping

from arrowmq.wire.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
ZONE_FIELDS = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
LAST_WITHOUT_UNIQUE_KEY_QUERY = 399  # V4_9_3

_NOT_SIGNED = frozenset({SIGNATURE})
_OLD_NOT_SIGNED = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})
_NULL = "null"
_SIGNATURE_BYTES = 20


def sign(ext: dict[str, str], body: bytes, access_key: str, password: bytes, security_token: str = "") -> None:
    """Puts the fields of a signed request into its header."""
    ext.pop(SIGNATURE, None)
    ext[ACCESS_KEY] = access_key
    if security_token:
        ext[SECURITY_TOKEN] = security_token
    ext[SIGNATURE] = b64encode(_digest(password, _content(ext, body, _NOT_SIGNED, ""))).decode()


def is_signed_with(password: bytes, command: Command) -> bool:
    """Whether a request bears the signature that this password gives. Takes as long for a wrong one."""
    given = _decode(command.ext.get(SIGNATURE))
    if given is None:
        return False
    return any(hmac.compare_digest(given, _digest(password, content)) for content in _contents(command))


def is_grpc_signed_with(password: bytes, signature: str, date_time: str) -> bool:
    """The same for a gRPC call's `Signature` and `x-mq-date-time`."""
    try:
        given = bytes.fromhex(signature)
    except ValueError:
        return False
    return hmac.compare_digest(given, _digest(password, date_time.encode()))


def read_authorization(header: str) -> tuple[str, str] | None:
    """Access key and signature of a gRPC `authorization` value; None where it has not both."""
    _, blank, fields = header.partition(" ")
    found: dict[str, str] = {}
    for field in fields.split(",") if blank else ():
        name, equals, value = field.strip().partition("=")
        if equals:
            found[name] = value
    access_key = found.get("Credential", "").partition("/")[0]
    signature = found.get("Signature", "")
    return (access_key, signature) if access_key and signature else None


def _contents(command: Command) -> Iterator[bytes]:
    """What a client may have signed, the usual first."""
    ext, body = command.ext, command.body
    is_old = command.version <= LAST_WITHOUT_UNIQUE_KEY_QUERY
    left_out: Collection[str] = _OLD_NOT_SIGNED if is_old else _NOT_SIGNED
    yield _content(ext, body, left_out, "")
    if "" in ext.values():
        yield _content(ext, body, left_out, _NULL)
    unsigned = {name for name in (*ZONE_FIELDS, SECURITY_TOKEN) if name in ext}
    if unsigned:
        yield _content(ext, body, {*left_out, *unsigned}, "")


def _content(ext: Mapping[str, str], body: bytes, left_out: Collection[str], empty: str) -> bytes:
    names = sorted(ext)
    if not all(map(str.isascii, names)):
        names.sort(key=_java_order)
    text = "".join([ext[name] or empty for name in names if name not in left_out])
    return text.encode("utf-8", "replace") + bytes(body)


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _digest(password: bytes, content: bytes) -> bytes:
    return hmac.digest(password, content, "sha1")


def _decode(signature: str | None) -> bytes | None:
    try:
        given = b64decode(signature or "", validate=True)
    except (binascii.Error, ValueError):
        return None
    return given if len(given) == _SIGNATURE_BYTES else None
