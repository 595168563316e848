"""Goal: what OpenSSL encrypts reaches the socket whole, by the native form as by the reference."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrowmq.remoting.tls import _outgoing_plain as plain
from certificates import self_signed

NATIVE = "arrowmq.remoting.tls._outgoing_native"
FORMS: list[Callable[[], Any]] = [plain.make_outgoing]
if find_spec(NATIVE):
    FORMS.append(import_module(NATIVE).make_outgoing)


class Connection:
    """A server's side that writes to an `Outgoing`, and its client."""

    def __init__(self, context: ssl.SSLContext, outgoing: Any) -> None:
        self.outgoing, self.incoming = outgoing, ssl.MemoryBIO()
        self.tls, self.line = outgoing.accept(context, self.incoming)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.into, self.out)
        for side in (self.client, self.tls, self.client, self.tls):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                assert side is not self.client or not self.into.pending
            self.incoming.write(self.out.read())
            self.into.write(outgoing.take())

    def read(self, data: bytes) -> bytes:
        self.into.write(data)
        found = b""
        while True:
            try:
                found += self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return found


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    certificate = self_signed(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


@pytest.fixture(params=FORMS, ids=["plain", "native"][: len(FORMS)])
def outgoing(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_the_native_form_is_what_this_python_uses() -> None:
    """Here OpenSSL is a library and the layout is known; else the reference serves, and nobody would notice."""
    for make in FORMS[1:]:
        assert NATIVE == type(make()).__module__


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.one_of(st.integers(0, 70_000), st.sampled_from([16_384, 16_385, 1_000_000])), max_size=6))
def test_what_was_encrypted_is_read_as_it_was(context: ssl.SSLContext, outgoing: Any, sizes: list[int]) -> None:
    connection = Connection(context, outgoing)
    written = b""
    for number, size in enumerate(sizes):
        data = bytes([number, *range(97)]) * (size // 98 + 1)
        connection.line.encrypt(memoryview(data)[:size])
        written += data[:size]
    assert (outgoing.pending > len(written)) == (len(written) > 0)
    encrypted = outgoing.take()
    assert 0 == outgoing.pending
    assert written == connection.read(encrypted)


def test_what_the_kernel_does_not_take_is_given_back(context: ssl.SSLContext, outgoing: Any) -> None:
    connection = Connection(context, outgoing)
    near, far = socket.socketpair()
    near.setblocking(False)
    data = bytes(range(256)) * 8192
    connection.line.encrypt(data)
    encrypted_bytes = outgoing.pending
    left = bytes(outgoing.send(near.fileno()))
    assert 0 < len(left) < encrypted_bytes
    assert 0 == outgoing.pending
    received = b""
    while len(received) + len(left) < encrypted_bytes:
        received += far.recv(1 << 20)
    assert data == connection.read(received + left)
    near.close()
    connection.line.encrypt(b"to nobody")
    assert outgoing.pending == len(outgoing.send(_closed_handle()))
    far.close()


def _closed_handle() -> int:
    handle, other = os.pipe()
    os.close(handle)
    os.close(other)
    return handle


def test_a_line_that_has_ended_encrypts_no_more_and_leaves_no_error_for_others(
    context: ssl.SSLContext, outgoing: Any
) -> None:
    ended, other = Connection(context, outgoing), Connection(context, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        ended.tls.unwrap()  # the close_notify is out
    outgoing.take()
    with pytest.raises(ssl.SSLError):
        ended.line.encrypt(b"too late")
    assert 0 == outgoing.pending
    with pytest.raises(ssl.SSLWantReadError):  # and no other error: OpenSSL keeps those of a thread in one queue
        other.tls.read(100)
    other.line.encrypt(b"still here")
    assert b"still here" == other.read(outgoing.take())


@pytest.mark.parametrize("make", FORMS)
def test_lines_may_outlive_what_they_wrote_to(context: ssl.SSLContext, make: Callable[[], Any]) -> None:
    connections = [Connection(context, make()) for _ in range(3)]
    for connection in connections:
        connection.outgoing = None
    gc.collect()
    for connection in connections:
        connection.line.encrypt(b"x" * 500_000)
    assert b"" == connections[0].read(b"")


def test_a_long_answer_does_not_keep_the_native_buffer_long(context: ssl.SSLContext) -> None:
    for make in FORMS[1:]:
        outgoing = make()
        connection = Connection(context, outgoing)
        before = _resident_kib()
        for _ in range(3):
            connection.line.encrypt(bytes(64 << 20))
            outgoing.take()
        assert _resident_kib() - before < 32 << 10


def _resident_kib() -> int:
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def test_a_python_that_has_openssl_built_in_uses_the_reference() -> None:
    code = f"import _ssl; del _ssl.__file__; import {NATIVE} as native; print(type(native.make_outgoing()).__module__)"
    for _ in FORMS[1:]:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
        assert plain.__name__ == done.stdout.strip()
