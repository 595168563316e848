"""Apache's `namesrv.conf` keys with Apache's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arrowmq import refusals
from arrowmq.config import fill, properties_of

ALWAYS_BLACK_LISTED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


@dataclass(slots=True)
class NamesrvConfig:
    listen_port: int = 9876
    bind_address: str = "0.0.0.0"
    kv_config_path: str = field(default_factory=lambda: str(Path.home() / "namesrv" / "kvConfig.json"))
    config_store_path: str = field(default_factory=lambda: str(Path.home() / "namesrv" / "namesrv.properties"))
    rocketmq_home: str = ""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    scan_not_active_broker_interval: int = 5000
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    delete_topic_with_broker_registration: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    server_channel_max_idle_time_seconds: int = 120
    product_env_name: str = "center"
    cluster_test: bool = False
    enable_controller_in_namesrv: bool = False
    un_register_broker_queue_capacity: int = 3000
    client_request_thread_pool_nums: int = 8
    client_request_thread_pool_queue_capacity: int = 50_000
    default_thread_pool_nums: int = 16
    default_thread_pool_queue_capacity: int = 10_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[NamesrvConfig, list[str]]:
        """The settings, and the keys among them that a NameServer does not know."""
        refusals.check(refusals.NAMESRV_SETTINGS, properties)
        config, unknown = fill(cls, properties)
        return config, sorted(unknown)

    @property
    def black_listed_keys(self) -> frozenset[str]:
        return ALWAYS_BLACK_LISTED | {key.strip() for key in self.config_black_list.split(";") if key.strip()}

    def update(self, properties: Mapping[str, str]) -> list[str]:
        """Take over changes at run time, all or none. Returns the keys that are not known, which are left alone."""
        refusals.check(refusals.NAMESRV_SETTINGS, properties)
        changed, unknown = fill(NamesrvConfig, {**properties_of(self), **properties})
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(changed, name))
        return sorted(unknown)
