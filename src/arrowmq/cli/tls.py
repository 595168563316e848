"""`arrowmq tls make`: an authority of one's own, and certificates that it signs, to try an encrypted cluster.

    arrowmq tls make
    arrowmq server --set tls.config.file=tls/tls.properties

Whoever holds `ca-key.pem` can be anybody in that cluster: for more than trying, let an authority that you have sign.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arrowmq.cli.cluster_link import Failure
from arrowmq.cli.examples import examples
from arrowmq.config import format_properties

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

PRIVATE = 0o600
CLOCKS_DIFFER = timedelta(hours=1)


@click.group("tls")
def tls_group() -> None:
    """Certificates for trying TLS."""


@tls_group.command(
    "make", epilog=examples("arrowmq tls make", "arrowmq server --set tls.config.file=tls/tls.properties")
)
@click.option(
    "--dir", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("tls"), show_default=True
)
@click.option("--host", "hosts", multiple=True, help="A name or address of the servers; again for more.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid.")
@click.option("--mutual", is_flag=True, help="Servers ask clients for a certificate as well.")
@click.option("--force", is_flag=True, help="Replace files that are there; a running server takes them over.")
def make(folder: Path, hosts: tuple[str, ...], days: int, mutual: bool, force: bool) -> None:
    """Make an authority, a server's and a client's certificate, and the settings that use them."""
    folder = folder.absolute()
    names = [*dict.fromkeys((*hosts, "localhost", socket.gethostname(), "127.0.0.1"))]
    settings = _settings(folder, mutual)
    wanted = ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "client.pem", "client-key.pem", "tls.properties"]
    there = [name for name in wanted if (folder / name).exists()]
    if there and not force:
        raise Failure(f"{folder} has {', '.join(there)} already: --force replaces them, --dir takes another folder")
    made = _make(names, days)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**made, "tls.properties": format_properties(settings).encode()}.items():
        _write(folder / name, data)
    click.echo(f"certificates for {', '.join(names)}, valid for {days} days, are in {folder}")
    click.echo(f"servers: arrowmq server --set tls.config.file={folder / 'tls.properties'}")
    click.echo(f"clients: arrowmq topic list --tls-ca {folder / 'ca.pem'}")


def _settings(folder: Path, mutual: bool) -> dict[str, str]:
    settings = {
        "tls.enable": "true",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(folder / "server.pem"),
        "tls.server.keyPath": str(folder / "server-key.pem"),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(folder / "ca.pem"),
        "tls.ha.mode": "permissive",  # slaves of Apache's copy as before
    }
    if mutual:
        settings |= {
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": str(folder / "ca.pem"),
            "tls.client.certPath": str(folder / "client.pem"),
            "tls.client.keyPath": str(folder / "client-key.pem"),
        }
    return settings


def _write(path: Path, data: bytes) -> None:
    """In one step: a server that watches the file never sees half of it."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE if "key" in path.name else 0o644)
    with open(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)


def _make(names: list[str], days: int) -> dict[str, bytes]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use
    except ImportError:
        raise Failure("making certificates needs a library: pip install 'arrowmq[tls]'") from None
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("ArrowMQ try-out authority", authority_key, None, authority_key, days, _of_authority())
    made = {"ca.pem": _pem(authority), "ca-key.pem": _key_pem(authority_key)}
    alternatives = x509.SubjectAlternativeName([_name(name) for name in names])
    for role, use, more in (("server", Use.SERVER_AUTH, [alternatives]), ("client", Use.CLIENT_AUTH, [])):
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([use]), False),
            *((extension, False) for extension in more),
        ]
        certificate = _certificate(f"ArrowMQ {role}", key, authority, authority_key, days, extensions)
        made |= {f"{role}.pem": _pem(certificate), f"{role}-key.pem": _key_pem(key)}
    return made


def _of_authority() -> list[tuple[Any, bool]]:
    from cryptography import x509

    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), True),
    ]


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    extensions: list[tuple[Any, bool]],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS 8, the one form that Java reads."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
