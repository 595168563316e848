"""Apache's `broker.conf` keys, with Apache's defaults where a client can see them.

A key is declared once, as a field in snake_case; its Apache name follows from it (`listen_port` <-> `listenPort`).
Keys that are not declared here are kept, given back by GET_BROKER_CONFIG, handed to the store (which knows its own),
and listed by `ignored` so that an operator learns which of the settings have no effect.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arrowmq import refusals
from arrowmq.config import ConfigError
from arrowmq.remoting.address import AddressError, advertised_host, parse_addresses

READ = 4
WRITE = 2
INHERIT = 1


_SPELLED_OTHERWISE = {"skip_when_ck_re_put_reach_max_times": "skipWhenCKRePutReachMaxTimes"}


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(slots=True)
class BrokerConfig:
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = field(default_factory=_host_name)
    broker_id: int = 0
    broker_role: str = "ASYNC_MASTER"
    broker_ip1: str = ""
    broker_ip2: str = ""
    bind_address: str = "0.0.0.0"
    listen_port: int = 10911
    namesrv_addr: str = field(default_factory=lambda: os.environ.get("NAMESRV_ADDR", ""))
    store_path_root_dir: str = ""
    broker_permission: int = READ | WRITE

    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8
    auto_create_subscription_group: bool = True
    enable_create_sys_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False
    clear_retry_topic_when_delete_topic: bool = True
    revive_queue_num: int = 8
    timer_wheel_enable: bool = True
    timer_max_delay_sec: int = 3 * 86_400
    timer_roll_window_slot: int = 2 * 86_400
    timer_congest_num_each_slot: int = (1 << 31) - 1
    append_topic_for_timer_delete_key: bool = False
    mapped_file_size_timer_log: int = 100 << 20

    region_id: str = "DefaultRegion"
    trace_on: bool = True
    max_message_size: int = 4 * 1024 * 1024
    flush_disk_type: str = "ASYNC_FLUSH"
    sync_flush_timeout: int = 5000
    start_accept_send_request_time_stamp: int = 0
    reject_transaction_message: bool = False
    store_reply_message_enable: bool = True
    recall_message_enable: bool = False
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    enable_property_filter: bool = False
    filter_support_retry: bool = False
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    enable_broadcast_offset_store: bool = True
    use_server_side_reset_offset: bool = True
    default_query_max_num: int = 32
    max_msgs_num_batch: int = 64

    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    force_register: bool = True
    flush_consumer_offset_interval: int = 5000
    consumer_offset_update_version_step: int = 500
    flush_delay_offset_interval: int = 10_000
    delay_offset_update_version_step: int = 200
    channel_expired_timeout: int = 120_000
    subscription_expired_timeout: int = 600_000
    notify_consumer_ids_changed_enable: bool = True
    real_time_notify_consumer_change: bool = True
    server_load_balancer_enable: bool = True
    default_message_request_mode: str = "PULL"
    default_pop_share_queue_num: int = -1

    pop_polling_size: int = 1024
    max_pop_polling_size: int = 100_000
    pop_long_polling_force_notify_interval: int = 800
    pop_from_retry_probability: int = 20
    pop_from_retry_probability_for_priority: int = 0
    priority_order_asc: bool = True
    use_separate_retry_queue: bool = False
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    pop_response_return_actual_retry_topic: bool = False
    init_pop_offset_by_check_msg_in_mem: bool = True
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: int = 10_000
    enable_pop_buffer_merge: bool = False
    enable_pop_batch_ack: bool = False
    pop_ck_stay_buffer_time: int = 10_000
    pop_ck_stay_buffer_time_out: int = 3000
    pop_ck_max_buffer_size: int = 200_000
    pop_ck_offset_max_queue_size: int = 20_000
    enable_notify_after_pop_order_lock_release: bool = True
    skip_when_ck_re_put_reach_max_times: bool = False
    split_metadata_size: int = 2000

    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    transaction_check_interval: int = 30_000
    transaction_op_msg_max_size: int = 4096
    transaction_op_batch_interval: int = 3000

    # Replicas. Of haListenPort 0 is the port behind the broker's own
    ha_listen_port: int = 0
    ha_master_address: str = ""
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 1 << 20
    ha_max_gap_not_in_sync: int = 256 << 20
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 100 << 20
    slave_timeout: int = 3000
    total_replicas: int = 1
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = False
    skip_pre_online: bool = False
    broker_heartbeat_interval: int = 1000
    broker_not_active_timeout_millis: int = 10_000
    sync_broker_member_group_period: int = 1000
    # Under a controller
    enable_controller_mode: bool = False
    controller_addr: str = ""
    controller_heart_beat_timeout_mills: int = 10_000
    broker_election_priority: int = 2**31 - 1
    sync_broker_metadata_period: int = 5000
    all_ack_in_sync_state_set: bool = False
    ha_max_time_slave_not_catchup: int = 15_000
    async_learner: bool = False
    sync_from_last_file: bool = False
    store_path_epoch_file: str = ""
    store_path_broker_identity: str = ""
    # ArrowMQ's own: hosts of slaves that no NameServer knows; whether a slave checks the checksums of what it copies,
    # and whether one that has nothing takes all that its master has, not only the last file
    ha_slave_addresses: str = ""
    ha_check_crc: bool = True
    ha_copy_whole_log: bool = True

    # ArrowMQ's own: what flow control looks at (0 = not at all; of memory 0 = four fifths of what the control group
    # allows, -1 = not at all), and whether topics insist on their message type
    max_unflushed_bytes: int = 1 << 30
    max_process_memory_bytes: int = 0
    max_sends_per_second: int = 0
    enable_topic_message_type_check: bool = False

    # Who may read the metrics page, and where; the `arrowmq` command switches it on (PROM) unless told otherwise
    metrics_exporter_type: str = "DISABLE"
    metrics_label: str = ""  # further labels of every metric, name:value,name:value
    metrics_prom_exporter_host: str = "127.0.0.1"
    metrics_prom_exporter_port: int = 5557
    metrics_authentication_enabled: bool = False  # its readers name a user who has Get on the cluster

    # Users and rights (`arrowmq.auth.settings` checks them); Apache's own provider names are accepted
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""
    authentication_provider: str = ""
    authentication_metadata_provider: str = ""
    authentication_strategy: str = ""
    authorization_provider: str = ""
    authorization_metadata_provider: str = ""
    authorization_strategy: str = ""
    migrate_auth_from_v1_enabled: bool = False
    # ArrowMQ's own: where plain_acl.yml lies, whose PROXY header tells rules about sources the client's address, and
    # whose slaves are fed
    acl_file: str = ""
    trusted_proxies: str = ""
    ha_trusted_sources: str = "*"

    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    send_thread_pool_queue_capacity: int = 10_000
    pull_thread_pool_queue_capacity: int = 100_000
    query_thread_pool_queue_capacity: int = 20_000
    server_channel_max_idle_time_seconds: int = 120
    config_black_list: str = "configBlackList;brokerConfigPath"

    others: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Settings by Apache's key names; raises `ConfigError` on a value that does not fit its key."""
        config = cls()
        config.apply(properties)
        _ = config.namesrv_addresses  # a wrong address is found now, not when the broker registers
        if config.enable_controller_mode:
            config.check_controller_mode()
            config.broker_role, config.broker_id = "SLAVE", 1  # until the controller has said what it is
        if config.broker_role != "SLAVE":
            config.broker_id = 0
        elif config.broker_id <= 0:
            raise ConfigError(f"brokerRole=SLAVE needs a brokerId above 0, not {config.broker_id}")
        if (
            not 1 <= config.min_in_sync_replicas <= max(1, config.in_sync_replicas)
            and not config.enable_controller_mode  # then it counts the sync state set
        ):
            raise ConfigError(
                f"minInSyncReplicas={config.min_in_sync_replicas}: it must be from 1 to "
                f"inSyncReplicas={config.in_sync_replicas}"
            )
        return config

    def check_controller_mode(self) -> None:
        if self.enable_slave_acting_master:
            raise ConfigError("enableSlaveActingMaster and enableControllerMode exclude each other: take one of them")
        lease_ms, beat_ms = self.controller_heart_beat_timeout_mills, self.broker_heartbeat_interval
        if beat_ms < 10 or lease_ms < 2 * beat_ms:
            raise ConfigError(
                f"controllerHeartBeatTimeoutMills={lease_ms}: it must be at least twice "
                f"brokerHeartbeatInterval={beat_ms}, or one lost heartbeat costs a master its role"
            )
        for key in ("sync_broker_metadata_period", "ha_max_time_slave_not_catchup", "min_in_sync_replicas"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{apache_key(key)}={getattr(self, key)}: expected 1 or more")

    def apply(self, properties: Mapping[str, str]) -> None:
        """Takes over all the given settings, or none of them if one is wrong."""
        refusals.check(refusals.BROKER_SETTINGS, properties)
        parsed = {key: _parse(key, value) for key, value in properties.items() if key in _FIELDS}
        for key, value in parsed.items():
            setattr(self, _FIELDS[key].name, value)
        for key, text in properties.items():
            if key not in _FIELDS:
                self.others[key] = text

    def properties(self) -> dict[str, str]:
        """Every setting by Apache's key name, in alphabetical order, as GET_BROKER_CONFIG shows it."""
        known = {key: _text(getattr(self, declared.name)) for key, declared in _FIELDS.items()}
        return dict(sorted({**self.others, **known}.items()))

    def ignored(self, known_elsewhere: Iterable[str] = ()) -> list[str]:
        """Keys that were given and that nothing in this broker reads."""
        return sorted(set(self.others) - set(known_elsewhere))

    @property
    def black_listed_keys(self) -> set[str]:
        return {"rocketmqHome", *(key.strip() for key in self.config_black_list.split(";") if key.strip())}

    @property
    def namesrv_addresses(self) -> list[str]:
        """Each NameServer once. Raises `ConfigError` on what is no address."""
        try:
            return parse_addresses(self.namesrv_addr)
        except AddressError as fault:
            raise ConfigError(f"namesrvAddr: {fault}") from fault

    @property
    def is_writable(self) -> bool:
        return bool(self.broker_permission & WRITE)

    @property
    def is_readable(self) -> bool:
        return bool(self.broker_permission & READ)

    @property
    def advertised_host(self) -> str:
        """The host that clients are told to connect to: brokerIP1, or an address they can be expected to reach."""
        return advertised_host(self.broker_ip1, self.bind_address)

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or self.listen_port + 1


def resolve_address(host: str) -> bytes:
    """The 4 or 16 bytes of a host's address, as records and offset message ids carry them."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as failure:
        raise ConfigError(f"brokerIP1={host} is neither an address nor a name that resolves: {failure}") from failure
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return ipaddress.ip_address(found[0][4][0]).packed


def apache_key(name: str) -> str:
    """`listen_port` -> `listenPort`; `broker_ip1` -> `brokerIP1`."""
    if name in _SPELLED_OTHERWISE:
        return _SPELLED_OTHERWISE[name]
    first, *rest = name.split("_")
    return first + "".join("IP" + word[2:] if re.fullmatch(r"ip\d", word) else word.capitalize() for word in rest)


def _parse(key: str, text: str) -> Any:
    text = text.strip()
    kind = _FIELDS[key].type
    if kind == "bool":
        # Apache: only "true" is true.
        return text.lower() == "true"
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{key}={text} is not a whole number") from None
    return text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_FIELDS = {
    apache_key(declared.name): declared for declared in dataclasses.fields(BrokerConfig) if declared.name != "others"
}
