"""The life of a message as events in the order of time, each with a sentence that gives its reason."""

from __future__ import annotations

from typing import NamedTuple

from arrowmq.client import names
from arrowmq.inspect.messages.finding import host_text
from arrowmq.inspect.messages.history import GroupLife, Life, Waiting
from arrowmq.inspect.texts import counted, duration_text, time_text
from arrowmq.wire import properties as prop


class Event(NamedTuple):
    """What happened; `at_ms` is 0 where nobody noted the time: such events follow the others.

    `sentence` is a name in `SENTENCES`, and `values` fill it: other languages say the same in their own order.
    """

    at_ms: int
    what: str
    sentence: str
    values: dict[str, object]

    @property
    def text(self) -> str:
        return SENTENCES[self.sentence].format_map(self.values)


SENTENCES = {
    "born": "made by a producer at {host}",
    "delayed.level": "stored to wait, because of delay level {level}: due at {due}",
    "delayed.time": "stored to wait, because of a delivery time: due at {due}",
    "waiting.due": "not in {topic} yet: it is due in {left}",
    "overdue": "was due {late} ago and is not in {topic}: does its broker run?",
    "half": "stored as a half message of producer group {producer}: nobody sees it until it is committed",
    "checked": "still undecided, so group {producer} is asked for the outcome (check {checks})",
    "committed": "its producer committed it: it goes to {topic}",
    "rolledBack": "its producer rolled it back: nobody will ever see it",
    "parked": "nobody decided in time: it lies in TRANS_CHECK_MAX_TIME_TOPIC",
    "ended": "the transaction was ended",
    "undecided": "waits for commit or rollback by producer group {producer}",
    "stored": "in {topic} on {broker}, queue {queue}, offset {offset}, at {position} of the log, "
    "{took} after it was born",
    "flushed": "on disk: it survives a power loss ({how})",
    "notFlushed": "in memory only: its flush is still to come ({how})",
    "dispatched": "its queue entry is there: consumers can get it",
    "notDispatched": "no entry of the queue points to it: its topic was deleted or has been cleaned up",
    "trace.sent": "producer group {group} was told that it is stored{took}",
    "trace.notSent": "producer group {group} failed to send it{took}",
    "trace.delivered": "a member of {group} began to consume it",
    "trace.consumed": "{group} succeeded{took}",
    "trace.failed": "{group} failed{took}",
    "retried": "delivered to {group} again, retry {number}",
    "inRetry": "{group} has not finished retry {number} yet",
    "retryIn": "{group} gets it again in {left}",
    "retryNow": "{group} gets it again now",
    "dead": "{group} gave up after {failures}: it is in {dlq}; `{command}` sends it again",
    "consumed": "{group} finished it in retry {number}",
    "sentBack": "{group} failed and sent it back (try {number}): it comes again after {pause}",
    "filtered.sql": "the filter of {group}, {subscription}, does not match its properties: it never gets this message",
    "filtered.tag": "the filter of {group}, {subscription}, does not match tag {tag}: it never gets this message",
    "inFlight": "{group} popped it{whose} and has not acknowledged it: it comes back at {when}",
    "passed.elsewhere": "{who} is past it, at offset {consumed}: sent back or parked, see there",
    "passed": "{who} is past it, at offset {consumed}: consumed (or filtered by a subscription it had then)",
    "inHand": "{who} has it in hand, and has not acknowledged everything up to it",
    "notSeen": "{who} has committed nothing in this queue yet",
    "waiting": "{who} stands at offset {consumed}: {reason}",
}


def event(at_ms: int, what: str, sentence: str, **values: object) -> Event:
    return Event(at_ms, what, sentence, values)


def events_of(life: Life) -> list[Event]:
    events = [*_beginning(life), *_waits(life), *_transaction(life), *_stored(life), *_traced(life)]
    for group in life.groups:
        events += _of_group(life, group)
    timed = sorted((event for event in events if event.at_ms), key=lambda event: event.at_ms)
    return [*timed, *(event for event in events if not event.at_ms)]


def _beginning(life: Life) -> list[Event]:
    message = life.message
    return [event(message.born_timestamp, "born", "born", host=host_text(message.record.born_host))]


def _waits(life: Life) -> list[Event]:
    events = []
    for wait in life.waits:
        stored = wait.message.store_timestamp
        if wait.real_topic.startswith(names.RETRY_PREFIX):
            continue  # shown with its group
        level = wait.message.properties.get(prop.DELAY)
        why = "delayed.level" if level else "delayed.time"
        events.append(event(stored, "delayed", why, level=level, due=time_text(wait.due_ms)))
        if life.published is None and wait.due_ms > life.now_ms:
            left = duration_text(wait.due_ms - life.now_ms)
            events.append(event(0, "waiting", "waiting.due", topic=life.topic, left=left))
        elif life.published is None:
            late = duration_text(life.now_ms - wait.due_ms)
            events.append(event(0, "overdue", "overdue", topic=life.topic, late=late))
    return events


def _transaction(life: Life) -> list[Event]:
    events = []
    for number, half in enumerate(life.halves):
        producer = half.properties.get(prop.PGROUP, "?")
        checks = half.properties.get(prop.TRANSACTION_CHECK_TIMES)
        if number == 0:
            events.append(event(half.store_timestamp, "half", "half", producer=producer))
        else:
            events.append(event(half.store_timestamp, "checked", "checked", producer=producer, checks=checks or number))
    outcomes = {
        "commit": ("committed", "committed"),
        "rollback": ("rolled back", "rolledBack"),
        "parked": ("parked", "parked"),
        "ended": ("ended", "ended"),
    }
    for at_ms, how in life.ends:
        if how in outcomes:
            events.append(event(at_ms, *outcomes[how], topic=life.topic))
    if life.halves and not any(how in outcomes for _, how in life.ends):
        if life.published is not None:
            events.append(event(life.published.store_timestamp, *outcomes["commit"], topic=life.topic))
        else:
            producer = life.halves[0].properties.get(prop.PGROUP, "?")
            events.append(event(0, "undecided", "undecided", producer=producer))
    return events


def _stored(life: Life) -> list[Event]:
    message = life.published
    if message is None:
        return []
    took = duration_text(max(0, message.store_timestamp - message.born_timestamp))
    events = [
        event(
            message.store_timestamp,
            "stored",
            "stored",
            topic=life.topic,
            broker=message.broker_name,
            queue=message.queue_id,
            offset=message.queue_offset,
            position=message.physical_offset,
            took=took,
        )
    ]
    if life.is_flushed is not None:
        what = ("flushed", "flushed") if life.is_flushed else ("not flushed", "notFlushed")
        events.append(event(0, *what, how=life.flush_type))
    is_there = life.entry is not None
    events.append(event(0, "dispatched", "dispatched") if is_there else event(0, "not dispatched", "notDispatched"))
    return events


def _traced(life: Life) -> list[Event]:
    events = []
    for trace in life.traces:
        took = "" if trace.took_ms is None else f" in {trace.took_ms} ms"
        if trace.kind == "sent":
            name = "trace.sent" if trace.is_ok else "trace.notSent"
        elif trace.kind == "delivered":
            name = "trace.delivered"
        else:
            name = "trace.consumed" if trace.is_ok else "trace.failed"
        spent = "–" if trace.took_ms is None else f"{trace.took_ms} ms"
        events.append(event(trace.at_ms, f"{trace.kind} (trace)", name, group=trace.group, took=took, spent=spent))
    return events


def _of_group(life: Life, group: GroupLife) -> list[Event]:
    events: list[Event] = []
    if life.published is not None:
        events += _first_delivery(life, group)
    waits = [wait for wait in life.waits if wait.real_topic == names.retry_topic(group.group)]
    for number, wait in enumerate(waits, 1):
        events.append(_sent_back(group, wait, number))
    for copy, consumed in group.retries:
        number = copy.reconsume_times
        events.append(event(copy.store_timestamp, "retried", "retried", group=group.group, number=number))
        if consumed is not None and consumed > copy.queue_offset:
            continue
        is_last = copy is group.retries[-1][0]
        if is_last and not group.letters:
            events.append(event(0, "in retry", "inRetry", group=group.group, number=number))
    if waits and len(waits) > len(group.retries) and not group.letters:
        left_ms = waits[-1].due_ms - life.now_ms
        name = "retryIn" if left_ms > 0 else "retryNow"
        events.append(event(0, "waits for retry", name, group=group.group, left=duration_text(max(0, left_ms))))
    for letter in group.letters:
        events.append(
            event(
                letter.store_timestamp,
                "dead letter",
                "dead",
                group=group.group,
                failures=counted(letter.reconsume_times, "failure"),
                times=letter.reconsume_times,
                dlq=names.dlq_topic(group.group),
                command=f"arrowmq dead-letters resend {group.group} --id {letter.msg_id}",
            )
        )
    if (
        group.retries
        and not group.letters
        and all(consumed is not None and consumed > copy.queue_offset for copy, consumed in group.retries)
        and len(waits) <= len(group.retries)
    ):
        events.append(event(0, "consumed", "consumed", group=group.group, number=len(group.retries)))
    return events


def _sent_back(group: GroupLife, wait: Waiting, number: int) -> Event:
    pause = duration_text(max(0, wait.due_ms - wait.message.store_timestamp))
    return event(wait.message.store_timestamp, "sent back", "sentBack", group=group.group, number=number, pause=pause)


def _first_delivery(life: Life, group: GroupLife) -> list[Event]:
    assert life.published is not None
    offset = life.published.queue_offset
    who = f"{group.group} ({group.members} online)" if group.members else f"{group.group} (nobody online)"
    values: dict[str, object] = {"who": who, "group": group.group, "members": group.members, "consumed": group.consumed}
    if group.passes is False:
        name = "filtered.sql" if group.is_sql else "filtered.tag"
        values |= {"subscription": repr(group.subscription), "tag": repr(life.message.tag)}
        return [event(0, "filtered", name, **values)]
    popped = group.in_flight
    if popped is not None:
        values |= {"whose": f" at {popped.client}" if popped.client else "", "client": popped.client or "–"}
        values |= {"when": time_text(popped.visible_at)}
        return [event(popped.pop_time, "in flight", "inFlight", **values)]
    if group.consumed is not None and group.consumed > offset:
        is_elsewhere = (
            group.retries
            or group.letters
            or any(wait.real_topic == names.retry_topic(group.group) for wait in life.waits)
        )
        return [event(0, "passed", "passed.elsewhere" if is_elsewhere else "passed", **values)]
    was_pulled = group.pulled is not None and group.pulled > offset
    if was_pulled and group.members:
        return [event(0, "delivered", "inHand", **values)]
    if group.consumed is None:
        return [event(0, "not seen", "notSeen", **values)]
    before = offset - group.consumed
    reason = f"{counted(before, 'message')} of its queue before it" if before else "it is the next of its queue"
    if was_pulled:
        reason += "; a member had it in hand and left without acknowledging it"
    if not group.members:
        reason += "; start a consumer"
    return [event(0, "waiting", "waiting", **values, reason=reason, before=before)]
