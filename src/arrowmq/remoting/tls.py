"""TLS, by Apache's settings, on the same port as plain connections.

    tls.server.mode                disabled: a TLS hello ends the connection; permissive (the default): both are served;
                                   enforcing: only TLS is
    tls.server.certPath, keyPath, keyPassword, trustCertPath
    tls.server.need.client.auth    none (the default), optional or require
    tls.enable                     true: connections that we make use TLS
    tls.client.authServer          false (the default): whoever answers is believed
    tls.client.certPath, keyPath, keyPassword, trustCertPath

Apache makes itself a certificate for tests when it has none. That is a promise of secrecy nobody can check, so here TLS
needs a certificate: without one a permissive server refuses TLS hellos and says so in its log.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import BaseProtocol, BufferedProtocol, Transport
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from arrowmq.config import ConfigError

HANDSHAKE_TIMEOUT_S = 10.0

MODES = ("disabled", "permissive", "enforcing")
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ServerTls:
    mode: str = "permissive"
    context: ssl.SSLContext | None = None

    @property
    def is_enforced(self) -> bool:
        return self.mode == "enforcing"


def server_tls(properties: Mapping[str, str]) -> ServerTls:
    """The server's side of the settings. Raises `ConfigError`."""
    mode = properties.get("tls.server.mode", "permissive").strip().lower()
    if mode not in MODES:
        raise ConfigError(f"tls.server.mode={mode}: expected {', '.join(MODES)}")
    if mode == "disabled" or not properties.get("tls.server.certPath"):
        if mode == "enforcing":
            raise ConfigError("tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath")
        return ServerTls(mode)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(context, properties, "tls.server")
    wanted = properties.get("tls.server.need.client.auth", "none").strip().lower()
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(f"tls.server.need.client.auth={wanted}: expected {', '.join(_CLIENT_AUTH)}")
    if wanted != "none":
        _load_trust(context, properties, "tls.server")
    context.verify_mode = _CLIENT_AUTH[wanted]
    return ServerTls(mode, context)


def client_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context for connections that we make, or None if they are plain."""
    is_enforced = properties.get("tls.server.mode", "").strip().lower() == "enforcing"
    if properties.get("tls.enable", "").strip().lower() != "true" and not is_enforced:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # brokers advertise addresses; what counts is who signed the certificate
    if properties.get("tls.client.authServer", "").strip().lower() == "true":
        _load_trust(context, properties, "tls.client")
    else:
        context.verify_mode = ssl.CERT_NONE
    if properties.get("tls.client.certPath"):
        _load_certificate(context, properties, "tls.client")
    return context


def _load_certificate(context: ssl.SSLContext, properties: Mapping[str, str], prefix: str) -> None:
    certificate, key = properties[f"{prefix}.certPath"], properties.get(f"{prefix}.keyPath")
    try:
        context.load_cert_chain(certificate, key or None, properties.get(f"{prefix}.keyPassword") or "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{prefix}.certPath={certificate}, keyPath={key}: cannot be loaded: {error}") from error


def _load_trust(context: ssl.SSLContext, properties: Mapping[str, str], prefix: str) -> None:
    path = properties.get(f"{prefix}.trustCertPath")
    if not path:
        raise ConfigError(f"checking the peer's certificate needs {prefix}.trustCertPath")
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{prefix}.trustCertPath={path}: cannot be loaded: {error}") from error


async def accept_tls(
    protocol: BaseProtocol, transport: Transport, context: ssl.SSLContext, received: bytes
) -> Transport:
    """Turn an accepted connection into a TLS one, although its hello has been read already.

    The loop puts its own protocol between the two; what was read is handed to that one before it reads by itself: its
    `connection_made` runs in the loop iteration after it was put there, and reading begins after that one.
    """
    loop = asyncio.get_running_loop()
    started = asyncio.ensure_future(
        loop.start_tls(transport, protocol, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S)
    )
    while transport.get_protocol() is protocol and not started.done():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    between = cast(BufferedProtocol, transport.get_protocol())
    while received and not started.done():
        buffer = memoryview(between.get_buffer(len(received)))
        piece, received = received[: len(buffer)], received[len(buffer) :]
        buffer[: len(piece)] = piece
        between.buffer_updated(len(piece))
    encrypted = await started
    if encrypted is None:
        raise ConnectionError("the peer went away")
    return encrypted
