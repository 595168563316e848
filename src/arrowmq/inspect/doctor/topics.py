"""Checks of topics, groups and their queues: why messages do not come in, or do not come out."""

from __future__ import annotations

import difflib

from arrowmq.client import names
from arrowmq.inspect.doctor.facts import ERROR, NOTE, WARNING, Facts, Finding, GroupFacts
from arrowmq.inspect.texts import counted, duration_text, time_text
from arrowmq.wire.message_queue import MessageQueue


def is_own(topic: str) -> bool:
    """Topics that brokers keep for themselves: nobody creates, sends to or subscribes to them by hand."""
    return (
        names.is_system_topic(topic)
        or topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
        or topic.endswith("_REPLY_TOPIC")
    )


def asked_topic_has_a_route(facts: Facts) -> list[Finding]:
    """ "No route info of this topic", with its five causes told apart."""
    topic = facts.asked_topic
    if topic is None or not any(not namesrv.problem for namesrv in facts.namesrvs):
        return []
    asked = next((each for each in facts.topics if each.name == topic), None)
    if asked is not None and asked.route is not None:
        return []
    complaint = f"There is no route for topic {topic}"
    holders = [broker.name for broker in facts.reached if topic in broker.topics]
    known = sorted({name for broker in facts.reached for name in broker.topics if not is_own(name)})
    if not facts.brokers:
        text = f"{complaint}: no broker is registered at the NameServer at all."
        return [Finding(ERROR, "route-no-broker", text, "start a broker with this NameServer in its namesrvAddr")]
    if not facts.reached:
        text = f"{complaint} that could be looked into: none of the registered brokers answers."
        return [Finding(ERROR, "route-broker-down", text, "start the brokers; then ask again")]
    if holders:
        text = f"{complaint}, though broker {', '.join(holders)} has it: the NameServer does not know it."
        advice = "wait half a minute for its next registration; else its namesrvAddr names another NameServer"
        return [Finding(ERROR, "route-not-registered", text, advice)]
    similar = difflib.get_close_matches(topic.lower(), [name.lower() for name in known], n=1, cutoff=0.75)
    if similar:
        meant = next(name for name in known if name.lower() == similar[0])
        text = f"{complaint}: it does not exist, but {meant} does."
        return [Finding(ERROR, "route-misspelt", text, f"use {meant}, or `arrowmq topic create {topic}`")]
    if all(broker.config.get("autoCreateTopicEnable") == "false" for broker in facts.reached):
        text = f"{complaint}: it does not exist, and brokers do not create topics by themselves."
        return [Finding(ERROR, "route-no-topic", text, f"`arrowmq topic create {topic}`")]
    text = f"{complaint}: it does not exist yet; the first message sent to it creates it."
    return [Finding(WARNING, "route-no-topic-yet", text, f"send to it, or `arrowmq topic create {topic}`")]


def topics_may_be_used(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        if broker.broker_id:
            continue
        for topic, config in sorted(broker.topics.items()):
            if is_own(topic) or topic in (broker.name, broker.cluster) or facts.asked_topic not in (None, topic):
                continue
            lacks = [word for bit, word in ((2, "write"), (4, "read")) if not config.perm & bit]
            if lacks:
                effect = "senders" if "write" in lacks else "consumers"
                text = (
                    f"Topic {topic} on {broker.name} has no {' and no '.join(lacks)} permission: {effect} are refused."
                )
                found.append(Finding(WARNING, "topic-perm", text, f"`arrowmq topic update {topic} --perm rw`"))
            if config.write_queue_nums > config.read_queue_nums:
                unread = config.write_queue_nums - config.read_queue_nums
                text = (
                    f"Topic {topic} on {broker.name} has {config.write_queue_nums} write but {config.read_queue_nums} "
                    f"read queues: messages in the last {unread} are never consumed."
                )
                advice = f"`arrowmq topic update {topic} --read-queues {config.write_queue_nums}`"
                found.append(Finding(ERROR, "queues-unread", text, advice))
    return found


def routes_tell_the_truth(facts: Facts) -> list[Finding]:
    """The NameServer's word against the broker's: after a wiped permission, or a registration that got lost."""
    found = []
    for broker in facts.reached:
        if broker.broker_id:
            continue
        wiped = []
        for each in facts.topics:
            config = broker.topics.get(each.name)
            if config is None or each.route is None or is_own(each.name):
                continue
            known = next((data for data in each.route.queue_datas if data.broker_name == broker.name), None)
            if known is None:
                text = f"Topic {each.name} is on broker {broker.name}, but the NameServer's route leaves that out."
                advice = (
                    "wait half a minute for the broker's next registration, and look at its log if that changes nothing"
                )
                found.append(Finding(WARNING, "route-incomplete", text, advice))
            elif not known.perm & 2 and config.perm & 2 and broker.config.get("brokerPermission", "6") == "6":
                wiped.append(each.name)
        if wiped:
            text = (
                f"The NameServer shows {counted(len(wiped), 'topic')} of broker {broker.name} as read-only, though "
                f"the broker takes messages ({', '.join(wiped[:3])}{'…' if len(wiped) > 3 else ''}): "
                "write permission was wiped."
            )
            advice = f"`mqadmin addWritePerm -b {broker.name}` undoes it, or Admin.set_write_permission"
            found.append(Finding(ERROR, "write-wiped", text, advice))
    return found


def topics_are_spread(facts: Facts) -> list[Finding]:
    """A topic that was created by the first send is on the broker that got it, and on no other."""
    found = []
    by_cluster: dict[str, list[str]] = {}
    for broker in facts.reached:
        if broker.broker_id == 0:
            by_cluster.setdefault(broker.cluster, []).append(broker.name)
    topics = {name for broker in facts.reached for name in broker.topics if not is_own(name)}
    if facts.asked_topic is not None:
        topics &= {facts.asked_topic}
    for cluster, members in sorted(by_cluster.items()):
        for topic in sorted(topics - {cluster, *members}):
            holders = {b.name for b in facts.reached if b.cluster == cluster and b.broker_id == 0 and topic in b.topics}
            missing = sorted(set(members) - holders)
            if holders and missing:
                text = (
                    f"Topic {topic} is on {', '.join(sorted(holders))}, but not on {', '.join(missing)} of {cluster}."
                )
                advice = f"to spread its load: `arrowmq topic create {topic} --broker {missing[0]}`"
                found.append(Finding(NOTE, "topic-not-spread", text, advice))
    return found


# -- groups


def subscriptions_agree(facts: Facts) -> list[Finding]:
    """RocketMQ keeps one subscription for a group; members that differ get each other's messages filtered away."""
    found = []
    for group in facts.groups:
        known = [member for member in group.members if member.subscriptions is not None]
        topics = sorted({topic for member in known for topic in member.subscriptions or {}})
        for topic in topics:
            by_expression: dict[str, list[str]] = {}
            for member in known:
                expression = (member.subscriptions or {}).get(topic, "nothing")
                by_expression.setdefault(expression, []).append(member.client_id)
            if len(by_expression) > 1:
                parts = "; ".join(
                    f"{', '.join(ids)}: {expression}" for expression, ids in sorted(by_expression.items())
                )
                found.append(
                    Finding(
                        ERROR,
                        "subscriptions-differ",
                        f"Members of group {group.name} subscribe to {topic} differently ({parts}): messages are lost "
                        "for some of them without a word.",
                        "give every member the same subscription, or each kind of consumer a group of its own",
                    )
                )
    return found


def groups_may_consume(facts: Facts) -> list[Finding]:
    return [
        Finding(
            ERROR,
            "group-disabled",
            f"Group {group.name} may not consume on {', '.join(group.disabled_on)} (consumeEnable=false).",
            f"`arrowmq group create {group.name} --consume`",
        )
        for group in facts.groups
        if group.disabled_on
    ]


def somebody_consumes(facts: Facts) -> list[Finding]:
    found = []
    for group in facts.groups:
        lag = _lag(group)
        if lag and not group.members:
            oldest = max((each.last_timestamp for each in group.progress.values()), default=0)
            since = f", the last it consumed was stored {time_text(oldest)}" if oldest else ""
            text = f"Nobody of group {group.name} is online, and {counted(lag, 'message')} wait for it{since}."
            advice = f"start its consumers; if it is not used any more, `arrowmq group delete {group.name}`"
            found.append(Finding(WARNING, "nobody-consumes", text, advice))
    return found


def _lag(group: GroupFacts) -> int:
    return sum(max(0, each.broker_offset - max(0, each.consumer_offset)) for each in group.progress.values())


def queues_move(facts: Facts) -> list[Finding]:
    """A member that has messages in hand and, after we watched for a moment, still the same first one."""
    found = []
    for group in facts.groups:
        for member in group.members:
            stuck = [
                (queue, held.first_offset)
                for queue, held in sorted(member.held.items())
                if held.count and (later := member.held_later.get(queue)) is not None
                if later.count and later.first_offset == held.first_offset
            ]
            if not stuck:
                continue
            (queue, offset), others = stuck[0], len(stuck) - 1
            more = f" (and {counted(others, 'other queue')} likewise)" if others else ""
            text = (
                f"{_queue_text(queue)} is stuck in group {group.name}: {member.client_id} has the message at offset "
                f"{offset} in hand and did not finish it while watched for {duration_text(facts.watched_s * 1000)}"
                f"{more}; the group's offset cannot move past it."
            )
            advice = (
                "its listener hangs, is slow, or never acknowledges that message: look at that client; "
                f"`arrowmq message find {queue.topic} --from 1h` shows what it got"
            )
            found.append(Finding(WARNING, "queue-stuck", text, advice))
    return found


def queues_are_held(facts: Facts) -> list[Finding]:
    """Queues with a backlog that no member holds: too old a route, a queue lock, or a rebalance that failed."""
    found = []
    for group in facts.groups:
        known = [member for member in group.members if member.subscriptions is not None]
        if not known or len(known) < len(group.members) or group.model == "BROADCASTING":
            continue
        held = {queue for member in known for queue in (*member.held, *member.held_later)}
        subscribed = {topic for member in known for topic in member.subscriptions or {}}
        for queue, each in sorted(group.progress.items()):
            lag = each.broker_offset - max(0, each.consumer_offset)
            if lag > 0 and queue.topic in subscribed and queue not in held and not is_own(queue.topic):
                waits = f"has {counted(lag, 'message')} for group {group.name}"
                text = f"{_queue_text(queue)} {waits}, and none of its members holds it."
                advice = "if it stays so for longer than 20 s, restart the member that joined last"
                found.append(Finding(WARNING, "queue-not-held", text, advice))
        idle = [member.client_id for member in known if not member.held and not member.held_later]
        if idle and held:
            text = f"{len(idle)} of {len(known)} members of group {group.name} have no queue to consume."
            advice = "that is spare; to use them, give the topic more queues: `arrowmq topic update TOPIC --queues N`"
            found.append(Finding(NOTE, "members-idle", text, advice))
    return found


def offsets_are_in_range(facts: Facts) -> list[Finding]:
    limits = {queue: each for topic in facts.topics for queue, each in topic.queues.items()}
    found = []
    for group in facts.groups:
        lost = ahead = 0
        where: MessageQueue | None = None
        for queue, each in sorted(group.progress.items()):
            known = limits.get(queue)
            if known is None or each.consumer_offset <= 0:
                continue
            if each.consumer_offset < known.min_offset:
                lost += known.min_offset - each.consumer_offset
                where = queue
            if each.consumer_offset > known.max_offset:
                ahead += each.consumer_offset - known.max_offset
                where = queue
        if lost and where is not None:
            text = (
                f"Group {group.name} has missed {counted(lost, 'message')} of {where.topic}: they were deleted first."
            )
            advice = "consume faster, or keep messages longer (fileReservedTime, in hours, and enough disk)"
            found.append(Finding(ERROR, "messages-missed", text, advice))
        if ahead and where is not None:
            text = f"Group {group.name} stands {counted(ahead, 'message')} beyond the end of {where.topic}."
            advice = f"after a restored or replaced store: `arrowmq offset reset {group.name} {where.topic} --to-begin`"
            found.append(Finding(ERROR, "offset-beyond-end", text, advice))
    return found


def letters_are_looked_at(facts: Facts) -> list[Finding]:
    return [
        Finding(
            NOTE,
            "dead-letters",
            f"Group {group.name} has {counted(group.letters, 'dead letter')}, the newest of "
            f"{time_text(group.newest_letter_ms)}.",
            f"`arrowmq dead-letters list {group.name}` shows them, `dead-letters resend` sends them again",
        )
        for group in facts.groups
        if group.letters
    ]


def _queue_text(queue: MessageQueue) -> str:
    return f"Queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


TOPIC_CHECKS = {
    "the topic has a route": asked_topic_has_a_route,
    "topics may be used": topics_may_be_used,
    "routes tell the truth": routes_tell_the_truth,
    "topics are spread": topics_are_spread,
    "subscriptions agree": subscriptions_agree,
    "groups may consume": groups_may_consume,
    "somebody consumes": somebody_consumes,
    "queues move": queues_move,
    "queues are held": queues_are_held,
    "offsets are in range": offsets_are_in_range,
    "dead letters": letters_are_looked_at,
}
