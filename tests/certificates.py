"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


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
