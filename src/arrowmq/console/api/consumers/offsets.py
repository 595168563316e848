"""Moving a group: a plan that shows what would change, then that very plan carried out; skip; clone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from arrowmq.client.admin.offsets import PlannedReset, Target
from arrowmq.console.api.changes import changing, confirmed
from arrowmq.console.api.declare import Call, Done, Name, Struct, endpoint
from arrowmq.console.errors import bad_request
from arrowmq.wire.message_queue import MessageQueue

LATEST_MS = 253_402_300_799_000  # the end of the year 9999, which a datetime still holds


class QueueName(Struct, kw_only=True, forbid_unknown_fields=True):
    broker: Name
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=65535)]


class PlanRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """To the first or last message, a time (milliseconds since 1970) or an offset; of some queues, or of all."""

    group: Name
    topic: Name
    to: Literal["first", "last", "time", "offset"]
    value: Annotated[int, msgspec.Meta(ge=0, le=LATEST_MS)] | None = None
    queues: list[QueueName] | None = None


class PlanRow(Struct, kw_only=True):
    broker: str
    queue_id: int
    first: int
    last: int
    current: int | None
    target: int
    #: How many messages are consumed again (negative) or never (positive)
    moved: int


class Plan(Struct, kw_only=True):
    group: str
    topic: str
    rows: list[PlanRow]


@endpoint("POST", "/api/offsets/plan", tag="groups", changes=False)
async def plan_reset(call: Call, body: PlanRequest) -> Plan:
    """What a reset would do, queue by queue. Changes nothing."""
    steps = await (await call.admin()).plan_reset(body.group, body.topic, _target(body), queues=_queues(body))
    return Plan(
        group=body.group,
        topic=body.topic,
        rows=[
            PlanRow(
                broker=step.queue.broker_name,
                queue_id=step.queue.queue_id,
                first=step.first,
                last=step.last,
                current=step.current,
                target=step.target,
                moved=step.target - (step.current if step.current is not None else step.target),
            )
            for step in steps
        ],
    )


def _target(body: PlanRequest) -> Target:
    if body.to in ("first", "last"):
        return "first" if body.to == "first" else "last"
    if body.value is None:
        raise bad_request(f"to={body.to} needs a value")
    return body.value if body.to == "offset" else datetime.fromtimestamp(body.value / 1000, UTC)


def _queues(body: PlanRequest) -> list[MessageQueue] | None:
    if body.queues is None:
        return None
    return [MessageQueue(body.topic, each.broker, each.queue_id) for each in body.queues]


class ResetStep(QueueName, kw_only=True):
    target: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Reset(Struct, kw_only=True, forbid_unknown_fields=True):
    """The queues of a plan with their targets, as the plan showed them."""

    group: Name
    topic: Name
    steps: Annotated[list[ResetStep], msgspec.Meta(min_length=1, max_length=10_000)]


@endpoint("POST", "/api/offsets/reset", tag="groups")
async def reset(call: Call, body: Reset) -> Done:
    """Carry out a plan. Members that run go on from the new offsets with their next pull."""
    plan = [
        PlannedReset(MessageQueue(body.topic, step.broker, step.queue_id), 0, 0, None, step.target)
        for step in body.steps
    ]
    async with changing(call) as admin:
        await admin.apply_reset(body.group, plan)
    return Done(done=f"{len(plan)} queues of {body.topic} are reset for group {body.group}")


class Skip(Struct, kw_only=True, forbid_unknown_fields=True):
    group: Name
    topic: Name
    #: The group's name once more: what it skips, it never sees
    confirm: str = ""


@endpoint("POST", "/api/offsets/skip", tag="groups")
async def skip(call: Call, body: Skip) -> Done:
    """Move the group to the end of a topic: what waits now is never consumed by it."""
    confirmed(body.confirm, body.group, "group", "what is skipped, it never sees")
    async with changing(call) as admin:
        plan = await admin.plan_reset(body.group, body.topic, "last")
        await admin.apply_reset(body.group, plan)
    skipped = sum(step.target - step.current for step in plan if step.current is not None)
    return Done(done=f"group {body.group} skipped {skipped} messages of {body.topic}")


class Clone(Struct, kw_only=True, forbid_unknown_fields=True):
    source: Name
    target: Name
    topic: Name


@endpoint("POST", "/api/offsets/clone", tag="groups")
async def clone(call: Call, body: Clone) -> Done:
    """Give another group, whose members are offline, the offsets that this one has in a topic."""
    if body.source == body.target:
        raise bad_request("a group cannot be cloned onto itself")
    async with changing(call) as admin:
        await admin.clone_offsets(body.source, body.target, body.topic)
    return Done(done=f"group {body.target} stands where {body.source} stands in {body.topic}")
