"""The life of a message as events in the order of time, each with a sentence that gives its reason."""

from __future__ import annotations

from typing import NamedTuple

from arrowmq.client import names
from arrowmq.inspect.messages.finding import host_text
from arrowmq.inspect.messages.history import GroupLife, Life, Waiting
from arrowmq.inspect.texts import counted, duration_text, time_text
from arrowmq.wire import properties as prop


class Event(NamedTuple):
    """What happened; `at_ms` is 0 where nobody noted the time: such events follow the others."""

    at_ms: int
    what: str
    text: str


def events_of(life: Life) -> list[Event]:
    events = [*_beginning(life), *_waits(life), *_transaction(life), *_stored(life), *_traced(life)]
    for group in life.groups:
        events += _of_group(life, group)
    timed = sorted((event for event in events if event.at_ms), key=lambda event: event.at_ms)
    return [*timed, *(event for event in events if not event.at_ms)]


def _beginning(life: Life) -> list[Event]:
    message = life.message
    return [Event(message.born_timestamp, "born", f"made by a producer at {host_text(message.record.born_host)}")]


def _waits(life: Life) -> list[Event]:
    events = []
    for wait in life.waits:
        stored = wait.message.store_timestamp
        if wait.real_topic.startswith(names.RETRY_PREFIX):
            continue  # shown with its group
        level = wait.message.properties.get(prop.DELAY)
        why = f"delay level {level}" if level else "a delivery time"
        events.append(Event(stored, "delayed", f"stored to wait, because of {why}: due at {time_text(wait.due_ms)}"))
        if life.published is None and wait.due_ms > life.now_ms:
            left = duration_text(wait.due_ms - life.now_ms)
            events.append(Event(0, "waiting", f"not in {life.topic} yet: it is due in {left}"))
        elif life.published is None:
            late = duration_text(life.now_ms - wait.due_ms)
            events.append(Event(0, "overdue", f"was due {late} ago and is not in {life.topic}: does its broker run?"))
    return events


def _transaction(life: Life) -> list[Event]:
    events = []
    for number, half in enumerate(life.halves):
        producer = half.properties.get(prop.PGROUP, "?")
        checks = half.properties.get(prop.TRANSACTION_CHECK_TIMES)
        if number == 0:
            text = f"stored as a half message of producer group {producer}: nobody sees it until it is committed"
            events.append(Event(half.store_timestamp, "half", text))
        else:
            text = f"still undecided, so group {producer} is asked for the outcome (check {checks or number})"
            events.append(Event(half.store_timestamp, "checked", text))
    sentences = {
        "commit": ("committed", f"its producer committed it: it goes to {life.topic}"),
        "rollback": ("rolled back", "its producer rolled it back: nobody will ever see it"),
        "parked": ("parked", "nobody decided in time: it lies in TRANS_CHECK_MAX_TIME_TOPIC"),
        "ended": ("ended", "the transaction was ended"),
    }
    for at_ms, how in life.ends:
        if how in sentences:
            events.append(Event(at_ms, *sentences[how]))
    if life.halves and not any(how in sentences for _, how in life.ends):
        if life.published is not None:
            events.append(Event(life.published.store_timestamp, *sentences["commit"]))
        else:
            producer = life.halves[0].properties.get(prop.PGROUP, "?")
            events.append(Event(0, "undecided", f"waits for commit or rollback by producer group {producer}"))
    return events


def _stored(life: Life) -> list[Event]:
    message = life.published
    if message is None:
        return []
    place = f"{message.broker_name}, queue {message.queue_id}, offset {message.queue_offset}"
    took = duration_text(max(0, message.store_timestamp - message.born_timestamp))
    events = [
        Event(
            message.store_timestamp,
            "stored",
            f"in {life.topic} on {place}, at {message.physical_offset} of the log, {took} after it was born",
        )
    ]
    if life.is_flushed is not None:
        text = "on disk: it survives a power loss" if life.is_flushed else "in memory only: its flush is still to come"
        events.append(Event(0, "flushed" if life.is_flushed else "not flushed", f"{text} ({life.flush_type})"))
    if life.entry is not None:
        events.append(Event(0, "dispatched", "its queue entry is there: consumers can get it"))
    else:
        events.append(
            Event(
                0, "not dispatched", "no entry of the queue points to it: its topic was deleted or has been cleaned up"
            )
        )
    return events


def _traced(life: Life) -> list[Event]:
    events = []
    for trace in life.traces:
        took = "" if trace.took_ms is None else f" in {trace.took_ms} ms"
        if trace.kind == "sent":
            outcome = "was told that it is stored" if trace.is_ok else "failed to send it"
            text = f"producer group {trace.group} {outcome}{took}"
        elif trace.kind == "delivered":
            text = f"a member of {trace.group} began to consume it"
        else:
            text = f"{trace.group} {'succeeded' if trace.is_ok else 'failed'}{took}"
        events.append(Event(trace.at_ms, f"{trace.kind} (trace)", text))
    return events


def _of_group(life: Life, group: GroupLife) -> list[Event]:
    events: list[Event] = []
    if life.published is not None:
        events += _first_delivery(life, group)
    waits = [wait for wait in life.waits if wait.real_topic == names.retry_topic(group.group)]
    for number, wait in enumerate(waits, 1):
        events.append(_sent_back(group, wait, number))
    for copy, consumed in group.retries:
        text = f"delivered to {group.group} again, retry {copy.reconsume_times}"
        events.append(Event(copy.store_timestamp, "retried", text))
        if consumed is not None and consumed > copy.queue_offset:
            continue
        is_last = copy is group.retries[-1][0]
        if is_last and not group.letters:
            events.append(Event(0, "in retry", f"{group.group} has not finished retry {copy.reconsume_times} yet"))
    if waits and len(waits) > len(group.retries) and not group.letters:
        left_ms = waits[-1].due_ms - life.now_ms
        when = f"in {duration_text(left_ms)}" if left_ms > 0 else "now"
        events.append(Event(0, "waits for retry", f"{group.group} gets it again {when}"))
    for letter in group.letters:
        text = (
            f"{group.group} gave up after {counted(letter.reconsume_times, 'failure')}: it is in "
            f"{names.dlq_topic(group.group)}; "
            f"`arrowmq dead-letters resend {group.group} --id {letter.msg_id}` sends it again"
        )
        events.append(Event(letter.store_timestamp, "dead letter", text))
    if (
        group.retries
        and not group.letters
        and all(consumed is not None and consumed > copy.queue_offset for copy, consumed in group.retries)
        and len(waits) <= len(group.retries)
    ):
        tries = len(group.retries)
        events.append(Event(0, "consumed", f"{group.group} finished it in retry {tries}"))
    return events


def _sent_back(group: GroupLife, wait: Waiting, number: int) -> Event:
    pause = duration_text(max(0, wait.due_ms - wait.message.store_timestamp))
    text = f"{group.group} failed and sent it back (try {number}): it comes again after {pause}"
    return Event(wait.message.store_timestamp, "sent back", text)


def _first_delivery(life: Life, group: GroupLife) -> list[Event]:
    assert life.published is not None
    offset = life.published.queue_offset
    who = f"{group.group} ({group.members} online)" if group.members else f"{group.group} (nobody online)"
    if group.passes is False:
        what = "its properties" if group.is_sql else f"tag {life.message.tag!r}"
        text = f"the filter of {group.group}, {group.subscription!r}, does not match {what}"
        return [Event(0, "filtered", text + ": it never gets this message")]
    popped = group.in_flight
    if popped is not None:
        whose = f" at {popped.client}" if popped.client else ""
        when = time_text(popped.visible_at)
        text = f"{group.group} popped it{whose} and has not acknowledged it: it comes back at {when}"
        return [Event(popped.pop_time, "in flight", text)]
    if group.consumed is not None and group.consumed > offset:
        was = (
            "sent back or parked, see there"
            if group.retries
            or group.letters
            or any(wait.real_topic == names.retry_topic(group.group) for wait in life.waits)
            else "consumed (or filtered by a subscription it had then)"
        )
        return [Event(0, "passed", f"{who} is past it, at offset {group.consumed}: {was}")]
    was_pulled = group.pulled is not None and group.pulled > offset
    if was_pulled and group.members:
        return [Event(0, "delivered", f"{who} has it in hand, and has not acknowledged everything up to it")]
    if group.consumed is None:
        return [Event(0, "not seen", f"{who} has committed nothing in this queue yet")]
    before = offset - group.consumed
    reason = f"{counted(before, 'message')} of its queue before it" if before else "it is the next of its queue"
    if was_pulled:
        reason += "; a member had it in hand and left without acknowledging it"
    if not group.members:
        reason += "; start a consumer"
    return [Event(0, "waiting", f"{who} stands at offset {group.consumed}: {reason}")]
