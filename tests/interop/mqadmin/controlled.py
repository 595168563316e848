"""mqadmin's controller commands: on a trio of Apache's brokers under Apache's controller, and on ours under ours.

Between the commands, one broker is killed, so that some act on a set with a member gone. In arguments, {controller} is
the controller's address; the brokers' ids are 1, 2 and 3, and 1 is the first master.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.trio import NAME, Trio

from mqadmin.differences import Difference
from mqadmin.fields import Mask, pairs, unordered
from mqadmin.plan import Step
from mqadmin.stage import Said, Stage

CLUSTER = "DefaultCluster"
_A = "-a {controller}"
_SET = f"{_A} -bn {NAME} -c {CLUSTER}"

BEFORE = (
    Step("getControllerMetaData", _A),
    Step("getControllerConfig", _A, read=pairs),
    Step("getSyncStateSet", f"{_A} -b {NAME}", read=unordered),
    Step("getSyncStateSet", f"{_A} -c {CLUSTER}", read=unordered, label="of a cluster"),
    Step("getSyncStateSet", f"{_A} -b nobody", read=unordered, label="unknown"),
    Step("getBrokerEpoch", f"-b {NAME}", read=unordered),
    Step("updateControllerConfig", f"{_A} -k scanInactiveMasterInterval -v 4000"),
    Step("updateControllerConfig", f"{_A} -k configStorePath -v /tmp/x", label="on the black list"),
    Step("updateControllerConfig", f"{_A} -k noSuchKey -v 1", label="unknown"),
    Step("getControllerConfig", _A, read=pairs, label="after the change"),
    Step("electMaster", f"{_SET} -b 9", label="unknown broker"),
    Step("electMaster", f"{_A} -bn nobody -c {CLUSTER} -b 1", label="unknown set"),
    Step("electMaster", f"{_SET} -b 1", read=unordered, label="the master itself"),
    Step("cleanBrokerMetadata", f"{_SET} -b 3", label="of a live broker"),
    Step("cleanBrokerMetadata", f"{_A} -bn nobody -c {CLUSTER} -b 3", label="unknown set"),
    Step("electMaster", f"{_SET} -b 2", read=unordered),
)
SWITCHED = (
    Step("getSyncStateSet", f"{_A} -b {NAME}", read=unordered, label="after the switch"),
    Step("getBrokerEpoch", f"-c {CLUSTER}", read=unordered, label="after the switch"),
)
KILLED = (
    Step("getSyncStateSet", f"{_A} -b {NAME}", read=unordered, label="with a broker gone"),
    Step("electMaster", f"{_SET} -b 3", label="a broker that is gone"),
    Step("cleanBrokerMetadata", f"{_SET} -b 3"),
    Step("getSyncStateSet", f"{_A} -b {NAME}", read=unordered, label="after the cleaning"),
    Step("cleanBrokerMetadata", f"{_A} -bn {NAME} -l", label="of all, living as well"),
)
STEPS = (*BEFORE, *SWITCHED, *KILLED)
SUBCOMMANDS = frozenset(step.subcommand for step in STEPS)

_CONFIG = r"getControllerConfig.*"
DIFFERENCES: tuple[Difference, ...] = (
    Difference(r"getControllerMetaData", r"line 1 word 2", "the name of the group of controllers in this run"),
    Difference(
        _CONFIG,
        r"controllerDLeger(Group|Peers)|controllerStorePath|configStorePath|rocketmqHome|mappedFileSize|listenPort",
        "names, places and sizes of this run",
    ),
    Difference(
        _CONFIG,
        r"server(SocketBacklog|ChannelMaxIdleTimeSeconds|SelectorThreads|SocketRcvBufSize|SocketSndBufSize|WorkerThreads|"
        r"OnewaySemaphoreValue|AsyncSemaphoreValue|CallbackExecutorThreads|NettyWorkerGroupEnable|"
        r"PooledByteBufAllocatorEnable)|writeBuffer(High|Low)WaterMark|useEpollNativeSelector|enableShutdownGracefully|"
        r"shutdownWaitTimeSeconds",
        "settings of Netty; ArrowMQ's controller is not built on it",
        left_out=True,
    ),
    Difference(_CONFIG, r"jraftConfig", "ArrowMQ keeps decisions in SQLite or etcd, never in JRaft", left_out=True),
    Difference(
        _CONFIG,
        r"metric(s?)(Grpc|Logging)?(Exporter)?(IntervalInMills|TimeOutInMills|Target|Header|Label|InDelta)",
        "ArrowMQ's controller shows metrics at a page of Prometheus only",
        left_out=True,
    ),
    Difference(_CONFIG, r"metricsPromExporterHost", "ArrowMQ shows metrics to its own machine only, unless told"),
    Difference(_CONFIG, r"etcd.*|controllerIP", "settings that Apache's controller does not have", added=True),
    Difference(
        r"updateControllerConfig on the black list",
        r"line 2 word 1[4-9]",
        "a refusal goes on after Apache's words: which key it was",
        added=True,
    ),
    Difference(
        r"getSyncStateSet (after the switch|with a broker gone|after the cleaning)",
        r"#SyncStateSetEpoch \d+",
        "how many changes there were: two slaves join at once, or one after the other",
        always=False,
        left_out=True,
        added=True,
    ),
    Difference(
        r"electMaster",
        r".*",
        "Apache's mqadmin cannot read what Apache's controller answers to a switch (numbers as names in JSON), and "
        "says so; the switch takes place. It can read ArrowMQ's answer",
        left_out=True,
        added=True,
    ),
)


@dataclass(slots=True)
class TrioPlace:
    """Where a stage asks."""

    kind: str
    namesrv: str
    broker: str
    folder: Path


class ControlledStage(Stage):
    def __init__(self, trio: Trio, folder: Path) -> None:
        super().__init__(TrioPlace(trio.kinds[0], trio.names.address, trio.brokers[1].address, trio.folder), folder)
        self._trio = trio

    def _set(self) -> None:
        trio, hand = self._trio, self.hand
        hand.do("create-topic", topic="Orders", queues=1)
        trio.wait_topic("Orders")
        hand.do("producer", name="shop", group="Shop")
        hand.do("send", producer="shop", topic="Orders", messages=[{"body": f"body {number}"} for number in range(5)])
        names = {broker.address: f"<broker {number}>" for number, broker in trio.brokers.items()}
        names |= {trio.controller.address: "<controller>", trio.names.address: "<namesrv>"}
        names |= {str(trio.folder): "<data>"}
        self._mask = Mask(names)
        self._values = {"controller": trio.controller.address}

    def play(self) -> list[Said]:
        trio = self._trio
        everybody = set(trio.brokers)
        said = self.run(BEFORE, ())
        trio.wait("2 is master, all are in sync", lambda: trio.master() == 2 and trio.in_sync() == everybody)
        said += self.run(SWITCHED, ())
        trio.kill(3)
        trio.wait("3 is out of the set", lambda: trio.in_sync() == everybody - {3})
        trio.wait("3 is not alive", lambda: not self._is_alive(3))
        return said + self.run(KILLED, ())

    def _is_alive(self, number: int) -> bool:
        found = self._trio.replicas()
        members: Sequence[object] = () if found is None else (*found.in_sync_replicas, *found.not_in_sync_replicas)
        return any(getattr(member, "broker_id", 0) == number and getattr(member, "alive", False) for member in members)


def run(kind: str, folder: Path) -> list[Said]:
    with (
        Trio(folder / "servers", [kind] * 3, kind, names=kind) as trio,
        ControlledStage(trio, folder / "tools") as stage,
    ):
        return stage.play()
