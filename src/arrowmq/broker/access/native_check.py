"""Keeps the fast path open beside the guard: its check has a native form, which every native request passes first.

Here is what that form asks for once, and is told to forget: users with their keys made ready, and decisions about
rights, by the same tables that the guard uses.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from arrowmq import native
from arrowmq.auth.needs import needs_of
from arrowmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.in_place.fields import END, PULL, SEND, NativeFields

if TYPE_CHECKING:
    from arrowmq.auth.guard import Guard
    from arrowmq.broker.fastpath.permit import Permit

MODULE = "arrowmq.broker.access._signed_native"
HMAC = "arrowmq.auth._hmac_native"
HEADERS: dict[int, NativeFields] = {
    RequestCode.SEND_MESSAGE_V2: SEND,
    RequestCode.SEND_BATCH_MESSAGE: SEND,
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.END_TRANSACTION: END,
}


def check_natively(guard: Guard, permit: Permit) -> Any:
    """Gives the guard's check its native form, where there is one; else the guard closes the fast path."""
    if not guard.is_on or native.WANTS_PURE_PYTHON or find_spec(MODULE) is None or find_spec(HMAC) is None:
        return None
    facts = Facts(guard, import_module(HMAC).HmacKey)
    check = import_module(MODULE).SignatureCheck(facts.find_user, facts.may, guard.source_of)
    guard.access.on_change.append(check.forget)
    permit.check_natively(guard.check, check, (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN))
    places = {name: number - 1 for name, number in permit.extra_fields.items()}
    check.use(
        places[ACCESS_KEY],
        places[SIGNATURE],
        {int(code): order_of(header, places) for code, header in HEADERS.items()},
    )
    return check


def order_of(header: NativeFields, extra: dict[str, int]) -> bytes:
    """The places of a request's fields in the order in which their values are signed."""
    places = {**{name: number - 1 for name, number in header.numbers().items()}, **extra}
    return bytes(places[name] for name in sorted(places) if name != SIGNATURE)


class Facts:
    """What the native check wants to know of users and rights."""

    def __init__(self, guard: Guard, make_key: Callable[[bytes], Any]) -> None:
        self._access = guard.access
        self._book = guard.book
        self._make_key = make_key

    def find_user(self, access_key: bytes) -> tuple[Any, bool] | None:
        user = self._book.user(access_key.decode("utf-8", "replace"))
        if user is None or not user.is_enabled:
            return None
        key = self._make_key(user.password.encode("utf-8", "replace"))
        return key, user.is_super or not self._access.settings.is_authorizing

    def may(self, access_key: bytes, code: int, topic: bytes, group: bytes, source: str) -> bool:
        """Whether the guard would let this user's request pass."""
        if code in self._access.settings.unauthorized_codes:
            return True
        user = self._book.user(access_key.decode("utf-8", "replace"))
        try:
            names = topic.decode(), group.decode()
        except UnicodeDecodeError:
            return False
        fields = ("topic", "consumerGroup") if code == RequestCode.PULL_MESSAGE else ("b", "a")
        needs = needs_of(Command(code, ext=dict(zip(fields, names, strict=True))), self._access.cluster)
        return needs is not None and all(self._access.may(user, need, source) for need in needs)
