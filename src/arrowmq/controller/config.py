"""Apache's controller settings with Apache's defaults, and the few of our own (`etcd…`)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from arrowmq import refusals
from arrowmq.config import ConfigError, camel_case, fill, properties_of
from arrowmq.remoting.address import AddressError, parse_address

DEFAULT_PORT = 9878
ALWAYS_BLACK_LISTED = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
# What is decided when the controller starts.
_FIXED = frozenset(
    {
        "listenPort",
        "bindAddress",
        "controllerStorePath",
        "controllerDLegerGroup",
        "controllerDLegerPeers",
        "controllerDLegerSelfId",
        "controllerIP",
        "etcdEndpoints",
        "etcdPrefix",
        "etcdLeaseMs",
        "etcdUser",
        "etcdPassword",
        "etcdCaFile",
        "etcdCertFile",
        "etcdKeyFile",
    }
)
_SECRET = frozenset({"etcdPassword"})


@dataclass(slots=True)
class ControllerConfig:
    listen_port: int = DEFAULT_PORT
    bind_address: str = "0.0.0.0"
    controller_ip: str = field(default="", metadata={"key": "controllerIP"})  # what brokers are told to connect to
    rocketmq_home: str = ""
    config_store_path: str = ""
    config_black_list: str = "configBlackList;configStorePath"
    controller_type: str = "DLedger"
    controller_store_path: str = ""
    controller_d_leger_group: str = "arrowmq"
    controller_d_leger_peers: str = ""
    controller_d_leger_self_id: str = "n0"
    scan_not_active_broker_interval: int = 5000
    scan_inactive_master_interval: int = 5000
    elect_master_max_retry_count: int = 3
    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    is_process_read_event: bool = False
    controller_thread_pool_nums: int = 16
    controller_request_thread_pool_queue_capacity: int = 50_000
    mapped_file_size: int = 1024 * 1024 * 1024
    metrics_exporter_type: str = "DISABLE"
    metrics_prom_exporter_port: int = 5557
    metrics_prom_exporter_host: str = "127.0.0.1"
    etcd_endpoints: str = ""
    etcd_prefix: str = "/arrowmq/controller"
    etcd_lease_ms: int = 3000
    etcd_user: str = ""
    etcd_password: str = ""
    etcd_ca_file: str = ""
    etcd_cert_file: str = ""
    etcd_key_file: str = ""

    def __post_init__(self) -> None:
        if self.scan_inactive_master_interval < 1:
            raise ConfigError(f"scanInactiveMasterInterval={self.scan_inactive_master_interval}: expected 1 or more")
        if self.etcd_lease_ms < 1000:
            raise ConfigError(f"etcdLeaseMs={self.etcd_lease_ms}: expected 1000 or more, etcd counts leases in seconds")
        self.own_peer()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[ControllerConfig, list[str]]:
        """The settings, and the keys among them that a controller does not know."""
        refusals.check(refusals.CONTROLLER_SETTINGS, properties)
        config, unknown = fill(cls, properties)
        return config, sorted(unknown)

    def own_peer(self) -> tuple[str, int] | None:
        """Host and port that `controllerDLegerPeers` (`n0-host:port;n1-…`) names for `controllerDLegerSelfId`."""
        for part in filter(None, (part.strip() for part in self.controller_d_leger_peers.split(";"))):
            name, dash, address = part.partition("-")
            try:
                if not dash:
                    raise AddressError(part)
                place = parse_address(address)
            except AddressError:
                raise ConfigError(
                    f"controllerDLegerPeers={self.controller_d_leger_peers}: expected n0-host:port;n1-host:port"
                ) from None
            if name == self.controller_d_leger_self_id:
                return place
        if self.controller_d_leger_peers.strip():
            raise ConfigError(
                f"controllerDLegerPeers={self.controller_d_leger_peers}: it does not name this controller, "
                f"controllerDLegerSelfId={self.controller_d_leger_self_id}"
            )
        return None

    @property
    def black_listed_keys(self) -> frozenset[str]:
        return ALWAYS_BLACK_LISTED | {key.strip() for key in self.config_black_list.split(";") if key.strip()}

    def shown(self) -> dict[str, str]:
        """As text, by key, without secrets."""
        return {key: "" if key in _SECRET else text for key, text in properties_of(self).items()}

    def update(self, properties: Mapping[str, str]) -> list[str]:
        """Take over changes at run time, all or none. Returns the keys that are not known, which are left alone."""
        fixed = sorted(key for key in properties.keys() & _FIXED if properties[key] != properties_of(self)[key])
        if fixed:
            raise ConfigError(f"{', '.join(fixed)}: decided when the controller starts; restart it with the new value")
        refusals.check(refusals.CONTROLLER_SETTINGS, properties)
        changed, unknown = fill(ControllerConfig, {**properties_of(self), **properties})
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(changed, name))
        return sorted(unknown)


def etcd_endpoints(text: str) -> list[str]:
    """URLs of etcd members: `https://host:2379,…`; a bare `host:port` means http."""
    endpoints = []
    for word in filter(None, (word.strip() for word in re.split(r"[,;]", text))):
        scheme, separator, rest = word.partition("://")
        url = word if separator else f"http://{word}"
        try:
            if separator and scheme not in ("http", "https"):
                raise AddressError(word)
            parse_address((rest if separator else word).rstrip("/"))
        except AddressError:
            raise ConfigError(f"--etcd {word}: expected http://host:port or https://host:port") from None
        endpoints.append(url.rstrip("/"))
    if len({url.partition("://")[0] for url in endpoints}) > 1:
        raise ConfigError(f"--etcd {text}: all members are reached by http, or all by https")
    return list(dict.fromkeys(endpoints))


def etcd_tls(config: ControllerConfig, endpoints: Sequence[str]) -> ssl.SSLContext | None:
    """For members reached by https: their certificates are always checked, and ours is shown where we have one."""
    given = [key for key in ("etcd_ca_file", "etcd_cert_file", "etcd_key_file") if getattr(config, key)]
    if not endpoints[0].startswith("https:"):
        if given:
            raise ConfigError(
                f"{camel_case(given[0])}: certificates are for members of etcd that are named by https://"
            )
        return None
    try:
        context = ssl.create_default_context(cafile=config.etcd_ca_file or None)
        if config.etcd_cert_file or config.etcd_key_file:
            context.load_cert_chain(config.etcd_cert_file, config.etcd_key_file or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(getattr(config, key) for key in given)
        raise ConfigError(f"the certificates for etcd cannot be used ({files}): {error.strerror or error}") from error
    return context
