"""RocketMQ's own gRPC clients at a proxy before a cluster that asks for users and speaks TLS.

Users are those of the broker, which the proxy asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from oracle import arrow, grpc5
from oracle.hand import Hand, Refusal
from oracle.ports import HOST, broker_port, free_port

from arrowmq.client.admin import Admin
from certificates import self_signed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

AUTH = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}
USER = ("alice", "alice-secret")
FLAVOURS = tuple(flavour for flavour in grpc5.FLAVOURS if "tls" not in grpc5.MISSING.get(flavour, ()))


class Secured:
    """A broker with users, and a proxy before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = self_signed(folder / "tls")
        self._stack = ExitStack()
        enter = self._stack.enter_context
        namesrv, port = free_port(), broker_port()
        self.namesrv = f"{HOST}:{namesrv}"
        enter(arrow.server(folder / "a", namesrv, port, autoCreateTopicEnable=False, **AUTH))
        asyncio.run(self._create(f"{HOST}:{port}"))
        tls = {"tlsCertPath": self.certificate, "tlsKeyPath": self.certificate.with_name("key.pem")}
        self.proxy = enter(grpc5.arrow_proxy(folder / "p", self.namesrv, **AUTH, **tls))

    async def _create(self, broker: str) -> None:
        async with Admin(self.namesrv, credentials=("root", "root-secret")) as admin:
            await admin.create_user(broker, *USER)
            resources = []
            for flavour in FLAVOURS:
                for kind in ("open", "closed"):
                    await admin.create_topic(f"{kind}-{flavour}", queues=2, attributes={"message.type": "NORMAL"})
                await admin.create_group(f"g-{flavour}")
                resources += [f"Topic:open-{flavour}", f"Group:g-{flavour}"]
            await admin.give_rights(broker, USER[0], resources, ["Pub", "Sub"])

    def hand(self, flavour: str, user: tuple[str, str] = USER) -> Hand:
        folder = self.folder / "hands"
        started = grpc5.start(flavour, self.proxy.address, folder, user=user, certificate=self.certificate)
        return self._stack.enter_context(started)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield made
    finally:
        made.close()


def played(scene: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(len(FLAVOURS)) as pool:
        return dict(zip(FLAVOURS, pool.map(scene, FLAVOURS), strict=True))


def refused(hand: Hand, **message: Any) -> bool:
    try:
        hand.do("send", **message)
    except Refusal:
        return True
    return False


def test_a_user_works_by_tls_and_is_refused_what_it_may_not(secured: Secured) -> None:
    def scene(flavour: str) -> tuple[Any, ...]:
        hand = secured.hand(flavour)
        hand.do("simple", name="s", group=f"g-{flavour}", topic=f"open-{flavour}", await_ms=5000)
        hand.do("send", topic=f"open-{flavour}", body="signed")
        found = hand.do("receive", name="s", number=1, wait_ms=30_000)
        hand.do("ack", name="s", ids=[found[0]["id"]])
        stranger = secured.hand(flavour, (USER[0], "a guess"))
        no_right = refused(hand, topic=f"closed-{flavour}", body="x")
        return found[0]["body"], no_right, refused(stranger, topic=f"open-{flavour}", body="x")

    assert dict.fromkeys(FLAVOURS, ("signed", True, True)) == played(scene)
