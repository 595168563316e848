"""fastjson's dialect is read, whatever it is fed; and what is written every client can read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.wire import bodies, fastjson
from arrowmq.wire.errors import BodyError
from arrowmq.wire.fastjson_reader import parse, parse_quickly
from arrowmq.wire.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ('{-1:"a"}', {"-1": "a"}),
        ("{'a':'it\\'s'}", {"a": "it's"}),
        ("{a:1,b_c:[1,,2,],}", {"a": 1, "b_c": [1, 2]}),
        ('{"a":undefined,"b":NaN,"c":5L}', {"a": None, "b": None, "c": 5}),
        ("[.5,+3,1e3]", [0.5, 3, 1e3]),
        ('{{"brokerName":"b","queueId":0,"topic":"T"}:5}', {QUEUE: 5}),
        ('{"{\\"brokerName\\":\\"b\\",\\"queueId\\":\\"0\\",\\"topic\\":\\"T\\"}":5}', {QUEUE: 5}),
        ('{"{no queue":5}', {"{no queue": 5}),
        (r'"\u00fc\x41\v\ud83d\ude80\ud800"', "üA\v🚀\ufffd"),
        ('\ufeff[true,false,null,"\x01"]', [True, False, None, "\x01"]),
        ('{"a":{"b":[1,{"c":2}]},"d":{"$ref":"$.a.b[1]"}}', {"a": {"b": [1, {"c": 2}]}, "d": {"c": 2}}),
        ('{"a":{"$ref":".."},"b":{"$ref":"$"},"c":{"$ref":"$.x[9]"}}', {"a": None, "b": None, "c": None}),
    ],
)  # fmt: skip
def test_the_dialect_is_read(text: str, expected: Any) -> None:
    assert expected == parse(text)
    assert expected == parse(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[", '"', "'a", '{"a"', '{"a":', '{"a":1', "[1", "{a b:1}", "{1:2}}", '{{"a":1}:2}', "-", "tru", '"\\q"',
     '"\\u12"', "[1 2]", '{"a":1 "b":2}', "[" * 100, '{"a":' * 100, "{a:" + "9" * 500 + "}"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BodyError) as refused:
        fastjson.loads(text.encode())
    assert refused.value.position >= 0


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BodyError, match="UTF-8"):
        fastjson.loads(b'{"a":"\xff"}')


def test_a_flood_of_references_is_refused() -> None:
    with pytest.raises(BodyError, match="references"):
        fastjson.loads("[" + '{"$ref":"$.a"},' * 2000 + "]")


@given(st.one_of(st.text("{}[]:,\"'\\0123456789.eE+-truefalsn$u \n", max_size=40), st.text(max_size=20)))
@settings(deadline=None, max_examples=300)
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        read = fastjson.loads(text)
    except BodyError:
        return  # any other exception fails the test
    assert read is None or isinstance(read, dict | list | str | int | float)


keys = st.text().filter(lambda key: not key.startswith("{"))  # else it may be a queue
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@given(json_values)
@settings(deadline=None)
def test_standard_json_is_read_as_everybody_reads_it(value: Any) -> None:
    assert value == parse(json.dumps(value)) or "$ref" in json.dumps(value)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@given(json_values)
@settings(deadline=None)
def test_what_is_written_is_standard_compact_and_sorted(value: Any) -> None:
    expected = without_nulls(value)
    assert expected == json.loads(fastjson.dumps(value))
    assert (
        json.dumps(expected, separators=(",", ":"), sort_keys=True) == fastjson.dumps(value, ascii_only=True).decode()
    )


queue_names = st.text("ab{}:,\"\\' \n%é", max_size=6)
queues = st.builds(MessageQueue, queue_names, queue_names, st.integers(0, 70_000))


@given(st.lists(st.dictionaries(queues, st.one_of(json_values, queue_names), max_size=3), max_size=3))
@settings(max_examples=200)
def test_tables_by_queue_are_read_quickly_as_the_reader_reads_them(value: Any) -> None:
    """Names of queues may hold what looks like a key: the quick way is right about them, or leaves them alone."""
    text = fastjson.dumps({"table": value, "note": '{"brokerName":"b","queueId":0,"topic":"T"}:5'})
    quick = parse_quickly(text)
    assert quick is None or parse(text) == quick


def test_the_quick_way_takes_what_brokers_write_and_nothing_else() -> None:
    table = {MessageQueue("T", "b", number): {"maxOffset": number} for number in range(3)}
    assert {"offsetTable": table} == parse_quickly(fastjson.dumps({"offsetTable": table}))
    quoted = {'{"brokerName":"b","queueId":0,"topic":"T"}': 1}
    assert {MessageQueue("T", "b", 0): 1} == parse_quickly(json.dumps(quoted))
    for other in ("{0:1}", "{'a':1}", '{"a":{"$ref":"$.b"}}', "[" * 70 + "]" * 70, '{"a":1', '{{"topic":"T"}:1}'):
        assert parse_quickly(other) is None


def test_queues_as_keys_are_written_as_objects_and_numbers_quoted() -> None:
    body = bodies.ResetOffsetBody(offset_table={MessageQueue("T", "b", 1): 7, QUEUE: 5})
    written = fastjson.dumps(body)
    queue = '{"brokerName":"b","queueId":%d,"topic":"T"}'
    assert '{"offsetTable":{' + queue % 0 + ":5," + queue % 1 + ":7}}" == written.decode()
    assert body == fastjson.loads(written, bodies.ResetOffsetBody)
    offsets = bodies.DelayOffsetTable(offset_table={10: 1, 9: 2})
    assert b'{"offsetTable":{"9":2,"10":1}}' == fastjson.dumps(offsets)


def test_a_route_is_written_in_the_form_that_go_splits_by_hand() -> None:
    route = bodies.TopicRouteData(
        broker_datas=[bodies.BrokerData(broker_addrs={0: "10.0.0.5:10911"}, broker_name="a", cluster="C")],
        queue_datas=[bodies.QueueData(broker_name="a", perm=6, read_queue_nums=8, write_queue_nums=8)],
    )
    assert (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.5:10911"},"brokerName":"a","cluster":"C",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    ) == fastjson.dumps(route)
    assert route == fastjson.loads(fastjson.dumps(route).replace(b'"0"', b"0"), bodies.TopicRouteData)


def test_a_heartbeat_of_go_is_read_codes_as_text_and_nulls_for_lists() -> None:
    heartbeat = fastjson.loads(
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
        b'[{"topic":"T","subString":"TagA","codeSet":["2598919"],"tagsSet":["TagA"],"subVersion":"5"}]}]}',
        bodies.HeartbeatData,
    )
    assert [] == heartbeat.producer_data_set
    subscription = heartbeat.consumer_data_set[0].subscription_data_set[0]
    assert ([2598919], 5, "TAG") == (subscription.code_set, subscription.sub_version, subscription.expression_type)


def test_a_body_of_the_wrong_shape_is_refused_with_the_place_in_it() -> None:
    with pytest.raises(BodyError, match="consumerDataSet"):
        fastjson.loads(b'{"consumerDataSet":5}', bodies.HeartbeatData)


def test_batch_acks_are_read_under_short_and_long_names() -> None:
    short = b'{"acks":[{"b":"Bw==","c":"G","it":1,"pt":2,"q":0,"r":"0","rq":3,"so":100,"t":"T"}],"brokerName":"a"}'
    long = (
        b'{"acks":[{"bitSet":"Bw==","consumerGroup":"G","invisibleTime":1,"popTime":2,"queueId":0,"retry":"0",'
        b'"reviveQueueId":3,"startOffset":100,"topic":"T"}],"brokerName":"a"}'
    )
    expected = fastjson.loads(short, bodies.BatchAckMessage)
    assert short == fastjson.dumps(expected)
    assert expected == bodies.decode_batch_ack(short)
    assert expected == bodies.decode_batch_ack(long)
    assert [100, 101, 102] == expected.acks[0].offsets()


def test_what_has_no_json_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        fastjson.dumps(object())
    assert b'["AQI=",null]' == fastjson.dumps([b"\x01\x02", float("nan")])
