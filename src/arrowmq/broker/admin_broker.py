"""Administration of the broker as a whole: its settings, what it is doing, what it counted, cleaning up."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from arrowmq.broker import names
from arrowmq.broker.kept_settings import FIXED_KEYS
from arrowmq.broker.stats import DAY_MS, HOUR_MS, MINUTE_MS, Item
from arrowmq.broker.versions import next_version
from arrowmq.config import ConfigError, format_properties, parse_properties
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import StoreConfig, StoreError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    DataVersion,
    HAClientRuntimeInfo,
    HARuntimeInfo,
    KVTable,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import ViewBrokerStatsData

if TYPE_CHECKING:
    from arrowmq.broker.node import Broker

log = logging.getLogger(__name__)

VERSION_NAME = "V5_5_0"  # what CURRENT_VERSION stands for, as tools show it


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
        closed = sorted(self.config.black_listed_keys & set(wanted))
        if closed:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list: {', '.join(closed)} cannot be changed at run time",
            )
        fixed = sorted(FIXED_KEYS & set(wanted))
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
        changed = " ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        log.info("settings changed %s by=%s", changed, call.connection.peer_text)
        if self.config.broker_permission != permission:
            # NameServers look into a registration only if its version is a new one.
            self.broker.topics.version = next_version(self.broker.topics.version, self.broker.clock.now_ms())
            await self.broker.registration.register_all()
        return None

    @handles(RequestCode.GET_BROKER_CONFIG)
    def get_config(self) -> Answer:
        text = format_properties(self.broker.properties())
        return Answer(header={"version": fastjson.dumps(self.version).decode()}, body=text.encode())

    # What it is doing

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self) -> Answer:
        return Answer(body=fastjson.dumps(KVTable(table=self._runtime())))

    def _runtime(self) -> dict[str, str]:
        broker, stats, store = self.broker, self.broker.stats, self.broker.store
        now_ms = broker.clock.now_ms()
        disk = os.statvfs(broker.root)
        ratio = f"{_used_percent(disk) / 100:.2f}"
        found, missed = stats.rates(stats.gets_found), stats.rates(stats.gets_missed)
        table = {
            "bootTimestamp": str(broker.boot_ms),
            "runtime": _duration(now_ms - broker.boot_ms),
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true" if broker.is_running else "false",
            "putTps": _numbers(stats.rates(stats.puts)),
            "getFoundTps": _numbers(found),
            "getMissTps": _numbers(missed),
            "getTotalTps": _numbers([one + other for one, other in zip(found, missed, strict=True)]),
            "getTransferredTps": _numbers(stats.rates(stats.messages_got)),
            "getTransferedTps": _numbers(stats.rates(stats.messages_got)),  # what older dashboards look for
            "putMessageTimesTotal": str(stats.puts.times),
            "putMessageFailedTimes": str(stats.failed_puts),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(stats.put_bytes / stats.puts.total if stats.puts.total else 0.0),
            # The messages of users: what the broker itself writes and reads, and probes of its topics, do not count.
            "msgPutTotalTodayNow": str(stats.user_puts.total),
            "msgGetTotalTodayNow": str(stats.user_gets.total),
            "msgPutTotalTodayMorning": str(stats.morning(stats.user_puts, 0)),
            "msgPutTotalYesterdayMorning": str(stats.morning(stats.user_puts, 1)),
            "msgGetTotalTodayMorning": str(stats.morning(stats.user_gets, 0)),
            "msgGetTotalYesterdayMorning": str(stats.morning(stats.user_gets, 1)),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.appended),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.config.store_path_commit_log or store.root / 'commitlog'}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": _capacity(disk),
            "remainHowManyDataToFlush": f"{store.appended - store.flushed_position} B",
            "earliestMessageTimeStamp": str(store.earliest_time()),
            "startAcceptSendRequestTimeStamp": str(self.config.start_accept_send_request_time_stamp),
            "waitingPulls": str(broker.longpoll.count),
            "differingSubscriptions": str(broker.clients.differing_subscriptions),
        }
        # Stages that a broker of one loop does not have; tools read these keys and show them as they are.
        for key in (
            "dispatchBehindBytes",
            "dispatchMaxBuffer",
            "pageCacheLockTimeMills",
            "putMessageEntireTimeMax",
            "getMessageEntireTimeMax",
            "putLatency99",
            "putLatency999",
            "timerReadBehind",
            "timerOffsetBehind",
            "timerCongestNum",
            "EndTransactionQueueSize",
        ):
            table[key] = "0"
        for key in ("timerEnqueueTps", "timerDequeueTps"):
            table[key] = "0.0"
        for pool in ("send", "pull", "litePull", "query", "ack"):
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table["sendThreadPoolQueueCapacity"] = str(self.config.send_thread_pool_queue_capacity)
        table["pullThreadPoolQueueCapacity"] = str(self.config.pull_thread_pool_queue_capacity)
        table["queryThreadPoolQueueCapacity"] = str(self.config.query_thread_pool_queue_capacity)
        for pool in ("ack", "litePull", "EndTransaction"):
            table[f"{pool}ThreadPoolQueueCapacity"] = str(self.config.pull_thread_pool_queue_capacity)
        for report in broker.runtime_reports:
            table.update(report())
        return table

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
        body = HARuntimeInfo(
            master=self.config.broker_id == 0,
            master_commit_log_max_offset=self.broker.store.appended,
            in_sync_slave_nums=0,
            ha_connection_info=[],
            ha_client_runtime_info=HAClientRuntimeInfo(),
        )
        return Answer(body=fastjson.dumps(body))

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


def _duration(elapsed_ms: int) -> str:
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _used_percent(disk: os.statvfs_result) -> int:
    """As `df` counts: what is reserved for root is neither used nor free to us. Rounded up, as Apache does."""
    used = disk.f_blocks - disk.f_bfree
    return -(-used * 100 // max(1, used + disk.f_bavail))


def _capacity(disk: os.statvfs_result) -> str:
    total, free = (blocks * disk.f_frsize / 2**30 for blocks in (disk.f_blocks, disk.f_bfree))
    return f"Total : {total:.1f} GiB, Free : {free:.1f} GiB."


def _numbers(values: list[float]) -> str:
    return " ".join(str(value) for value in values)
