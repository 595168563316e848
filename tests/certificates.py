"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(folder: Path) -> Path:
    """A certificate for this machine that signs itself; its key lies beside it as `key.pem`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder / "cert.pem"


_OTHER_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


class Authority:
    """An authority of its own, and certificates that it signs: each a pair of files NAME.pem, NAME-key.pem (PKCS 8)."""

    def __init__(self, folder: Path, name: str = "authority of a test") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._begin(self._name, self._key, timedelta(days=2))
        usage = dict.fromkeys(_OTHER_USES, False)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(
            x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True
        )
        (folder / "ca.pem").write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    @property
    def trust(self) -> Path:
        return self.folder / "ca.pem"

    def make(self, name: str, lasts: timedelta = timedelta(days=2), folder: Path | None = None) -> Path:
        """A certificate for this machine, server's or client's; one that lasts less than nothing has expired."""
        folder = folder or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        made = (
            self._begin(subject, key, lasts)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / f"{name}-key.pem").write_bytes(key.private_bytes(*form))
        (folder / f"{name}.pem").write_bytes(_pem(made))
        return folder / f"{name}.pem"

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=3))
            .not_valid_after(now + lasts)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def key_of(certificate: Path) -> Path:
    return certificate.with_name(f"{certificate.stem}-key.pem")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
