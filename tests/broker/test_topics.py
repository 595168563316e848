"""Topics and groups: how they come into being, change, are listed and deleted, and what is kept of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode


async def create(node: Any, topic: str, **more: Any) -> Any:
    header = {
        "topic": topic,
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        **more,
    }
    return await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def config(node: Any, topic: str) -> dict[str, Any]:
    answer = await node.client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    return dict(fastjson.loads(answer.body)) if answer.code == ResponseCode.SUCCESS else {}


async def test_a_first_message_makes_its_topic_after_the_template(make_node: Any) -> None:
    node = await make_node(defaultTopicQueueNums="6")
    await node.client.send("few", defaultTopicQueueNums=2)
    await node.client.send("many", defaultTopicQueueNums=50)
    few, many = node.broker.topics.get("few"), node.broker.topics.get("many")
    assert (few.read_queue_nums, few.write_queue_nums, few.perm) == (2, 2, 6)
    assert (many.read_queue_nums, many.write_queue_nums) == (6, 6)


async def test_the_topics_of_every_broker_are_there_from_the_start(node: Any) -> None:
    table = {name: (topic.write_queue_nums, topic.perm) for name, topic in node.broker.topics.table.items()}
    assert table["TBW102"] == (8, 7)
    assert table["SCHEDULE_TOPIC_XXXX"] == (18, 6)
    assert table["BenchmarkTest"] == (1024, 6)
    assert table["DefaultCluster"] == (16, 7)
    assert table["broker-a"] == (1, 7)
    assert table["rmq_sys_SYNC_BROKER_MEMBER_broker-a"] == (1, 1)
    assert table["DefaultCluster_REPLY_TOPIC"] == (1, 6)
    assert "RMQ_SYS_TRACE_TOPIC" not in table


async def test_an_administrator_creates_and_changes_and_it_is_on_disk_at_once(node: Any) -> None:
    assert (await create(node, "orders")).code == ResponseCode.SUCCESS
    await create(node, "orders", writeQueueNums=5, readQueueNums=5, attributes="+message.type=FIFO")
    stored = json.loads((node.root / "config" / "topics.json").read_bytes())["topicConfigTable"]["orders"]
    assert (stored["writeQueueNums"], stored["attributes"]) == (5, {"message.type": "FIFO"})
    assert (await config(node, "orders"))["attributes"] == {"message.type": "FIFO"}


async def test_the_same_again_changes_no_version(node: Any) -> None:
    await create(node, "orders")
    before = node.broker.topics.version
    assert (await create(node, "orders")).code == ResponseCode.SUCCESS
    assert node.broker.topics.version == before


@pytest.mark.parametrize(
    ("topic", "more", "code", "words"),
    [
        ("TBW102", {}, ResponseCode.INVALID_PARAMETER, "is conflict with system topic"),
        ("rmq_sys_x", {}, ResponseCode.INVALID_PARAMETER, "is conflict with system topic"),
        ("bad topic", {}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ("orders", {"perm": 99}, ResponseCode.INVALID_PARAMETER, "perm=99"),
        ("orders", {"readQueueNums": -1}, ResponseCode.INVALID_PARAMETER, "readQueueNums=-1"),
        ("orders", {"topicFilterType": "NONE"}, ResponseCode.INVALID_PARAMETER, "topicFilterType=NONE"),
        ("orders", {"attributes": "+colour=red"}, ResponseCode.SYSTEM_ERROR, "unsupported key: colour"),
        ("orders", {"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR, "only add attribute is supported"),
        ("orders", {"attributes": "+message.type=ODD"}, ResponseCode.SYSTEM_ERROR, "allowed are"),
        ("orders", {"attributes": "+message.type=MIXED"}, ResponseCode.SYSTEM_ERROR, "enableMixedMessageType"),
    ],
)
async def test_what_cannot_be_created_is_refused_and_leaves_nothing(
    node: Any, topic: str, more: dict[str, Any], code: ResponseCode, words: str
) -> None:
    before = dict(node.broker.topics.table)
    answer = await create(node, topic, **more)
    assert (answer.code, words in answer.remark) == (code, True), answer.remark
    assert node.broker.topics.table == before


async def test_an_attribute_that_is_fixed_stays(node: Any) -> None:
    await create(node, "orders")
    answer = await create(node, "orders", attributes="+cleanup.policy=DELETE")
    assert "attempt to update an unchangeable attribute" in answer.remark


async def test_all_topics_are_listed_whole_or_in_pages(node: Any) -> None:
    whole = await node.client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = fastjson.loads(whole.body)["topicConfigTable"]
    assert (whole.ext["totalTopicNum"], set(table)) == (str(len(table)), set(node.broker.topics.table))
    pages: set[str] = set()
    for begin in range(0, len(table), 5):
        page = await node.client.ask(
            RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": begin, "maxTopicNum": 5, "dataVersion": ""}
        )
        pages |= set(fastjson.loads(page.body)["topicConfigTable"])
    assert pages == set(table)


async def test_deleting_a_topic_forgets_its_messages_offsets_and_waiting_pulls(node: Any) -> None:
    await node.client.send("orders")
    await node.client.pull("orders", 1, sysFlag=5, commitOffset=1)
    waiting = node.client.asking(RequestCode.PULL_MESSAGE, node.client.pull_header("orders", 1, sysFlag=6))
    await node.eventually(lambda: node.broker.longpoll.count == 1)
    assert (await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == ResponseCode.SUCCESS
    assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await node.client.pull("orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert node.broker.offsets.get("G", "orders", 0) is None
    again = await node.client.send("orders", b"anew")
    assert again.ext["queueOffset"] == "0"
    assert node.client.bodies(await node.client.pull("orders")) == [b"anew"]


async def test_system_topics_cannot_be_deleted(node: Any) -> None:
    answer = await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "SCHEDULE_TOPIC_XXXX"})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert node.broker.topics.get("SCHEDULE_TOPIC_XXXX") is not None


@pytest.mark.parametrize("topic", ["", "../../elsewhere", "/etc", "x" * 300])
async def test_only_what_could_be_a_topic_can_be_deleted(node: Any, topic: str) -> None:
    """A topic's name is a folder's name in the store."""
    answer = await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_topic_made_by_a_message_is_on_disk_when_its_sender_is_answered(node: Any) -> None:
    """Apache's broker, opening the store after a kill, knows the topics of this table and no others."""
    file = node.root / "config" / "topics.json"
    await node.client.send("one")
    assert "one" in json.loads(file.read_bytes())["topicConfigTable"]


async def test_a_topic_that_the_table_lost_is_found_again_by_its_queues(node: Any) -> None:
    await node.client.send("orders", b"kept", queue_id=2)
    await node.stop()
    shutil.rmtree(node.root / "config")
    await node.start()
    assert node.broker.topics.get("orders").write_queue_nums == 3
    assert node.client.bodies(await node.client.pull("orders", queue_id=2)) == [b"kept"]


async def test_groups_are_created_changed_listed_and_deleted(node: Any) -> None:
    wanted = {"groupName": "G", "retryMaxTimes": 3, "consumeEnable": False}
    assert (await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, wanted)).code == 0
    one = await node.client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert (fastjson.loads(one.body)["retryMaxTimes"], fastjson.loads(one.body)["retryQueueNums"]) == (3, 1)
    everything = await node.client.ask(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": 0, "maxGroupNum": 100}
    )
    assert {"G", "TOOLS_CONSUMER"} <= set(fastjson.loads(everything.body)["subscriptionGroupTable"])
    node.broker.offsets.commit("G", "orders", 0, 5)
    await node.client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": False})
    assert node.broker.offsets.get("G", "orders", 0) == 5
    await node.client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": True})
    assert node.broker.offsets.get("G", "orders", 0) is None
    gone = await node.client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    wrong = await node.client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "x" * 121})
    assert wrong.code == ResponseCode.INVALID_PARAMETER


async def test_a_group_can_be_kept_from_one_topic_and_let_back_in(node: Any) -> None:
    await node.client.send("orders")
    await node.client.heartbeat("c1", topics={"orders": "*"})
    forbid = {"group": "G", "topic": "orders", "readable": False}
    answer = await node.client.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid)
    assert fastjson.loads(answer.body) == {"group": "G", "topic": "orders", "readable": False}
    assert (await node.client.pull("orders", sysFlag=0)).ext == {"forbiddenType": "5"}
    await node.client.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {**forbid, "readable": True})
    assert (await node.client.pull("orders", sysFlag=0)).code == ResponseCode.SUCCESS


async def test_a_store_that_apache_wrote_goes_on_with_its_topics_groups_and_offsets(
    make_node: Any, tmp_path: Path
) -> None:
    import tarfile

    archive = Path(__file__).parent.parent / "golden" / "store-clean.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "apache", filter="data")
    (store,) = (tmp_path / "apache").rglob("commitlog")
    expected = json.loads(next((tmp_path / "apache").rglob("expected.json")).read_text())
    shutil.copytree(store.parent, tmp_path / "broker-0")
    node = await make_node(
        mappedFileSizeCommitLog="262144", mappedFileSizeConsumeQueue="1000", maxHashSlotNum="200", maxIndexNum="800"
    )
    for name, queues in expected["groupOffsets"].items():
        topic, _, group = name.partition("@")
        assert node.broker.offsets.queues(group, topic) == {int(queue): offset for queue, offset in queues.items()}
    assert node.broker.groups.get("GroupPush") is not None
    offsets = [node.broker.store.max_offset("TopicSync", queue_id) for queue_id in range(4)]
    assert sum(offsets) == 11
    answer = await node.client.send("TopicSync", b"by ArrowMQ", queue_id=0)
    assert answer.ext["queueOffset"] == str(offsets[0])
