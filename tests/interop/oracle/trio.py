"""Three brokers of one name under a controller, each ours or Apache's: which is master, and what their logs hold."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicas, BrokerReplicasInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from oracle import apache, arrow
from oracle.java import Value
from oracle.network import Cable
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server
from oracle.raw import Asking
from oracle.toolchain import OracleError

NAME = "broker-a"
JAVA, ARROW = "apache", "arrowmq"
CONFIG: dict[str, Value] = {
    "enableControllerMode": True,
    "allAckInSyncStateSet": True,
    "minInSyncReplicas": 1,
    "mappedFileSizeCommitLog": 1024 * 1024 * 16,
    "autoCreateTopicEnable": False,
}
# What docs/failover.md recommends where a hung master must be noticed soon.
FAST: dict[str, Value] = {
    "controllerHeartBeatTimeoutMills": 1500,
    "brokerHeartbeatInterval": 300,
    "haSendHeartbeatInterval": 300,
    "syncBrokerMetadataPeriod": 1000,
}
# The same for Java producers: how often they ask for routes, and system properties of their JVM. A connection that is
# not answered (the machine is gone) is given up after 3 seconds otherwise.
JAVA_POLL_MS = 250
JAVA_PROPERTIES: dict[str, Value] = {"com.rocketmq.remoting.client.connect.timeout": 500}


class Trio:
    """A NameServer, a controller and brokers of the given kinds; broker n has the controller's id n."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[str],
        controller: str = ARROW,
        *,
        names: str = ARROW,
        has_cable: bool = False,
        **config: Value,
    ) -> None:
        """With `has_cable`, the first broker has a network of its own that can be cut off."""
        self.folder = folder
        self.cable = Cable() if has_cable else None
        self.host = HOST if self.cable is None else self.cable.outside
        self.kinds = list(kinds)
        self.controller_kind = controller
        self.names_kind = names
        self.config = {**CONFIG, **config}
        self._stack = ExitStack()
        self.brokers: dict[int, Server] = {}
        self.stopped: set[int] = set()

    def __enter__(self) -> Trio:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        if self.cable is not None:
            self._stack.enter_context(self.cable)
        if self.names_kind == ARROW:
            self.names = arrow.namesrv(self.folder / "namesrv", free_port())
        else:
            self.names = apache.namesrv(self.folder / "namesrv", free_port(), bindAddress="0.0.0.0")
        port = free_port()
        if self.controller_kind == ARROW:
            places: dict[str, Value] = {"bindAddress": "0.0.0.0", "controllerIP": self.host}
            self.controller = arrow.controller(self.folder / "controller", port, **places)
        else:
            peers = f"n0-{self.host}:{port}"
            self.controller = apache.controller(self.folder / "controller", port, controllerDLegerPeers=peers)
        for server in (self.names, self.controller):
            server.host = self.host
            self._stack.enter_context(server)
        for number, kind in enumerate(self.kinds, 1):
            # One after another: so each has the id that the controller gives it in this order.
            self.brokers[number] = self._broker(number, kind)
            self._stack.callback(self._end, number)
            self.brokers[number].start()
        self.wait("all are in sync", lambda: self.in_sync() == set(self.brokers))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self, number: int) -> None:
        self.resume(number)
        self.brokers[number].kill()

    def _broker(self, number: int, kind: str) -> Server:
        folder, port = self.folder / f"broker-{number}", broker_port()
        config = {**self.config, "controllerAddr": self.controller.address}
        is_apart = self.cable is not None and number == 1
        host = self.cable.inside if self.cable is not None and is_apart else self.host
        places: dict[str, Value] = {"haListenPort": port + 1, "brokerIP1": host, "brokerIP2": host}
        if kind == JAVA:
            places["bindAddress"] = "0.0.0.0"
            broker = apache.broker(folder, port, self.names.address, None, brokerName=NAME, **places, **config)
        else:
            broker = arrow.broker(folder, port, self.names.address, name=NAME, **places, **config)
        broker.host = host
        if self.cable is not None and is_apart:
            broker.command = self.cable.command(broker.command)
        return broker

    # --- what happens to a broker -------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        self.brokers[number].kill()

    def start(self, number: int) -> None:
        self.brokers[number].start()

    def pause(self, number: int) -> None:
        """Stand still (SIGSTOP), as in a long collection or a hung disk."""
        os.kill(self.brokers[number].pid, signal.SIGSTOP)
        self.stopped.add(number)

    def pause_still(self) -> None:
        """Whoever pauses and resumes this whole run (a machine that others use) must not wake what stands still."""
        for number in self.stopped:
            os.kill(self.brokers[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        if number in self.stopped:
            self.stopped.discard(number)
            os.kill(self.brokers[number].pid, signal.SIGCONT)

    def switch(self, target: int) -> None:
        """A planned switch, as `arrowmq cluster switch` and mqadmin electMaster ask for it."""
        asyncio.run(self._switch(target))

    async def _switch(self, target: int) -> None:
        fields = {"clusterName": "DefaultCluster", "brokerName": NAME, "brokerId": target, "designateElect": True}
        async with Asking(self.controller.address) as asking:
            answer = await asking.ask(RequestCode.CONTROLLER_ELECT_MASTER, fields)
            if answer.code != ResponseCode.SUCCESS:
                raise OracleError(f"no switch to broker {target}: {answer.remark}")

    def harm(self, number: int, how: str) -> None:
        if how == "cut":
            assert self.cable is not None
            self.cable.cut()
        elif how == "switch":
            self.switch(min(member for member in self.in_sync() if member != number))
        else:
            {"kill": self.kill, "pause": self.pause}[how](number)

    def heal(self, number: int, how: str) -> None:
        if how == "cut":
            assert self.cable is not None
            self.cable.join()
        elif how != "switch":
            {"kill": self.start, "pause": self.resume}[how](number)

    # --- what the controller says -------------------------------------------------------------------------------------

    def replicas(self) -> BrokerReplicas | None:
        return asyncio.run(self._replicas())

    async def _replicas(self) -> BrokerReplicas | None:
        async with Asking(self.controller.address) as asking:
            try:
                answer = await asking.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, fastjson.dumps([NAME]))
            except RemotingError:
                return None
            if not answer.body:
                return None
            return fastjson.loads(answer.body, BrokerReplicasInfo).replicas_info_table.get(NAME)

    def master(self) -> int | None:
        found = self.replicas()
        return None if found is None else found.master_broker_id

    def epoch(self) -> int:
        found = self.replicas()
        return 0 if found is None else found.master_epoch

    def in_sync(self) -> set[int]:
        found = self.replicas()
        return set() if found is None else {replica.broker_id or 0 for replica in found.in_sync_replicas}

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise OracleError(f"not within {timeout_s:g} s: {what}; the controller says {self.replicas()}")
            time.sleep(0.02)

    def new_master(self, *, other_than: int = 0, timeout_s: float = 60) -> int:
        """The master, once there is one that is not `other_than`."""
        found: list[int | None] = []

        def is_there() -> bool:
            found.append(self.master())
            return found[-1] not in (None, other_than)

        self.wait("another master", is_there, timeout_s)
        assert found[-1] is not None
        return found[-1]

    # --- what the brokers say -----------------------------------------------------------------------------------------

    def route(self) -> dict[int, str]:
        """The brokers as the NameServer tells clients: id 0 is the master."""
        return asyncio.run(self._route())

    async def _route(self) -> dict[int, str]:
        async with Asking(self.names.address) as asking:
            answer = await asking.ask(
                RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "DefaultCluster", "brokerName": NAME}
            )
            body: Any = fastjson.loads(answer.body, dict[str, Any])
            return {int(number): text for number, text in body["brokerMemberGroup"]["brokerAddrs"].items()}

    def wait_topic(self, topic: str) -> None:
        """Until every broker knows a topic: a slave of Apache's asks its master for topics every ten seconds only."""
        for broker in self.brokers.values():
            self.wait(f"{broker.address} knows {topic}", lambda: asyncio.run(_knows(broker.address, topic)))  # noqa: B023

    def wait_route(self, number: int) -> None:
        address = self.brokers[number].address
        self.wait(f"broker {number} is master in the route", lambda: self.route().get(0) == address)

    def commit_log(self, number: int) -> Path:
        return self.folder / f"broker-{number}" / "store" / "commitlog"

    def log(self, number: int) -> bytes:
        """The whole commit log of a broker, to the end of its last record."""
        files = sorted(self.commit_log(number).glob("[0-9]*"))
        data = b"".join(file.read_bytes() for file in files)
        return data.rstrip(b"\0")

    def masters_by_epoch_are_unique(self) -> bool:
        """By the logs of the brokers themselves: in no epoch were two of them master."""
        return all(len(masters) == 1 for masters in self.masters_by_epoch().values())

    def masters_by_epoch(self) -> dict[int, set[int]]:
        """Which brokers say in their logs that they were master of an epoch."""
        found: dict[int, set[int]] = {}
        for number, kind in enumerate(self.kinds, 1):
            if kind == ARROW:
                text = self.brokers[number].output.read_text(errors="replace")
                pattern = r"this broker is master epoch=(\d+)"
            else:
                text = (self.folder / f"broker-{number}/logs/rocketmqlogs/broker.log").read_text(errors="replace")
                pattern = r"Begin to change to master.*new Epoch:(\d+)"
            for epoch in re.findall(pattern, text):
                found.setdefault(int(epoch), set()).add(number)
        assert found, "no broker says that it was master"
        return found

    def cut_tails(self, number: int) -> list[tuple[int, int, Path]]:
        """What one of our brokers cut off its log: where it began, the epoch it was written in, the file."""
        found = []
        for path in (self.folder / f"broker-{number}" / "store" / "cut").glob("*-epoch-*.log"):
            start, _, _, epoch = path.stem.split("-")
            found.append((int(start), int(epoch), path))
        return sorted(found)

    def epochs(self, number: int) -> list[tuple[int, int]]:
        """The epoch file of a broker: epoch and the offset it starts at."""
        text = (self.folder / f"broker-{number}" / "store" / "epochFileCheckpoint").read_text()
        return [
            (int(epoch), int(start))
            for epoch, _, start in (line.partition("-") for line in text.split("\n")[2:] if line)
        ]


async def _knows(address: str, topic: str) -> bool:
    async with Asking(address) as asking:
        return (await asking.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code == ResponseCode.SUCCESS
