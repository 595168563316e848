"""One broker, put together: its tables, its store, its services, and the order in which they start and stop.

broker = Broker(config, store_root, clock, ports=BrokerPorts(clock))
await broker.start()     # lock and recover the store, listen, start the services, be in every NameServer's route
await broker.stop()      # leave the routes, answer who waits, persist everything, hang up
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from arrowmq import refusals
from arrowmq.auth.guard import Guard
from arrowmq.auth.settings import read_settings
from arrowmq.broker import names
from arrowmq.broker.access.native_check import check_natively
from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.background import Background
from arrowmq.broker.clients.table import SWEEP_S, Clients
from arrowmq.broker.fastpath.closers import add_closers
from arrowmq.broker.fastpath.permit import Permit
from arrowmq.broker.fastpath.router import Router, build_fast_paths
from arrowmq.broker.groups.queue_locks import QueueLocks
from arrowmq.broker.groups.subscriptions import Subscriptions
from arrowmq.broker.groups.table import SubscriptionGroups
from arrowmq.broker.offsets.table import ConsumerOffsets
from arrowmq.broker.ports import BrokerPorts
from arrowmq.broker.pull.longpoll import LongPoll
from arrowmq.broker.registration import Registration
from arrowmq.broker.role import BrokerRole
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath
from arrowmq.broker.services import build_services
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.settings.kept import LIVE_STORE_KEYS, KeptSettings
from arrowmq.broker.slave_requests import refuse_on_slaves
from arrowmq.broker.topics.creation_times import CreationTimes
from arrowmq.broker.topics.table import Topics
from arrowmq.clock import Clock
from arrowmq.config import ConfigError
from arrowmq.remoting.address import format_address
from arrowmq.remoting.answer_times import AnswerTimes
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import HandlerTable, Hook
from arrowmq.store import MessageStore, Put, Recovered, StoreConfig
from arrowmq.store.config import apache_key
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.store.disk import Disk
from arrowmq.touches import Steps
from arrowmq.wire.bodies import HARuntimeInfo
from arrowmq.wire.records import Record

log = logging.getLogger(__name__)

FIRST_OFFSET_PERSIST_S = 10.0


class Extension(Protocol):
    """What stands above the broker and is a part of it all the same. It is made behind the services, and may add to
    what they let others add to; its `@handles` methods are in the table of requests. It starts before any NameServer
    hears of the broker, and stops when the services have nothing to do any more."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Broker:
    name = "broker"

    def __init__(
        self,
        config: BrokerConfig,
        store_root: Path | str,
        clock: Clock,
        disk: Disk | None = None,
        *,
        ports: BrokerPorts | None = None,
        extensions: Sequence[Callable[[Broker], Extension]] = (),
    ) -> None:
        self.config = config
        self.clock = clock
        self._disk = disk
        self.ports = ports
        self.root = Path(store_root)
        self.boot_ms = clock.now_ms()
        self.is_running = False
        self.recovered: Recovered | None = None
        self.kept_settings = KeptSettings(self.root / "config" / "broker.properties", disk)
        self.on_config_change: list[Callable[[], None]] = []
        self.on_open: list[Callable[[], object]] = []  # the store is open, and nothing was read of it yet
        self._apply_kept_settings()
        self.address = BrokerAddress(config.advertised_host, config.listen_port)
        self.store = MessageStore(self.root, StoreConfig.from_broker_config(config.properties()), clock, disk)
        self.topics = Topics(config, self.file("topics.json"), clock)
        self.groups = SubscriptionGroups(config, self.file("subscriptionGroup.json"), clock)
        self.offsets = ConsumerOffsets(config, self.file("consumerOffset.json"), clock)
        self.clients = Clients(config, clock, self._wants_notice)
        self.subscriptions = Subscriptions(config, self.groups, self.clients)
        self.locks = QueueLocks(clock)
        self.stats = BrokerStats(clock, config.broker_cluster_name, partial(names.is_system_topic, config=config))
        self.creation_times = CreationTimes()
        self.answer_times = AnswerTimes()
        self.background = Background(clock)
        self.longpoll = LongPoll(clock, self.watch)
        # How many want to be notified of the messages of a queue, by topic and queue
        self.watchers: Counter[tuple[str, int]] = Counter()
        # Others whose requests wait for messages of a topic: told when they should look again
        self.look_again: list[Callable[[str], None]] = []
        # What other capabilities add to GET_BROKER_RUNTIME_INFO
        self.runtime_reports: list[Callable[[], dict[str, str]]] = []
        self.path = MessagePath(self.store, clock)
        #: Sees every request before its handler; a hook says which request codes it touches.
        self.hooks: Steps[Hook] = Steps("request hook")
        self.permit = Permit(self.hooks, self.path, self.store.listeners_of_every)
        self.on_config_change.append(self.permit.changed)
        self.runtime_reports.append(self.permit.report)
        self.guard = Guard(
            read_settings(config.properties()),
            config.broker_name,
            config.broker_cluster_name,
            self.root / "config",
            clock,
            disk,
        )
        self.guard.watch(self.hooks)
        check_natively(self.guard, self.permit)
        self.guard.access.on_change.append(self.longpoll.wake_all)  # who may no longer read must not wait on
        self.remoting = RemotingClient(clock, sign=self.guard.sign)
        self.registration = Registration(config, self.address, self.topics, self.remoting, clock)
        self.role = BrokerRole(self)
        self.services = build_services(self)
        self.handlers = HandlerTable(
            *self.services,
            times=self.answer_times,
            server="this broker",
            why_not=refusals.request_reasons(refusals.BROKER_REQUESTS),
            otherwise=refusals.OF_NO_BROKER,
            hooks=self.hooks,
        )
        add_closers(self)
        refuse_on_slaves(self)
        self.ha_report: Callable[[], HARuntimeInfo] = self._without_replicas
        self.ha_lag_s: Callable[[], float] = lambda: 0.0  # of the slave that is furthest behind
        self.fast_path: Router | None = None
        self.vip_fast_path: Router | None = None
        self.extensions = [make(self) for make in extensions]
        for extension in self.extensions:
            self.handlers.add_service(extension)

    @property
    def ha_address(self) -> str:
        """Where slaves connect to."""
        return format_address(self.config.broker_ip2 or self.address.host, self.config.ha_port)

    def _without_replicas(self) -> HARuntimeInfo:
        return HARuntimeInfo(master=self.role.is_master, master_commit_log_max_offset=self.store.appended)

    def _apply_kept_settings(self) -> None:
        try:
            self.config.apply(self.kept_settings.load())
        except ConfigError as fault:
            raise ConfigError(f"{fault} (changed at run time; it stands in {self.kept_settings.path})") from fault

    def file(self, name: str) -> JsonConfigFile:
        """A table of this broker on disk."""
        return JsonConfigFile(self.root / "config" / name, self._disk)

    def watch(self, topic: str, queue_id: int, watched: bool) -> None:
        """Has the store notify its listeners of a queue's messages, for as long as anybody wants that."""
        key = (topic, queue_id)
        self.watchers[key] += 1 if watched else -1
        if not self.watchers[key]:
            del self.watchers[key]
        self.store.queue(topic, queue_id).watched = key in self.watchers

    def properties(self) -> dict[str, str]:
        """Every setting, the store's as well, with the values in force."""
        store = {apache_key(each.name): _text(getattr(self.store.config, each.name)) for each in fields(StoreConfig)}
        found = {
            "brokerIP1": self.address.host,
            "brokerIP2": self.config.broker_ip2 or self.address.host,
            "listenPort": str(self.address.port),
            "haListenPort": str(self.config.ha_port),
            "storePathRootDir": str(self.root),
            # What mqadmin exportMetrics takes for the number of processors.
            "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
        }
        return dict(sorted({**self.config.properties(), **store, **found}.items()))

    def config_changed(self, changed: dict[str, str]) -> None:
        """Settings were changed at run time: keeps them, and hands them on to the parts that have a copy."""
        self.kept_settings.keep(changed)
        self.store.positions.timeout_s = self.config.sync_flush_timeout / 1000
        live = {key: changed[key] for key in LIVE_STORE_KEYS & changed.keys()}
        wanted = StoreConfig.from_broker_config(live)
        names = [each.name for each in fields(StoreConfig) if apache_key(each.name) in live]
        self.store.config = replace(self.store.config, **{name: getattr(wanted, name) for name in names})
        for listener in self.on_config_change:
            listener()

    def _wants_notice(self, group: str) -> bool:
        settings = self.groups.get(group)
        return settings is None or settings.notify_consumer_ids_changed_enable

    def open(self) -> Recovered:
        """Locks and recovers the store, then loads the tables. Raises what the store raises, and `ConfigError`."""
        recovered = self.recovered = self.store.open()
        for listener in self.on_open:
            listener()
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        self.guard.load()
        self.services.load()
        self.topics.adopt(self.store.queues())
        self.store.add_listener(self.longpoll.arrived)
        return recovered

    def put(self, record: Record) -> Put:
        """Stores a message of the broker's own making, with the rewrites that every message gets."""
        return self.path.put(record)

    async def start(self, port: int | None = None) -> None:
        """Opens the store unless that is done, listens, starts the services and registers with the NameServers. What
        fails behind the opening of the store is undone. A broker without ports is told the `port` to advertise."""
        if self.recovered is None:
            self.open()
        try:
            if self.ports is not None:
                port = self.config.listen_port = await self.ports.open(self.config, self.handlers)
            await self._start(self.address.port if port is None else port)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, port: int) -> None:
        self.address.port = port
        self.store.start(asyncio.get_running_loop())
        self.background.every(
            "persist consumer offsets",
            self.config.flush_consumer_offset_interval / 1000,
            self.offsets.persist_if_changed,
            first_s=FIRST_OFFSET_PERSIST_S,
        )
        self.background.every("expire silent clients", SWEEP_S, self.clients.sweep)
        self.background.every("sample statistics", self.stats.SAMPLE_S, self.stats.sample)
        self.services.start()
        self.background.start()
        self.is_running = True
        for extension in self.extensions:
            await extension.start()
        await self.role.start()
        self.fast_path, self.vip_fast_path = build_fast_paths(self)
        if self.ports is not None:
            self.ports.use(self.fast_path, self.vip_fast_path)
        await self.registration.start()

    async def stop(self) -> None:
        """Leaves the routes, ends the services, persists the tables, closes the store, and hangs up."""
        try:
            await self._stop()
        finally:
            # The store was closed in the last step. Nothing was awaited since, so no request can come between.
            if self.ports is not None:
                await self.ports.close()

    async def _stop(self) -> None:
        self.is_running = False
        for fast_path in (self.fast_path, self.vip_fast_path):
            if fast_path is not None:
                fast_path.close()
        await self.registration.stop()
        await self.role.stop()
        for extension in reversed(self.extensions):
            await extension.stop()
        await self.background.stop()
        self.longpoll.stop()
        await self.services.stop()
        await self.remoting.close()
        for table in (self.topics, self.groups, self.offsets):
            table.persist()
        self.services.persist()
        self.store.close()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
