"""Gathers the doctor's facts: from every NameServer, every broker, every member of a group, and this machine.

Nothing may stop it: what does not answer is a fact as well.
"""

from __future__ import annotations

import asyncio
import functools
import os
import resource
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.client.options import ConnectOptions
from arrowmq.inspect.broker_clock import clock_skew_ms
from arrowmq.inspect.doctor.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    Held,
    MachineFacts,
    MemberFacts,
    NamesrvFacts,
    TopicFacts,
)
from arrowmq.inspect.doctor.topics import is_own
from arrowmq.native import is_native, load
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ClusterInfo, ConsumerRunningInfo
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

_UNLIMITED_BYTES = 1 << 60


#: What a visit may ask at once before it keeps to a pace: all that there is to ask of a small cluster
AT_FIRST = 200


class PacedAdmin(Admin):
    """Asks no more than so many times a second: who looks again and again must not be felt by the brokers."""

    calls_a_second = 0.0
    _asked = 0

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        accept: tuple[int, ...] = (),
        timeout_s: float | None = None,
    ) -> Command:
        self._asked += 1
        if self.calls_a_second and self._asked > AT_FIRST:
            async with self._turn:
                await asyncio.sleep(1 / self.calls_a_second)
        return await super().call(address, code, ext, body, accept=accept, timeout_s=timeout_s)

    @functools.cached_property
    def _turn(self) -> asyncio.Lock:
        return asyncio.Lock()


async def gather(
    addresses: list[str],
    connect: ConnectOptions,
    *,
    topic: str | None,
    directory: str | None,
    watch_s: float,
    calls_a_second: float = 0.0,
) -> Facts:
    facts = Facts(now_ms=round(time.time() * 1000), watched_s=watch_s, asked_topic=topic)
    facts.machine = machine_facts(directory)
    facts.namesrvs = list((await each_of(addresses, lambda address: _namesrv(address, connect))).values())
    answering = [namesrv.address for namesrv in facts.namesrvs if not namesrv.problem]
    if not answering:
        return facts
    async with PacedAdmin(answering, **connect) as admin:
        admin.calls_a_second = calls_a_second
        facts.brokers = await _brokers(admin, facts.namesrvs)
        await _controlled(admin, facts)
        await _topics(admin, facts)
        await _groups(admin, facts)
        await _members(admin, facts)
    return facts


# -- NameServers


async def _namesrv(address: str, connect: ConnectOptions) -> NamesrvFacts:
    facts = NamesrvFacts(address)
    host, _, port = address.rpartition(":")
    timeout_s = connect.get("request_timeout_s", 3.0)
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
    except TimeoutError:
        facts.problem, facts.detail = "timeout", f"not within {timeout_s:g} s"
        return facts
    except socket.gaierror as failure:
        facts.problem, facts.detail = "name", failure.strerror or ""
        return facts
    except OSError as failure:
        facts.problem = "refused"
        facts.detail = os.strerror(failure.errno).lower() if failure.errno is not None else str(failure)
        return facts
    # Not by an `Admin`: that one waits for a server which starts late, and here the first answer is the fact.
    client = RemotingClient(tls=connect.get("tls"))
    try:
        answer = await client.invoke(address, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            facts.problem = "broker"
        elif answer.code:
            facts.problem, facts.detail = "silent", answer.remark or f"code {answer.code}"
        else:
            info = fastjson.loads(answer.body, ClusterInfo)
            facts.brokers = {name: dict(broker.broker_addrs) for name, broker in info.broker_addr_table.items()}
    except (RemotingError, WireError):
        facts.problem = "silent"
    finally:
        await client.close()
    return facts


# -- brokers


async def _brokers(admin: Admin, namesrvs: list[NamesrvFacts]) -> list[BrokerFacts]:
    clusters = {}
    info = await admin.cluster_info()
    for cluster, members in info.cluster_addr_table.items():
        clusters.update(dict.fromkeys(members, cluster))
    places = {
        (name, int(broker_id), address)
        for namesrv in namesrvs
        for name, by_id in namesrv.brokers.items()
        for broker_id, address in by_id.items()
    }
    found = await each_of(
        sorted(places), lambda place: _broker(admin, place[0], clusters.get(place[0], ""), place[1], place[2])
    )
    return list(found.values())


async def _broker(admin: Admin, name: str, cluster: str, broker_id: int, address: str) -> BrokerFacts:
    facts = BrokerFacts(name, cluster, broker_id, address)
    try:
        asked_ms = time.time() * 1000
        facts.runtime = await admin.broker_runtime(address)
        answered_ms = time.time() * 1000
        facts.config = await admin.broker_config(address)
        facts.topics = await admin.topic_configs(address)
    except (ArrowMQError, WireError) as failure:
        facts.problem = str(failure.__cause__ or failure)
        return facts
    facts.clock_skew_ms = clock_skew_ms(facts.runtime, (asked_ms + answered_ms) / 2)
    return facts


async def _controlled(admin: Admin, facts: Facts) -> None:
    """What the controllers say of the sets of brokers that are under one."""
    for name in sorted({each.name for each in facts.reached if each.config.get("enableControllerMode") == "true"}):
        try:
            found = await admin.controlled_set(name)
        except (ArrowMQError, WireError) as failure:
            facts.controlled[name] = str(failure)
        else:
            if found is not None:
                facts.controlled[name] = found


# -- topics and groups


async def _topics(admin: Admin, facts: Facts) -> None:
    wanted = {topic for broker in facts.reached for topic in broker.topics if not is_own(topic)}
    wanted -= {broker.name for broker in facts.brokers} | {broker.cluster for broker in facts.brokers}
    if facts.asked_topic is not None:
        wanted = {facts.asked_topic}

    async def look(topic: str) -> TopicFacts:
        try:
            return TopicFacts(topic, await admin.route_data(topic), dict(await admin.topic_stats(topic)))
        except Refused as refused:
            if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                return TopicFacts(topic, None)
            raise
        except ArrowMQError:
            return TopicFacts(topic, await admin.route_data(topic))

    facts.topics = list((await each_of(sorted(wanted), look)).values())


async def _groups(admin: Admin, facts: Facts) -> None:
    found: dict[str, GroupFacts] = {}
    masters = [broker for broker in facts.reached if broker.broker_id == 0]
    for broker in masters:
        for group, queues in (await admin.progress_of_groups(broker.address)).items():
            found.setdefault(group, GroupFacts(group)).progress.update(queues)
    if masters:
        try:
            for group in await admin.groups():
                found.setdefault(group, GroupFacts(group))
        except ArrowMQError:
            pass  # a broker that does not answer is told by its own check; the groups of the others are known
    for broker in masters:
        for topic in broker.topics:
            if topic.startswith(names.DLQ_PREFIX) and topic.removeprefix(names.DLQ_PREFIX) in found:
                await _letters(admin, found[topic.removeprefix(names.DLQ_PREFIX)], topic)
    if facts.asked_topic is not None:
        asked = facts.asked_topic
        found = {name: group for name, group in found.items() if any(queue.topic == asked for queue in group.progress)}
    for broker in masters:
        await _settings(admin, broker, found)
    facts.groups = [found[name] for name in sorted(found) if not name.startswith(names.SYSTEM_GROUP_PREFIX)]


async def _letters(admin: Admin, group: GroupFacts, topic: str) -> None:
    try:
        stats = (await admin.topic_stats(topic)).values()
    except ArrowMQError:
        return
    group.letters = sum(each.max_offset - each.min_offset for each in stats)
    group.newest_letter_ms = max((each.last_update_timestamp for each in stats), default=0)


async def _settings(admin: Admin, broker: BrokerFacts, groups: dict[str, GroupFacts]) -> None:
    """Of all groups at once: a broker tells it in one answer."""
    try:
        configs = await admin.group_configs(broker.address)
    except (ArrowMQError, WireError):
        return
    for name, config in configs.items():
        if name in groups and not config.consume_enable:
            groups[name].disabled_on = sorted([*groups[name].disabled_on, broker.name])


# -- members


async def _members(admin: Admin, facts: Facts) -> None:
    """Asks every member twice, a moment apart: what it holds and holds still is where things are stuck."""
    for group in facts.groups:
        members: dict[str, MemberFacts] = {}
        for broker in facts.reached:
            online = await admin.consumers_at(broker.address, group.name) if broker.broker_id == 0 else None
            if online is not None:
                group.model = online.message_model
                for each in online.connection_set:
                    members[each.client_id] = MemberFacts(each.client_id, each.language, each.version)
        group.members = [members[client_id] for client_id in sorted(members)]
    everybody = [(group.name, member) for group in facts.groups for member in group.members]
    if not everybody:
        return
    for is_later in (False, True):
        if is_later:
            await asyncio.sleep(facts.watched_s)
        await asyncio.gather(*(_member(admin, group, member, is_later) for group, member in everybody))


async def _member(admin: Admin, group: str, member: MemberFacts, is_later: bool) -> None:
    try:
        info = await admin.running_info(group, member.client_id)
    except (ArrowMQError, WireError):
        return
    member.subscriptions = {each.topic: each.sub_string or "*" for each in info.subscription_set}
    if is_later:
        member.held_later = _held(info)
    else:
        member.held = _held(info)


def _held(info: ConsumerRunningInfo) -> dict[MessageQueue, Held]:
    return {
        queue: Held(each.cached_msg_count, each.cached_msg_min_offset)
        for queue, each in info.mq_table.items()
        if not each.droped
    }


# -- this machine


def machine_facts(directory: str | None) -> MachineFacts:
    facts = MachineFacts(is_native=is_native(load("arrowmq.wire.frames._frames")))
    facts.open_files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if facts.open_files_hard == resource.RLIM_INFINITY:
        facts.open_files_hard = 1 << 30
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(path)
        if text.isdigit() and int(text) < _UNLIMITED_BYTES:
            facts.memory_limit_bytes = int(text)
            break
    count = _read("/proc/sys/vm/max_map_count")
    facts.max_map_count = int(count) if count.isdigit() else None
    if directory is not None:
        facts.directory = directory
        folder = Path(directory)
        if not folder.is_dir():
            facts.directory_problem = "it does not exist" if not folder.exists() else "it is not a directory"
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            facts.directory_problem = "this user may not write to it"
        else:
            facts.directory_free_bytes = shutil.disk_usage(folder).free
    return facts


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
