"""The peers: each started in a fresh folder, each driven by its own best client, each counted by its own CPU time."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

from oracle.process import HOST, Server, free_port

from benchmarks import loads, systems
from benchmarks.loads import QUEUES, Metrics, metrics
from benchmarks.spark import Kafka as KafkaBroker
from benchmarks.spark import cpu_s

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arrowmq-bench"
NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.12.1"
NATS_CLIENT = "github.com/nats-io/nats.go@v1.47.0"
BIG, SMALL, BATCH = 1024, 128, 32


class Peer(ABC):
    """A running broker and three kinds of work on it."""

    name = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"peer-{self.name}-"))

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def cpu_seconds(self) -> float: ...

    @abstractmethod
    def work(self, mode: str, topic: str, count: int, size: int) -> tuple[int, float]:
        """`one`, `batch` or `read`; messages done and the seconds that took."""

    def measure(self, mode: str, topic: str, count: int, size: int) -> Metrics:
        before = self.cpu_seconds()
        done, seconds = self.work(mode, topic, count, size)
        return metrics(done, seconds, self.cpu_seconds() - before)


def _said(command: list[str], **more: object) -> tuple[int, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} failed: {done.stdout[-500:]}{done.stderr[-1500:]}")
    count, seconds = done.stdout.split()[-2:]
    return int(count), float(seconds)


class ArrowMQ(Peer):
    """Ours; the client is the raw load generator, which sends and pulls as RocketMQ's clients do."""

    name = "arrowmq"

    def start(self) -> None:
        self.system = systems.ArrowMQ()
        self.system.start()

    def stop(self) -> None:
        self.system.stop()

    def cpu_seconds(self) -> float:
        return self.system.broker.cpu_seconds()

    def work(self, mode: str, topic: str, count: int, size: int) -> tuple[int, float]:
        if mode == "read":
            done = loads.raw_pull(self.system, topic, count)
        else:
            with closing(self.system.asker()) as asker:
                asker.create_topic(topic, QUEUES)
            batch = BATCH if mode == "batch" else 1
            done = loads.raw_send(self.system, topic, connections=16, inflight=1, size=size, count=count, batch=batch)
        return int(done["messages"]), done["messages"] / done["rate"]


class Kafka(Peer):
    name = "kafka"

    def start(self) -> None:
        self.broker = KafkaBroker(self.folder)
        self.jars = f"{KafkaBroker._jars()}/*"
        classes = self.folder / "classes"
        subprocess.run(["javac", "-cp", self.jars, "-d", str(classes), str(HERE / "KafkaLoad.java")], check=True)
        self.classpath = f"{classes}:{self.jars}"

    def stop(self) -> None:
        self.broker.stop()

    def cpu_seconds(self) -> float:
        return cpu_s(self.broker.process.pid)

    def work(self, mode: str, topic: str, count: int, size: int) -> tuple[int, float]:
        command = ["java", "-cp", self.classpath, "KafkaLoad", mode, self.broker.address, topic, str(count), str(size)]
        return _said(command)


class Nats(Peer):
    """NATS JetStream with file storage."""

    name = "nats"

    def start(self) -> None:
        tools = CACHE / "go"
        environment = {**os.environ, "GOBIN": str(tools / "bin"), "GOFLAGS": "-mod=mod"}
        if not (tools / "bin" / "nats-server").exists():
            subprocess.run(["go", "install", NATS_SERVER], check=True, env=environment)
        source = self.folder / "load"
        shutil.copytree(HERE / "nats", source)
        subprocess.run(["go", "get", NATS_CLIENT], check=True, cwd=source, env=environment, capture_output=True)
        self.client = self.folder / "natsload"
        subprocess.run(["go", "build", "-o", str(self.client), "."], check=True, cwd=source, env=environment)
        port = free_port()
        command = [
            str(tools / "bin" / "nats-server"),
            "-a",
            HOST,
            "-p",
            str(port),
            "-js",
            "-sd",
            str(self.folder / "data"),
        ]
        self.server = Server("nats", command, self.folder, port=port, ready="Server is ready", env=dict(os.environ))
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds()

    def work(self, mode: str, topic: str, count: int, size: int) -> tuple[int, float]:
        return _said([str(self.client), mode, self.server.address, topic, str(count), str(size)])


class Redis(Peer):
    """Redis streams with an append-only file forced every second; the client is redis-benchmark."""

    name = "redis"

    def start(self) -> None:
        if shutil.which("redis-server") is None:
            subprocess.run(["apt-get", "install", "-y", "-q", "redis-server"], check=True, capture_output=True)
        port = free_port()
        command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
        self.server = Server("redis", command, self.folder, port=port, ready="Ready to accept", env=dict(os.environ))
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds()

    def work(self, mode: str, topic: str, count: int, size: int) -> tuple[int, float]:
        tool = ["redis-benchmark", "-h", HOST, "-p", str(self.server.port), "--csv"]
        if mode == "read":
            cli = ["redis-cli", "-h", HOST, "-p", str(self.server.port)]
            subprocess.run([*cli, "XGROUP", "CREATE", topic, "readers", "0"], check=True, capture_output=True)
            reading = ["XREADGROUP", "GROUP", "readers", "one", "COUNT", str(BATCH), "NOACK", "STREAMS", topic, ">"]
            command, requests = [*tool, "-c", "8", "-n", str(count // BATCH), *reading], count // BATCH
        else:
            pipeline = BATCH if mode == "batch" else 1
            sending = ["XADD", topic, "*", "body", "x" * size]
            command, requests = [*tool, "-c", "16", "-P", str(pipeline), "-n", str(count), *sending], count
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        rate = float(done.stdout.splitlines()[-1].split('","')[1].strip('"'))
        return count // BATCH * BATCH if mode == "read" else count, requests / rate


PEERS = {peer.name: peer for peer in (ArrowMQ, Kafka, Nats, Redis)}
