"""QueryRoute and QueryAssignment, and which queue a message goes to.

Clients are sent back to the address that they used themselves: it is the one that works for them, whatever lies between
them and this proxy. `grpcAdvertisedAddress` overrides that.
"""

from __future__ import annotations

import ipaddress
import itertools

from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.config import ProxyConfig
from arrowmq.proxy.faults import OK, Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.remoting.address import parse_address, parse_addresses
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.bodies.topics import TopicConfig
from arrowmq.wire.checksum import java_hash
from arrowmq.wire.sysflag import PERM_READ, PERM_WRITE

MESSAGE_TYPE_ATTRIBUTE = "message.type"
_TYPES: dict[str, tuple[int, ...]] = {
    "NORMAL": (v2.NORMAL,),
    "FIFO": (v2.FIFO,),
    "DELAY": (v2.DELAY,),
    "TRANSACTION": (v2.TRANSACTION,),
    "LITE": (v2.LITE,),
    "PRIORITY": (v2.PRIORITY,),
    "MIXED": (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION),
}
#: A broker whose send failed is passed over for so long, if there is another one
AVOIDED_S = 30.0


def type_name(config: TopicConfig | None) -> str:
    """What a topic says it takes; a topic without the attribute takes normal messages."""
    if config is None:
        return "UNSPECIFIED"
    attributes = config.attributes
    name = attributes.get(MESSAGE_TYPE_ATTRIBUTE) or attributes.get(f"+{MESSAGE_TYPE_ATTRIBUTE}") or "NORMAL"
    return name.upper()


class Routing:
    def __init__(self, config: ProxyConfig, back: Back, clock: Clock) -> None:
        self._config, self._back, self._clock = config, back, clock
        self._turn = itertools.count()
        self._avoided: dict[str, float] = {}
        self.port = config.grpc_server_port

    # --- calls -------------------------------------------------------------------------------------------------------

    async def query_route(self, caller: Caller, request: calls.QueryRouteRequest) -> calls.QueryRouteResponse:
        topic = request.topic.name
        validation.check_topic(topic)
        self._back.require(caller, topics={topic: "either"})
        route = await self._back.route(topic)
        types = _TYPES.get(type_name(await self._back.topic_config(topic)), (v2.MESSAGE_TYPE_UNSPECIFIED,))
        endpoints = self._endpoints(caller, request.endpoints)
        answer = calls.QueryRouteResponse(status=OK)
        addresses = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
        for queues in route.queue_datas:
            for broker_id in sorted(addresses.get(queues.broker_name, ())):
                for number, permission in enumerate(
                    _permissions(queues.perm, queues.read_queue_nums, queues.write_queue_nums)
                ):
                    queue = answer.message_queues.add(id=number, permission=permission)
                    queue.topic.CopyFrom(request.topic)
                    queue.broker.name = queues.broker_name
                    queue.broker.id = broker_id
                    queue.broker.endpoints.CopyFrom(endpoints)
                    queue.accept_message_types.extend(types)  # type: ignore[arg-type]
        return answer

    async def query_assignment(
        self, caller: Caller, request: calls.QueryAssignmentRequest
    ) -> calls.QueryAssignmentResponse:
        validation.check_topic(request.topic.name)
        validation.check_group(request.group.name)
        self._back.require(caller, topics={request.topic.name: "sub"}, group=request.group.name)
        route = await self._back.route(request.topic.name)
        group = await self._back.group_config(request.group.name)
        is_fifo = group is not None and group.consume_message_orderly
        endpoints = self._endpoints(caller, request.endpoints)
        answer = calls.QueryAssignmentResponse(status=OK)
        names = {broker.broker_name for broker in route.broker_datas if broker.broker_addrs}
        for queues in route.queue_datas:
            if not queues.perm & PERM_READ or queues.read_queue_nums <= 0 or queues.broker_name not in names:
                continue
            permission = v2.READ_WRITE if queues.perm & PERM_WRITE else v2.READ
            for number in range(queues.read_queue_nums) if is_fifo else (-1,):
                queue = answer.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id = number
                queue.permission = permission
                queue.broker.name = queues.broker_name
                queue.broker.id = 0
                queue.broker.endpoints.CopyFrom(endpoints)
        if not answer.assignments:
            raise Fault(v2.FORBIDDEN, "no readable queue")
        return answer

    async def sync_lite_subscription(
        self, caller: Caller, request: calls.SyncLiteSubscriptionRequest
    ) -> calls.SyncLiteSubscriptionResponse:
        """There are no lite topics here, so no group is bound to one: Apache's proxy says this to such a group."""
        topic, group = request.topic.name, request.group.name
        validation.check_topic(topic)
        validation.check_group(group)
        self._back.require(caller, topics={topic: "sub"}, group=group)
        raise Fault(v2.ILLEGAL_TOPIC, f"lite group {group} is expected to bind topic null, but actual is {topic}")

    def _endpoints(self, caller: Caller, asked: v2.Endpoints) -> v2.Endpoints:
        endpoints = v2.Endpoints()
        if self._config.grpc_advertised_address:
            for address in parse_addresses(self._config.grpc_advertised_address):
                host, port = parse_address(address)
                endpoints.addresses.add(host=host, port=port)
        elif asked.addresses:
            endpoints.CopyFrom(asked)
            if not self._config.use_endpoint_port_from_request:
                for each in endpoints.addresses:
                    each.port = self.port
            if endpoints.scheme:
                return endpoints
        else:
            host, port = caller.call.connection.local
            endpoints.addresses.add(host=host, port=port)
        endpoints.scheme = _scheme(endpoints.addresses[0].host)  # type: ignore[assignment]
        return endpoints

    # --- choices -----------------------------------------------------------------------------------------------------

    async def writable_queue(self, topic: str, message_group: str) -> tuple[str, int]:
        """Broker and queue for a message. Those of one message group go to one queue, as long as there are as many."""
        queues = _writable(await self._back.route(topic))
        if message_group and queues:
            return queues[jump_hash(java_hash(message_group), len(queues))]
        now = self._clock.monotonic()
        sound = [queue for queue in queues if self._avoided.get(queue[0], 0.0) <= now] or queues
        if not sound:
            raise Fault(v2.FORBIDDEN, "no writable queue")
        return sound[next(self._turn) % len(sound)]

    def failed(self, broker: str) -> None:
        self._avoided[broker] = self._clock.monotonic() + AVOIDED_S

    def worked(self, broker: str) -> None:
        self._avoided.pop(broker, None)

    async def readable_broker(self, topic: str, wanted: str) -> str:
        """The broker that a client names, else any that can be read."""
        route = await self._back.route(topic)
        names = {broker.broker_name for broker in route.broker_datas if broker.broker_addrs}
        readable = [
            queues.broker_name
            for queues in route.queue_datas
            if queues.perm & PERM_READ and queues.read_queue_nums > 0 and queues.broker_name in names
        ]
        if not readable:
            raise Fault(v2.FORBIDDEN, "no readable queue")
        return wanted if wanted in readable else readable[next(self._turn) % len(readable)]


def _permissions(perm: int, reads: int, writes: int) -> list[v2.Permission]:
    """Of each queue: those that can only be read come first, then those that can only be written."""
    readable, writable = bool(perm & PERM_READ), bool(perm & PERM_WRITE)
    both = min(reads, writes) if readable and writable else 0
    if not readable and not writable:
        return [v2.NONE] * max(1, reads, writes)
    only_read = reads - both if readable else 0
    only_written = writes - both if writable else 0
    return [v2.READ] * only_read + [v2.WRITE] * only_written + [v2.READ_WRITE] * both


def _writable(route: TopicRouteData) -> list[tuple[str, int]]:
    masters = {broker.broker_name for broker in route.broker_datas if 0 in broker.broker_addrs}
    return sorted(
        (queues.broker_name, number)
        for queues in route.queue_datas
        if queues.perm & PERM_WRITE and queues.broker_name in masters
        for number in range(queues.write_queue_nums)
    )


def _scheme(host: str) -> int:
    try:
        return v2.IPv6 if ipaddress.ip_address(host).version == 6 else v2.IPv4
    except ValueError:
        return v2.DOMAIN_NAME


def jump_hash(key: int, buckets: int) -> int:
    """The consistent hash of Lamping and Veach, as Guava computes it."""
    state = key & 0xFFFFFFFFFFFFFFFF
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((candidate + 1) / (((state >> 33) + 1) / 2147483648.0))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
