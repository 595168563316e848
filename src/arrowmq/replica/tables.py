"""A slave's tables: topics, groups, offsets, delays, request modes, timers and users, as its master has them.

Between two ArrowMQ brokers the slave asks for the versions of all tables every second (a field of the answer to
EXCHANGE_BROKER_HA_INFO, which Apache's brokers ignore), and only for the tables that changed. A master that does not
say is Apache's: then every table is asked for once a minute and the timer's progress every three seconds, as its own
slaves do.

Offsets that clients commit here, while their master is gone, come home: once it answers again, it is told each one that
is ahead of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from arrowmq.auth.accounts import make_accounts
from arrowmq.auth.errors import AccountError
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    AclInfo,
    DataVersion,
    MessageRequestModeTable,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
)
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ExchangeHAInfo, UpdateConsumerOffset, decode_header

if TYPE_CHECKING:
    from arrowmq.broker import Broker

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 3.0
ROUND_S = 1.0
APACHE_ROUND_S = 60.0
APACHE_TIMER_S = 3.0


class Unanswered(Exception):
    """The master did not give a table."""


def versions_of(broker: Broker) -> str:
    """The versions of a master's tables in one text: what is the same text is the same tables."""
    services = broker.services
    texts = {
        "topics": _text(broker.topics.version),
        "groups": _text(broker.groups.version),
        "offsets": str(broker.offsets.revision),
        "delays": str(sum(services.delay_levels.kept_offsets().values())),
        "modes": str(services.assignment.revision),
        "timerMetrics": str(services.timer.counts.revision),
        "timer": str(services.timer.read_ms if services.timer.is_used else 0),
        "accounts": broker.guard.book.revision,
    }
    return ",".join(f"{name}={text}" for name, text in texts.items())


def _text(version: DataVersion) -> str:
    return f"{version.state_version}.{version.timestamp}.{version.counter}"


class TableCopy:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, str] = {}
        self._known_of = ""  # the master whose versions these are
        self._copied_s = self._timer_s = float("-inf")
        self._said = ""
        self.copied_ms = 0  # when everything was as the master has it last
        self._takers: dict[str, Callable[[str], Any]] = {
            "topics": self._topics,
            "groups": self._groups,
            "offsets": self._offsets,
            "delays": self._delays,
            "modes": self._modes,
            "timerMetrics": self._timer_metrics,
            "timer": self._timer,
            "accounts": self._accounts,
        }
        broker.background.every("copy the master's tables", ROUND_S, self.round)

    async def round(self) -> None:
        role = self._broker.role
        address = role.master.address
        if not role.is_slave or role.is_acting or not address:
            return
        try:
            await self._round(address)
        except (RemotingError, WireError, OSError, Unanswered, msgspec.ValidationError) as failure:
            self._known = {}
            if str(failure) != self._said:
                log.warning("tables of master %s not copied, will be repeated: %s", address, failure)
            self._said = str(failure)
        else:
            self._said = ""

    async def _round(self, address: str) -> None:
        if address != self._known_of:
            self._known, self._known_of, self._copied_s = {}, address, float("-inf")
        versions = await self._versions(address)
        now = self._broker.clock.monotonic()
        if versions is not None:
            changed = [name for name in self._takers if versions.get(name) != self._known.get(name)]
        else:
            changed = list(self._takers) if now - self._copied_s >= APACHE_ROUND_S else []
            if not changed and now - self._timer_s >= APACHE_TIMER_S:
                self._timer_s = now
                await self._timer(address)
        for name in changed:
            await self._takers[name](address)
        if versions is None and changed:
            self._copied_s = self._timer_s = now
        if versions is not None or changed:
            self.copied_ms = self._broker.clock.now_ms()
        self._known = versions or {}

    async def _versions(self, address: str) -> dict[str, str] | None:
        answer = await self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO)
        text = decode_header(ExchangeHAInfo, answer.ext).table_versions
        return None if text is None else dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)

    async def _ask(self, address: str, code: RequestCode) -> Command:
        answer = await self._broker.remoting.invoke(address, Command.request(code), ASK_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise Unanswered(f"{code.name} is answered with code {answer.code}: {answer.remark}")
        return answer

    async def _table(self, address: str, code: RequestCode) -> dict[str, Any]:
        body = (await self._ask(address, code)).body
        table = fastjson.loads(body) if body else {}
        return table if isinstance(table, dict) else {}

    # One table each

    async def _topics(self, address: str) -> None:
        table = await self._table(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = {
            name: msgspec.convert({**entry, "topicName": name}, TopicConfig, strict=False)
            for name, entry in (table.get("topicConfigTable") or {}).items()
        }
        gone = self._broker.topics.take(topics, _version(table))
        for topic in gone:
            log.info("queues deleted topic=%s reason=the master has no such topic", topic)
            self._broker.store.delete_topic(topic)
        await self._broker.topics.saved()

    async def _groups(self, address: str) -> None:
        table = await self._table(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = {
            name: msgspec.convert({**entry, "groupName": name}, SubscriptionGroupConfig, strict=False)
            for name, entry in (table.get("subscriptionGroupTable") or {}).items()
        }
        forbidden = {
            group: {topic: int(mask) for topic, mask in topics.items()}
            for group, topics in (table.get("forbiddenTable") or {}).items()
        }
        self._broker.groups.take(groups, forbidden, _version(table))
        await self._broker.groups.saved()

    async def _offsets(self, address: str) -> None:
        table = await self._table(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets = {
            key: {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            for key, queues in (table.get("offsetTable") or {}).items()
        }
        ahead = self._broker.offsets.take(offsets, _version(table))
        while ahead:
            try:
                await self._bring_home(address, *ahead[-1])
            except BaseException:
                for group, topic, queue_id, offset in ahead:
                    self._broker.offsets.committed_here(group, topic, queue_id, offset)
                raise
            ahead.pop()

    async def _bring_home(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
        command = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        answer = await self._broker.remoting.invoke(address, command, ASK_TIMEOUT_S)
        log.info(
            "offset committed here told to the master group=%s topic=%s queue=%d offset=%d code=%d",
            group, topic, queue_id, offset, answer.code,
        )  # fmt: skip

    async def _delays(self, address: str) -> None:
        table = await self._table(address, RequestCode.GET_ALL_DELAY_OFFSET)
        offsets = {int(level): int(offset) for level, offset in (table.get("offsetTable") or {}).items()}
        self._broker.services.delay_levels.take(offsets, _version(table))

    async def _modes(self, address: str) -> None:
        table = await self._table(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        self._broker.services.assignment.take(fastjson.as_type(table, MessageRequestModeTable))

    async def _accounts(self, address: str) -> None:
        """Users and rights, for a slave that checks them. A master that knows no users leaves ours alone."""
        if not self._broker.guard.is_on:
            return
        bodies = [
            (await self._ask(address, code)).body or b"[]"
            for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL)
        ]
        users, acls = fastjson.loads(bodies[0], list[UserInfo]), fastjson.loads(bodies[1], list[AclInfo])
        if not users:
            return
        try:
            accounts = make_accounts(users, acls)
        except AccountError as fault:
            raise Unanswered(
                f"its users cannot be taken over: {fault}; it tells passwords to super users only, "
                "so innerClientAuthenticationCredentials must be those of one"
            ) from None
        await self._broker.guard.book.change(lambda own: own if own == accounts else accounts)

    async def _timer_metrics(self, address: str) -> None:
        answer = await self._broker.remoting.invoke(
            address, Command.request(RequestCode.GET_TIMER_METRICS), ASK_TIMEOUT_S
        )
        if answer.code == ResponseCode.SUCCESS and answer.body:  # a broker without timers has none
            self._broker.services.timer.take_metrics(answer.body)

    async def _timer(self, address: str) -> None:
        answer = await self._broker.remoting.invoke(
            address, Command.request(RequestCode.GET_TIMER_CHECK_POINT), ASK_TIMEOUT_S
        )
        if answer.code == ResponseCode.SUCCESS and answer.body:  # a broker without timers has none
            self._broker.services.timer.take_checkpoint(answer.body)


def _version(table: dict[str, Any]) -> DataVersion | None:
    found = table.get("dataVersion")
    return None if not found else msgspec.convert(found, DataVersion, strict=False)
