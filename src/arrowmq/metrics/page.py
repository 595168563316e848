"""The page that Prometheus reads: a very small HTTP server, for `GET /metrics` and nothing else.

prometheus_client is imported at the first scrape, not at the broker's start.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from arrowmq.auth.errors import Denied
from arrowmq.auth.needs import Need
from arrowmq.auth.resources import Action, cluster_resource
from arrowmq.metrics.loop_watch import LoopWatch

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from arrowmq.broker.broker import Broker
    from arrowmq.clock import Clock
    from arrowmq.controller.controller import Controller
    from arrowmq.proxy.proxy import Proxy

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 16 * 1024
READ_TIMEOUT_S = 10.0
PORTS_TRIED = 32
ASK = 'WWW-Authenticate: Basic realm="metrics"\r\n'


class Page(ABC):
    """The page of some server: where it is, who may read it, and what it says."""

    name = "metrics page"

    def __init__(self, clock: Clock, host: str, port: int) -> None:
        self.loop_watch = LoopWatch(clock)
        self.port = 0
        self._place = host, port
        #: Make the families of other components in this process
        self.more: list[Callable[[], Collector]] = []
        self._server: asyncio.Server | None = None

    @abstractmethod
    def families(self) -> Collector:
        """What prometheus_client asks for the metrics."""

    def may_read(self, head: bytes, source: str) -> bool:
        return True

    async def start(self) -> None:
        """Listen, on the next free port if this one is taken: several servers of one machine have a page each."""
        host, port = self._place
        for candidate in range(port, port + PORTS_TRIED) if port else (0,):
            try:
                self._server = await asyncio.start_server(self._serve, host, candidate, limit=MAX_REQUEST_BYTES)
                break
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:
                    log.warning("no metrics page host=%s port=%d reason=%s", host, candidate, problem)
                    return
        if self._server is None:
            log.warning("no metrics page host=%s reason=ports %d to %d are taken", host, port, port + PORTS_TRIED - 1)
            return
        self.port = self._server.sockets[0].getsockname()[1]
        self.loop_watch.start()
        log.info("metrics at http://%s:%d/metrics", host, self.port)

    async def stop(self) -> None:
        self.loop_watch.stop()
        if self._server is not None:
            self._server.close()
            self._server = None

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self.families())
        for make in self.more:
            registry.register(make())
        return generate_latest(registry)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            source = str((writer.get_extra_info("peername") or ("",))[0])
            writer.write(self._answer(head, source))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # not a request, or nobody there any more: the connection ends either way
        finally:
            writer.close()

    def _answer(self, head: bytes, source: str) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET is served here\n")
        if path not in (b"/metrics", b"/"):
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        if not self.may_read(head, source):
            return _response("401 Unauthorized", b"name and password of a user with Get on the cluster\n", more=ASK)
        try:
            text = self.text()
        except Exception as failure:  # one value that cannot be read must not look like a broker that is down
            log.exception("the metrics cannot be gathered")
            return _response("500 Internal Server Error", f"{type(failure).__name__}: {failure}\n".encode())
        return _response("200 OK", text, "text/plain; version=0.0.4; charset=utf-8")


class MetricsPage(Page):
    """A broker's."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        super().__init__(broker.clock, config.metrics_prom_exporter_host, config.metrics_prom_exporter_port)
        self.broker = broker

    def families(self) -> Collector:
        from arrowmq.metrics.families import BrokerFamilies

        return BrokerFamilies(self.broker, self.loop_watch)

    def may_read(self, head: bytes, source: str) -> bool:
        """Whether the request names a user of the broker who may look at the cluster (HTTP's basic authentication)."""
        if not self.broker.config.metrics_authentication_enabled:
            return True
        guard = self.broker.guard
        name, password = _credentials(head)
        need = Need(cluster_resource(guard.access.cluster), (Action.GET,))
        try:
            user = guard.access.authenticate_password(name, password)
            if not user.is_super and not guard.access.has_right(user.name, need, source):
                raise Denied("no right to look at the cluster", who=name)
        except Denied as no:
            guard.audit.denied(0, no.who, source, "metrics page", no.text)
            return False
        return True


class ControllerPage(Page):
    """A controller's, for everybody who reaches it, as Apache's."""

    def __init__(self, controller: Controller) -> None:
        config = controller.config
        super().__init__(controller.clock, config.metrics_prom_exporter_host, config.metrics_prom_exporter_port)
        self.controller = controller

    def families(self) -> Collector:
        from arrowmq.metrics.controller import ControllerFamilies

        return ControllerFamilies(self.controller, self.loop_watch)


class ProxyPage(Page):
    """That of a proxy before a cluster, for everybody who reaches it, as Apache's."""

    def __init__(self, proxy: Proxy, clock: Clock) -> None:
        config = proxy.config
        super().__init__(clock, config.metrics_prom_exporter_host, config.metrics_prom_exporter_port)
        self.proxy = proxy

    def families(self) -> Collector:
        from arrowmq.metrics.proxy import ProxyFamilies

        return ProxyFamilies(self.proxy, self.loop_watch)


def _credentials(head: bytes) -> tuple[str, str]:
    """Name and password of a request; empty where it has none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        kind, _, encoded = value.strip().partition(b" ")
        if name.strip().lower() == b"authorization" and kind.lower() == b"basic":
            try:
                user, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
            except ValueError:
                return "", ""
            return user, password
    return "", ""


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8", more: str = "") -> bytes:
    length = len(body)
    head = f"HTTP/1.1 {status}\r\n{more}Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
