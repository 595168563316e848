"""Administration of the broker as a whole: its settings, what it is doing, what it counted, cleaning up."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING

from arrowmq import refusals
from arrowmq.auth.settings import without_secrets
from arrowmq.broker import names
from arrowmq.broker.data_versions import next_version
from arrowmq.broker.runtime.info import runtime_table
from arrowmq.broker.runtime.stats import DAY_MS, HOUR_MS, MINUTE_MS, Item
from arrowmq.broker.settings.kept import FIXED_KEYS, LIVE_STORE_KEYS
from arrowmq.config import ConfigError, format_properties, parse_properties
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import StoreConfig, StoreError
from arrowmq.store.config import apache_key
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    DataVersion,
    KVTable,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import ViewBrokerStatsData

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

log = logging.getLogger(__name__)

_STORE_KEYS = frozenset(apache_key(each.name) for each in fields(StoreConfig))


class BrokerAdmin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = broker.config
        self.version = DataVersion(timestamp=broker.clock.now_ms())

    # Settings

    @handles(RequestCode.UPDATE_BROKER_CONFIG)
    async def update_config(self, call: Call) -> Answer | None:
        try:
            wanted = parse_properties(call.body.decode("utf-8", "replace"), "the request")
        except ConfigError as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"properties2String error: {fault}") from fault
        if not wanted:
            return None
        in_force = self.broker.properties()
        closed = sorted(self.config.black_listed_keys & set(wanted))
        if closed:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list: {', '.join(closed)} cannot be changed at run time",
            )
        try:
            refusals.check(refusals.BROKER_SETTINGS, wanted)
        except ConfigError as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"nothing was changed: {fault}") from fault
        fixed = sorted(FIXED_KEYS & {key for key, text in wanted.items() if text.strip() != in_force.get(key)})
        if fixed:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(fixed)} is what the broker was started as: change it where it is started, and restart it",
            )
        permission = self.config.broker_permission
        try:
            StoreConfig.from_broker_config(wanted)
            self.config.apply(wanted)
        except (ConfigError, StoreError) as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"nothing was changed: {fault}") from fault
        self.version = next_version(self.version, self.broker.clock.now_ms())
        self.broker.config_changed(wanted)
        changed = " ".join(f"{key}={value}" for key, value in sorted(without_secrets(wanted).items()))
        log.info("settings changed %s by=%s", changed, call.connection.peer_text)
        if ignored := sorted(set(self.config.ignored(_STORE_KEYS)) & set(wanted)):
            log.warning("settings without effect here: %s", ", ".join(ignored))
        if later := sorted((_STORE_KEYS - LIVE_STORE_KEYS) & set(wanted)):
            log.info("settings that count from the next start on: %s", ", ".join(later))
        if self.config.broker_permission != permission:
            # NameServers look into a registration only if its version is a new one.
            self.broker.topics.version = next_version(self.broker.topics.version, self.broker.clock.now_ms())
            await self.broker.registration.register_all()
        return None

    @handles(RequestCode.GET_BROKER_CONFIG)
    def get_config(self) -> Answer:
        text = format_properties(without_secrets(self.broker.properties()))
        return Answer(header={"version": fastjson.dumps(self.version).decode()}, body=text.encode())

    # What it is doing

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self) -> Answer:
        return Answer(body=fastjson.dumps(KVTable(table=runtime_table(self.broker))))

    @handles(RequestCode.VIEW_BROKER_STATS_DATA)
    def stats_data(self, request: ViewBrokerStatsData) -> Answer:
        item = self.broker.stats.find(request.stats_name, request.stats_key)
        if item is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{request.stats_name}> <{request.stats_key}> not exist",
            )
        body = BrokerStatsData(
            stats_minute=self._window(item, MINUTE_MS),
            stats_hour=self._window(item, HOUR_MS),
            stats_day=self._window(item, DAY_MS),
        )
        return Answer(body=fastjson.dumps(body))

    def _window(self, item: Item, length_ms: int) -> BrokerStatsItem:
        window = item.window(self.broker.clock.now_ms(), length_ms)
        return BrokerStatsItem(sum=window.total, tps=window.per_second, avgpt=window.per_time)

    @handles(RequestCode.GET_BROKER_HA_STATUS)
    def ha_status(self) -> Answer:
        return Answer(body=fastjson.dumps(self.broker.ha_report()))

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_offsets(self) -> Answer:
        return Answer(body=fastjson.dumps({**self.broker.offsets.as_json(), "pullOffsetTable": {}}))

    # Cleaning up

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_unused(self) -> Answer | None:
        """Forgets the queues of topics that no longer exist."""
        for topic in list(self.broker.store.queues()):
            if self.broker.topics.get(topic) is None and not names.is_system_topic(topic, self.config):
                log.info("queues deleted topic=%s reason=there is no such topic", topic)
                self.broker.store.delete_topic(topic)
        return None

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self) -> None:
        self.broker.store.retention.ask_now()
