"""Whose signature a request bears."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.auth import signature
from arrowmq.client.credentials import Credentials
from arrowmq.wire.frames import Command

SECRET = "s3cret-пароль"


def signed(content: str, body: bytes = b"", **ext: str) -> Command:
    """A request whose signature is over exactly this text."""
    digest = hmac.new(SECRET.encode(), content.encode() + body, hashlib.sha1).digest()
    return Command(310, ext={**ext, "Signature": base64.b64encode(digest).decode()}, body=body)


def is_good(command: Command) -> bool:
    return signature.is_signed_with(SECRET.encode(), command)


def test_values_are_signed_in_the_order_of_their_names_with_upper_case_first() -> None:
    assert is_good(signed("keyBAa", b"body", a="a", Z="A", B="B", AccessKey="key"))
    assert not is_good(signed("keyaAB", b"body", a="a", Z="A", B="B", AccessKey="key"))


def test_what_the_client_signs_is_accepted_and_any_change_of_it_is_not() -> None:
    command = Command(310, ext={"b": "orders", "i": "k\x01v\x02", "e": ""}, body=b"hello")
    Credentials("key", SECRET, "token").sign(command)
    assert is_good(command)
    for field in ("b", "i", "AccessKey"):
        changed = Command(310, ext={**command.ext, field: command.ext[field] + "x"}, body=command.body)
        assert not is_good(changed), field
    assert not is_good(Command(310, ext=command.ext, body=b"hellO"))
    assert not is_good(Command(310, ext={**command.ext, "new": "1"}, body=command.body))
    assert not signature.is_signed_with(b"another", command)


def test_an_empty_value_may_be_signed_as_null() -> None:
    assert is_good(signed("keynullT", AccessKey="key", a="", topic="T"))
    assert is_good(signed("keyT", AccessKey="key", a="", topic="T"))
    assert not is_good(signed("keynull", AccessKey="key", topic="T"))


@pytest.mark.parametrize(("version", "content"), [(399, "keyT"), (400, "keytrueT")])
def test_old_clients_do_not_sign_the_unique_key_mark(version: int, content: str) -> None:
    command = signed(content, AccessKey="key", _UNIQUE_KEY_QUERY="true", topic="T")
    command.version = version
    assert is_good(command)
    command.version = 799 - version
    assert not is_good(command)


def test_zones_and_tokens_that_clients_add_unsigned_do_no_harm() -> None:
    zones = {"__ZONE_NAME": "z", "__ZONE_MODE": "true"}
    assert is_good(signed("keyT", AccessKey="key", topic="T", **zones))
    assert is_good(signed("keyT", AccessKey="key", topic="T", SecurityToken="t"))
    assert not is_good(signed("keyT", AccessKey="key", topic="T", bname="other"))


@pytest.mark.parametrize("text", [None, "", "?", "AAAA", "A" * 28, "é" * 28, " " * 28, "A" * 100_000])
def test_what_is_no_signature_is_refused_quietly(text: str | None) -> None:
    command = Command(310, ext={"AccessKey": "key"})
    if text is not None:
        command.ext["Signature"] = text
    assert not is_good(command)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), st.binary(max_size=40), st.text())
def test_any_header_and_body_can_be_signed_and_checked(ext: dict[str, str], body: bytes, other: str) -> None:
    ext = {name: value for name, value in ext.items() if name != "Signature"}
    command = Command(10, ext=ext, body=body)
    signature.sign(command.ext, body, "key", b"secret")
    assert signature.is_signed_with(b"secret", command)
    command.ext["Signature"] = other
    signature.is_signed_with(b"secret", command)


def test_a_grpc_call_is_signed_over_its_time() -> None:
    digest = hmac.new(b"secret", b"20261117T120000Z", hashlib.sha1).hexdigest()
    header = f"MQv2-HMAC-SHA1 Credential=key/x/y, SignedHeaders=x-mq-date-time, Signature={digest.upper()}"
    assert ("key", digest.upper()) == signature.read_authorization(header)
    assert signature.is_grpc_signed_with(b"secret", digest, "20261117T120000Z")
    assert not signature.is_grpc_signed_with(b"secret", digest, "20261117T120001Z")
    assert not signature.is_grpc_signed_with(b"secret", "no hex", "20261117T120000Z")
    for broken in ("", "MQv2", "MQv2 Credential=", "MQv2 Credential=key", "MQv2 Signature=00"):
        assert signature.read_authorization(broken) is None
