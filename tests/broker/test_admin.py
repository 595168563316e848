"""Administration: settings, progress, statistics, and requests handed on to clients."""

from __future__ import annotations

from typing import Any

from arrowmq.remoting.handlers import Answer
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ConsumeStats, TopicStatsTable
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.message_queue import MessageQueue

FIRST = MessageQueue("orders", "broker-a", 0)


async def test_settings_are_shown_changed_and_kept_even_if_nothing_reads_them(node: Any) -> None:
    changed = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\nsomeOtherKey=17\n")
    assert changed.code == ResponseCode.SUCCESS
    shown = await node.client.ask(RequestCode.GET_BROKER_CONFIG)
    lines = shown.body.decode().splitlines()
    assert {"traceOn=false", "someOtherKey=17", "brokerName=broker-a", "flushDiskType=ASYNC_FLUSH"} <= set(lines)
    assert fastjson.loads(shown.ext["version"])["counter"] == 1
    assert (await node.client.send("orders")).ext["TRACE_ON"] == "false"


async def test_settings_that_may_not_be_changed_or_do_not_fit_change_nothing(node: Any) -> None:
    closed = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"rocketmqHome=/tmp\ntraceOn=false\n")
    assert (closed.code, "rocketmqHome" in closed.remark) == (ResponseCode.NO_PERMISSION, True)
    wrong = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\ndefaultTopicQueueNums=many\n")
    assert (wrong.code, "defaultTopicQueueNums=many" in wrong.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert node.broker.config.trace_on is True


async def test_settings_changed_at_run_time_are_in_force_after_a_restart(node: Any) -> None:
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=48\ntraceOn=false\n")
    assert node.broker.store.config.file_reserved_time == 48
    await node.restart()
    assert (node.broker.store.config.file_reserved_time, node.broker.config.trace_on) == (48, False)
    lines = (await node.client.ask(RequestCode.GET_BROKER_CONFIG)).body.decode().splitlines()
    assert {"fileReservedTime=48", f"listenPort={node.broker.address.port}", "brokerIP1=127.0.0.1"} <= set(lines)


async def test_what_the_broker_was_started_as_is_not_changed_at_run_time(node: Any) -> None:
    for text in (b"brokerName=other\n", b"listenPort=1\n"):
        assert (await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text)).code == ResponseCode.NO_PERMISSION
    wrong = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\nfileReservedTime=soon\n")
    assert (wrong.code, "fileReservedTime" in wrong.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert node.broker.config.trace_on is True


async def test_a_broker_whose_readers_are_shut_out_and_let_in_at_run_time(node: Any) -> None:
    await node.client.send("orders")
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=2\n")
    assert (await node.client.pull("orders")).code == ResponseCode.NO_PERMISSION
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
    assert (await node.client.pull("orders")).code == ResponseCode.SUCCESS


async def test_the_runtime_table_has_what_tools_read(node: Any) -> None:
    for _ in range(20):
        await node.client.send("orders")
    await node.client.pull("orders")
    await node.clock.advance(10)
    table = fastjson.loads((await node.client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert [len(table[key].split()) for key in ("putTps", "getTransferredTps", "getTotalTps")] == [3, 3, 3]
    assert float(table["putTps"].split()[0]) == 2.0
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("20", "20")
    assert table["commitLogMaxOffset"] == str(node.broker.store.appended)
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"
    for key in ("earliestMessageTimeStamp", "commitLogDiskRatio", "timerReadBehind", "timerCongestNum"):
        float(table[key])


async def test_statistics_cover_a_minute_an_hour_and_a_day(node: Any) -> None:
    async def sums() -> list[int]:
        answer = await node.client.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
        )
        data = fastjson.loads(answer.body)
        return [data[window]["sum"] for window in ("statsMinute", "statsHour", "statsDay")]

    for _ in range(6):
        await node.client.send("orders")
    await node.clock.advance(30)
    assert await sums() == [6, 6, 6]
    await node.clock.advance(120)
    assert await sums() == [0, 6, 6]
    await node.clock.advance(2 * 3600)
    assert await sums() == [0, 0, 6]
    unknown = await node.client.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "NO", "statsKey": "orders"})
    assert (unknown.code, unknown.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <NO> <orders> not exist")


async def test_tools_are_told_the_progress_of_a_topic_and_of_a_group(node: Any) -> None:
    for _ in range(5):
        await node.client.send("orders")
    await node.client.pull("orders", 3, sysFlag=5, commitOffset=3)
    topic = fastjson.loads(
        (await node.client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})).body, type=TopicStatsTable
    )
    queue = topic.offset_table[FIRST]
    assert (queue.min_offset, queue.max_offset, queue.last_update_timestamp) == (0, 5, node.clock.now_ms())
    stats = fastjson.loads(
        (await node.client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"})).body, type=ConsumeStats
    )
    progress = stats.offset_table[FIRST]
    assert (progress.broker_offset, progress.consumer_offset, progress.pull_offset) == (5, 3, 5)
    overall = fastjson.loads((await node.client.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False})).body)
    assert (overall["totalDiff"], overall["totalInflightDiff"]) == (2, 2)
    missing = await node.client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"})
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


async def test_tools_are_told_who_consumes_what(node: Any) -> None:
    await node.client.send("orders")
    node.broker.offsets.commit("Past", "orders", 0, 1)
    await node.client.heartbeat("c1", group="Now", topics={"orders": "a || b"})
    groups = await node.client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert fastjson.loads(groups.body) == {"groupList": ["Now", "Past"]}
    topics = await node.client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "Past"})
    assert fastjson.loads(topics.body)["topicList"] == ["orders"]
    one = await node.client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "Now", "topic": "orders"})
    assert fastjson.loads(one.body)["subscriptionData"]["subString"] == "a || b"


async def test_entries_of_a_consume_queue_with_a_groups_filter(node: Any) -> None:
    for tag in ("red", "blue"):
        await node.client.send("orders", properties=f"TAGS\x01{tag}\x02")
    ask = {"topic": "orders", "queueId": 0, "index": 0, "count": 10}
    plain = fastjson.loads((await node.client.ask(RequestCode.QUERY_CONSUME_QUEUE, ask)).body)
    assert (plain["maxQueueIndex"], [entry["eval"] for entry in plain["queueData"]]) == (2, [False, False])
    await node.client.heartbeat("c1", topics={"orders": "blue"})
    seen = fastjson.loads((await node.client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**ask, "consumerGroup": "G"})).body)
    assert [entry["eval"] for entry in seen["queueData"]] == [False, True]
    wrong = await node.client.ask(RequestCode.QUERY_CONSUME_QUEUE, {**ask, "count": 0})
    assert wrong.code == ResponseCode.INVALID_PARAMETER


async def test_tools_are_told_how_far_back_a_group_consumes(node: Any) -> None:
    for _ in range(3):
        await node.client.send("orders")
        await node.clock.advance(10)
    node.broker.offsets.commit("G", "orders", 0, 1)
    answer = await node.client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "orders", "group": "G"})
    span = fastjson.loads(answer.body)["consumeTimeSpanSet"][0]
    assert (span["maxTimeStamp"] - span["minTimeStamp"], span["delayTime"]) == (20_000, 20_000)
    assert span["consumeTimeStamp"] == span["minTimeStamp"]


async def test_a_request_about_a_client_is_handed_on_to_it_and_its_answer_back(node: Any) -> None:
    consumer = node.connect()
    seen = []

    def running_info(call: Any) -> Answer:
        seen.append(call.ext)
        return Answer(body=b'{"properties":{}}', remark="from the client")

    consumer.remoting.on_request(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    await consumer.heartbeat("c1", topics={"orders": "*"})
    ask = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}
    answer = await node.client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ask)
    assert (answer.code, answer.body, answer.remark, seen) == (0, b'{"properties":{}}', "from the client", [ask])
    offline = await node.client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**ask, "clientId": "c9"})
    assert (offline.code, offline.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <G> <c9> not online")


async def test_a_message_is_consumed_directly_by_a_client(node: Any) -> None:
    consumer = node.connect()
    seen = []
    consumer.remoting.on_request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        lambda call: (seen.append((call.ext["brokerName"], call.body)), Answer(body=b'{"consumeResult":"CR_SUCCESS"}'))[
            1
        ],
    )
    await consumer.heartbeat("c1", topics={"orders": "*"})
    sent = await node.client.send("orders", b"again")
    ask = {"consumerGroup": "G", "clientId": "c1", "msgId": sent.ext["msgId"], "topic": "orders"}
    answer = await node.client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ask)
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    ((broker_name, data),) = seen
    assert broker_name == "broker-a"
    assert b"again" in data
    wrong = await node.client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**ask, "msgId": "nonsense"})
    assert (wrong.code, "msgId" in wrong.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_messages_are_found_by_key_by_unique_id_and_by_place(node: Any) -> None:
    first = await node.client.send("orders", b"one", properties="KEYS\x01k1 both\x02")
    await node.client.send("orders", b"two", properties="KEYS\x01both\x02")
    ask = {"topic": "orders", "key": "both", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 2**62}
    answer = await node.client.ask(RequestCode.QUERY_MESSAGE, ask)
    assert node.client.bodies(answer) == [b"one", b"two"]
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0
    by_id = await node.client.ask(
        RequestCode.QUERY_MESSAGE, {**ask, "key": first.ext["transactionId"], "_UNIQUE_KEY_QUERY": "true"}
    )
    assert node.client.bodies(by_id) == [b"one"]
    none = await node.client.ask(RequestCode.QUERY_MESSAGE, {**ask, "key": "nowhere"})
    assert (none.code, none.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
    )
    (record,) = node.client.records(await node.client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}))
    assert record.body == b"one"
    wrong = await node.client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 7})
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 7")


async def test_offsets_are_cloned_for_one_topic_or_all(node: Any) -> None:
    for topic in ("orders", "payments"):
        await node.client.send(topic)
        node.broker.offsets.commit("A", topic, 0, 7)
    await node.client.ask(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "A", "destGroup": "B", "topic": "orders"})
    assert (node.broker.offsets.get("B", "orders", 0), node.broker.offsets.get("B", "payments", 0)) == (7, None)
    await node.client.ask(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "A", "destGroup": "B"})
    assert node.broker.offsets.get("B", "payments", 0) == 7


async def test_queues_of_topics_that_no_longer_exist_are_cleaned_up(node: Any) -> None:
    await node.client.send("orders")
    await node.client.send("payments")
    del node.broker.topics.table["orders"]
    await node.client.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    assert "orders" not in node.broker.store.queues()
    assert "payments" in node.broker.store.queues()


async def test_an_unknown_request_is_answered_with_the_code_for_that(node: Any) -> None:
    answer = await node.client.ask(9999)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported",
    )  # fmt: skip


async def test_a_group_without_offsets_is_listed_among_the_groups_of_a_broker(node: Any) -> None:
    """As Apache lists it: the dashboard shows a group that was created and has not consumed yet."""
    await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"fresh"}')
    overall = fastjson.loads((await node.client.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False})).body)
    assert {"fresh": []} in overall["consumeStatsList"]


async def test_what_was_counted_a_moment_ago_is_no_rate_of_thousands(node: Any) -> None:
    """A rate over less than ten seconds is the count over ten seconds; at rest it falls."""
    for _ in range(10):
        await node.client.send("orders")
    ask = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    first = fastjson.loads((await node.client.ask(RequestCode.VIEW_BROKER_STATS_DATA, ask)).body)
    assert (first["statsMinute"]["sum"], first["statsMinute"]["tps"]) == (10, 1.0)
    await node.clock.advance(120)
    later = fastjson.loads((await node.client.ask(RequestCode.VIEW_BROKER_STATS_DATA, ask)).body)
    assert (later["statsMinute"]["sum"], later["statsHour"]["sum"]) == (0, 10)


async def test_the_times_of_sends_and_the_requests_that_wait_are_told(node: Any) -> None:
    for _ in range(5):
        await node.client.send("orders")
    table = fastjson.loads((await node.client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    divided = [int(piece.rpartition(":")[2]) for piece in table["putMessageDistributeTime"].split()]
    assert sum(divided) == 5
    assert float(table["putLatency99"]) <= float(table["putMessageEntireTimeMax"])
    assert (table["sendThreadPoolQueueSize"], table["timerOffsetBehind"]) == ("0", "0")


async def test_a_brokers_day_is_counted_without_its_own_topics(node: Any) -> None:
    """mqadmin probes a broker by sending to the topic of its name; that is nobody's message."""
    await node.client.send("orders")
    await node.client.send("broker-a")
    table = fastjson.loads((await node.client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert (table["msgPutTotalTodayNow"], table["putMessageTimesTotal"]) == ("1", "2")
