"""What each request needs: no code is forgotten, and rows say what Apache's annotations say."""

from __future__ import annotations

import pytest

from arrowmq.auth.needs import NEEDS, SUPER_ONLY, needs_of
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command


def needs(code: int, body: object = None, **ext: str) -> list[str] | None:
    data = b"" if body is None else fastjson.dumps(body)
    found = needs_of(Command(code, ext=ext, body=data), "C")
    return found and [f"{need.resource.key} {'|'.join(a.value for a in need.actions)}" for need in found]


def test_somebody_has_thought_about_every_request_code() -> None:
    known = NEEDS.keys() | SUPER_ONLY
    assert [] == [code.name for code in RequestCode if code not in known]
    assert not NEEDS.keys() & SUPER_ONLY


def test_a_code_that_nobody_knows_is_for_super_users() -> None:
    assert needs_of(Command(987654), "C") is None
    assert needs_of(Command(RequestCode.WHO_CONSUME_THE_MESSAGE), "C") is None


# Apache 5.5.0's annotations: code, actions, and the resource of each field (or of the server as a whole).
ANNOTATED = """
12 Sub|Get topic:Topic
17 Create topic:Topic
29 Get topic:Topic
30 Get topic:Topic
31 Get topic:Topic
32 Get topic:Topic
33 Get topic:Topic
100 Update Cluster
101 Get Cluster
102 Update Cluster
103 Update clusterName:Cluster
104 Update clusterName:Cluster
202 Get topic:Topic
203 Get consumerGroup:Group
204 Get Cluster
205 Update Cluster
207 Delete groupName:Group
208 Get consumerGroup:Group topic:Topic
215 Delete topic:Topic
216 Update clusterName:Cluster
217 Update Cluster
219 Get Cluster
222 Update group:Group topic:Topic
223 Get topic:Topic group:Group
300 Get topic:Topic
303 Get topic:Topic group:Group
307 Get consumerGroup:Group
308 Get filterGroups:Group compareGroup:Group topic:Topic
309 Sub consumerGroup:Group topic:Topic
314 Update destGroup:Group topic:Topic
315 Get Cluster
317 Get Cluster
321 Get topic:Topic consumerGroup:Group
322 Get clusterName:Cluster
323 Update topic:Topic
327 Update Cluster
328 Get Cluster
343 Get group:Group
345 Get group:Group topic:Topic
351 Get topic:Topic
352 Get group:Group
353 Update group:Group topic:Topic
354 Get topic:Topic
355 Get Cluster
370 Pub topic:Topic
901 Get clusterName:Cluster
902 Update Cluster
903 Update brokerClusterName:Cluster
904 Update clusterName:Cluster
905 Update Cluster
906 Update Cluster
908 Update Cluster
1001 Update Cluster
1002 Update clusterName:Cluster
1003 Update clusterName:Cluster
1004 Get Cluster
1008 Update Cluster
1011 Update clusterName:Cluster
1012 Get clusterName:Cluster
1013 Update clusterName:Cluster
3001 Update Cluster
3002 Update Cluster
3003 Update Cluster
3004 Get Cluster
3005 Get Cluster
3006 Update Cluster
3007 Update Cluster
3008 Update Cluster
3009 Get Cluster
3010 Get Cluster
200050 Sub consumerGroup:Group topic:Topic
200051 Sub consumerGroup:Group topic:Topic
200052 Sub topic:Topic consumerGroup:Group
200053 Sub consumerGroup:Group topic:Topic
200054 Sub consumerGroup:Group topic:Topic
200055 Get consumerGroup:Group topic:Topic
"""


@pytest.mark.parametrize("line", ANNOTATED.strip().splitlines())
def test_rows_ask_for_what_apache_asks_for(line: str) -> None:
    code, actions, *fields = line.split()
    ext, expected = {}, set()
    for field in fields:
        name, colon, kind = field.partition(":")
        if colon:
            ext[name] = f"the-{name}"
            expected.add(f"{kind}:the-{name} {actions}")
        else:
            expected.add(f"{field}:C {actions}")
    assert expected == set(needs(int(code), **ext) or ())


def test_a_send_needs_pub_and_to_a_retry_topic_the_rights_of_its_group() -> None:
    for code, topic in ((10, "topic"), (310, "b"), (320, "b")):
        assert ["Topic:t Pub"] == needs(code, **{topic: "t"})
        assert ["Topic:%DLQ%g Pub"] == needs(code, **{topic: "%DLQ%g"})
        assert ["Group:g Sub"] == needs(code, **{topic: "%RETRY%g"})
        assert ["Topic:null Pub"] == needs(code)


def test_a_reply_is_a_send_unless_it_goes_to_the_clusters_reply_topic() -> None:
    assert [] == needs(325, b="C_REPLY_TOPIC")
    assert ["Topic:orders Pub"] == needs(325, b="orders")
    assert ["Topic:D_REPLY_TOPIC Pub"] == needs(324, topic="D_REPLY_TOPIC")


def test_a_pull_needs_topic_and_group_and_another_groups_retry_topic_that_group_too() -> None:
    for code in (11, 361):
        assert ["Topic:t Sub", "Group:g Sub"] == needs(code, topic="t", consumerGroup="g")
        assert ["Group:g Sub"] == needs(code, topic="%RETRY%g", consumerGroup="g")
        assert ["Group:g Sub"] == needs(code, topic="%RETRY%g_t", consumerGroup="g")
        assert ["Group:g Sub", "Group:other Sub"] == needs(code, topic="%RETRY%other", consumerGroup="g")


def test_an_answer_to_a_transaction_check_is_judged_by_the_message_itself() -> None:
    assert ["Topic:t Pub"] == needs(37, topic="t")
    assert [] == needs(37, topic="RMQ_SYS_TRANS_HALF_TOPIC")
    assert [] == needs(37)


def test_bodies_are_looked_into() -> None:
    consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}, {"topic": "%RETRY%g"}]}
    heartbeat = {"consumerDataSet": [consumer], "producerDataSet": [{"groupName": "p"}]}
    assert ["Group:g Sub", "Topic:t Sub"] == needs(34, heartbeat)
    assert [] == needs(34, {"producerDataSet": [{"groupName": "p"}]})
    queues = [{"topic": "t", "brokerName": "b", "queueId": n} for n in range(3)]
    assert ["Group:g Sub", "Topic:t Sub"] == needs(41, {"consumerGroup": "g", "mqSet": queues})
    assert ["Group:g Sub", "Topic:t Sub"] == needs(400, {"consumerGroup": "g", "topic": "t"})
    assert ["Topic:a Create", "Topic:b Create"] == needs(
        18, {"topicConfigList": [{"topicName": "a"}, {"topicName": "b"}]}
    )
    assert ["Group:g Create|Update"] == needs(200, {"groupName": "g"})
    assert ["Group:g Sub", "Topic:t Sub"] == needs(200151, {"acks": [{"c": "g", "t": "t"}]})
    with pytest.raises(WireError):
        needs_of(Command(34, body=b"\x00 no JSON"), "C")


def test_lists_in_a_field_are_split() -> None:
    assert ["Group:g Get", "Topic:a Get", "Topic:b Get"] == needs(208, consumerGroup="g", topicList="a;b")
    assert ["Group:a Get", "Group:b Get", "Topic:t Get"] == needs(308, filterGroups="a,b", topic="t")
