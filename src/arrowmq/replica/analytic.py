"""The analytic replica: a copy of a broker's log for Spark and tools, which no client knows of.

It finds the master of a broker name by a NameServer, and its HA port and file sizes by its settings, which every
RocketMQ broker tells: so an Apache broker can be copied as it is. It registers nowhere and counts for nobody, serves
nothing, commits nothing, and keeps messages by its own rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from arrowmq.auth.settings import read_inner_credentials
from arrowmq.auth.signature import sign
from arrowmq.broker.role import MASTER_ID, Master
from arrowmq.clock import Clock, SystemClock
from arrowmq.config import ConfigError, parse_properties
from arrowmq.remoting.address import AddressError, format_address, parse_address, parse_addresses
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.tls.reload import TlsReload
from arrowmq.remoting.tls.settings import client_tls
from arrowmq.replica.encrypted import ha_tls_of_a_reader
from arrowmq.replica.follower import COPYING, Follower
from arrowmq.store import MessageStore, StoreConfig
from arrowmq.store.disk import Disk
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ClusterInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 3.0
LOOK_S = 2.0
# What the copy must have as the master has it
SAME_AS_MASTER = ("mappedFileSizeCommitLog", "messageDelayLevel", "maxMessageSize")
FOREVER_HOURS = 100 * 365 * 24


class NoMaster(ConfigError):
    """There is nobody to copy from, and why."""


class AnalyticReplica:
    name = "analytic replica"

    def __init__(
        self,
        namesrv: str,
        broker_name: str,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        try:
            self._name_servers = parse_addresses(namesrv)
        except AddressError as fault:
            raise ConfigError(f"--of: {fault}") from fault
        if not self._name_servers:
            raise ConfigError("--of: an analytic replica needs the NameServer of the broker that it copies")
        self.broker_name = broker_name
        self.directory = directory
        self._settings = dict(settings or {})
        self._clock: Clock = clock or SystemClock()
        self._disk = disk
        self._credentials = read_inner_credentials(self._settings.get("innerClientAuthenticationCredentials", ""))
        outgoing = client_tls(self._settings)
        self._ha_tls = ha_tls_of_a_reader(self._settings, outgoing)
        used = outgoing if self._ha_tls is None else self._ha_tls.client
        self._tls_reload = TlsReload(self._settings, None, used, self._clock)
        self.remoting = RemotingClient(self._clock, outgoing, sign=self._sign)
        self.master = Master()
        self.store: MessageStore | None = None
        self.follower: Follower | None = None
        self._looking: asyncio.Task[None] | None = None
        self._wants_look = asyncio.Event()

    async def start(self) -> None:
        """Returns when the copy has begun. Raises `NoMaster` if there is none, and what the store raises."""
        if self._tls_reload.is_needed:
            await self._tls_reload.start()
        self.master, theirs = await self._find()
        same = {key: theirs[key] for key in SAME_AS_MASTER if key in theirs}
        wanted = {"fileReservedTime": str(FOREVER_HOURS), "cleanFileForciblyEnable": "false", **self._settings, **same}
        self.store = MessageStore(self.directory, StoreConfig.from_broker_config(wanted), self._clock, self._disk)
        self.store.open()
        self.store.start(asyncio.get_running_loop())
        self.follower = Follower(
            self.store,
            self.remoting,
            self._clock,
            find_master=lambda: self.master,
            ask_for_master=self._wants_look.set,
            heartbeat_s=5.0,
            silence_s=20.0,
        )
        self.follower.tls = self._ha_tls
        self.follower.start()
        self._looking = asyncio.ensure_future(self._look())
        while self.follower.state != COPYING:
            if self.follower.state == "refused":
                reason = self.follower.reason
                await self.stop()
                raise NoMaster(reason)
            await self._clock.sleep(0.02)

    async def stop(self) -> None:
        await self._tls_reload.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None
        if self.follower is not None:
            await self.follower.stop()
        await self.remoting.close()
        if self.store is not None:
            self.store.close()

    def _sign(self, request: Command) -> None:
        if self._credentials is not None:
            ours = self._credentials
            sign(request.ext, request.body, ours.access_key, ours.secret_key.encode(), ours.security_token)

    async def _look(self) -> None:
        """The master may be another one by now, or at another address."""
        while True:
            await self._wants_look.wait()
            with contextlib.suppress(NoMaster):  # it is said by the follower that there is none
                self.master, _ = await self._find()
            await self._clock.sleep(LOOK_S)
            self._wants_look.clear()

    async def _find(self) -> tuple[Master, dict[str, str]]:
        """The master of the broker name, with its settings."""
        problems = []
        for address in self._name_servers:
            try:
                answer = await self._ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
                info = fastjson.loads(answer.body, type=ClusterInfo)
                data = info.broker_addr_table.get(self.broker_name)
                if data is None:
                    known = ", ".join(sorted(info.broker_addr_table)) or "none"
                    raise NoMaster(f"NameServer {address} knows no broker {self.broker_name}; it knows {known}")
                master = data.broker_addrs.get(MASTER_ID)
                if master is None:
                    raise NoMaster(f"broker {self.broker_name} has no master now")
                theirs = parse_properties((await self._ask(master, RequestCode.GET_BROKER_CONFIG)).body.decode())
                ha_address = _ha_address(master, theirs.get("haListenPort"))
            except NoMaster as fault:
                problems.append(str(fault))
                continue
            except (RemotingError, WireError, OSError, ConfigError, AddressError) as failure:
                problems.append(f"{address}: {failure}")
                continue
            return Master(master, ha_address), theirs
        raise NoMaster("; ".join(problems))

    async def _ask(self, address: str, code: RequestCode) -> Command:
        answer = await self.remoting.invoke(address, Command.request(code), ASK_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise NoMaster(f"{address} answers {code.name} with code {answer.code}: {answer.remark}")
        return answer

    # For the screen

    def progress(self) -> str:
        assert self.store is not None
        assert self.follower is not None
        end = int(self.store.appended)
        reason = f", {self.follower.reason}" if self.follower.reason else ""
        return f"{self.follower.state} at {end}, {max(0, self.follower.master_end - end)} bytes behind{reason}"


def _ha_address(master: str, ha_port: str | None) -> str:
    """brokerIP2 may be an address that only brokers reach; who reaches the broker itself reaches that host."""
    host, port = parse_address(master)
    if not ha_port:
        return format_address(host, port + 1)
    if not ha_port.isdecimal() or not 0 < int(ha_port) < 65536:
        raise NoMaster(f"{master} says haListenPort={ha_port}, which is no port")
    return format_address(host, int(ha_port))
