"""Where a topic lives: the queues to send to, the queues to read from, and the addresses of their brokers.

A `Route` is made from the NameServer's answer and never changes; a newer answer makes a newer route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.message_queue import MessageQueue

PERM_READ = 4
PERM_WRITE = 2
MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class Route:
    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    #: broker name → broker id → address; id 0 is the master
    addresses: Mapping[str, Mapping[int, str]]
    #: broker name → cluster
    clusters: Mapping[str, str]
    #: The template of a topic that does not exist yet: the first send creates it.
    is_template: bool = False

    @classmethod
    def from_data(cls, topic: str, data: TopicRouteData) -> Route:
        addresses = {broker.broker_name: _by_id(broker.broker_addrs) for broker in data.broker_datas}
        publish: list[MessageQueue] = []
        subscribe: list[MessageQueue] = []
        for queue_data in sorted(data.queue_datas, key=lambda each: each.broker_name):
            name = queue_data.broker_name
            if queue_data.perm & PERM_READ:
                subscribe += [MessageQueue(topic, name, index) for index in range(queue_data.read_queue_nums)]
            if queue_data.perm & PERM_WRITE and MASTER_ID in addresses.get(name, {}):
                publish += [MessageQueue(topic, name, index) for index in range(queue_data.write_queue_nums)]
        if data.order_topic_conf:
            publish = _ordered_queues(topic, data.order_topic_conf)
        clusters = {broker.broker_name: broker.cluster or "" for broker in data.broker_datas}
        return cls(topic, tuple(publish), tuple(subscribe), addresses, clusters)

    @classmethod
    def from_template(cls, topic: str, data: TopicRouteData, queue_limit: int) -> Route:
        """The route of the auto-create topic, used for a topic that does not exist yet."""
        whole = cls.from_data(topic, data)
        publish = tuple(queue for queue in whole.publish_queues if queue.queue_id < queue_limit)
        return cls(topic, publish, (), whole.addresses, whole.clusters, is_template=True)

    def master(self, broker_name: str) -> str | None:
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, wanted_id: int = MASTER_ID) -> tuple[int, str] | None:
        """The broker to read from: the wanted one, else the next slave, else any of that name."""
        known = self.addresses.get(broker_name)
        if not known:
            return None
        for broker_id in (wanted_id, wanted_id + 1 if wanted_id != MASTER_ID else wanted_id, *sorted(known)):
            if broker_id in known:
                return broker_id, known[broker_id]
        return None


def _by_id(broker_addrs: Mapping[int, str] | Mapping[str, str]) -> dict[int, str]:
    return {int(broker_id): address for broker_id, address in broker_addrs.items()}


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    """`broker-a:8;broker-b:4`, the fixed numbers of queues of a topic with a global order of its queues."""
    queues: list[MessageQueue] = []
    for part in filter(None, order_topic_conf.split(";")):
        name, _, number = part.partition(":")
        queues += [MessageQueue(topic, name, index) for index in range(int(number))]
    return queues
