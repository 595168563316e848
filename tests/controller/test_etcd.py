"""Several controllers on a real etcd of three members: whatever is killed or paused, decisions last, and a controller
that no longer leads decides nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from etcd_cluster import EtcdCluster
from played_broker import PlayedBroker, elected
from storage_contract import CHECKS, broker_set

from arrowmq.clock import SystemClock
from arrowmq.config import ConfigError
from arrowmq.controller.config import ControllerConfig
from arrowmq.controller.controller import Controller
from arrowmq.controller.etcd.client import EtcdClient
from arrowmq.controller.etcd.storage import EtcdStorage, loses_when_killed
from arrowmq.controller.storage import ControllerPeer, Kept, StaleDecision, Storage, StorageUnreachable
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import GetMetaDataResult
from arrowmq.wire.headers.declare import decode_header
from certificates import self_signed
from waiting import until

pytestmark = [pytest.mark.xdist_group("etcd"), pytest.mark.timeout(120)]

_numbers = itertools.count(1)
LEASE_MS = 2000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """For a test that kills members."""
    with EtcdCluster(tmp_path / "etcd", 3) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    return f"/test-{next(_numbers)}"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def ignore(_: bool) -> None:
    return None


def storage_of(cluster: EtcdCluster, prefix: str, name: str = "n0", clock: SystemClock | None = None) -> EtcdStorage:
    clock = clock or SystemClock()
    client = EtcdClient(cluster.endpoints.split(","), clock)
    return EtcdStorage(client, prefix, LEASE_MS, lambda: ControllerPeer(name, f"127.0.0.1:{name[1:]}"), clock)


async def controller_of(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, name: str, folder: Path, **settings: str
) -> Controller:
    properties = {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "etcdEndpoints": cluster.endpoints,
        "etcdPrefix": prefix,
        "etcdLeaseMs": str(LEASE_MS),
        "controllerDLegerSelfId": name,
        **settings,
    }
    controller = Controller(ControllerConfig.from_properties(properties)[0], folder / name)
    await controller.start()
    stack.push_async_callback(controller.stop)
    return controller


async def controller_process(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> tuple[asyncio.subprocess.Process, str]:
    """A controller in a process of its own, and where it listens."""
    words = ["--etcd", cluster.endpoints, "--set", f"etcdPrefix={prefix}", "--set", f"etcdLeaseMs={LEASE_MS}"]
    program = "import sys; from arrowmq.cli import main; sys.exit(main())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "controller", "--port", "0", "--dir", str(tmp_path / "paused"), *words),
        *("--set", "controllerDLegerSelfId=n0", "--set", "bindAddress=127.0.0.1"),
        stdout=subprocess.PIPE,
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("ready: controller "), line
    return process, line.split()[2]


async def broker_of(stack: AsyncExitStack, controller: str) -> PlayedBroker:
    broker = PlayedBroker("b", controller)
    await broker.start()
    stack.push_async_callback(broker.stop)
    return broker


def is_leading(controller: Controller) -> bool:
    return controller.decider.is_leading


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: Callable[[Storage], Awaitable[None]], cluster: EtcdCluster, prefix: str) -> None:
    storage = storage_of(cluster, prefix)
    await storage.open(ignore, lambda *_: None)
    try:
        await check(storage)
    finally:
        await storage.close()


async def test_one_leads_and_when_it_stops_another_does_with_all_that_was_decided(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> None:
    first = await controller_of(stack, cluster, prefix, "n0", tmp_path)
    second = await controller_of(stack, cluster, prefix, "n1", tmp_path)
    assert (True, False) == (is_leading(first), is_leading(second))
    broker = await broker_of(stack, first.address)
    await broker.join()
    broker.controller = second.address
    refusal = await broker.elect()
    assert ResponseCode.CONTROLLER_NOT_LEADER == refusal.code
    assert "false" == (await broker.beat())["isLeader"]
    metadata = decode_header(GetMetaDataResult, (await broker.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).ext)
    assert ("n0", first.address, False) == (
        metadata.controller_leader_id,
        metadata.controller_leader_address,
        metadata.is_leader,
    )
    assert f"n0:{first.address};n1:{second.address};" == metadata.peers
    await first.stop()
    await until(lambda: is_leading(second), LEASE_MS / 1000)  # it does not take the lease: the first gave it back
    info, _ = await broker.replica_info()
    assert (1, 1) == (info.master_broker_id, info.master_epoch)


async def test_members_of_etcd_may_be_killed_and_without_a_majority_nothing_is_decided(
    stack: AsyncExitStack, own_cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    controller = await controller_of(stack, cluster, prefix, "n0", tmp_path)
    broker = await broker_of(stack, controller.address)
    await broker.join()
    leader = cluster.leader()
    cluster.kill(leader)

    async def is_elected() -> bool:
        if not is_leading(controller):
            return False
        await broker.register()  # a master that registers anew: two decisions
        return True

    await until(is_elected, 30)
    info, _ = await broker.replica_info()
    epoch = info.master_epoch or 0
    assert epoch >= 3
    cluster.kill(next(name for name in cluster.names if name != leader))
    refusal = await broker.elect(1, is_designated=True)
    again = await broker.ask(RequestCode.CONTROLLER_ELECT_MASTER)
    assert ResponseCode.SUCCESS not in (refusal.code, again.code)
    await until(lambda: not is_leading(controller), 30)
    cluster.mend()
    await until(lambda: is_leading(controller), 30)
    assert epoch == controller.decider.all()["b"].master_epoch


class StuckClock(SystemClock):
    """As for a controller that was paused: for it, no time has passed."""

    def __init__(self) -> None:
        self._now_s = super().monotonic()

    def monotonic(self) -> float:  # type: ignore[override]
        return self._now_s


async def test_etcd_refuses_what_a_controller_decides_whose_lease_is_over(cluster: EtcdCluster, prefix: str) -> None:
    """The stale one is sure that it leads; its transaction does nothing."""
    stale = storage_of(cluster, prefix, "n0", StuckClock())
    await stale.open(ignore, lambda *_: None)
    revision = await stale.commit("b", 0, broker_set())
    assert stale._task is not None
    stale._task.cancel()  # nothing renews its lease any more, and nothing tells it
    with pytest.raises(asyncio.CancelledError):
        await stale._task
    stale._own_leader_revision = stale._leader.create_revision if stale._leader else 0
    assert stale.leadership().is_ours
    other = storage_of(cluster, prefix, "n1")
    await other.open(ignore, lambda *_: None)
    await until(lambda: other.leadership().is_ours, 20)
    with pytest.raises(StaleDecision):
        await stale.commit("b", revision, broker_set(epoch=9))
    with pytest.raises(StaleDecision):
        await stale.commit("new", 0, broker_set("new"))
    assert {"b": Kept(broker_set(), revision)} == await other.load()
    stale._task = None
    await stale.close()
    await other.close()


async def test_a_controller_paused_beyond_its_lease_decides_nothing_when_it_resumes(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> None:
    """The request is in its socket when it wakes: it is served before it can learn that it was overtaken."""
    process, address = await controller_process(stack, cluster, prefix, tmp_path)
    other = await controller_of(stack, cluster, prefix, "n1", tmp_path)
    broker = await broker_of(stack, address)
    second = await broker_of(stack, address)
    await broker.join()
    await second.join()
    await broker.alter(1, 2)
    os.kill(process.pid, signal.SIGSTOP)
    late = asyncio.ensure_future(broker.elect(1, is_designated=True))
    beat = asyncio.ensure_future(broker.beat())
    await until(lambda: is_leading(other), 30)
    second.controller = other.address
    await second.beat()
    answer = await second.elect(2, is_designated=True)
    assert (2, 2) == (elected(answer).master_broker_id, elected(answer).master_epoch)
    kept = await other.storage.load()
    os.kill(process.pid, signal.SIGCONT)
    assert ResponseCode.CONTROLLER_NOT_LEADER == (await late).code
    assert "false" == (await beat)["isLeader"], "a stale controller must not prolong a stale master's lease"
    assert kept == await other.storage.load()
    assert is_leading(other)


async def test_a_killed_controller_is_followed_when_its_lease_is_over_and_may_come_back(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> None:
    process, address = await controller_process(stack, cluster, prefix, tmp_path)
    other = await controller_of(stack, cluster, prefix, "n1", tmp_path)
    broker = await broker_of(stack, address)
    await broker.join()
    assert not is_leading(other)
    process.kill()
    await until(lambda: is_leading(other), 20)
    assert (1, 1) == (other.decider.all()["b"].master_id, other.decider.all()["b"].master_epoch)
    broker.controller = other.address
    await broker.beat()
    await controller_process(stack, cluster, prefix, tmp_path)
    await until(lambda: "n0" in {peer.name for peer in other.storage.leadership().peers})
    assert is_leading(other)


async def test_two_controllers_of_one_name_are_refused(
    stack: AsyncExitStack, cluster: EtcdCluster, prefix: str, tmp_path: Path
) -> None:
    await controller_of(stack, cluster, prefix, "n0", tmp_path)
    with pytest.raises(ConfigError, match="another controller named n0"):
        await controller_of(stack, cluster, prefix, "n0", tmp_path)


@pytest.mark.parametrize(
    ("version", "is_warned_of"),
    [("3.4.23", False), ("3.5.0", True), ("3.5.2", True), ("3.5.3", False), ("3.6.1", False), ("", False)],
)
def test_etcds_that_lose_what_they_acknowledged_are_known(version: str, is_warned_of: bool) -> None:
    assert is_warned_of == loses_when_killed(version)


async def test_an_etcd_that_loses_what_it_acknowledged_is_warned_of(
    cluster: EtcdCluster, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = storage_of(cluster, prefix)
    await storage.open(ignore, lambda *_: None)
    await storage.close()
    version = cluster.ctl("endpoint", "status", "-w", "simple").split(", ")[2]
    said = [record.getMessage() for record in caplog.records if "when it is killed" in record.getMessage()]
    assert loses_when_killed(version) == any(version in each for each in said)


async def test_an_etcd_that_is_not_there_is_named(tmp_path: Path) -> None:
    properties = {"listenPort": "0", "bindAddress": "127.0.0.1", "etcdEndpoints": "http://127.0.0.1:9"}
    controller = Controller(ControllerConfig.from_properties(properties)[0], tmp_path)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9: nothing listens there"):
        await controller.start()


async def test_tls_and_users(stack: AsyncExitStack, prefix: str, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "tls")
    options = {"cert-file": str(certificate), "key-file": str(certificate.with_name("key.pem"))}
    with EtcdCluster(tmp_path / "secured", 1, options, "https", (f"--cacert={certificate}",)) as secured:
        secured_by = {"etcdCaFile": str(certificate), "etcdUser": "root", "etcdPassword": "secret"}
        secured.ctl("user", "add", "root:secret")
        secured.ctl("user", "grant-role", "root", "root")
        secured.ctl("auth", "enable")
        controller = await controller_of(stack, secured, prefix, "n0", tmp_path, **secured_by)
        broker = await broker_of(stack, controller.address)
        await broker.join()
        config = (await broker.ask(RequestCode.GET_CONTROLLER_CONFIG)).body
        assert b"secret" not in config
        with pytest.raises(ConfigError, match="refused the user root"):
            await controller_of(stack, secured, prefix, "n1", tmp_path, **{**secured_by, "etcdPassword": "wrong"})
        with pytest.raises(ConfigError, match="TLS failed"):
            await controller_of(stack, secured, prefix, "n1", tmp_path, **{**secured_by, "etcdCaFile": ""})
        await controller.stop()


async def test_an_etcd_that_asks_for_certificates_is_shown_ours(
    stack: AsyncExitStack, prefix: str, tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path / "tls")
    key = certificate.with_name("key.pem")
    ours = ("etcdCaFile", "etcdCertFile", "etcdKeyFile")
    options = {"cert-file": str(certificate), "key-file": str(key), "trusted-ca-file": str(certificate)}
    known = (f"--cacert={certificate}", f"--cert={certificate}", f"--key={key}")
    with EtcdCluster(tmp_path / "secured", 1, {**options, "client-cert-auth": "true"}, "https", known) as secured:
        files = dict(zip(ours, map(str, (certificate, certificate, key)), strict=True))
        controller = await controller_of(stack, secured, prefix, "n0", tmp_path, **files)
        broker = await broker_of(stack, controller.address)
        await broker.join()
        assert is_leading(controller)
        with pytest.raises(ConfigError, match=r"TLS|etcd"):
            await controller_of(stack, secured, prefix, "n1", tmp_path, etcdCaFile=str(certificate))
        missing = {**files, "etcdKeyFile": str(tmp_path / "nowhere.pem")}
        with pytest.raises(ConfigError, match="cannot be used"):
            await controller_of(stack, secured, prefix, "n1", tmp_path, **missing)
        await controller.stop()


async def test_a_write_whose_answer_is_lost_is_not_repeated(prefix: str) -> None:
    """Nobody knows whether it was done: a second one could undo what came between."""
    asked: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = EtcdClient([url, url], SystemClock())
        with pytest.raises(StorageUnreachable):
            await client.transact([], [])
        assert 1 == len(asked)
        with pytest.raises(StorageUnreachable):
            await client.read(prefix)
        assert 1 < len(asked)
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<ht>",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}",
        b"",
    ],
)
async def test_what_is_no_etcd_is_refused_with_a_sentence(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    async with server:
        client = EtcdClient([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"], SystemClock())
        with pytest.raises(Exception, match=r"etcd|answered|HTTP|127\.0\.0\.1"):
            await client.read("/x")
        client.close()
