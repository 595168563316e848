"""Looking across a cluster, and resets that are planned first."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import arrowmq


async def test_a_reset_is_planned_and_carried_out(cluster: str, topic: str, group: str, is_version_4: bool) -> None:
    none = 0 if is_version_4 else None  # an old broker says 0 for "never" of a young queue
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=2)
        await admin.create_group(group)
        queues = (await admin.route(topic)).subscribe_queues
        for number in range(3):
            await producer.send(topic, b"%d" % number, queue=queues[0])
        plan = await admin.plan_reset(group, topic, 2)
        assert [(none, 2), (none, 0)] == [(step.current, step.target) for step in plan]
        assert [none, none] == [await admin.committed(group, queue) for queue in queues]
        await admin.apply_reset(group, plan)
        assert [2, 0] == [await admin.committed(group, queue) for queue in queues]
        (only,) = await admin.plan_reset(group, topic, "last", queues=[queues[0]])
        assert (0, 3, 2, 3) == (only.first, only.last, only.current, only.target)
        an_hour_ago = await admin.plan_reset(group, topic, datetime.now() - timedelta(hours=1))
        assert [0, 0] == [step.target for step in an_hour_ago]
        with pytest.raises(arrowmq.ArrowMQError, match="no such queue"):
            await admin.plan_reset(group, topic, "first", queues=[arrowmq.MessageQueue(topic, "nobody", 0)])


async def test_settings_progress_and_clients_of_a_broker_are_asked_at_once(
    cluster: str, topic: str, group: str
) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster, group=f"{group}_p") as producer:
        await admin.create_topic(topic, queues=1)
        (address,) = (await admin.masters()).values()
        assert 1 == (await admin.topic_configs(address))[topic].write_queue_nums
        await producer.send(topic, b"x")
        assert await admin.consumers_at(address, group) is None
        async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
            await (await anext(consumer)).ack()
            await consumer.commit()
            online = await admin.consumers_at(address, group)
            assert online is not None
            assert [consumer.client_id] == [each.client_id for each in online.connection_set]
            progress = (await admin.progress_of_groups(address))[group]
            assert [(1, 1)] == [
                (each.broker_offset, each.consumer_offset) for queue, each in progress.items() if queue.topic == topic
            ]
        assert [producer.client_id] == [each.client_id for each in (await admin.producers_at(address))[f"{group}_p"]]
