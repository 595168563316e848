"""The answer to "where is this topic?", and to "why is it nowhere?"."""

from __future__ import annotations

from arrowmq.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig
from arrowmq.namesrv.tables import MASTER_ID, WRITE, RouteTables
from arrowmq.wire.bodies import BrokerData, TopicRouteData

# A broker finds the members of its set under this topic; a slave must not look like their master there.
MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
# Clients and tools know an unknown topic by these words.
NO_ROUTE = "No topic route info in name server for the topic: "
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def find_route(
    tables: RouteTables, kv_config: KvConfig, topic: str, *, acting_masters: bool, with_order: bool
) -> TopicRouteData | None:
    """The route of a topic, or None. What is given back belongs to the caller."""
    queues = tables.topic_queues.get(topic)
    if not queues:
        return None
    brokers: list[BrokerData] = []
    filter_servers: dict[str, list[str]] = {}
    for name in queues:
        known = tables.brokers.get(name)
        if known is None:
            continue
        addresses = dict(sorted(known.broker_addrs.items()))
        brokers.append(
            BrokerData(
                cluster=known.cluster,
                broker_name=name,
                broker_addrs=addresses,
                enable_acting_master=known.enable_acting_master,
                zone_name=known.zone_name,
            )
        )
        for key, servers in tables.filter_servers.items():
            if key.address in addresses.values():
                filter_servers[key.address] = servers
    if not brokers:
        return None
    route = TopicRouteData(
        queue_datas=[queues[name] for name in queues],
        broker_datas=brokers,
        filter_server_table=filter_servers,
        topic_queue_mapping_by_broker=tables.topic_queue_mappings.get(topic),
    )
    if acting_masters and not topic.startswith(MEMBER_TOPIC_PREFIX):
        _appoint_acting_masters(route)
    if with_order:
        route.order_topic_conf = kv_config.get(ORDER_TOPIC_CONFIG, topic)
    return route


def _appoint_acting_masters(route: TopicRouteData) -> None:
    """Where a set has lost its master, its lowest slave appears as id 0, so that old clients can consume from it."""
    perms = {data.broker_name: data.perm for data in route.queue_datas}
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
            continue
        if not perms[broker.broker_name] & WRITE:
            lowest = min(addresses)
            broker.broker_addrs = {MASTER_ID: addresses.pop(lowest), **addresses}


def keep_zone(route: TopicRouteData, zone: str) -> None:
    """Leave out brokers of other zones; one without a master stays, or its messages could not be read by anybody."""
    stays = {
        broker.broker_name
        for broker in route.broker_datas
        if (broker.zone_name or "").lower() == zone.lower() or MASTER_ID not in broker.broker_addrs
    }
    gone = {a for b in route.broker_datas if b.broker_name not in stays for a in b.broker_addrs.values()}
    route.broker_datas = [broker for broker in route.broker_datas if broker.broker_name in stays]
    route.queue_datas = [data for data in route.queue_datas if data.broker_name in stays]
    route.filter_server_table = {a: s for a, s in route.filter_server_table.items() if a not in gone}


def explain_no_route(tables: RouteTables, topic: str, now_ms: int) -> str:
    """Apache's words, then which of the causes it was and what helps."""
    return f"{NO_ROUTE}{topic}{FAQ}\n{_cause(tables, topic, now_ms)}"


def _cause(tables: RouteTables, topic: str, now_ms: int) -> str:
    departures = tables.departures.of_topic(topic)
    if departures:
        gone = "; ".join(
            f"broker {d.broker_name} ({d.address}) {d.why} {max(0, now_ms - d.at_ms) // 1000} s ago" for d in departures
        )
        return f"Cause: the topic was served until recently: {gone}. Remedy: start that broker again, or see its log."
    if not tables.brokers:
        last = tables.departures.latest()
        if last is None:
            return (
                "Cause: no broker is registered with this NameServer. Remedy: start a broker whose namesrvAddr holds "
                "this NameServer's address, or ask the NameServer that the brokers register with."
            )
        ago_s = max(0, now_ms - last.at_ms) // 1000
        return (
            f"Cause: no broker is registered with this NameServer; the last one, {last.broker_name} ({last.address}), "
            f"{last.why} {ago_s} s ago. Remedy: start it again, or see its log."
        )
    names = ", ".join(sorted(tables.brokers)[:5]) + (", …" if len(tables.brokers) > 5 else "")
    return (
        f"Cause: {len(tables.brokers)} broker(s) are registered ({names}) and none has this topic. Remedy: check its "
        f"spelling, create it with `arrowmq topic create {topic}` or mqadmin updateTopic, or set autoCreateTopicEnable "
        "on a broker and send to it."
    )
