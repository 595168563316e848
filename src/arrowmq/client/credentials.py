"""Signing of requests with an access key and a secret key, as brokers with access control demand.

The signature covers the values of all header fields, sorted by name, and the body.
"""

from __future__ import annotations

from arrowmq.auth.signature import sign
from arrowmq.wire.frames import Command


class Credentials:
    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        if not access_key or not secret_key:
            raise ValueError("credentials are an access key and a secret key, neither of them empty")
        self._access_key = access_key
        self._secret = secret_key.encode()
        self._security_token = security_token

    def sign(self, request: Command) -> None:
        sign(request.ext, request.body, self._access_key, self._secret, self._security_token)
