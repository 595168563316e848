"""What is fuzzed of users and rights: signed frames, policies, names, files of accounts, certificates.

Beyond being answered with an error of their own kind, inputs must give nobody a right: a frame that passes bears, in
all that is signed, what its user signed.
"""

from __future__ import annotations

import logging
import os
import tempfile
from functools import cache
from pathlib import Path

from target import Target

from arrowmq.auth.access import Access
from arrowmq.auth.account_book import AccountBook
from arrowmq.auth.accounts import decode_accounts, encode_accounts
from arrowmq.auth.audit import Audit
from arrowmq.auth.errors import AccountError, Denied
from arrowmq.auth.plain_acl import read_plain_acl
from arrowmq.auth.policies import parse_acl
from arrowmq.auth.settings import AuthSettings
from arrowmq.auth.signature import SIGNATURE, sign
from arrowmq.auth.users import User, UserType, new_user
from arrowmq.clock import SystemClock
from arrowmq.config import ConfigError
from arrowmq.remoting.tls.settings import client_tls, server_tls
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command, decode_frame, encode_frame
from certificates import Authority, key_of

SECRET = "a secret that must not be told"
TIME = "20260101T000000Z"


def tells_nothing(fault: Exception) -> None:
    assert SECRET not in str(fault)


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="arrowmq-fuzz-access-"))


@cache
def _access() -> Access:
    logging.getLogger("arrowmq.audit").setLevel(logging.CRITICAL)  # thousands of refusals
    book = AccountBook(_folder())
    settings = AuthSettings(is_authenticating=True, is_authorizing=True)
    made = Access(settings, book, "C", Audit("fuzzed", SystemClock()))
    rights = {"resource": "Topic:mine", "actions": ["Pub"], "decision": "Allow"}
    body = {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [rights]}]}
    acl = parse_acl(fastjson.loads(fastjson.dumps(body), type=AclInfo))
    book.change_now(
        lambda accounts: (
            accounts.with_new_user(User("ann", SECRET))
            .with_new_user(User("root", "another", UserType.SUPER))
            .with_acl(acl)
        )
    )
    return made


def _signed_send(topic: str, body: bytes, serialize_type: int) -> Command:
    ext = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0"}
    command = Command.request(310, ext, body)
    command.serialize_type = serialize_type
    sign(command.ext, body, "ann", SECRET.encode())
    return command


@cache
def signed_frames() -> list[bytes]:
    sends = [
        _signed_send(topic, body, kind) for topic in ("mine", "theirs") for body in (b"", b"x" * 70) for kind in (0, 1)
    ]
    return [encode_frame(command) for command in sends]


def _content(command: Command) -> tuple[str, bytes]:
    values = [command.ext[name] for name in sorted(command.ext) if name != SIGNATURE]
    return "".join(values), bytes(command.body)


@cache
def _what_was_signed() -> set[tuple[str, bytes]]:
    return {_content(decode_frame(frame[4:])) for frame in signed_frames()}


def run_signed(data: bytes) -> None:
    try:
        command = decode_frame(data[4:])
        _access().check(command, "192.0.2.7")
    except (WireError, Denied) as fault:
        tells_nothing(fault)
        return
    assert _content(command) in _what_was_signed(), command
    assert command.ext["AccessKey"] == "ann"


def run_policies(data: bytes) -> None:
    try:
        acl = parse_acl(fastjson.loads(data, type=AclInfo))
        again = parse_acl(fastjson.loads(fastjson.dumps(acl.info()), type=AclInfo))
    except (WireError, AccountError):
        return
    assert acl == again


def policy_corpus() -> list[bytes]:
    entries = [
        {"resource": resource, "actions": actions, "decision": "Allow", "sourceIps": sources}
        for resource, actions in (("Topic:a*", ["Pub", "Sub"]), ("*", ["All"]), ("Cluster:C", ["Get"]))
        for sources in ([], ["10.0.0.0/8", "::1"])
    ]
    body = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": entries}, {"policyType": "Default"}]}
    return [fastjson.dumps(body), fastjson.dumps({"subject": "User:u", "policies": []})]


def run_names(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        user = new_user(text, SECRET, None, None)
    except AccountError as fault:
        tells_nothing(fault)
        return
    assert user.name.isprintable()
    assert SECRET not in repr(user)


def run_accounts(data: bytes) -> None:
    try:
        accounts = decode_accounts(data)
    except (WireError, AccountError) as fault:
        tells_nothing(fault)
        return
    assert decode_accounts(encode_accounts(accounts)) == accounts


def run_plain_acl(data: bytes) -> None:
    path = _folder() / "plain_acl.yml"
    path.write_bytes(data)
    try:
        read_plain_acl(path)
    except AccountError as fault:
        tells_nothing(fault)


def plain_acl_corpus() -> list[bytes]:
    account = f"- accessKey: ann-1\n  secretKey: {SECRET}\n  admin: false\n  topicPerms:\n  - a=PUB|SUB\n"
    return [b"accounts:\n" + account.encode(), b"globalWhiteRemoteAddresses:\n- 10.*\naccounts: []\n", b"accounts:\n"]


def run_authorization(data: bytes) -> None:
    try:
        _access().authenticate_grpc(data.decode("utf-8", "replace"), TIME)
    except Denied as fault:
        tells_nothing(fault)
        return
    raise AssertionError(f"{data!r} passed without a signature of its time")


def authorization_corpus() -> list[bytes]:
    digest = "0" * 40
    text = f"MQv2-HMAC-SHA1 Credential=ann/unknown/x, SignedHeaders=x-mq-date-time, Signature={digest}"
    return [text.encode(), b"MQv2-HMAC-SHA1 Credential=,Signature=", b"Basic YTpi"]


@cache
def _certificate() -> Path:
    return Authority(_folder() / "tls").make("server")


def run_pem(data: bytes) -> None:
    """The first byte says which file it is put in the place of."""
    if not data:
        return
    certificate = _certificate()
    spoilt = _folder() / f"spoilt-{os.getpid()}.pem"
    spoilt.write_bytes(data[1:])
    settings = {
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key_of(certificate)),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(certificate.with_name("ca.pem")),
    }
    place = ("certPath", "keyPath", "trustCertPath")[data[0] % 3]
    theirs = {key.replace("server", "client"): value for key, value in settings.items() if key.endswith("Path")}
    theirs |= {"tls.enable": "true", "tls.client.authServer": "true", f"tls.client.{place}": str(spoilt)}
    for load, files in ((server_tls, {**settings, f"tls.server.{place}": str(spoilt)}), (client_tls, theirs)):
        try:
            load(files)
        except ConfigError:
            continue


def pem_corpus() -> list[bytes]:
    files = [_certificate(), key_of(_certificate()), _certificate().with_name("ca.pem")]
    return [bytes([place]) + file.read_bytes() for place, file in enumerate(files)]


TARGETS = {
    "signed frames": Target(signed_frames, run_signed),
    "policies": Target(policy_corpus, run_policies),
    "user names": Target(lambda: [b"ann", "пользователь".encode(), b"a b\nc", b"x" * 300], run_names),
    "accounts file": Target(
        lambda: [b'{"users":[{"username":"a","password":"p","userType":"Super"}],"acls":[]}', b"{}"], run_accounts
    ),
    "plain_acl.yml": Target(plain_acl_corpus, run_plain_acl),
    "gRPC authorization": Target(authorization_corpus, run_authorization),
    "PEM files": Target(pem_corpus, run_pem),
}
