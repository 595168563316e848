"""What a suite is played against: NameServer and broker, Apache's or ours, or a proxy before them, in one handle."""

from __future__ import annotations

from pathlib import Path

from oracle import apache, arrow, grpc5
from oracle.java import Value
from oracle.ports import HOST, broker_port, free_port
from oracle.process import Server

#: With a proxy, whose it is, and whose brokers are behind it
PROXIES = {
    "proxy": ("arrowmq", "arrowmq"),
    "proxy-apache": ("arrowmq", "apache"),
    "apache-proxy": ("apache", "arrowmq"),
    "apache-proxy-apache": ("apache", "apache"),
}
BROKERS = ("arrowmq", "apache")
KINDS = (*BROKERS, *PROXIES)
# Small times, so that a scene about checks and pauses ends while one is looking; the same for both targets.
CONFIG: dict[str, Value] = {
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "enablePropertyFilter": True,
    "defaultTopicQueueNums": 4,
    "mappedFileSizeCommitLog": 64 << 20,
}


class Target:
    """A cluster of one broker. Killing and starting again concerns the broker (and what shares its process).

    `namesrv` is what clients are given: where there is a proxy, its remoting port; `real_namesrv` is for others.
    """

    def __init__(self, kind: str, folder: Path, **config: Value) -> None:
        self.kind, self.folder = kind, folder
        namesrv_port, port = free_port(), broker_port()
        self.namesrv, self.broker = f"{HOST}:{namesrv_port}", f"{HOST}:{port}"
        self.real_namesrv = self.namesrv
        self._names: Server | None = None
        self.proxy: Server | None = None
        proxy_of, brokers_of = PROXIES.get(kind, ("", kind))
        if proxy_of:
            remoting_port = free_port()
            self.namesrv = f"{HOST}:{remoting_port}"
            make = grpc5.arrow_proxy if proxy_of == "arrowmq" else grpc5.apache_proxy
            # Apache's takes topics that do not say their kind for ones of normal messages alone.
            more: dict[str, Value] = {"enableTopicMessageTypeCheck": False} if proxy_of == "apache" else {}
            self.proxy = make(folder / "proxy", self.real_namesrv, remotingListenPort=remoting_port, **more)
        if brokers_of == "apache":
            # A busy test machine must not look like an overloaded broker.
            config = {"brokerFastFailureEnable": False, "osPageCacheBusyTimeOutMills": 30000, **config}
            self._names = apache.namesrv(folder / "namesrv", namesrv_port)
            self.server = apache.broker(folder / "broker", port, self.namesrv, **config)
            self.store = folder / "broker" / "store"
        else:
            self.server = arrow.server(folder / "arrowmq", namesrv_port, port, **config)
            self.store = folder / "arrowmq"

    def start(self) -> Target:
        if self._names:
            self._names.start()
        self.server.start()
        if self.proxy:
            self.proxy.start()
        return self

    def stop(self) -> None:
        try:
            if self.proxy:
                self.proxy.stop()
            self.server.stop()
        finally:
            if self._names:
                self._names.stop()

    def crash(self) -> None:
        """Kills the broker (-9) and starts it again on what it left."""
        self.server.kill()
        self.server.start()

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def __enter__(self) -> Target:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
