"""Which queues a consumer gets, for consumers that let the broker decide, and whether it pulls or pops.

Apache's two strategies: AVG gives each client a run of neighbouring queues, AVG_BY_CIRCLE deals them out in turn. The
queues of a topic on other brokers are known from the NameServers' route, asked again when it is half a minute old.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arrowmq.broker import names
from arrowmq.broker.clients.table import BROADCASTING
from arrowmq.broker.settings.config import READ
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    MessageQueueAssignment,
    MessageRequestModeTable,
    QueryAssignment,
    QueryAssignmentResult,
    SetMessageRequestMode,
    TopicRouteData,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

log = logging.getLogger(__name__)

ROUTE_LIVES_MS = 30_000
ROUTE_TIMEOUT_S = 3.0
POP = "POP"
PULL = "PULL"


class AssignmentService:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = broker.config
        self.file = broker.file("messageRequestMode.json")
        self.modes = MessageRequestModeTable()
        self.revision = broker.boot_ms  # another number whenever a mode was set
        self._routes: dict[str, tuple[int, list[MessageQueue]]] = {}

    def load(self) -> None:
        stored = self.file.load()
        if stored is not None:
            with self.file.naming_damage():
                self.modes = fastjson.as_type(stored, MessageRequestModeTable)

    @handles(RequestCode.SET_MESSAGE_REQUEST_MODE)
    async def set_mode(self, call: Call) -> None:
        wanted = fastjson.loads(call.body, type=SetMessageRequestMode)
        if wanted.topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self.broker.topics.get(wanted.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] does not exist on this broker")
        if wanted.mode not in (PULL, POP):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"mode={wanted.mode} is unknown: use PULL or POP")
        # As Apache's broker does: a mode is often set before the group's first consumer comes.
        if self.broker.groups.find(wanted.consumer_group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group[{wanted.consumer_group}] does not exist on this broker: "
                f"{self.broker.groups.why_not_created(wanted.consumer_group)}",
            )
        await self.broker.groups.saved()
        self.modes.message_request_mode_map.setdefault(wanted.topic, {})[wanted.consumer_group] = wanted
        self.revision += 1
        self.file.persist(fastjson.dumps(self.modes))

    @handles(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_modes(self) -> Answer:
        return Answer(body=fastjson.dumps(self.modes))

    def take(self, modes: MessageRequestModeTable) -> None:
        """A slave takes its master's table as it is."""
        if modes != self.modes:
            self.modes = modes
            self.file.persist(fastjson.dumps(modes))

    def mode_of(self, topic: str, group: str) -> SetMessageRequestMode:
        chosen = self.modes.message_request_mode_map.get(topic, {}).get(group)
        if chosen is not None:
            return chosen
        mode = PULL if topic.startswith(names.RETRY_PREFIX) else self.config.default_message_request_mode
        return SetMessageRequestMode(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=self.config.default_pop_share_queue_num
        )

    def pops(self, group: str) -> bool:
        """Whether a group was told to pop some topic: then its members register as pulling ones do."""
        return any(
            chosen.mode == POP
            for groups in self.modes.message_request_mode_map.values()
            for name, chosen in groups.items()
            if name == group
        )

    @handles(RequestCode.QUERY_ASSIGNMENT)
    async def query(self, request: QueryAssignment) -> Answer:
        queues = await self._queues_of(request.topic)
        mode = self.mode_of(request.topic, request.consumer_group)
        mine = self._assigned(request, queues, mode)
        if mine is None:
            return Answer(body=fastjson.dumps(QueryAssignmentResult()))
        assigned = [MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in mine]
        return Answer(body=fastjson.dumps(QueryAssignmentResult(message_queue_assignments=assigned)))

    def _assigned(
        self, request: QueryAssignment, queues: list[MessageQueue], mode: SetMessageRequestMode
    ) -> list[MessageQueue] | None:
        if request.message_model == BROADCASTING or not self.config.server_load_balancer_enable:
            return queues
        group = self.broker.clients.consumers.get(request.consumer_group)
        if group is None or not queues:
            return None
        clients = sorted(group.client_ids)
        if mode.mode == POP:
            return allocate_for_pop(request.strategy_name, request.client_id, queues, clients, mode.pop_share_queue_num)
        return allocate(request.strategy_name, request.client_id, queues, clients)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read, over all brokers."""
        now_ms = self.broker.clock.now_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known[0] < ROUTE_LIVES_MS:
            return known[1]
        route = await self._route(topic)
        if route is None:
            return known[1] if known is not None else self._own_queues(topic)
        queues = sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & READ
            for queue_id in range(data.read_queue_nums)
        )
        self._routes[topic] = (now_ms, queues)
        return queues

    async def _route(self, topic: str) -> TopicRouteData | None:
        for name_server in self.broker.registration.name_servers:
            command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            try:
                answer = await self.broker.remoting.invoke(name_server.address, command, ROUTE_TIMEOUT_S)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    return fastjson.loads(answer.body, type=TopicRouteData)
            except (RemotingError, WireError, OSError) as failure:
                log.warning("NameServer %s: no route of topic[%s]: %s", name_server.address, topic, failure)
        return None

    def _own_queues(self, topic: str) -> list[MessageQueue]:
        config = self.broker.topics.get(topic)
        count = config.read_queue_nums if config is not None and config.perm & READ else 0
        return [MessageQueue(topic, self.config.broker_name, queue_id) for queue_id in range(count)]


def allocate(
    strategy: str | None, client_id: str, queues: list[MessageQueue], clients: list[str]
) -> list[MessageQueue] | None:
    """The client's share by one of Apache's strategies; None if this is not one of them."""
    if strategy not in ("AVG", "AVG_BY_CIRCLE"):
        return None
    if client_id not in clients:
        return []
    place = clients.index(client_id)
    if strategy == "AVG_BY_CIRCLE":
        return queues[place :: len(clients)]
    share, rest = divmod(len(queues), len(clients))
    begin = place * share + min(place, rest)
    return queues[begin : begin + share + (1 if place < rest else 0)]


def allocate_for_pop(
    strategy: str | None, client_id: str, queues: list[MessageQueue], clients: list[str], shared: int
) -> list[MessageQueue] | None:
    """Popping clients share queues: each gets its own share and that of the next `shared` clients, or simply all."""
    if client_id not in clients:
        return []
    if shared <= 0 or shared >= len(clients) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker, -1) for topic, broker in brokers]
    place = clients.index(client_id)
    if len(clients) > len(queues):
        return [queues[place % len(queues)]]
    mine: list[MessageQueue] = []
    for step in range(shared + 1):
        share = allocate(strategy, clients[(place + step) % len(clients)], queues, clients)
        if share is None:
            return None
        mine.extend(share)
    return mine
