"""What the crash machine works on: one broker, a pair, or a trio with its controller; ours or Apache's.

`begin` lets something happen to it and `heal` ends that; between the two, `address` is where messages are taken.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from oracle import apache, arrow
from oracle.pair import APACHE_ONLY
from oracle.ports import broker_port, free_port
from oracle.process import Server
from oracle.trio import Trio

BROKER = "broker-a"
SETTINGS: dict[str, Any] = {
    "messageDelayLevel": "1s 2s 3s",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "flushCommitLogLeastPages": 0,
    "autoCreateTopicEnable": False,
    "recallMessageEnable": True,
    "timerWheelEnable": True,
    "cleanFileForciblyEnable": False,  # a full disk must not take what the auditor looks for
    "deleteWhen": "-1",
    "slaveReadEnable": True,
}
DISK_MIB = 640  # so that only the filler fills it: some 10 kB a message of all kinds


class SmallDisk:
    """A file system of its own, of memory, that can be filled: killed processes do not care, and power stays on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._filler = folder, folder / "filler"

    @staticmethod
    def can_be_made() -> bool:
        return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self.folder)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler, suppress(OSError):
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while filler.write(bytes(size)):
                        pass

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


class Cluster:
    """One broker and its NameServer; the others are made of more."""

    name = "one"
    harms: tuple[str, ...] = ("kill", "stop", "restart")

    def __init__(self, kind: str, folder: Path, settings: dict[str, Any], *, small_disk: bool = False) -> None:
        self.kind, self.folder, self.settings = kind, folder, {**SETTINGS, **settings}
        self.disk = SmallDisk(folder / "disk") if small_disk else None
        if self.disk is not None:
            self.harms = (*self.harms, "fill", "fill and kill")
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        try:
            if self.disk is not None:
                self._stack.enter_context(self.disk)
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _names(self) -> Server:
        make = apache.namesrv if self.kind == "apache" else arrow.namesrv
        return self._stack.enter_context(make(self.folder / "namesrv", free_port()))

    def _broker(self, name: str, names: Server, **more: Any) -> Server:
        place = self.disk.folder if self.disk is not None else self.folder
        if self.kind == "apache":
            config = {**APACHE_ONLY, **self.settings, **more}
            made = apache.broker(place / name, broker_port(), names.address, None, **config)
        else:
            made = arrow.broker(place / name, broker_port(), names.address, **self.settings, **more)
        made.output = self.folder / f"{name}.out"  # not on the disk that is filled
        self._stack.callback(made.kill)
        return made.start()

    def _start(self) -> None:
        self.master = self._broker("master", self._names())

    @property
    def address(self) -> str:
        return self.master.address

    @property
    def followers(self) -> list[str]:
        """Who must have what was acknowledged, besides the master."""
        return []

    def look(self) -> None:
        """Find out where the master is, if it can move."""

    def begin(self, harm: str, chance: random.Random) -> None:
        if harm == "kill":
            self.master.kill()
        elif harm == "stop":
            os.kill(self.master.pid, signal.SIGSTOP)
        elif harm == "restart":
            self.master.stop()
        else:
            assert self.disk is not None
            self.disk.fill()
            if harm == "fill and kill":
                time.sleep(chance.uniform(0.1, 0.8))
                self.master.kill()

    def heal(self, harm: str) -> None:
        if harm == "stop":
            os.kill(self.master.pid, signal.SIGCONT)
            return
        if self.disk is not None:
            self.disk.empty()
        if harm != "fill":
            self.master.start()

    def settle(self) -> None:
        """Until everybody has everything."""


class PairCluster(Cluster):
    """A SYNC_MASTER that waits for its slave; each of them is killed and comes back."""

    name = "pair"
    harms = ("kill", "stop", "restart", "kill the slave")

    def _start(self) -> None:
        names = self._names()
        roles = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2, "slaveTimeout": 3000}
        self.master = self._broker("master", names, **roles)
        self.slave = self._broker("slave", names, **{**roles, "brokerRole": "SLAVE", "brokerId": 1})

    @property
    def followers(self) -> list[str]:
        return [self.slave.address]

    def begin(self, harm: str, chance: random.Random) -> None:
        if harm == "kill the slave":
            self.slave.kill()
        else:
            super().begin(harm, chance)

    def heal(self, harm: str) -> None:
        if harm == "kill the slave":
            self.slave.start()
        else:
            super().heal(harm)


class TrioCluster(Cluster):
    """Three brokers under a controller, two of which must have a message; another is elected when the master goes."""

    name = "trio"
    harms = ("kill", "stop", "switch")

    def _start(self) -> None:
        settings: dict[str, Any] = {**self.settings, "minInSyncReplicas": 2, "inSyncReplicas": 2}
        if self.kind == "apache":
            settings |= APACHE_ONLY
        self.trio = self._stack.enter_context(
            Trio(self.folder, [self.kind] * 3, self.kind, names=self.kind, **settings)
        )
        self._number = self.trio.master() or 1
        self._address = self.trio.brokers[self._number].address

    @property
    def address(self) -> str:
        return self._address

    def look(self) -> None:
        with suppress(Exception):
            self._address = self.trio.route().get(0, self._address)

    def begin(self, harm: str, chance: random.Random) -> None:
        master = self.trio.master()
        assert master is not None
        self._number, self._epoch = master, self.trio.epoch()
        self.trio.harm(master, "pause" if harm == "stop" else harm)

    def heal(self, harm: str) -> None:
        self.trio.wait("another epoch has a master", partial(_has_followed, self.trio, self._epoch))
        chosen = self.trio.master()
        assert chosen is not None
        self.trio.wait_route(chosen)
        self.look()
        self.trio.heal(self._number, "pause" if harm == "stop" else harm)
        self.trio.wait("all are in sync", lambda: self.trio.in_sync() == set(self.trio.brokers), 180)

    def settle(self) -> None:
        self.trio.wait("all logs are equal", lambda: len({self.trio.log(n) for n in self.trio.brokers}) == 1, 60)

    @property
    def followers(self) -> list[str]:
        return [broker.address for broker in self.trio.brokers.values() if broker.address != self._address]


def _has_followed(trio: Trio, epoch: int) -> bool:
    trio.pause_still()
    return trio.epoch() > epoch and trio.master() is not None


CLUSTERS: dict[str, Callable[..., Cluster]] = {each.name: each for each in (Cluster, PairCluster, TrioCluster)}
