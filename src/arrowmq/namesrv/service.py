"""The requests that a NameServer answers, as methods on the route tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from pathlib import Path

from arrowmq.clock import Clock
from arrowmq.config import ConfigError, format_properties, parse_properties, properties_of
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig
from arrowmq.namesrv.registration import ChecksumMismatch, read_registration
from arrowmq.namesrv.retry_routes import RetryRoutes
from arrowmq.namesrv.routes import explain_no_route, find_route, keep_zone
from arrowmq.namesrv.tables import MinBrokerIdChange, NotRegistered, RouteTables
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store.disk import Disk
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    GetBrokerMemberGroupBody,
    KVTable,
    TopicList,
    TopicRouteData,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerResult,
    BrokerHeartbeat,
    DeleteKVConfig,
    DeleteTopicFromNamesrv,
    GetBrokerMemberGroup,
    GetKVConfig,
    GetKVConfigResult,
    GetKVListByNamespace,
    GetRouteInfo,
    GetTopicsByCluster,
    NotifyMinBrokerIdChange,
    PutKVConfig,
    QueryDataVersion,
    QueryDataVersionResult,
    RegisterBroker,
    RegisterBrokerResult,
    RegisterTopic,
    UnRegisterBroker,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerResult,
)

log = logging.getLogger(__name__)

FLAG_UNIT = 1
FLAG_UNIT_SUB = 2
NOTICE_TIMEOUT_S = 0.3


class BrokerRequests:
    """What brokers register."""

    def __init__(
        self,
        config: NamesrvConfig,
        tables: RouteTables,
        kv_config: KvConfig,
        retry_routes: RetryRoutes,
        remoting: RemotingClient,
    ) -> None:
        self._config = config
        self._tables = tables
        self._retry_routes = retry_routes
        self._kv_config = kv_config
        self._remoting = remoting
        self._notices: set[asyncio.Task[None]] = set()

    @handles(RequestCode.REGISTER_BROKER)
    def register_broker(self, request: RegisterBroker, call: Call) -> Answer:
        try:
            registration = read_registration(request, call.body, call.command.version, call.connection)
        except ChecksumMismatch:
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match") from None
        is_new = request.broker_name not in self._tables.brokers
        try:
            registered = self._tables.register(registration)
        except NotRegistered as error:
            # Apache's words first: brokers of both kinds take this as "register in full".
            raise Refused(ResponseCode.SYSTEM_ERROR, f"register broker failed: {error}") from None
        self._retry_routes.registered(registration.topics)
        if is_new:
            log.info(
                "broker registered name=%s id=%d address=%s cluster=%s topics=%d",
                registration.broker_name,
                registration.broker_id,
                registration.address,
                registration.cluster,
                len(registration.topics),
            )
        self.notify([registered.change] if registered.change else [])
        order = None
        if self._config.return_order_topic_config_to_broker:
            order = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        return Answer(
            header=RegisterBrokerResult(ha_server_addr=registered.ha_address, master_addr=registered.master_address),
            body=b"" if order is None else fastjson.dumps(KVTable(table=order)),
        )

    @handles(RequestCode.UNREGISTER_BROKER)
    def unregister_broker(self, request: UnRegisterBroker) -> None:
        why = "stopped and unregistered"
        log.info("broker left name=%s address=%s reason=%s", request.broker_name, request.broker_addr, why)
        self.notify(
            self._tables.unregister_named(request.cluster_name, request.broker_addr, request.broker_name, why),
        )

    @handles(RequestCode.QUERY_DATA_VERSION)
    def query_data_version(self, request: QueryDataVersion, call: Call) -> Answer:
        theirs = fastjson.loads(call.body, DataVersion) if call.body else DataVersion()
        ours = self._tables.data_version(request.cluster_name, request.broker_addr)
        self._tables.heard(request.cluster_name, request.broker_addr)
        return Answer(
            header=QueryDataVersionResult(changed=ours != theirs), body=b"" if ours is None else fastjson.dumps(ours)
        )

    @handles(RequestCode.BROKER_HEARTBEAT)
    def broker_heartbeat(self, request: BrokerHeartbeat) -> None:
        self._tables.heard(request.cluster_name, request.broker_addr)

    @handles(RequestCode.GET_BROKER_MEMBER_GROUP)
    def get_broker_member_group(self, request: GetBrokerMemberGroup) -> Answer:
        broker = self._tables.brokers.get(request.broker_name)
        group = BrokerMemberGroup(
            cluster=request.cluster_name,
            broker_name=request.broker_name,
            broker_addrs={} if broker is None else broker.broker_addrs,
        )
        return Answer(body=fastjson.dumps(GetBrokerMemberGroupBody(broker_member_group=group)))

    @handles(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    def register_topic(self, request: RegisterTopic, call: Call) -> None:
        route = fastjson.loads(call.body, TopicRouteData) if call.body else TopicRouteData()
        if route.queue_datas and not self._tables.add_topic(request.topic, route.queue_datas):
            log.warning("topic not taken over topic=%s reason=it names a broker that is not registered", request.topic)

    def notify(self, changes: Iterable[MinBrokerIdChange]) -> None:
        """Send notices of a new lowest id; whoever does not hear learns it from its next query."""
        for change in changes:
            header = NotifyMinBrokerIdChange(
                min_broker_id=change.min_broker_id,
                min_broker_addr=change.min_broker_address,
                offline_broker_addr=change.offline_address,
                ha_broker_addr=change.ha_address,
            )
            for address in change.notify:
                task = asyncio.ensure_future(self._notify(address, header))
                self._notices.add(task)
                task.add_done_callback(self._notices.discard)

    async def _notify(self, address: str, header: NotifyMinBrokerIdChange) -> None:
        command = Command.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        try:
            await self._remoting.invoke_oneway(address, command, NOTICE_TIMEOUT_S)
        except RemotingError as error:
            log.info("notice not delivered broker=%s reason=%s", address, error)


class RouteRequests:
    """What clients ask."""

    def __init__(
        self, config: NamesrvConfig, tables: RouteTables, kv_config: KvConfig, retry_routes: RetryRoutes, clock: Clock
    ) -> None:
        self._config = config
        self._tables = tables
        self._kv_config = kv_config
        self._retry_routes = retry_routes
        self._clock = clock
        self._started_ms = clock.now_ms()

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def get_route(self, request: GetRouteInfo, call: Call) -> Answer | Awaitable[Answer]:
        wait_ms = self._config.wait_seconds_for_service * 1000
        if self._config.need_wait_for_service and self._clock.now_ms() - self._started_ms < wait_ms:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        is_known = request.topic in self._tables.topic_queues
        if not is_known and self._retry_routes.is_asked_again(request.topic, call.connection):
            return self._route_soon(request, call)
        return self._route(request, call)

    async def _route_soon(self, request: GetRouteInfo, call: Call) -> Answer:
        await self._retry_routes.appears(request.topic)
        return self._route(request, call)

    def _route(self, request: GetRouteInfo, call: Call) -> Answer:
        route = find_route(
            self._tables,
            self._kv_config,
            request.topic,
            acting_masters=self._config.support_acting_master,
            with_order=self._config.order_message_enable,
        )
        if route is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, explain_no_route(self._tables, request.topic, self._clock.now_ms())
            )
        zone = call.ext.get("__ZONE_NAME")
        if zone and zone.strip() and call.ext.get("__ZONE_MODE", "").lower() == "true":
            keep_zone(route, zone)
        # Standard JSON, always: clients of every age read it, and only some read fastjson's bare keys.
        return Answer(body=fastjson.dumps(route, ascii_only=True))


class ToolRequests:
    """What administrators and their tools ask and change."""

    def __init__(self, config: NamesrvConfig, tables: RouteTables, kv_config: KvConfig) -> None:
        self._config = config
        self._tables = tables
        self._kv_config = kv_config

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO)
    def cluster_info(self) -> Answer:
        clusters = {cluster: sorted(names) for cluster, names in self._tables.clusters.items()}
        return Answer(
            body=fastjson.dumps(ClusterInfo(broker_addr_table=self._tables.brokers, cluster_addr_table=clusters))
        )

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def all_topics(self) -> Answer:
        if not self._config.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(self._tables.topic_queues)

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER)
    def topics_by_cluster(self, request: GetTopicsByCluster) -> Answer:
        self._check_topic_list()
        names = self._tables.clusters.get(request.cluster, set())
        return _topic_list(topic for topic, queues in self._tables.topic_queues.items() if names & queues.keys())

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def system_topics(self) -> Answer:
        names = [name for cluster, brokers in self._tables.clusters.items() for name in (cluster, *sorted(brokers))]
        addresses = [address for broker in self._tables.brokers.values() for address in broker.broker_addrs.values()]
        return Answer(body=fastjson.dumps(TopicList(topic_list=names, broker_addr=addresses[0] if addresses else None)))

    @handles(RequestCode.GET_UNIT_TOPIC_LIST)
    def unit_topics(self) -> Answer:
        return self._topics_with(FLAG_UNIT, 0)

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def unit_sub_topics(self) -> Answer:
        return self._topics_with(FLAG_UNIT_SUB, 0)

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def unit_sub_topics_without_unit(self) -> Answer:
        return self._topics_with(FLAG_UNIT_SUB, FLAG_UNIT)

    def _topics_with(self, wanted: int, unwanted: int) -> Answer:
        self._check_topic_list()
        flags = {
            topic: next(iter(queues.values())).topic_sys_flag for topic, queues in self._tables.topic_queues.items()
        }
        return _topic_list(topic for topic, flag in flags.items() if flag & wanted and not flag & unwanted)

    def _check_topic_list(self) -> None:
        if not self._config.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")

    @handles(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write_perm(self, request: WipeWritePermOfBroker, call: Call) -> WipeWritePermOfBrokerResult:
        count = self._tables.set_write_perm(request.broker_name, False)
        log.info(
            "write permission removed broker=%s topics=%d by=%s", request.broker_name, count, call.connection.peer_text
        )
        return WipeWritePermOfBrokerResult(wipe_topic_count=count)

    @handles(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def add_write_perm(self, request: AddWritePermOfBroker, call: Call) -> AddWritePermOfBrokerResult:
        count = self._tables.set_write_perm(request.broker_name, True)
        log.info(
            "write permission given back broker=%s topics=%d by=%s",
            request.broker_name,
            count,
            call.connection.peer_text,
        )
        return AddWritePermOfBrokerResult(add_topic_count=count)

    @handles(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def delete_topic(self, request: DeleteTopicFromNamesrv, call: Call) -> None:
        self._tables.delete_topic(request.topic, request.cluster_name)
        log.info("route deleted topic=%s by=%s", request.topic, call.connection.peer_text)

    # --- key-value configuration --------------------------------------------------------------------------------------

    @handles(RequestCode.PUT_KV_CONFIG)
    def put_kv_config(self, request: PutKVConfig, call: Call) -> None:
        if not request.namespace or not request.key:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv_config.put(request.namespace, request.key, request.value)
        log.info("key set namespace=%s key=%s by=%s", request.namespace, request.key, call.connection.peer_text)

    @handles(RequestCode.GET_KV_CONFIG)
    def get_kv_config(self, request: GetKVConfig) -> GetKVConfigResult:
        value = self._kv_config.get(request.namespace, request.key)
        if value is None:
            remark = f"No config item, Namespace: {request.namespace} Key: {request.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return GetKVConfigResult(value=value)

    @handles(RequestCode.DELETE_KV_CONFIG)
    def delete_kv_config(self, request: DeleteKVConfig, call: Call) -> None:
        self._kv_config.delete(request.namespace, request.key)
        log.info("key deleted namespace=%s key=%s by=%s", request.namespace, request.key, call.connection.peer_text)

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def get_kv_list(self, request: GetKVListByNamespace) -> Answer:
        table = self._kv_config.namespace(request.namespace)
        if table is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.namespace}")
        return Answer(body=fastjson.dumps(KVTable(table=table)))

    # --- the NameServer's own configuration ---------------------------------------------------------------------------

    @handles(RequestCode.GET_NAMESRV_CONFIG)
    def get_namesrv_config(self) -> Answer:
        return Answer(body=format_properties(properties_of(self._config)).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG)
    def update_namesrv_config(self, call: Call) -> None:
        try:
            changes = parse_properties(call.body.decode("utf-8", "replace"))
            forbidden = sorted(changes.keys() & self._config.black_listed_keys)
            if forbidden:
                remark = f"Can not update config in black list. These keys are in it: {', '.join(forbidden)}"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
            unknown = self._config.update(changes)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if unknown:
            log.warning("settings ignored keys=%s reason=a NameServer does not know them", ",".join(unknown))
        log.info(
            "settings changed %s by=%s",
            " ".join(f"{key}={changes[key]}" for key in sorted(changes)),
            call.connection.peer_text,
        )
        path = Path(self._config.config_store_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        Disk().write_atomically(path, format_properties(properties_of(self._config)).encode())


def _topic_list(topics: Iterable[str]) -> Answer:
    return Answer(body=fastjson.dumps(TopicList(topic_list=list(topics))))
