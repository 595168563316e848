"""The proxy's settings, by the names of Apache's rmq-proxy.json.

Thread pools, queues of them and caches of Apache's proxy have no counterpart here; such keys are reported as without
effect. Ours alone: `bindAddress`, `grpcAdvertisedAddress` and `remotingAdvertisedAddress`, for proxies behind a name
or in a container, `remotingBrokerPorts` and `remotingProxyProtocol`. What is about remoting is for a proxy before a
cluster: in a broker's process remoting clients are served by the broker itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from arrowmq.config import ConfigError, camel_case, fill
from arrowmq.remoting.address import AddressError, parse_address, parse_addresses

GRPC_PORT = 8081
REMOTING_PORT = 8080
NO_REMOTING_PORT = -1
_OF_REMOTING = (
    "remotingListenPort",
    "remotingAccessAddr",
    "remotingAdvertisedAddress",
    "remotingBrokerPorts",
    "remotingProxyProtocol",
)
NOT_IN_BROKER = "a proxy in a broker's process serves gRPC alone; remoting clients connect to the broker itself"


@dataclass(slots=True)
class ProxyConfig:
    namesrv_addr: str = ""
    bind_address: str = "0.0.0.0"
    proxy_name: str = ""
    rocket_mq_cluster_name: str = field(default="DefaultCluster", metadata={"key": "rocketMQClusterName"})
    proxy_mode: str = "CLUSTER"
    grpc_server_port: int = GRPC_PORT
    #: `host:port` by which clients reach this proxy; empty: the address that a client used itself
    grpc_advertised_address: str = ""
    use_endpoint_port_from_request: bool = True
    grpc_shutdown_time_seconds: int = 30
    grpc_max_inbound_message_size: int = 16 * 1024 * 1024
    grpc_client_idle_time_mills: int = 120_000

    #: 0: a free one; -1: none
    remoting_listen_port: int = REMOTING_PORT
    #: Apache's: the host alone by which clients reach this proxy
    remoting_access_addr: str = ""
    #: `host:port` by which clients reach this proxy; empty: the address that a client used itself
    remoting_advertised_address: str = ""
    #: `broker:port;broker:port`: ports for clients that do not say which broker they mean
    remoting_broker_ports: str = ""
    #: brokers are told each client's own address
    remoting_proxy_protocol: bool = False

    tls_test_mode_enable: bool = True
    tls_cert_path: str = ""
    tls_key_path: str = ""
    tls_key_password: str = ""
    tls_server_mode: str = field(default="permissive", metadata={"key": "tls.server.mode"})

    max_message_size: int = 4 * 1024 * 1024
    enable_message_body_empty_check: bool = True
    max_user_property_size: int = 16 * 1024
    user_property_max_num: int = 128
    max_message_group_size: int = 64
    max_delay_time_mills: int = 86_400_000
    max_transaction_recovery_second: int = 3600
    enable_topic_message_type_check: bool = True
    use_delay_level: bool = False
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    default_invisible_time_mills: int = 60_000
    min_invisible_time_mills_for_recv: int = 10_000
    max_invisible_time_mills: int = 43_200_000
    invisible_time_millis_when_clear: int = 1000
    grpc_client_consumer_min_long_polling_timeout_millis: int = 5000
    grpc_client_consumer_max_long_polling_timeout_millis: int = 20_000
    grpc_client_consumer_long_polling_batch_size: int = 32

    grpc_client_producer_max_attempts: int = 3
    grpc_client_producer_backoff_initial_millis: int = 10
    grpc_client_producer_backoff_max_millis: int = 1000
    grpc_client_producer_backoff_multiplier: int = 2

    enable_proxy_auto_renew: bool = True
    max_renew_retry_times: int = 3
    renew_ahead_time_millis: int = 10_000
    renew_max_time_millis: int = 10_800_000
    renew_schedule_period_millis: int = 5000

    channel_expired_timeout: int = 120_000
    grpc_proxy_relay_request_timeout_in_seconds: int = 5
    topic_route_service_cache_refresh_seconds: int = 20
    topic_config_cache_refresh_seconds: int = 20
    subscription_group_config_cache_refresh_seconds: int = 20
    transaction_heartbeat_period_second: int = 20

    metrics_exporter_type: str = "DISABLE"
    metrics_label: str = ""  # further labels of every metric, name:value,name:value
    metrics_prom_exporter_host: str = "127.0.0.1"
    metrics_prom_exporter_port: int = 5557
    metric_collector_mode: str = "off"
    metric_collector_address: str = ""
    user_cache_refresh_seconds: int = 20
    user_cache_expired_seconds: int = 300
    user_cache_max_num: int = 20_000
    #: JSON with accessKey and secretKey: what the proxy signs its own requests to brokers with
    inner_client_authentication_credentials: str = ""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[ProxyConfig, list[str]]:
        """The settings, and the keys that are not among them. Raises `ConfigError`."""
        config, unknown = fill(cls, properties)
        if config.proxy_mode.upper() == "LOCAL":
            for key in _OF_REMOTING:
                if properties.get(key):
                    raise ConfigError(f"{key}={properties[key]}: {NOT_IN_BROKER}")
        config.check()
        return config, sorted(unknown)

    def check(self) -> None:
        if self.proxy_mode.upper() not in ("CLUSTER", "LOCAL"):
            raise ConfigError(f"proxyMode={self.proxy_mode}: expected CLUSTER or LOCAL")
        try:
            parse_addresses(self.grpc_advertised_address)
        except AddressError as error:
            raise ConfigError(f"grpcAdvertisedAddress: {error}") from error
        try:
            if self.remoting_advertised_address:
                parse_address(self.remoting_advertised_address)
        except AddressError as error:
            raise ConfigError(f"remotingAdvertisedAddress: {error}") from error
        self.broker_ports  # noqa: B018 - raises where it cannot be read
        if not NO_REMOTING_PORT <= self.remoting_listen_port < 65536:
            raise ConfigError(
                f"remotingListenPort={self.remoting_listen_port}: expected a port, 0 (a free one) or -1 (none)"
            )
        if self.proxy_mode.upper() == "CLUSTER" and self.metrics_exporter_type.upper() not in ("DISABLE", "PROM"):
            raise ConfigError(f"metricsExporterType={self.metrics_exporter_type}: expected PROM or DISABLE")
        if self.metric_collector_mode.lower() not in ("off", "on", "proxy"):
            raise ConfigError(f"metricCollectorMode={self.metric_collector_mode}: expected off, on or proxy")
        for name in ("grpc_max_inbound_message_size", "grpc_client_consumer_long_polling_batch_size"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{camel_case(name)}={getattr(self, name)}: expected more than 0")

    @property
    def broker_ports(self) -> dict[str, int]:
        """By broker, the port for clients that mean it. Raises `ConfigError`."""
        found: dict[str, int] = {}
        for part in filter(None, (each.strip() for each in self.remoting_broker_ports.split(";"))):
            name, colon, port = part.rpartition(":")
            if not colon or not name.strip() or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(f"remotingBrokerPorts: {part!r} is no broker:port, such as broker-a:8091")
            if name in found or int(port) in found.values():
                raise ConfigError(f"remotingBrokerPorts: {part!r} names a broker or a port a second time")
            found[name.strip()] = int(port)
        return found

    @property
    def credentials(self) -> tuple[str, str] | None:
        text = self.inner_client_authentication_credentials.strip()
        if not text:
            return None
        try:
            found = json.loads(text)
            return str(found["accessKey"]), str(found["secretKey"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                'innerClientAuthenticationCredentials: expected {"accessKey":"…","secretKey":"…"}'
            ) from None


KEYS = frozenset(each.metadata.get("key", camel_case(each.name)) for each in fields(ProxyConfig))


def read_proxy_file(path: str) -> dict[str, str]:
    """Apache's rmq-proxy.json: one object of settings. Raises `ConfigError`."""
    try:
        found = json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise ConfigError(f"the configuration file {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the configuration file {path}: expected one JSON object of settings")
    return {str(key): _text(value) for key, value in found.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
