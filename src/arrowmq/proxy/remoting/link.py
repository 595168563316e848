"""One client of the proxy, and the connections to brokers that are made for it alone.

A connection to a broker begins with the heartbeats that the client sent last: the broker knows it before it asks for
anything. When the client goes, so do they, and brokers notice at once. When the client does not read, its brokers are
not read either, so nothing gathers here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from arrowmq.clock import Clock
from arrowmq.proxy.remoting.directory import Directory
from arrowmq.proxy.remoting.heartbeats import Heartbeats, Introductions
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.errors import ConnectFailed, ConnectionLost, RemotingError
from arrowmq.remoting.greeting import ADDRESS, PORT, proxy_line
from arrowmq.remoting.handlers import Answer, Call
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.command import ONEWAY_FLAG
from arrowmq.wire.frames import Command

log = logging.getLogger(__name__)

LINK, BROKER = "proxy_link", "proxy_broker"  # attributes of connections
UNSENT_BYTES = 1024 * 1024  # beyond it, what brokers send to this client waits in their sockets
INTRODUCE_TIMEOUT_S = 5.0


class Upstream:
    """A connection to one broker in the name of one client."""

    __slots__ = ("address", "broker", "connection", "introductions")

    def __init__(self, broker: str, address: str, connection: Connection, clock: Clock) -> None:
        self.broker, self.address, self.connection = broker, address, connection
        self.introductions = Introductions(clock)


class ClientLink:
    """`port_broker`: the broker whose port the client came in by; `elsewhere`: brokers that have such a port;
    `sends_proxy_line`: brokers are told who it is."""

    def __init__(
        self,
        client: Connection,
        remoting: RemotingClient,
        directory: Directory,
        clock: Clock,
        *,
        port_broker: str = "",
        elsewhere: Collection[str] = (),
        sends_proxy_line: bool = False,
    ) -> None:
        self.client = client
        self.port_broker = port_broker
        self.heartbeats = Heartbeats(directory, port_broker, elsewhere)
        self._remoting, self._directory, self._clock = remoting, directory, clock
        self._sends_proxy_line = sends_proxy_line
        self._upstreams: dict[str, Upstream] = {}
        self._opening: dict[str, asyncio.Task[Upstream]] = {}
        self._pausing: asyncio.Task[None] | None = None
        client.attributes[LINK] = self
        client.on_close(self._client_gone)

    @property
    def upstreams(self) -> list[Upstream]:
        return list(self._upstreams.values())

    # --- passing on --------------------------------------------------------------------------------------------------

    def pass_on(self, call: Call, upstream: Upstream, timeout_s: float) -> None:
        """Send the client's request as it is; the broker's answer goes back as it is."""
        request = passed_on(call.command)
        if request.flag & ONEWAY_FLAG:
            upstream.connection.send_oneway(request)
            call.reply(None)
            return
        call.hold()
        future = upstream.connection.start_request(request, timeout_s)
        future.add_done_callback(partial(self._answered, call))

    def _answered(self, call: Call, future: asyncio.Future[Command]) -> None:
        if future.cancelled():
            call.refuse(ResponseCode.SYSTEM_ERROR, "the proxy stopped before this request was done: repeat it")
            return
        error = future.exception()
        if error is not None:
            call.refuse(ResponseCode.SYSTEM_ERROR, str(error))
            return
        call.reply(answer_of(future.result()))
        if self.client.unsent_bytes > UNSENT_BYTES:
            self._wait_for_client()

    def open_now(self, broker: str) -> Upstream | None:
        """The connection to this broker, if it can be used at once."""
        upstream = self._upstreams.get(broker)
        return None if upstream is None or broker in self._opening or upstream.connection.is_ending else upstream

    async def open(self, broker: str) -> Upstream:
        """The connection to this broker, made if there is none. Raises RemotingError or Refused."""
        upstream = self.open_now(broker)
        if upstream is not None:
            return upstream
        task = self._opening.get(broker)
        if task is None:
            task = self._opening[broker] = asyncio.ensure_future(self._open(broker))
            task.add_done_callback(partial(self._opened, broker))
        return await asyncio.shield(task)

    async def _open(self, broker: str) -> Upstream:
        address = await self._directory.address(broker)
        try:
            connection = await self._remoting.dial(address)
        except ConnectFailed:
            before, address = address, await self._directory.address(broker, is_fresh=True)
            if address == before:
                raise
            connection = await self._remoting.dial(address)
        if self.client.closed:
            connection.abort()
            raise ConnectionLost(self.client.peer_text, "the client has gone")
        if self._sends_proxy_line:
            connection.write(proxy_line(_source_of(self.client), self.client.local))
        connection.attributes |= {LINK: self, BROKER: broker}
        upstream = self._upstreams[broker] = Upstream(broker, address, connection, self._clock)
        connection.on_close(lambda closed: self._lost(upstream))
        for heartbeat in self.heartbeats.last:
            try:
                await self.introduce(upstream, heartbeat)
            except RemotingError as error:
                log.info("client not introduced client=%s broker=%s reason=%s", self.client.peer_text, broker, error)
        return upstream

    def _opened(self, broker: str, task: asyncio.Task[Upstream]) -> None:
        self._opening.pop(broker, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it

    async def introduce(self, upstream: Upstream, heartbeat: Command) -> Command:
        """Hand a heartbeat to a broker, unless it had the same one just now. Raises RemotingError."""
        known = upstream.introductions.answer_to(heartbeat)
        if known is not None:
            return known
        answer = await upstream.connection.request(passed_on(heartbeat), INTRODUCE_TIMEOUT_S)
        upstream.introductions.made(heartbeat, answer)
        return answer

    # --- ends --------------------------------------------------------------------------------------------------------

    def moved(self, broker: str, address: str) -> None:
        """The broker's master is elsewhere now: what comes next goes there."""
        upstream = self._upstreams.get(broker)
        if upstream is not None and upstream.address != address:
            del self._upstreams[broker]
            upstream.connection.close()

    def _lost(self, upstream: Upstream) -> None:
        if self._upstreams.get(upstream.broker) is upstream:
            del self._upstreams[upstream.broker]

    def _client_gone(self, _client: object) -> None:
        for task in list(self._opening.values()):
            task.cancel()
        if self._pausing is not None:
            self._pausing.cancel()
        for upstream in self.upstreams:
            upstream.connection.abort()
        self._upstreams.clear()

    # --- a client that does not read ---------------------------------------------------------------------------------

    def _wait_for_client(self) -> None:
        for upstream in self._upstreams.values():
            upstream.connection.stop_reading()
        if self._pausing is None:
            self._pausing = asyncio.ensure_future(self._read_on_when_taken())

    async def _read_on_when_taken(self) -> None:
        try:
            await self.client.drain()
        finally:
            self._pausing = None
        for upstream in self._upstreams.values():
            upstream.connection.read_on()


def _source_of(client: Connection) -> tuple[str, int]:
    told = client.attributes.get(ADDRESS)
    return client.peer if told is None else (str(told), int(client.attributes[PORT]))


def passed_on(command: Command) -> Command:
    """The same request for another connection, which numbers it anew; all that is signed stays as it was."""
    return Command(
        command.code,
        0,
        command.flag,
        command.version,
        command.language,
        command.remark,
        command.ext,
        command.body,
        command.serialize_type,
    )


def answer_of(answer: Command) -> Answer:
    return Answer(answer.code, answer.ext, answer.body, answer.remark)
