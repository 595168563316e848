"""One client's life on the network: its id, its connections, the routes it knows, its heartbeats, its tasks.

Every producer, consumer and admin has a session of its own; nothing is shared between them behind the user's back. A
session ends with `close()`, after which none of its tasks is left.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from arrowmq.client import names
from arrowmq.client.credentials import Credentials
from arrowmq.client.errors import ArrowMQError, InvalidUse, NamesrvUnreachable, NoRoute, Refused, TimedOut, Unreachable
from arrowmq.client.options import Options
from arrowmq.client.produce.pending_sends import PendingSends
from arrowmq.client.produce.send_frame import DEFAULT_TOPIC_QUEUES
from arrowmq.client.routes import Route
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.errors import RemotingError, RequestTimeout
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, TopicRouteData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import UniqueIds

log = logging.getLogger("arrowmq.client")

_T = TypeVar("_T")


class Session:
    def __init__(self, options: Options, *, is_stream: bool = False) -> None:
        self.options = options
        self.clock = options.clock
        self.client_id = names.client_id(
            instance_name=options.instance_name,
            unit_name=options.unit_name,
            is_stream=is_stream,
            ip=options.client_ip,
        )
        self.remoting = RemotingClient(options.clock, tls=options.tls)
        ids = UniqueIds(_ip_bytes(self.client_id.partition("@")[0]), options.clock.now_ms)
        self.new_msg_id = ids.next
        self.pending_sends = PendingSends(options.clock, self.remoting, ids, self._quick_connection)
        self.credentials = Credentials(*options.credentials) if options.credentials else None
        #: Nobody must see requests before they leave: they may be written in whatever way is quickest.
        self.is_plain = self.credentials is None and not options.rpc_hooks
        self.routes: dict[str, Route] = {}
        #: Topics whose routes are kept fresh, each with what to do when its route changed.
        self.watched: dict[str, Callable[[], object]] = {}
        self.producer_groups: set[str] = set()
        #: Asked at each heartbeat, because subscriptions change.
        self.consumer_data: dict[str, Callable[[], ConsumerData]] = {}
        self.broker_versions: dict[str, int] = {}
        self._namesrv_index = 0
        self._last_failure: NamesrvUnreachable | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ended in the order in which they began
        self._questions: dict[str, asyncio.Task[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    # -- life

    async def start(self, *, is_patient: bool = False) -> None:
        """Make sure that a NameServer answers, then keep routes fresh and brokers informed.

        A patient one does not ask first: it is for tools that show what answers and what does not.
        """
        if self._loop is not None:
            raise InvalidUse("this client was started before; make a new one, a client lives once")
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.options.start_timeout_s):
                if not is_patient:
                    await self._await_namesrv()
        except TimeoutError as late:
            await self.close()
            if self._last_failure is not None:  # why it did not answer says more than that it took too long
                raise self._last_failure from late
            raise NamesrvUnreachable(
                self.options.namesrv,
                [TimeoutError(f"no answer within {self.options.start_timeout_s:g} s")] * len(self.options.namesrv),
            ) from late
        except BaseException:
            await self.close()
            raise
        self.spawn(self._every(self.options.poll_namesrv_interval_s, self.refresh_routes), "refresh routes")
        self.spawn(self._every(self.options.heartbeat_interval_s, self.heartbeat), "heartbeat")

    async def _await_namesrv(self) -> None:
        while True:
            try:
                await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": names.AUTO_CREATE_TOPIC})
                return
            except Refused:
                return  # it answered, that is what counts
            except NamesrvUnreachable as failure:
                self._last_failure = failure
                if self.options.start_timeout_s < 1:
                    raise
                log.warning("%s; trying again for up to %g s", failure, self.options.start_timeout_s)
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        """End every task and connection of this client."""
        if self.is_closed:
            return
        self.is_closed = True
        current = asyncio.current_task()
        mine = [task for task in self._tasks if task is not current]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        await self.remoting.close()
        self.pending_sends.close()

    def check_usable(self) -> None:
        """Fails with a sentence, instead of hanging, for a client that has not begun, has ended or lives elsewhere."""
        if self.is_closed:
            raise InvalidUse("this client is closed; make a new one")
        if self._loop is None:
            raise InvalidUse("this client is not started: use `async with`, or await its start() first")
        if self._loop is not asyncio.get_running_loop():
            raise InvalidUse("this client belongs to another event loop; a client is used in the loop that started it")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run in the background until it ends or the session closes; an unexpected error is logged, not lost."""
        task = asyncio.get_running_loop().create_task(work, name=f"arrowmq {name} {self.client_id}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed: %s", task.get_name(), exc_info=error)

    def _question_ended(self, what: str, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        self._questions.pop(what, None)
        if not task.cancelled():
            task.exception()  # it belongs to those who wait for the answer

    async def _every(self, interval_s: float, job: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self.clock.sleep(interval_s)
            await self.guarded(job, interval_s)

    async def guarded(self, job: Callable[[], Awaitable[object]], again_s: float) -> None:
        """One turn of work that repeats: whatever goes wrong in it is told, and the next turn comes all the same."""
        try:
            await job()
        except ArrowMQError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("background work of %s failed; it is done again in %g s", self.client_id, again_s)

    # -- requests

    def prepare(self, address: str, request: Command) -> None:
        """Hooks and signature; the last thing before a request leaves."""
        for hook in self.options.rpc_hooks:
            hook.before_request(address, request)
        if self.credentials is not None:
            self.credentials.sign(request)

    async def ask(
        self, address: str, request: Command, what: str, timeout_s: float | None = None, *, accept: tuple[int, ...] = ()
    ) -> Command:
        """Send a request and wait for its answer; an answer that is neither success nor in `accept` is an error."""
        timeout_s = self.options.request_timeout_s if timeout_s is None else timeout_s
        if not self.is_plain:
            self.prepare(address, request)
        try:
            answer = await self.remoting.invoke(address, request, timeout_s)
            if answer.code == ResponseCode.GO_AWAY:
                answer = await self._ask_on_new_connection(address, request, timeout_s)
        except RequestTimeout as late:
            self._after(address, request, None)
            raise TimedOut(what, address, timeout_s) from late
        except RemotingError as lost:
            self._after(address, request, None)
            raise Unreachable(what, address, lost) from lost
        self._after(address, request, answer)
        if answer.code and answer.code not in accept:
            raise Refused(what, address, answer.code, answer.remark)
        return answer

    async def _ask_on_new_connection(self, address: str, request: Command, timeout_s: float) -> Command:
        """The server is about to stop and asks to come back on another connection: once."""
        self.remoting.disconnect(address)
        again = Command.request(request.code, request.ext, request.body)
        return await self.remoting.invoke(address, again, timeout_s)

    def _after(self, address: str, request: Command, answer: Command | None) -> None:
        for hook in self.options.rpc_hooks:
            hook.after_response(address, request, answer)

    async def send_oneway(self, address: str, request: Command, what: str) -> None:
        """Send a one-way request."""
        if not self.is_plain:
            self.prepare(address, request)
        try:
            await self.remoting.invoke_oneway(address, request)
        except RemotingError as lost:
            raise Unreachable(what, address, lost) from lost

    def _quick_connection(self, address: str) -> Connection | None:
        """The open connection to a broker that knows us; to another one the general path must be taken first."""
        if self.producer_groups and address not in self.broker_versions:
            return None
        return self.remoting.connection(address)

    async def _ask_namesrv(self, request: Command, *, accept: tuple[int, ...] = ()) -> Command:
        """The NameServer that answered last is asked first; when it is gone, the next one."""
        addresses = self.options.namesrv
        causes: list[BaseException] = []
        tried: list[str] = []
        for step in range(len(addresses)):
            index = (self._namesrv_index + step) % len(addresses)
            address = addresses[index]
            again = Command.request(request.code, request.ext, request.body)
            try:
                answer = await self.ask(address, again, "asking the NameServer", accept=accept)
            except (Unreachable, TimedOut) as failure:
                tried.append(address)
                causes.append(failure)
                continue
            self._namesrv_index = index
            return answer
        raise NamesrvUnreachable(tried, causes)

    async def ask_namesrv(
        self, code: int, ext: dict[str, str] | None = None, *, accept: tuple[int, ...] = ()
    ) -> Command:
        return await self._ask_namesrv(Command.request(code, ext), accept=accept)

    # -- routes

    async def fetch_route(self, topic: str) -> Route | None:
        """Ask for the topic's route; None if the NameServer knows none."""
        answer = await self.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
            accept=(ResponseCode.TOPIC_NOT_EXIST,),
        )
        if answer.code:
            return None
        return Route.from_data(topic, fastjson.loads(answer.body, TopicRouteData))

    async def route(self, topic: str, *, for_sending: bool = False) -> Route:
        """The topic's route, from the cache or the NameServer. Many who ask at once share one request."""
        route = self.routes.get(topic)
        if route is not None:
            return route
        return await self._shared(f"route of {topic}", lambda: self._find_route(topic, for_sending))

    async def _shared(self, what: str, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Many who ask the same at once share one request, which goes on when one of them is cancelled."""
        request: asyncio.Task[_T] | None = self._questions.get(what)
        if request is None:
            request = self.spawn(ask(), what)
            self._questions[what] = request
            request.remove_done_callback(self._task_ended)
            request.add_done_callback(lambda task: self._question_ended(what, task))
        return await asyncio.shield(request)

    async def _find_route(self, topic: str, for_sending: bool) -> Route:
        route = await self.fetch_route(topic)
        if route is None and for_sending:
            answer = await self.ask_namesrv(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                {"topic": names.AUTO_CREATE_TOPIC, "acceptStandardJsonOnly": "true"},
                accept=(ResponseCode.TOPIC_NOT_EXIST,),
            )
            if not answer.code:
                template = fastjson.loads(answer.body, TopicRouteData)
                route = Route.from_template(topic, template, DEFAULT_TOPIC_QUEUES)
        if route is None:
            raise NoRoute(
                topic,
                self.options.namesrv[self._namesrv_index],
                f"Create it with `arrowmq topic create {topic}`, or start a broker with autoCreateTopicEnable=true",
            )
        self.routes[topic] = route
        return route

    async def refresh_route(self, topic: str) -> Route | None:
        """Ask again; a topic that has no route any more keeps the old one, as its brokers may only be restarting."""
        return await self._shared(f"new route of {topic}", lambda: self._refresh_route(topic))

    async def _refresh_route(self, topic: str) -> Route | None:
        fresh = await self.fetch_route(topic)
        if fresh is not None and fresh != self.routes.get(topic):
            self.routes[topic] = fresh
            log.info("route of %s: %d queues on %s", topic, len(fresh.subscribe_queues), ", ".join(fresh.addresses))
            if topic in self.watched:
                self.watched[topic]()
        return fresh

    async def refresh_routes(self) -> None:
        for topic in {*self.routes, *self.watched}:
            await self.refresh_route(topic)

    def addresses(self, *, masters_only: bool = False) -> set[str]:
        """Every broker address that some route mentions."""
        return {
            address
            for route in self.routes.values()
            for by_id in route.addresses.values()
            for broker_id, address in by_id.items()
            if broker_id == 0 or not masters_only
        }

    # -- registration at the brokers

    def heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producer_groups)],
            consumer_data_set=[describe() for describe in self.consumer_data.values()],
        )

    async def heartbeat(self) -> None:
        """Tell every known broker who we are. A broker that cannot be reached is told next time."""
        if not self.producer_groups and not self.consumer_data:
            return
        body = fastjson.dumps(self.heartbeat_data())
        addresses = self.addresses(masters_only=not self.consumer_data)
        await asyncio.gather(*(self._heartbeat_to(address, body) for address in addresses))

    async def _heartbeat_to(self, address: str, body: bytes) -> None:
        try:
            answer = await self.ask(address, Command.request(RequestCode.HEART_BEAT, None, body), "heartbeat")
        except ArrowMQError as error:
            log.warning("%s", error)
        else:
            self.broker_versions[address] = answer.version

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Leave a group at every known broker, so that the others take over at once."""
        ext = {"clientID": self.client_id}
        if producer_group:
            ext["producerGroup"] = producer_group
        if consumer_group:
            ext["consumerGroup"] = consumer_group

        async def leave(address: str) -> None:
            try:
                await self.ask(address, Command.request(RequestCode.UNREGISTER_CLIENT, ext), "leaving the group")
            except ArrowMQError as error:
                log.info("%s; the broker will notice by itself", error)

        await asyncio.gather(*(leave(address) for address in self.addresses()))


def _ip_bytes(host: str) -> bytes:
    """The address that goes into message ids; a client told to call itself by a name gets the loopback's."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes([127, 0, 0, 1])
