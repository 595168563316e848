"""The peers: each started in a fresh folder, each driven by its own best client, each counted by its own CPU time.

All keep messages in files and leave forcing them to the system, or do so now and then: ArrowMQ and Apache RocketMQ
under ASYNC_FLUSH, Kafka as it comes, JetStream with file storage, Redis with an append-only file forced every second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from oracle.ports import HOST, free_port
from oracle.process import Server

from benchmarks import loads, systems
from benchmarks.loads import QUEUES, Metrics, metrics
from benchmarks.memory import touch_free_memory
from benchmarks.spark import KAFKA, cpu_s, fetch
from benchmarks.spark import Kafka as KafkaBroker

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arrowmq-bench"
NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.12.1"
NATS_CLIENT = "github.com/nats-io/nats.go@v1.47.0"
BIG, SMALL = 1024, 128
# In a window, as many as Kafka takes in one: what is behind them may meet memory that is not ready.
MOST_SENT = 8_000_000
WINDOW_BYTES = 5 << 30  # of memory that is ready; they take 3
BATCH = 256  # of small messages: some 64 KiB with what surrounds them, as large as Kafka's batches here
# As large answers as Kafka's default fetch: RocketMQ's own default is 32 messages or 256 KiB.
PULL_COUNT, PULL_BYTES = 1024, 1 << 20
BIG_PULLS = {
    f"maxTransfer{what}OnMessageIn{where}": value
    for what, value in (("Count", PULL_COUNT), ("Bytes", PULL_BYTES))
    for where in ("Memory", "Disk")
}
SKIPPED = 0.2  # of a backlog, before reading it counts


@dataclass(frozen=True)
class Span:
    """How long a peer is warmed up, and measured."""

    warm_s: float
    window_s: float


class Missing(RuntimeError):
    """A peer that cannot run here; the text says what to install."""


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
    def send(self, topic: str, size: int, batch: int, span: Span) -> Metrics:
        """16 senders, one message or one batch at a time each."""

    def send_shared(self, topic: str, size: int, span: Span) -> Metrics | None:
        """16 senders on one connection, where `send` has one for each and the system's own clients share one."""
        return None

    @abstractmethod
    def read(self, topic: str, count: int) -> Metrics:
        """So many messages from the start of a backlog."""

    def over(self, work: Callable[[], tuple[float, float]]) -> Metrics:
        """The cost of work that says how many messages it did in how many seconds."""
        before = self.cpu_seconds()
        done, seconds = work()
        return metrics(int(done), seconds, self.cpu_seconds() - before)

    def client(self, command: list[str]) -> Metrics:
        """Runs a client that says when its window begins and ends."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            before = 0.0
            for line in process.stdout:
                if line.startswith("begin"):
                    before = self.cpu_seconds()
                elif line.startswith("end"):
                    spent = self.cpu_seconds() - before
                    _, count, seconds = line.split()
                    process.stderr.read()
                    return metrics(int(count), float(seconds), spent)
            raise RuntimeError(f"{' '.join(command[:6])} failed: {process.stderr.read()[-1500:]}")


def require(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        raise Missing(f"{tool} is not installed: `apt-get install {package}`, or leave this peer out with --peers")


class ArrowMQ(Peer):
    """Ours; the client is the raw load generator, which sends and pulls as RocketMQ's clients do."""

    name = "arrowmq"
    kind: type[systems.System] = systems.ArrowMQ

    def start(self) -> None:
        require("cc", "gcc")
        self.system = self.kind(**BIG_PULLS)
        self.system.start()

    def stop(self) -> None:
        self.system.stop()

    def cpu_seconds(self) -> float:
        return self.system.broker.cpu_seconds()

    def send(self, topic: str, size: int, batch: int, span: Span) -> Metrics:
        return self._send(topic, size, batch, span, connections=16, inflight=1)

    def send_shared(self, topic: str, size: int, span: Span) -> Metrics:
        return self._send(topic, size, 1, span, connections=1, inflight=16)

    def _send(self, topic: str, size: int, batch: int, span: Span, *, connections: int, inflight: int) -> Metrics:
        with closing(self.system.asker()) as asker:
            asker.create_topic(topic, QUEUES)
        shape = {"connections": connections, "inflight": inflight, "size": size, "batch": batch}
        loads.raw_send(self.system, topic, seconds=span.warm_s, **shape)
        touch_free_memory(WINDOW_BYTES)
        return loads.raw_send(self.system, topic, seconds=span.window_s, count=MOST_SENT, **shape)

    def read(self, topic: str, count: int) -> Metrics:
        with closing(self.system.asker()) as asker:
            held = min(asker.stored_in(topic, queue) for queue in range(QUEUES)) * QUEUES
        loads.raw_pull(self.system, topic, int(min(count, held) * SKIPPED), most=PULL_COUNT)
        return loads.raw_pull(self.system, topic, min(count, held), most=PULL_COUNT)


class RocketMQ(ArrowMQ):
    """Apache's, with the same client and settings."""

    name = "rocketmq"
    kind = systems.Apache

    def start(self) -> None:
        require("mvn", "maven")
        super().start()


class Kafka(Peer):
    name = "kafka"

    def start(self) -> None:
        require("mvn", "maven")
        require("javac", "default-jdk-headless")
        jars = fetch(KAFKA)
        classes = self.folder / "classes"
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "KafkaLoad.java")], check=True)
        self.classpath = f"{classes}:{jars}/*"
        self.broker = KafkaBroker(self.folder)

    def stop(self) -> None:
        self.broker.stop()

    def cpu_seconds(self) -> float:
        return cpu_s(self.broker.process.pid)

    def load(self, mode: str, *words: object) -> Metrics:
        java = ["java", "-Xmx1g", "-cp", self.classpath, "KafkaLoad"]
        return self.client([*java, mode, self.broker.address, *map(str, words)])

    def send(self, topic: str, size: int, batch: int, span: Span) -> Metrics:
        return self.load("batch" if batch > 1 else "one", topic, size, span.warm_s, span.window_s)

    def read(self, topic: str, count: int) -> Metrics:
        return self.load("read", topic, int(count * SKIPPED), count)


class Nats(Peer):
    """NATS JetStream with file storage."""

    name = "nats"

    def start(self) -> None:
        require("go", "golang")
        tools = CACHE / "go"
        environment = {**os.environ, "GOBIN": str(tools / "bin"), "GOFLAGS": "-mod=mod"}
        if not (tools / "bin" / "nats-server").exists():
            subprocess.run(["go", "install", NATS_SERVER], check=True, env=environment)
        source = self.folder / "load"
        shutil.copytree(HERE / "nats", source)
        subprocess.run(["go", "get", NATS_CLIENT], check=True, cwd=source, env=environment, capture_output=True)
        self.program = self.folder / "natsload"
        subprocess.run(["go", "build", "-o", str(self.program), "."], check=True, cwd=source, env=environment)
        port = free_port()
        server, data = str(tools / "bin" / "nats-server"), str(self.folder / "data")
        command = [server, "-a", HOST, "-p", str(port), "-js", "-sd", data]
        self.server = Server("nats", command, self.folder, port=port, ready="Server is ready", env=dict(os.environ))
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds()

    def load(self, mode: str, *words: object) -> Metrics:
        return self.client([str(self.program), mode, self.server.address, *map(str, words)])

    def send(self, topic: str, size: int, batch: int, span: Span) -> Metrics:
        return self.load("batch" if batch > 1 else "one", topic, size, span.warm_s, span.window_s)

    def read(self, topic: str, count: int) -> Metrics:
        return self.load("read", topic, int(count * SKIPPED), count)


class Redis(Peer):
    """Redis streams with an append-only file forced every second; the client is redis-benchmark."""

    name = "redis"
    GUESS = 20_000  # requests that show how many fit into a window

    def start(self) -> None:
        require("redis-server", "redis-server")
        require("redis-benchmark", "redis-tools")
        port = free_port()
        command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
        self.server = Server("redis", command, self.folder, port=port, ready="Ready to accept", env=dict(os.environ))
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds()

    def requests(self, count: int, *words: str) -> float:
        """Requests of redis-benchmark; how many a second."""
        tool = ["redis-benchmark", "-h", HOST, "-p", str(self.server.port), "--csv", "-n", str(count), *words]
        done = subprocess.run(tool, capture_output=True, text=True, timeout=600, check=True)
        return float(done.stdout.splitlines()[-1].split('","')[1].strip('"'))

    def send(self, topic: str, size: int, batch: int, span: Span) -> Metrics:
        words = ("-c", "16", "-P", str(batch), "XADD", topic, "*", "body", "x" * size)
        rate = self.requests(self.GUESS * batch, *words)
        rate = self.requests(int(rate * span.warm_s), *words)
        count = int(rate * span.window_s)
        return self.over(lambda: (count, count / self.requests(count, *words)))

    def read(self, topic: str, count: int) -> Metrics:
        command = ["redis-cli", "-h", HOST, "-p", str(self.server.port)]
        subprocess.run([*command, "XGROUP", "CREATE", topic, "readers", "0"], check=True, capture_output=True)
        at_once = 500
        asking = ["XREADGROUP", "GROUP", "readers", "one", "COUNT", str(at_once), "NOACK", "STREAMS", topic, ">"]
        skipped = int(count * SKIPPED) // at_once
        self.requests(skipped, "-c", "8", *asking)
        rest = count // at_once - skipped
        return self.over(lambda: (rest * at_once, rest / self.requests(rest, "-c", "8", *asking)))


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (ArrowMQ, RocketMQ, Kafka, Nats, Redis)}
