"""Options: every mistake is an error that names the option."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.sink.writer import SinkOptions
from arrowmq.spark.source.options import SourceOptions
from arrowmq.spark.source.ranges import EARLIEST, LATEST

NAMESRV = {"namesrv": "127.0.0.1:9876"}


def parse(**given: str) -> SourceOptions:
    return SourceOptions.parse(
        {**NAMESRV, **{name.replace("__", "."): value for name, value in given.items()}}, is_stream=False
    )


def test_names_arrive_lower_cased_and_are_found() -> None:
    options = parse(topic="orders", maxoffsetspertrigger="10", failondataloss="false")
    assert options.max_rows == 10
    assert options.subscription.fail_on_data_loss is False


def test_kafka_and_old_rocketmq_names_are_understood() -> None:
    kafka = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a,b"}, is_stream=True)
    assert kafka.connection.namesrv == ("h:1",)
    assert kafka.topics == ("a", "b")
    old = SourceOptions.parse({"nameserver": "h:1", "topic": "a", "subexpression": "x || y"}, is_stream=True)
    assert old.tags == frozenset({"x", "y"})


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest_message() -> None:
    given = {**NAMESRV, "topic": "orders"}
    assert SourceOptions.parse(given, is_stream=False).starting.everywhere == EARLIEST
    assert SourceOptions.parse(given, is_stream=True).starting.everywhere == LATEST


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"topic": "a", "namesrv": ""}, "namesrv"),
        ({"topic": "a", "namesrv": "localhost"}, "namesrv"),
        ({}, "topic"),
        ({"topic": "a", "topicpattern": "b.*"}, "topicPattern"),
        ({"topic": "a", "tags": "x", "sql": "y = 1"}, "sql"),
        ({"topic": "a", "sql": "price >"}, "sql"),
        ({"topic": "a", "tags": "a ||"}, "tags"),
        ({"topic": "a", "startingoffsets": "first"}, "startingOffsets"),
        ({"topic": "a", "startingoffsets": '{"a":{"0":-7}}'}, "startingOffsets"),
        ({"topic": "a", "startingoffsets": '{"a":5}'}, "startingOffsets"),
        ({"topic": "a", "startingoffsets": '{"a":'}, "startingOffsets"),
        ({"topic": "a", "endingoffsets": "earliest"}, "endingOffsets"),
        ({"topic": "a", "startingtimestamp": "yesterday"}, "startingTimestamp"),
        ({"topic": "a", "maxoffsetspertrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"topic": "a", "maxbytespertrigger": "much"}, "maxBytesPerTrigger"),
        ({"topic": "a", "maxtriggerdelay": "soon"}, "maxTriggerDelay"),
        ({"topic": "a", "failondataloss": "perhaps"}, "failOnDataLoss"),
        ({"topic": "a", "queues": '{"a":[0]}'}, "queues"),
        ({"topic": "a", "columns": ","}, "columns"),
        ({"topic": "a", "accesskey": "k"}, "secretKey"),
        ({"topicpattern": "("}, "topicPattern"),
        ({"topic": "a", "minpartitions": "0"}, "minPartitions"),
        ({"topic": "a", "minoffsetspertrigger": "-1"}, "minOffsetsPerTrigger"),
        ({"topic": "a", "startingoffsetsbytimestamp": '{"a":{"0":"noon"}}'}, "startingOffsetsByTimestamp"),
        ({"topic": "a", "startingoffsetsbytimestampstrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
        ({"topic": "a", "endingoffsets": '{"a":{"0":-2}}'}, "endingOffsets"),
        ({"topic": "a", "pullbatchsize": "0"}, "pullBatchSize"),
        ({"topic": "a", "includeheaders": "1"}, "includeHeaders"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(given: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse({**NAMESRV, **given}, is_stream=False)
    assert str(caught.value).startswith(f"option {option}: ")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"topic": "a", "namesrv": ""}, "namesrv"),
        ({"topic": "a", "namesrv": "nowhere"}, "namesrv"),
        ({}, "topic"),
        ({"topic": "a", "delivery": "at-most-once"}, "delivery"),
        ({"topic": "a", "rate": "0"}, "rate"),
        ({"topic": "a", "rate": "fast"}, "rate"),
        ({"topic": "a", "acceptlostrecord": "yes"}, "acceptLostRecord"),
        ({"topic": "a", "patiencems": "long"}, "patienceMs"),
        ({"topic": "a", "pulltimeoutms": "0"}, "pullTimeoutMs"),
        ({"topic": "a", "secretkey": "s"}, "accessKey"),
        ({"topic": "a", "deliverry": "exactly-once"}, "deliverry"),
    ],
)
def test_a_wrong_option_of_the_sink_is_named(given: dict[str, str], option: str) -> None:
    schema = StructType([StructField("body", StringType())])
    with pytest.raises(OptionError) as caught:
        SinkOptions.parse({**NAMESRV, **given}, schema, is_stream=True)
    assert str(caught.value).startswith(f"option {option}: ")


def test_a_misspelt_option_is_refused_with_the_right_name() -> None:
    with pytest.raises(OptionError, match=r"option startingOffset: .*did you mean startingOffsets"):
        SourceOptions.parse({**NAMESRV, "topic": "a", "startingOffset": "earliest"}, is_stream=False)


def test_two_names_of_one_option_must_agree() -> None:
    with pytest.raises(OptionError, match="different value"):
        Options({"namesrv": "a:1", "nameServer": "b:2"})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="option endingOffsets: a stream has no end"):
        SourceOptions.parse({**NAMESRV, "topic": "a", "endingoffsets": '{"a":{"0":4}}'}, is_stream=True)


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("64m", 64 << 20), ("1 GiB", 1 << 30), ("10kb", 10 << 10)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert Options({"maxBytesPerTrigger": text}).size("maxBytesPerTrigger") == size
