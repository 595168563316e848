"""Replicas and controllers on a shared network: who may connect, and what they sign."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from callers import Caller
from pairs import Cluster
from pairs import replication_of as plain_replication_of
from trios import Trio, broker_of

from arrowmq.broker.role import Role
from arrowmq.wire.codes import RequestCode, ResponseCode
from waiting import until

ROOT, INNER = ("root", "the-secret-of-root"), ("inner", "the-secret-of-brokers")
USERS = {
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}
GUARDED = {**USERS, "authenticationEnabled": "true", "authorizationEnabled": "true"}
NO, OK = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS


async def test_a_set_that_checks_its_users_elects_and_replicates_and_its_controller_obeys_nobody_else(
    tmp_path: Path,
) -> None:
    above = {**USERS, "controllerAuthenticationEnabled": "true"}
    async with Trio(tmp_path, GUARDED, above=above) as trio:
        await trio.start_all(2)
        controller = trio.above.controller
        assert controller is not None
        root, nobody, wrong = (
            Caller(trio.controller_address, *ROOT),
            Caller(trio.controller_address),
            Caller(trio.controller_address, "root", "wrong"),
        )
        ann = Caller(trio.controller_address, "ann", "secret-of-ann")
        assert OK == (await root.create_user("ann", "secret-of-ann")).code
        before = trio.decided
        fields = {"brokerName": before.name, "clusterName": before.cluster, "brokerId": "2", "designateElect": "true"}
        for code in sorted(controller.handlers):
            for caller in (nobody, wrong, ann):
                await caller.oneway(code, fields)
                answer = await caller.ask(code, fields)
                assert (NO, b"") == (answer.code, answer.body), RequestCode(code).name
        assert before == trio.decided
        settings = await root.ask(RequestCode.GET_CONTROLLER_CONFIG)
        assert OK == settings.code
        for secret in (ROOT[1], INNER[1]):
            assert secret.encode() not in settings.body
        sender = Caller(broker_of(await trio.master()).address.text, *ROOT)
        assert OK == (await sender.send("orders")).code
        await sender.remoting.close()
        # The notice of the controller is signed, or the slave would learn of its new role at its next look only.
        assert OK == (await root.ask(RequestCode.CONTROLLER_ELECT_MASTER, fields)).code
        await until(lambda: broker_of(trio.nodes[2]).role.current is Role.SYNC_MASTER, 20)
        await trio.in_sync(1, 2)
        for caller in (root, nobody, wrong, ann):
            await caller.remoting.close()


async def test_the_log_is_fed_to_trusted_addresses_only(tmp_path: Path) -> None:
    for number, (trusted, is_fed) in enumerate((("10.0.0.0/8", False), ("10.0.0.0/8,127.0.0.1", True), ("*", True))):
        async with Cluster(tmp_path / str(number)) as cluster:
            master = await cluster.master({"haTrustedSources": trusted})
            replication = plain_replication_of(master)
            with socket.create_connection(("127.0.0.1", replication.config.ha_port), 10) as stranger:
                stranger.sendall(bytes(8))
                await until(lambda: replication.feeds.all or replication.feeds.refused, 10)  # noqa: B023
                assert is_fed == bool(replication.feeds.all), trusted
