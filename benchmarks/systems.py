"""The brokers to be measured: ArrowMQ, the Apache broker, and the bare limit. Each runs in a fresh folder."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from oracle import apache, arrow
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from benchmarks import native
from benchmarks.asking import Asker

# What Apache's own start script sets, with a heap that fits the machine and grows as needed instead of 8 GB at once.
APACHE_JVM = (
    "-server",
    "-Xms512m",
    "-Xmx4g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:MaxDirectMemorySize=4g",
    "-XX:-UseLargePages",
    "-XX:-UseBiasedLocking",
    "-XX:+IgnoreUnrecognizedVMOptions",
)


class System(ABC):
    """A running broker with its NameServer; `broker` is the process whose cost is counted."""

    name = ""

    def __init__(self, root: Path | None = None, **config: Value) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-", dir=root))
        self.config = config
        self.namesrv_port, self.port = free_port(), broker_port()
        self.namesrv, self.address = f"{HOST}:{self.namesrv_port}", f"{HOST}:{self.port}"
        self.broker = self._broker()

    @abstractmethod
    def _broker(self) -> Server:
        """The process to be measured, not yet started."""

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Starts what must run before the broker."""

    def start(self) -> System:
        self.prepare()
        self.broker.start()
        return self

    def stop(self) -> None:
        """At once: nobody needs the store any more, and the Apache broker takes a quarter of a minute to end."""
        try:
            self.broker.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def asker(self) -> Asker:
        return Asker(self.address)

    def __enter__(self) -> System:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class ArrowMQ(System):
    name = "arrowmq"

    def _broker(self) -> Server:
        return arrow.server(self.folder, self.namesrv_port, self.port, **self.config)


class Apache(System):
    name = "apache"

    def _broker(self) -> Server:
        self._names = apache.namesrv(self.folder / "namesrv", self.namesrv_port)
        return apache.broker(self.folder / "broker", self.port, self.namesrv, None, options=APACHE_JVM, **self.config)

    def prepare(self) -> None:
        self._names.start()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._names.kill()


class Bare(System):
    """Reads, copies, takes CRCs and answers: what no broker can undercut."""

    name = "bare"

    def _broker(self) -> Server:
        command = [str(native.program("bare")), str(self.port), str(self.folder / "segment")]
        return Server("bare", command, self.folder, port=self.port, ready="ready", env={})


SYSTEMS = {system.name: system for system in (ArrowMQ, Apache, Bare)}
