"""What is in flight, for tools: which messages, since when, whose, and when they come back."""

from __future__ import annotations

from arrowmq.broker.pop.check_points import CheckPoints
from arrowmq.broker.pop.order import OrderTable
from arrowmq.broker.pop.retry_topics import normal_topic
from arrowmq.wire.bodies.admin import InFlight

MOST_SHOWN = 100


def in_flight_of(table: CheckPoints, order: OrderTable, group: str, topics: set[str]) -> tuple[list[InFlight], int]:
    """The oldest check points of a group in these topics and their retries, and how many messages all of them have."""
    found: list[InFlight] = []
    total = 0
    for (topic, owner, queue_id), lane in table.lanes.items():
        if owner != group or not {topic, normal_topic(topic, group)} & topics:
            continue
        total += lane.in_flight
        found += [
            InFlight(
                topic=topic,
                queue_id=queue_id,
                offsets=each.open_offsets(),
                client=each.client,
                pop_time=each.pop_time,
                visible_at=each.revive_time,
            )
            for each in lane.oldest(MOST_SHOWN)
        ]
    for (topic, owner), queues in order.table.items():
        if owner != group or topic not in topics:
            continue
        for queue_id, info in queues.items():
            left = [offset for index, offset in enumerate(info.offsets) if not info.acked >> index & 1]
            if left:
                total += len(left)
                visible_at = max(info.open_until_ms())
                found.append(
                    InFlight(
                        topic=topic,
                        queue_id=queue_id,
                        offsets=left,
                        pop_time=info.pop_time,
                        visible_at=visible_at,
                        in_order=True,
                    )
                )
    return sorted(found, key=lambda each: each.pop_time)[:MOST_SHOWN], total
