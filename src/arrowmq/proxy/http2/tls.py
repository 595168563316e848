"""TLS of the gRPC port: HTTP/2 is agreed on by ALPN, and most clients of the 5.x line begin with it.

tlsCertPath, tlsKeyPath, tlsKeyPassword     the certificate; the files are read again when they change
tlsTestModeEnable                           true (the default, as Apache's): without files, a certificate that the
                                            proxy makes for itself at its start, which no client can check
tls.server.mode                             disabled, permissive (the default: both on one port) or enforcing
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
from pathlib import Path

from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import MODES

log = logging.getLogger(__name__)

_FILES = tuple[int, int]


class ProxyTls:
    """The server's context, and when to make a new one."""

    def __init__(
        self,
        *,
        mode: str = "permissive",
        certificate: str = "",
        key: str = "",
        password: str = "",
        is_test: bool = True,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"tls.server.mode={mode}: expected {', '.join(MODES)}")
        self.mode = mode
        self.why_not = "tls.server.mode=disabled"
        self.context: ssl.SSLContext | None = None
        self._certificate, self._key, self._password = certificate, key, password
        self._seen: tuple[int, ...] = ()
        if mode == "disabled":
            return
        if certificate:
            self._seen = self._times()
            self.context = self._load()
        elif is_test:
            self._use_own_certificate()
        else:
            self.why_not = "there is no certificate: set tlsCertPath and tlsKeyPath"
        if self.context is None and mode == "enforcing":
            raise ConfigError(f"tls.server.mode=enforcing: {self.why_not}")

    @property
    def is_enforced(self) -> bool:
        return self.mode == "enforcing"

    def reload(self) -> None:
        """Use the files as they are now; ones that cannot be used leave what was."""
        if not self._certificate or self.context is None:
            return
        try:
            seen = self._times()
            if seen == self._seen:
                return
            self.context = self._load()
            self._seen = seen
            log.info("certificate read again path=%s", self._certificate)
        except (ConfigError, OSError) as error:
            log.warning("the certificate is not read again: %s", error)

    def _times(self) -> tuple[int, ...]:
        return tuple(
            Path(path).stat().st_mtime_ns for path in (self._certificate, self._key) if path and os.path.exists(path)
        )

    def _load(self) -> ssl.SSLContext:
        context = _new_context()
        try:
            context.load_cert_chain(self._certificate, self._key or None, self._password or "")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"tlsCertPath={self._certificate}, tlsKeyPath={self._key}: cannot be loaded: {error}"
            ) from error
        return context

    def _use_own_certificate(self) -> None:
        try:
            import cryptography  # noqa: F401
        except ModuleNotFoundError:
            self.why_not = (
                "there is no certificate: set tlsCertPath and tlsKeyPath, or `pip install arrowmq[tls]` "
                "for one that the proxy makes itself"
            )
            return
        context = _new_context()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "proxy.pem"
            path.touch(0o600)
            path.write_bytes(_own_certificate())
            context.load_cert_chain(path)
        self.context = context


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


def _own_certificate() -> bytes:
    """Key and certificate for this run alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "arrowmq-proxy")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
