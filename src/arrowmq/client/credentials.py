"""Signing of requests with an access key and a secret key, as brokers with access control demand.

The signature covers the values of all header fields, sorted by name, and the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from arrowmq.wire.frames import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


class Credentials:
    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        if not access_key or not secret_key:
            raise ValueError("credentials are an access key and a secret key, neither of them empty")
        self._access_key = access_key
        self._secret = secret_key.encode()
        self._security_token = security_token

    def sign(self, request: Command) -> None:
        ext = request.ext
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = self._access_key
        if self._security_token:
            ext[SECURITY_TOKEN] = self._security_token
        signed = "".join(ext[name] for name in sorted(ext)).encode() + bytes(request.body)
        ext[SIGNATURE] = base64.b64encode(hmac.new(self._secret, signed, hashlib.sha1).digest()).decode()
