"""TLS, by Apache's settings, on the same port as plain connections.

    tls.server.mode                disabled: a TLS hello ends the connection; permissive (the default): both are served;
                                   enforcing: only TLS is
    tls.server.certPath, keyPath, keyPassword, trustCertPath
    tls.server.need.client.auth    none (the default), optional or require
    tls.server.authClient          whether the certificates of clients are checked: where one is asked for it is, so
                                   only `true` beside optional or require, and `false` beside none, can be meant
    tls.enable                     true: connections that we make use TLS
    tls.client.authServer          false (the default): whoever answers is believed
    tls.client.certPath, keyPath, keyPassword, trustCertPath
    tls.config.file                a file with these keys; it wins, as at Apache

Of our own, for either side: `minVersion` and `maxVersion` (TLSv1.2 or TLSv1.3; from TLSv1.2 on by default), `ciphers`
(OpenSSL's list, for TLSv1.2; those of TLSv1.3 are all good ones). A key that nobody knows is refused: with a typing
error in `certPath` a server would serve plain connections.

Apache makes itself a certificate for tests when it has none. That is a promise of secrecy nobody can check, so here TLS
needs a certificate: without one a permissive server refuses TLS hellos and says so in its log.

Contexts are exchanged whole when files change (`reload.py`), so one is looked up for each connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arrowmq.config import ConfigError, read_properties

HANDSHAKE_TIMEOUT_S = 10.0

MODES = ("disabled", "permissive", "enforcing")
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

FILE_KEYS = tuple(
    f"tls.{side}.{name}" for side in ("server", "client") for name in ("certPath", "keyPath", "trustCertPath")
)
KEYS = frozenset(
    {
        "tls.enable",
        "tls.config.file",
        "tls.test.mode.enable",
        "tls.server.mode",
        "tls.server.need.client.auth",
        "tls.server.authClient",
        "tls.client.authServer",
        "tls.ha.mode",  # of replication: `arrowmq.replica.encrypted`
        *FILE_KEYS,
        *(
            f"tls.{side}.{name}"
            for side in ("server", "client")
            for name in ("keyPassword", "minVersion", "maxVersion", "ciphers")
        ),
    }
)


@dataclass(slots=True)
class ServerTls:
    """What a server does with a TLS hello; `context` may be another one for the next connection."""

    mode: str = "permissive"
    context: ssl.SSLContext | None = None

    @property
    def is_enforced(self) -> bool:
        return self.mode == "enforcing"


@dataclass(slots=True)
class ClientTls:
    """What connections that we make are encrypted with; `context` may be another one for the next."""

    context: ssl.SSLContext


OutgoingTls = ssl.SSLContext | ClientTls


def context_of(tls: OutgoingTls | None) -> ssl.SSLContext | None:
    return tls.context if isinstance(tls, ClientTls) else tls


def tls_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The TLS keys among the settings, with those of `tls.config.file`. Raises `ConfigError`."""
    found = {key: text.strip() for key, text in properties.items() if key.startswith("tls.")}
    if found.get("tls.config.file"):
        found |= {key: text.strip() for key, text in read_properties(found["tls.config.file"]).items()}
    unknown = sorted(found.keys() - KEYS)
    if unknown:
        raise ConfigError(f"{', '.join(unknown)}: there is no such setting of TLS; known are {', '.join(sorted(KEYS))}")
    if found.get("tls.test.mode.enable", "").lower() == "true" and not found.get("tls.server.certPath"):
        raise ConfigError(
            "tls.test.mode.enable=true: no certificate is made up here; make one with `arrowmq tls make`, "
            "and name it in tls.server.certPath and keyPath"
        )
    return found


def server_tls(properties: Mapping[str, str]) -> ServerTls:
    """The server's side of the settings. Raises `ConfigError`."""
    settings = tls_settings(properties)
    mode = settings.get("tls.server.mode", "permissive").lower()
    if mode not in MODES:
        raise ConfigError(f"tls.server.mode={mode}: expected {', '.join(MODES)}")
    if mode == "disabled" or not settings.get("tls.server.certPath"):
        if mode == "enforcing":
            raise ConfigError("tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath")
        return ServerTls(mode)
    return ServerTls(mode, server_context(settings))


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """A context from the files as they are now. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings, "tls.server")
    _load_certificate(context, settings, "tls.server")
    wanted = settings.get("tls.server.need.client.auth", "none").lower()
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(f"tls.server.need.client.auth={wanted}: expected {', '.join(_CLIENT_AUTH)}")
    if wanted != "none":
        _load_trust(context, settings, "tls.server")
    _refuse_unchecked(settings, wanted)
    context.verify_mode = _CLIENT_AUTH[wanted]
    return context


def _refuse_unchecked(settings: Mapping[str, str], wanted: str) -> None:
    """Apache asks for certificates by one key and checks them by another, which is off by default: a certificate that
    anybody made for themselves is good enough then. Here what is asked for is checked, and a pair that says otherwise
    is refused rather than read as something else."""
    checks = settings.get("tls.server.authClient", "").lower()
    if checks not in ("", "true", "false"):
        raise ConfigError(f"tls.server.authClient={checks}: expected true or false")
    if checks == "true" and wanted == "none":
        raise ConfigError(
            "tls.server.authClient=true checks certificates that no client is asked for: "
            "set tls.server.need.client.auth=require (or optional) and tls.server.trustCertPath"
        )
    if checks == "false" and wanted != "none":
        raise ConfigError(
            f"tls.server.authClient=false with tls.server.need.client.auth={wanted}: a certificate that is asked for "
            "is checked here; leave authClient out, or set need.client.auth=none"
        )


def client_tls(properties: Mapping[str, str]) -> ClientTls | None:
    """For connections that we make; None if they are plain. Raises `ConfigError`."""
    settings = tls_settings(properties)
    is_enforced = settings.get("tls.server.mode", "").lower() == "enforcing"
    if settings.get("tls.enable", "").lower() != "true" and not is_enforced:
        return None
    return ClientTls(client_context(settings))


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """A context from the files as they are now. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings, "tls.client")
    context.check_hostname = False  # brokers advertise addresses; what counts is who signed the certificate
    if settings.get("tls.client.authServer", "").lower() == "true":
        _load_trust(context, settings, "tls.client")
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.get("tls.client.certPath"):
        _load_certificate(context, settings, "tls.client")
    return context


def _restrict(context: ssl.SSLContext, settings: Mapping[str, str], prefix: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # what a system's own settings allow may be less
    for name, attribute in (("minVersion", "minimum_version"), ("maxVersion", "maximum_version")):
        text = settings.get(f"{prefix}.{name}", "")
        if text and text not in _VERSIONS:
            raise ConfigError(f"{prefix}.{name}={text}: expected {' or '.join(_VERSIONS)}")
        if text:
            setattr(context, attribute, _VERSIONS[text])
    ciphers = settings.get(f"{prefix}.ciphers", "")
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise ConfigError(f"{prefix}.ciphers={ciphers}: OpenSSL knows none of these") from None


def _load_certificate(context: ssl.SSLContext, settings: Mapping[str, str], prefix: str) -> None:
    certificate, key = settings[f"{prefix}.certPath"], settings.get(f"{prefix}.keyPath")
    try:
        context.load_cert_chain(certificate, key or None, settings.get(f"{prefix}.keyPassword") or "")
    except (OSError, ssl.SSLError, ValueError) as error:
        why = error.reason if isinstance(error, ssl.SSLError) and error.reason else error
        raise ConfigError(f"{prefix}.certPath={certificate}, keyPath={key}: cannot be loaded: {why}") from None


def _load_trust(context: ssl.SSLContext, settings: Mapping[str, str], prefix: str) -> None:
    path = settings.get(f"{prefix}.trustCertPath")
    if not path:
        raise ConfigError(f"checking the peer's certificate needs {prefix}.trustCertPath")
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{prefix}.trustCertPath={path}: cannot be loaded: {error}") from error


def watched_files(settings: Mapping[str, str]) -> list[Path]:
    """The files that contexts are made from."""
    return [Path(settings[key]) for key in FILE_KEYS if settings.get(key)]
