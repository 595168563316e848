"""What RocketMQ has and this broker has not is refused, at the start and at run time; what promises nothing passes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from arrowmq import refusals
from arrowmq.broker import BrokerConfig
from arrowmq.config import ConfigError
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.refusals import (
    BROKER_REQUESTS,
    BROKER_SETTINGS,
    GROUP_ATTRIBUTES,
    NAMESRV_SETTINGS,
    TOPIC_ATTRIBUTES,
    Refusal,
)
from arrowmq.wire.codes import RequestCode, ResponseCode

APACHE = Path(__file__).resolve().parents[2] / "tools" / "apache_configuration.tsv"


def name(refusal: Refusal) -> str:
    return f"{refusal.key}={refusal.values.example}"


def sentence(refusal: Refusal) -> str:
    return f"{name(refusal)}: {refusal.reason}"


def refused_values(refusal: Refusal) -> list[str]:
    """What an operator might write: with blanks around it, and words without a meaning in letters of any size."""
    example = refusal.values.example
    return [example, f" {example} "] + ([example.upper()] if example in ("true", "false") else [])


# Settings


@pytest.mark.parametrize("refusal", BROKER_SETTINGS, ids=name)
def test_a_broker_does_not_start_with_a_setting_whose_promise_it_cannot_keep(refusal: Refusal) -> None:
    for value in refused_values(refusal):
        with pytest.raises(ConfigError) as refused:
            BrokerConfig.from_properties({refusal.key: value})
        assert f"{refusal.key}={value.strip()}: {refusal.reason}" == str(refused.value)


@pytest.mark.parametrize("refusal", NAMESRV_SETTINGS, ids=name)
def test_a_name_server_does_not_start_with_a_setting_whose_promise_it_cannot_keep(refusal: Refusal) -> None:
    for value in refused_values(refusal):
        with pytest.raises(ConfigError, match=refusal.key):
            NamesrvConfig.from_properties({refusal.key: value})


async def test_no_such_setting_is_taken_over_at_run_time_nor_what_came_with_it(node: Any) -> None:
    before = (await node.client.ask(RequestCode.GET_BROKER_CONFIG)).body
    for refusal in BROKER_SETTINGS:
        asked = f"traceOn=false\n{name(refusal)}\n"
        answer = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, asked.encode())
        assert (ResponseCode.SYSTEM_ERROR, f"nothing was changed: {sentence(refusal)}") == (answer.code, answer.remark)
    assert before == (await node.client.ask(RequestCode.GET_BROKER_CONFIG)).body
    assert not node.broker.kept_settings.path.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerRole", "SLAVE"),
        ("brokerRole", "slave"),
        ("brokerRole", "MASTER"),
        ("enableLmq", "true"),
        ("enableMultiDispatch", "true"),
        ("duplicationEnable", "true"),
        ("configManagerVersion", "v2"),
        ("timerRocksDBEnable", "true"),
        ("transRocksDBEnable", "true"),
        ("metricsExporterType", "OTLP_GRPC"),
        ("metricsExporterType", "otlp_http"),
        ("messageStorePlugIn", "org.example.Plugin"),
        ("storeType", "defaultRocksDB"),
    ],
)
def test_the_settings_that_once_were_accepted_in_silence_are_in_the_table(key: str, value: str) -> None:
    """By hand, so that a line that is deleted without the capability is noticed; delete it here with the capability."""
    with pytest.raises(ConfigError, match=f"{key}={value}"):
        BrokerConfig.from_properties({key: value})


def test_apaches_default_of_every_setting_is_accepted() -> None:
    """Tools and templates write defaults out."""
    rows = [line.split("\t") for line in APACHE.read_text().splitlines()]
    defaults = {key: value for group, key, value in rows if group != "namesrv" and not value.startswith("(")}
    assert len(defaults) > 500
    kept = BrokerConfig.from_properties({**defaults, "listenPort": "10911"}).properties()
    assert [] == [key for key in defaults if key not in kept]
    of_namesrv = {key: value for group, key, value in rows if group == "namesrv"}
    assert [] == NamesrvConfig.from_properties(of_namesrv)[1]


async def test_a_setting_that_an_older_broker_took_over_is_refused_with_the_file_it_stands_in(make_node: Any) -> None:
    node = await make_node()
    await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false\n")
    path = node.broker.kept_settings.path
    written = path.read_text()
    path.write_text(written + "enableLmq=true\n")
    with pytest.raises(ConfigError, match=f"enableLmq=true: .*{path}"):
        await node.restart()
    path.write_text(written)
    await node.start()


async def test_flush_disk_type_is_not_changed_under_a_running_broker(node: Any) -> None:
    """It would be accepted now and in force after the next start, with messages unsafe in between."""
    answer = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"flushDiskType=SYNC_FLUSH\n")
    assert (ResponseCode.NO_PERMISSION, True) == (answer.code, "flushDiskType" in (answer.remark or ""))
    same = await node.client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"flushDiskType=ASYNC_FLUSH\n")
    assert ResponseCode.SUCCESS == same.code


async def test_a_setting_without_effect_is_named_when_it_is_set_at_run_time(
    node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="arrowmq.broker"):
        await node.client.ask(
            RequestCode.UPDATE_BROKER_CONFIG, {}, b"sendMessageThreadPoolNums=4\ntraceOn=true\nmaxIndexNum=90\n"
        )
    assert "settings without effect here: sendMessageThreadPoolNums" in caplog.messages
    assert "settings that count from the next start on: maxIndexNum" in caplog.messages


# Topics and request modes


@pytest.mark.parametrize("refusal", TOPIC_ATTRIBUTES, ids=name)
async def test_a_topic_whose_promise_cannot_be_kept_is_not_made(node: Any, refusal: Refusal) -> None:
    key, value = refusal.key, refusal.values.example
    before = dict(node.broker.topics.table)
    header = {"topic": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": f"+{key}={value}"}
    answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert (ResponseCode.SYSTEM_ERROR, sentence(refusal)) == (answer.code, answer.remark)
    topics = [
        {"topicName": "first", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
        {"topicName": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": {key: value}},
    ]
    answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, {"topicConfigList": topics})
    assert (ResponseCode.SYSTEM_ERROR, sentence(refusal)) == (answer.code, answer.remark)
    assert before == node.broker.topics.table


async def test_attributes_that_promise_nothing_are_taken(node: Any) -> None:
    taken = ("cleanup.policy=DELETE", "message.type=NORMAL", "message.type=FIFO", "reserve.time=-1")
    for number, attribute in enumerate(taken):
        header = {"topic": f"T{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        answer = await node.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**header, "attributes": f"+{attribute}"})
        assert ResponseCode.SUCCESS == answer.code, answer.remark


@pytest.mark.parametrize("refusal", GROUP_ATTRIBUTES, ids=name)
async def test_a_group_whose_promise_cannot_be_kept_is_not_made(node: Any, refusal: Refusal) -> None:
    group = {"groupName": "soon", "attributes": {f"+{refusal.key}": refusal.values.example}}
    for code, body in (
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": [{"groupName": "first"}, group]}),
    ):
        answer = await node.client.ask(code, {}, body)
        assert (ResponseCode.SYSTEM_ERROR, sentence(refusal)) == (answer.code, answer.remark)
    assert (None, None) == (node.broker.groups.get("first"), node.broker.groups.get("soon"))


async def test_what_apaches_broker_left_in_a_store_is_kept_and_said_to_have_no_effect(
    node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await node.client.send("orders")
    await node.stop()
    topics = node.root / "config" / "topics.json"
    table = json.loads(topics.read_text())
    table["topicConfigTable"]["orders"]["attributes"] = {"cleanup.policy": "COMPACTION"}
    topics.write_text(json.dumps(table))
    with caplog.at_level(logging.WARNING):
        await node.start()
    assert "topic[orders]" in caplog.text
    assert "cleanup.policy=COMPACTION: this broker compacts no topics" in caplog.text


# Requests


async def test_every_request_that_rocketmq_knows_is_served_or_refused_by_its_name_and_with_a_reason(node: Any) -> None:
    reasons = refusals.request_reasons(BROKER_REQUESTS)
    refused = [code for code in RequestCode if code not in node.broker.handlers]
    for code in refused:
        answer = await node.client.ask(code)
        why = reasons.get(code, refusals.OF_NO_BROKER)
        said = f"request type {int(code)} {code.name} is not served by this broker: {why}"
        assert (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, said) == (answer.code, answer.remark)


async def test_no_line_of_the_table_is_about_requests_that_are_all_served(node: Any) -> None:
    """The lines of a capability are deleted when it is added."""
    refused = {int(code) for code in RequestCode} - set(node.broker.handlers)
    assert [] == [why for codes, why in BROKER_REQUESTS if refused.isdisjoint(codes)]
