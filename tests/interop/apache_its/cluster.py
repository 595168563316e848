"""The cluster that the tests expect, a NameServer and three brokers, as processes of their own: Apache's or ours."""

from __future__ import annotations

import shutil
import socketserver
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oracle import apache, arrow, java
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

from certificates import self_signed

BROKERS = (1, 2, 3)
START_SECONDS = 300
# What the tests' own IntegrationTestBase sets, where it matters outside; the names are Apache's.
SETTINGS: dict[str, Value] = {
    "brokerClusterName": "DefaultCluster",
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
    "maxIndexNum": 1000,
    "maxHashSlotNum": 4000,
    "mappedFileSizeCommitLog": 100 << 20,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "diskMaxUsedSpaceRatio": 99,
}
ONLY_APACHE: dict[str, Value] = {
    "enableCalcFilterBitMap": True,
    "enableConsumeQueueExt": True,
    "appendAckAsync": True,
    "appendCkAsync": True,
    "loadBalancePollNameServerInterval": 500,
    "popConsumerKVServiceInit": True,
    # A busy test machine must not look like an overloaded broker.
    "brokerFastFailureEnable": False,
    "osPageCacheBusyTimeOutMills": 30_000,
}
HEAP = (*java.QUICK, "-Xmx768m")


class Cluster:
    """Runs while its context is entered. What it stored is removed afterwards, what it wrote of itself stays."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self._ports = {number: broker_port() for number in BROKERS}
        self._changed: dict[int, dict[str, Value]] = {number: {} for number in BROKERS}
        self._brokers: dict[int, Server] = {}
        self._names = self._namesrv()
        self._control = _Control(self._obey)

    def _namesrv(self) -> Server:
        folder, port = self.folder / "namesrv", free_port()
        return apache.namesrv(folder, port) if self.kind == "apache" else arrow.namesrv(folder, port, **self._tls())

    def _broker(self, number: int) -> Server:
        folder, port = self.folder / f"broker-{number}", self._ports[number]
        settings = {**SETTINGS, **self._changed[number]}
        name = f"TestBrokerName_{number}"
        if self.kind == "apache":
            settings = {"brokerName": name, **ONLY_APACHE, **settings}
            return apache.broker(folder, port, self._names.address, options=HEAP, **settings)
        return arrow.broker(folder, port, self._names.address, name=name, **settings, **self._tls())

    def _tls(self) -> dict[str, Value]:
        """Apache's servers make themselves a certificate; ours are given one."""
        certificate = self.folder / "tls" / "cert.pem"
        if not certificate.exists():
            self_signed(certificate.parent)
        return {"tls.server.certPath": certificate, "tls.server.keyPath": certificate.with_name("key.pem")}

    def properties(self) -> dict[str, Value]:
        """Where the cluster is, for `OutsideCluster` in the JVM of the tests."""
        return {
            "its.namesrv": self._names.port,
            "its.brokers": ",".join(str(port) for port in self._ports.values()),
            "its.control": self._control.port,
        }

    def _start(self, number: int) -> None:
        self._brokers[number] = self._broker(number).start(START_SECONDS)

    def _stop(self, number: int) -> None:
        if broker := self._brokers.pop(number, None):
            broker.stop()

    def _obey(self, line: str) -> None:
        """ "stop 2", "start 2 key=value …": the tests stop brokers, and start them with other settings."""
        what, number, *settings = line.split()
        if what == "stop":
            self._stop(int(number))
        else:
            self._changed[int(number)] |= dict(setting.split("=", 1) for setting in settings)
            self._start(int(number))

    def __enter__(self) -> Cluster:
        try:
            self._names.start(START_SECONDS)
            _at_once(self._start)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        _at_once(self._stop)
        self._names.stop()
        for number in BROKERS:
            shutil.rmtree(self.folder / f"broker-{number}" / "store", ignore_errors=True)


def _at_once(deed: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(len(BROKERS)) as pool:
        list(pool.map(deed, BROKERS))


class _Control:
    """A port where the tests ask for a broker to be stopped or started: one line in, "ok" or an error out."""

    def __init__(self, obey: Callable[[str], None]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    obey(self.rfile.readline().decode())
                    answer = "ok"
                except Exception as error:
                    answer = f"error: {error}".replace("\n", " ")
                self.wfile.write(f"{answer}\n".encode())

        self._server = socketserver.TCPServer((HOST, 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
