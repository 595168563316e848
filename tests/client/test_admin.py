"""Administration from Python."""

from __future__ import annotations

import pytest

import arrowmq


async def test_a_topic_is_created_described_and_deleted(cluster: str, topic: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_topic(topic, queues=3)
        assert topic in await admin.topics()
        config = next(iter((await admin.topic_config(topic)).values()))
        route = await admin.route(topic)
        assert (3, 3, 6) == (config.read_queue_nums, config.write_queue_nums, config.perm)
        assert 3 == len(route.publish_queues)
        await admin.create_topic(topic, queues=5)
        assert 5 == next(iter((await admin.topic_config(topic)).values())).write_queue_nums
        await admin.delete_topic(topic)
        with pytest.raises(arrowmq.ArrowMQError, match="arrowmq topic create"):
            await admin.topic_config(topic)


async def test_a_group_is_created_described_and_deleted(cluster: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.create_group(group, retry_max_times=3)
        assert group in await admin.groups()
        assert 3 == next(iter((await admin.group_config(group)).values())).retry_max_times
        with pytest.raises(arrowmq.InvalidUse, match="retry_max_times"):
            await admin.create_group(group, retries=3)
        await admin.delete_group(group)
        assert group not in await admin.groups()


async def test_lag_shrinks_as_the_group_consumes(cluster: str, topic: str, group: str) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=1)
        async with arrowmq.Consumer(cluster, group=group, topic=topic, consume_from="first") as consumer:
            for n in range(5):
                await producer.send(topic, b"%d" % n)
            for _ in range(2):
                await (await anext(consumer)).ack()
            await consumer.commit()
            assert 3 == sum((await admin.lag(group, topic)).values())
            assert [consumer.client_id] == [each.client_id for each in (await admin.consumers(group)).connection_set]
            assert [group] == await admin.groups_of_topic(topic)
            queue = consumer.assignment[0]
            assert 2 == await admin.committed(group, queue)
        await admin.set_offset(group, queue, 4)
        assert 4 == await admin.committed(group, queue)
        with pytest.raises(arrowmq.Refused):
            await admin.consumers(group)


async def test_messages_are_found_by_id_by_key_and_by_offset(cluster: str, topic: str) -> None:
    async with arrowmq.Admin(cluster) as admin, arrowmq.Producer(cluster) as producer:
        await admin.create_topic(topic, queues=1)
        receipts = [await producer.send(topic, b"%d" % n, keys=[f"key-{n}", "all"]) for n in range(5)]
        by_id = await admin.message_by_id(topic, receipts[2].msg_id)
        by_key = await admin.messages_by_key(topic, "key-3")
        all_of_them = await admin.messages_by_key(topic, "all")
        limited = await admin.messages_by_key(topic, "all", max_count=2)
        none = await admin.messages_by_key(topic, "nobody")
        missing = await admin.message_by_id(topic, "0" * 32)
        queue = (await admin.route(topic)).subscribe_queues[0]
        at = await admin.messages_at(queue, 3)
        beyond = await admin.messages_at(queue, 99)
        everything = [message async for message in admin.read(topic)]
    assert by_id is not None
    assert b"2" == by_id.body
    assert [b"3"] == [message.body for message in by_key]
    assert ([b"%d" % n for n in range(5)], 2) == ([message.body for message in all_of_them], len(limited))
    assert ([], None, []) == (none, missing, beyond)
    assert [b"3", b"4"] == [message.body for message in at]
    assert [b"%d" % n for n in range(5)] == [message.body for message in everything]


async def test_brokers_and_clusters_tell_about_themselves(cluster: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        info = await admin.cluster_info()
        masters = await admin.masters()
        address = next(iter(masters.values()))
        runtime = await admin.broker_runtime(address)
        config = await admin.broker_config(address)
        with pytest.raises(arrowmq.ArrowMQError, match="no cluster nowhere"):
            await admin.masters("nowhere")
        with pytest.raises(arrowmq.ArrowMQError, match="no broker nobody"):
            await admin.create_topic("t", broker="nobody")
    assert set(masters) == set(info.broker_addr_table)
    assert "putTps" in runtime
    assert config["brokerName"] in masters


async def test_a_key_value_can_be_kept_at_the_name_servers(cluster: str, topic: str) -> None:
    async with arrowmq.Admin(cluster) as admin:
        await admin.kv_put("client_test", topic, "value")
        assert "value" == (await admin.kv_list("client_test"))[topic]
        await admin.kv_delete("client_test", topic)
        assert topic not in await admin.kv_list("client_test")
