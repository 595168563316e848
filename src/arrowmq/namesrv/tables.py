"""RocketMQ's route tables and the rules by which registrations change them. No sockets; the time is handed in.

    topicQueueTable     topic → broker name → QueueData
    brokerAddrTable     broker name → BrokerData (id → address; 0 is the master)
    clusterAddrTable    cluster → broker names
    brokerLiveTable     (cluster, address) → BrokerLive: when it was last heard, its data version, its connection
    filterServerTable   (cluster, address) → addresses of filter servers, a thing of old brokers

A topic that a broker does not mention any more stays: it goes when it is deleted here or when its broker goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from arrowmq.clock import Clock
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.departures import Departures
from arrowmq.remoting.channel import Channel
from arrowmq.wire.bodies import BrokerData, DataVersion, QueueData, TopicConfig, TopicQueueMappingInfo

MASTER_ID = 0
WRITE = 2
READ = 4
DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000


class BrokerKey(NamedTuple):
    cluster: str
    address: str


@dataclass(slots=True)
class BrokerLive:
    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    connection: Channel | None
    ha_address: str
    broker_name: str
    broker_id: int


@dataclass(slots=True)
class Registration:
    """What a broker says of itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone_name: str | None = None
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None: a broker too old to know of it
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: list[str] | None = None
    connection: Channel | None = None


@dataclass(slots=True)
class MinBrokerIdChange:
    """The lowest id of a broker set is another one now, and these members are to know."""

    min_broker_id: int
    min_broker_address: str
    offline_address: str | None
    ha_address: str | None
    notify: list[str]


class Registered(NamedTuple):
    master_address: str | None = None
    ha_address: str | None = None
    change: MinBrokerIdChange | None = None


class NotRegistered(Exception):
    """A single-topic update of a broker that has not registered in full yet."""


class RouteTables:
    def __init__(self, config: NamesrvConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.topic_queues: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[BrokerKey, BrokerLive] = {}
        self.filter_servers: dict[BrokerKey, list[str]] = {}
        self.topic_queue_mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self.departures = Departures()

    # --- brokers come -------------------------------------------------------------------------------------------------

    def register(self, registration: Registration) -> Registered:
        """Take over what a broker says. Raises `NotRegistered` for an update that comes before the whole."""
        known = self.brokers.get(registration.broker_name)
        addresses = {} if known is None else known.broker_addrs
        broker_id = registration.broker_id
        min_id_changed = bool(addresses) and broker_id < min(addresses)
        # One address has one id: a slave that became master leaves its old one.
        kept = {i: a for i, a in addresses.items() if i == broker_id or a != registration.address}
        holder = kept.get(broker_id)
        if holder is not None and holder != registration.address:
            live = self.live.get(BrokerKey(registration.cluster, holder))
            if live is not None and live.data_version.state_version > registration.data_version.state_version:
                # An older master comes back while a newer one serves: it is answered, and not listened to.
                self.live.pop(BrokerKey(registration.cluster, registration.address), None)
                return Registered()
        if holder is None and len(registration.topics) == 1:
            raise NotRegistered(
                f"broker {registration.broker_name} ({registration.address}) registered one topic before all of them"
            )
        is_first = holder is None
        broker = self._admit(registration, known)
        broker.broker_addrs = {**kept, broker_id: registration.address}
        self._take_topics(registration, broker, is_first)
        return self._enliven(registration, broker, min_id_changed)

    def _admit(self, registration: Registration, broker: BrokerData | None) -> BrokerData:
        self.clusters.setdefault(registration.cluster, set()).add(registration.broker_name)
        if broker is None:
            broker = BrokerData(cluster=registration.cluster, broker_name=registration.broker_name, broker_addrs={})
            self.brokers[registration.broker_name] = broker
            self.departures.forget(registration.broker_name)
        broker.enable_acting_master = bool(registration.enable_acting_master)
        broker.zone_name = registration.zone_name
        return broker

    def _take_topics(self, registration: Registration, broker: BrokerData, is_first: bool) -> None:
        is_master = registration.broker_id == MASTER_ID
        is_prime_slave = (
            registration.enable_acting_master is not None
            and not is_master
            and registration.broker_id == min(broker.broker_addrs)
        )
        if not (is_master or is_prime_slave):
            return
        name = registration.broker_name
        if self._config.delete_topic_with_broker_registration and not registration.topic_queue_mappings:
            self._drop_topics(name, {t for t, q in self.topic_queues.items() if name in q} - set(registration.topics))
        is_changed = is_first or self.is_changed(registration.cluster, registration.address, registration.data_version)
        for topic, settings in registration.topics.items():
            queues = self.topic_queues.setdefault(topic, {})
            if is_changed or name not in queues:
                perm = settings.perm
                if is_prime_slave and broker.enable_acting_master:
                    perm &= ~WRITE  # it stands in for the master for readers only
                queues[name] = QueueData(
                    broker_name=name,
                    read_queue_nums=settings.read_queue_nums,
                    write_queue_nums=settings.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=settings.topic_sys_flag,
                )
        if is_changed:
            for topic, mapping in registration.topic_queue_mappings.items():
                self.topic_queue_mappings.setdefault(topic, {})[mapping.bname or name] = mapping

    def _enliven(self, registration: Registration, broker: BrokerData, min_id_changed: bool) -> Registered:
        key = BrokerKey(registration.cluster, registration.address)
        self.live[key] = BrokerLive(
            last_update_ms=self._clock.now_ms(),
            heartbeat_timeout_ms=registration.heartbeat_timeout_ms or DEFAULT_HEARTBEAT_TIMEOUT_MS,
            data_version=registration.data_version,
            connection=registration.connection,
            ha_address=registration.ha_address,
            broker_name=registration.broker_name,
            broker_id=registration.broker_id,
        )
        if registration.filter_servers is not None:
            if registration.filter_servers:
                self.filter_servers[key] = registration.filter_servers
            else:
                self.filter_servers.pop(key, None)
        master_address = ha_address = None
        if registration.broker_id != MASTER_ID:
            candidate = broker.broker_addrs.get(MASTER_ID)
            master = self.live.get(BrokerKey(registration.cluster, candidate)) if candidate else None
            if master is not None:
                master_address, ha_address = candidate, master.ha_address
        change = None
        if min_id_changed and self._config.notify_min_broker_id_changed:
            change = _min_id_change(broker, None, registration.ha_address)
        return Registered(master_address, ha_address, change)

    def heard(self, cluster: str, address: str) -> None:
        """A heartbeat of a broker that is registered; of another one it changes nothing."""
        live = self.live.get(BrokerKey(cluster, address))
        if live is not None:
            live.last_update_ms = self._clock.now_ms()

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self.live.get(BrokerKey(cluster, address))
        return None if live is None else live.data_version

    def is_changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        return self.data_version(cluster, address) != version

    # --- brokers go ---------------------------------------------------------------------------------------------------

    def unregister(self, leaving: Iterable[BrokerKey], why: str) -> list[MinBrokerIdChange]:
        """Take these brokers out, with the topics nobody else serves."""
        changes: list[MinBrokerIdChange] = []
        for key in leaving:
            live = self.live.pop(key, None)
            self.filter_servers.pop(key, None)
            name = live.broker_name if live is not None else self._name_at(key)
            broker = self.brokers.get(name) if name is not None else None
            if broker is None or key.address not in broker.broker_addrs.values():
                continue
            old_min = min(broker.broker_addrs)
            was_min = broker.broker_addrs[old_min] == key.address
            broker.broker_addrs = {i: a for i, a in broker.broker_addrs.items() if a != key.address}
            if broker.broker_addrs:
                self._shrunk(broker)
                if was_min and broker.enable_acting_master and self._config.notify_min_broker_id_changed:
                    changes.append(self._offline_change(broker, key))
            else:
                self._gone(broker, key, why)
        return changes

    def unregister_named(self, cluster: str, address: str, name: str, why: str) -> list[MinBrokerIdChange]:
        """The broker itself says that it leaves; it may be one that has expired here already."""
        key = BrokerKey(cluster, address)
        if key not in self.live and self._name_at(key) != name:
            return []
        return self.unregister([key], why)

    def unregister_connection(self, connection: Channel) -> list[MinBrokerIdChange]:
        """The connection of a broker's last registration ended; an older connection of the same broker is no loss."""
        leaving = [key for key, live in self.live.items() if live.connection is connection]
        return self.unregister(leaving, "lost its connection to this NameServer") if leaving else []

    def expired(self) -> list[tuple[BrokerKey, BrokerLive]]:
        now_ms = self._clock.now_ms()
        return [(k, live) for k, live in self.live.items() if live.last_update_ms + live.heartbeat_timeout_ms < now_ms]

    def _name_at(self, key: BrokerKey) -> str | None:
        for name, broker in self.brokers.items():
            if broker.cluster == key.cluster and key.address in broker.broker_addrs.values():
                return name
        return None

    def _shrunk(self, broker: BrokerData) -> None:
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
            for queues in self.topic_queues.values():
                data = queues.get(broker.broker_name)
                if data is not None:
                    data.perm &= ~WRITE

    def _gone(self, broker: BrokerData, key: BrokerKey, why: str) -> None:
        name = broker.broker_name
        del self.brokers[name]
        members = self.clusters.get(key.cluster)
        if members is not None:
            members.discard(name)
            if not members:
                del self.clusters[key.cluster]
        topics = {topic for topic, queues in self.topic_queues.items() if name in queues}
        self._drop_topics(name, topics)
        self.departures.add(name, key.address, self._clock.now_ms(), why, topics)

    def _offline_change(self, broker: BrokerData, key: BrokerKey) -> MinBrokerIdChange:
        prime = BrokerKey(key.cluster, broker.broker_addrs[min(broker.broker_addrs)])
        live = self.live.get(prime)
        return _min_id_change(broker, key.address, None if live is None else live.ha_address)

    # --- topics -------------------------------------------------------------------------------------------------------

    def _drop_topics(self, broker_name: str, topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self.topic_queues[topic]
            queues.pop(broker_name, None)
            if not queues:
                del self.topic_queues[topic]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if not cluster:
            self.topic_queues.pop(topic, None)
            return
        if topic in self.topic_queues:
            for name in self.clusters.get(cluster, set()):
                if topic in self.topic_queues:
                    self._drop_topics(name, [topic])

    def add_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Merge queues of a topic; False, and no change, if one of the brokers is unknown here."""
        if not queues or any(data.broker_name not in self.brokers for data in queues):
            return False
        table = self.topic_queues.setdefault(topic, {})
        for data in queues:
            table[data.broker_name] = data
        return True

    def set_write_perm(self, broker_name: str, is_writable: bool) -> int:
        """Wipe or set the write permission of all topics on a broker; how many there are."""
        count = 0
        for queues in self.topic_queues.values():
            data = queues.get(broker_name)
            if data is not None:
                data.perm = READ | WRITE if is_writable else data.perm & ~WRITE
                count += 1
        return count


def _min_id_change(broker: BrokerData, offline_address: str | None, ha_address: str | None) -> MinBrokerIdChange:
    lowest = min(broker.broker_addrs)
    everybody = offline_address is not None or len(broker.broker_addrs) == 1
    notify = [a for i, a in sorted(broker.broker_addrs.items()) if everybody or i != lowest]
    return MinBrokerIdChange(lowest, broker.broker_addrs[lowest], offline_address, ha_address, notify)
