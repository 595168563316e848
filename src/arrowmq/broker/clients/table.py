"""Who is connected: producers and consumers by group, as their heartbeats told, until they fall silent or hang up.

Members of one consumer group are expected to subscribe to the same. Where they do not, RocketMQ loses messages without
a word: the broker keeps one subscription for the group, each heartbeat overwrites it, and every member gets queues
whose messages are filtered for somebody else. The rule is kept, since clients rely on it, but here it is noticed: a
warning that names the members and what differs, once for each such state, and a count (`differing_subscriptions`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.clock import Clock
from arrowmq.remoting.channel import Channel
from arrowmq.wire.bodies import ConsumerData, SubscriptionData
from arrowmq.wire.codes import LanguageCode, RequestCode
from arrowmq.wire.frames import Command

log = logging.getLogger(__name__)

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
SAID_GOODBYE = "it said goodbye"

PRODUCER_EXPIRY_MS = 120_000
SWEEP_S = 10.0
BROADCASTING = "BROADCASTING"
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"


def language_name(code: int) -> str:
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name


@dataclass(slots=True, eq=False)
class ClientChannel:
    """One client on one connection."""

    connection: Channel
    client_id: str
    language: int
    version: int
    last_update_ms: int
    # topic -> (expression type, expression), as this member said it last
    subscribed: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    name: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    channels: dict[Channel, ClientChannel] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    differs: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def client_ids(self) -> list[str]:
        return list(dict.fromkeys(channel.client_id for channel in self.channels.values()))

    def channel_of(self, client_id: str) -> ClientChannel | None:
        return next((channel for channel in self.channels.values() if channel.client_id == client_id), None)


class Clients:
    def __init__(
        self, config: BrokerConfig, clock: Clock, wants_notice: Callable[[str], bool] = lambda group: True
    ) -> None:
        self.config = config
        self.clock = clock
        self.wants_notice = wants_notice
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Channel, ClientChannel]] = {}
        self.fingerprints: dict[str, int] = {}
        self.differing_subscriptions = 0
        self.changes = 0  # of groups' subscriptions and members: what rests on them is good while it stays the same
        # Called with group and topic when the group's filter for the topic is another one than before
        self.on_subscription_change: list[Callable[[str, str], None]] = []
        self._producer_ids: dict[str, ClientChannel] = {}
        self._watched: set[Channel] = set()
        self._to_notify: set[str] = set()
        self._turn = itertools.count()

    # Producers

    def register_producer(self, group: str, channel: ClientChannel) -> None:
        channels = self.producers.setdefault(group, {})
        known = channels.get(channel.connection)
        if known is not None:
            known.last_update_ms = channel.last_update_ms
            return
        channels[channel.connection] = channel
        self._producer_ids[channel.client_id] = channel
        self._watch(channel.connection)
        _say("producer joined", group, channel, len(channels))

    def unregister_producer(self, group: str, client_id: str, connection: Channel) -> None:
        channels = self.producers.get(group, {})
        if connection in channels:
            self._drop_producer(group, channels.pop(connection), SAID_GOODBYE)

    def producer_of(self, client_id: str) -> ClientChannel | None:
        """The connection of one producer, which replies and questions about transactions go to."""
        return self._producer_ids.get(client_id)

    def available_producer(self, group: str) -> ClientChannel | None:
        """Some live producer of a group, another one each time."""
        channels = list(self.producers.get(group, {}).values())
        return channels[next(self._turn) % len(channels)] if channels else None

    def _drop_producer(self, group: str, channel: ClientChannel, reason: str) -> None:
        _say("producer left", group, channel, len(self.producers.get(group, {})), reason)
        if not self.producers.get(group):
            self.producers.pop(group, None)
        still_there = any(
            other is not channel and other.client_id == channel.client_id and other.connection is channel.connection
            for channels in self.producers.values()
            for other in channels.values()
        )
        if self._producer_ids.get(channel.client_id) is channel or not still_there:
            replacement = next(
                (
                    other
                    for channels in self.producers.values()
                    for other in channels.values()
                    if other.client_id == channel.client_id
                ),
                None,
            )
            if replacement is None:
                self._producer_ids.pop(channel.client_id, None)
            else:
                self._producer_ids[channel.client_id] = replacement

    # Consumers

    def register_consumer(self, data: ConsumerData, channel: ClientChannel, *, with_subscriptions: bool = True) -> bool:
        """Adds or refreshes a member. True if the group's members or topics changed."""
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
        if group.message_model != data.message_model:
            self.changes += 1
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = self._register_channel(group, channel)
        if with_subscriptions:
            changed |= self._register_subscriptions(
                group, group.channels[channel.connection], data.subscription_data_set
            )
        if changed:
            self.notify(group.name)
        return changed

    def _register_channel(self, group: ConsumerGroup, channel: ClientChannel) -> bool:
        known = group.channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ms = channel.last_update_ms
            return False
        if known is not None:
            log.warning(
                "group[%s]: connection %s changed its client id from %s to %s",
                group.name,
                channel.connection.peer,
                known.client_id,
                channel.client_id,
            )
        group.channels[channel.connection] = channel
        self._watch(channel.connection)
        _say("consumer joined", group.name, channel, len(group.channels))
        return True

    def _register_subscriptions(
        self, group: ConsumerGroup, channel: ClientChannel, subscriptions: Iterable[SubscriptionData]
    ) -> bool:
        changed = False
        named = {subscription.topic: subscription for subscription in subscriptions}
        for topic, subscription in named.items():
            known = group.subscriptions.get(topic)
            if known is None:
                changed = True
            if known is None or subscription.sub_version > known.sub_version:
                group.subscriptions[topic] = subscription
                self.changes += 1
                if known is None or _filter_of(known) != _filter_of(subscription):
                    for listener in self.on_subscription_change:
                        listener(group.name, topic)
        for topic in [topic for topic in group.subscriptions if topic not in named]:
            del group.subscriptions[topic]
            self.changes += 1
            changed = True
        channel.subscribed = {topic: _filter_of(each) for topic, each in named.items()}
        self._compare(group)
        return changed

    def _compare(self, group: ConsumerGroup) -> None:
        """Looks for members of a group whose subscriptions differ, and says so when that is news."""
        said = {frozenset(channel.subscribed.items()) for channel in group.channels.values() if channel.subscribed}
        if len(said) < 2:
            if group.differs:
                log.info("group[%s]: its members subscribe to the same again", group.name)
                group.differs = frozenset()
            return
        common = frozenset.intersection(*said)
        differs = frozenset(
            (channel.client_id, topic, f"{kind} {expression!r}")
            for channel in group.channels.values()
            for topic, (kind, expression) in channel.subscribed.items()
            if (topic, (kind, expression)) not in common
        )
        if differs != group.differs:
            self.differing_subscriptions += 1
            log.warning(
                "group[%s]: its members subscribe differently, so messages are lost for some of them: %s. "
                "Give every member the same subscriptions, or each kind of consumer a group of its own",
                group.name,
                "; ".join(f"{client} has {topic} {expression}" for client, topic, expression in sorted(differs)),
            )
        group.differs = differs

    def unregister_consumer(self, group_name: str, client_id: str, connection: Channel) -> None:
        group = self.consumers.get(group_name)
        if group is not None and connection in group.channels:
            self._left(group, group.channels.pop(connection), SAID_GOODBYE)

    def _left(self, group: ConsumerGroup, channel: ClientChannel, reason: str) -> None:
        _say("consumer left", group.name, channel, len(group.channels), reason)
        self.changes += 1
        if not group.channels:
            del self.consumers[group.name]
            self.fingerprints.pop(group.name, None)
            return
        self._compare(group)
        self.notify(group.name)

    # Notices

    def notify(self, group_name: str) -> None:
        """Tells the members of a group that it changed; many changes in one event loop iteration make one notice."""
        if not self.config.notify_consumer_ids_changed_enable:
            return
        if not self._to_notify:
            asyncio.get_running_loop().call_soon(self._send_notices)
        self._to_notify.add(group_name)

    def _send_notices(self) -> None:
        groups, self._to_notify = self._to_notify, set()
        for group_name in groups:
            group = self.consumers.get(group_name)
            if group is None or group.message_model == BROADCASTING or not self.wants_notice(group_name):
                continue
            for connection in list(group.channels):
                connection.send_oneway(
                    Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group_name})
                )

    # The end of a client

    def _watch(self, connection: Channel) -> None:
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(lambda *_: self.connection_closed(connection))

    def connection_closed(self, connection: Channel, reason: str = "its connection ended") -> None:
        self._watched.discard(connection)
        for producer_group in [name for name, channels in self.producers.items() if connection in channels]:
            self._drop_producer(producer_group, self.producers[producer_group].pop(connection), reason)
        for group in [group for group in self.consumers.values() if connection in group.channels]:
            self._left(group, group.channels.pop(connection), reason)

    def sweep(self) -> None:
        """Hangs up on clients that have not sent a heartbeat for two minutes."""
        now_ms = self.clock.now_ms()
        silent: dict[Channel, None] = {}
        for channels in self.producers.values():
            for channel in channels.values():
                if now_ms - channel.last_update_ms > max(PRODUCER_EXPIRY_MS, self.config.channel_expired_timeout):
                    silent[channel.connection] = None
        for group in self.consumers.values():
            for channel in group.channels.values():
                if now_ms - channel.last_update_ms > self.config.channel_expired_timeout:
                    silent[channel.connection] = None
        for connection in silent:
            self.connection_closed(connection, "it sent no heartbeat for too long")
            connection.close()


def _filter_of(subscription: SubscriptionData) -> tuple[str, str]:
    return subscription.expression_type or "TAG", subscription.sub_string or "*"


def _say(what: str, group: str, channel: ClientChannel, members: int, reason: str = "") -> None:
    """One line for each client that comes or goes. Every Java client, tools as well, produces in one inner group."""
    log.log(
        logging.DEBUG if group == INNER_PRODUCER else logging.INFO,
        "%s group=%s client=%s peer=%s language=%s members=%d%s",
        what,
        group,
        channel.client_id,
        channel.connection.peer_text,
        language_name(channel.language),
        members,
        f" reason={reason}" if reason else "",
    )
