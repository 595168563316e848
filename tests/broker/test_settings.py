"""Settings: Apache's keys as they are, defaults as Apache's, wrong values refused, addresses that can be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from arrowmq.broker import BrokerConfig
from arrowmq.broker.background import Background
from arrowmq.broker.settings.config import apache_key, resolve_address
from arrowmq.clock import VirtualClock
from arrowmq.config import ConfigError


def test_apaches_keys_fill_the_fields_of_the_same_name() -> None:
    config = BrokerConfig.from_properties(
        {"brokerIP1": "10.0.0.5", "listenPort": "29711", "autoCreateTopicEnable": "FALSE", "brokerName": " b "}
    )
    assert (config.broker_ip1, config.listen_port, config.auto_create_topic_enable) == ("10.0.0.5", 29711, False)
    assert config.properties()["brokerIP1"] == "10.0.0.5"


def test_defaults_that_clients_can_see_are_apaches() -> None:
    properties = BrokerConfig().properties()
    expected = {
        "listenPort": "10911", "brokerClusterName": "DefaultCluster", "brokerId": "0", "brokerPermission": "6",
        "defaultTopicQueueNums": "8", "autoCreateTopicEnable": "true", "maxMessageSize": "4194304",
        "enablePropertyFilter": "false", "longPollingEnable": "true", "registerNameServerPeriod": "30000",
    }  # fmt: skip
    assert {key: properties[key] for key in expected} == expected


def test_keys_that_nothing_reads_are_kept_and_reported() -> None:
    config = BrokerConfig.from_properties({"sendMessageThreadPoolNums": "4", "fileReservedTime": "48"})
    assert config.properties()["sendMessageThreadPoolNums"] == "4"
    assert config.ignored(known_elsewhere=["fileReservedTime"]) == ["sendMessageThreadPoolNums"]


@pytest.mark.parametrize("properties", [{"listenPort": "many"}, {"brokerRole": "SLAVE"}, {"namesrvAddr": "nowhere"}])
def test_a_value_that_does_not_fit_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(properties))):
        BrokerConfig.from_properties(properties)


def test_what_is_advertised_can_be_reached() -> None:
    assert BrokerConfig(broker_ip1="broker.example").advertised_host == "broker.example"
    assert BrokerConfig(bind_address="127.0.0.1").advertised_host == "127.0.0.1"
    assert BrokerConfig().advertised_host != "0.0.0.0"


def test_a_host_name_stands_in_records_by_its_address() -> None:
    assert resolve_address("localhost") == bytes([127, 0, 0, 1])
    assert len(resolve_address("::1")) == 16
    with pytest.raises(ConfigError, match=r"brokerIP1=no\.such\.host\.invalid"):
        resolve_address("no.such.host.invalid")


def test_names_follow_apaches_spelling() -> None:
    assert [apache_key(name) for name in ("broker_ip1", "listen_port", "default_topic_queue_nums")] == [
        "brokerIP1", "listenPort", "defaultTopicQueueNums",
    ]  # fmt: skip


async def test_a_host_name_is_advertised_as_it_is_and_ids_carry_the_address(make_node: Any) -> None:
    node = await make_node(brokerIP1="localhost")
    assert node.broker.address.text.startswith("localhost:")
    assert (await node.client.send("orders")).ext["msgId"].startswith("7F000001")


# Work that repeats


async def test_a_task_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, turns = VirtualClock(0), []

    def task() -> None:
        turns.append(clock.now_ms())
        raise ValueError("broken today")

    background = Background(clock)
    background.every("fragile", 5, task, first_s=1)
    background.start()
    with caplog.at_level(logging.ERROR):
        await clock.advance(12)
    assert turns == [1000, 6000, 11000]
    assert "broken today" in caplog.text
    await background.stop()
    await clock.advance(100)
    assert len(turns) == 3


async def test_turns_of_a_slow_task_do_not_overlap() -> None:
    clock, running, overlaps = VirtualClock(0), [0], []

    async def slow() -> None:
        running[0] += 1
        overlaps.append(running[0])
        await clock.sleep(12)
        running[0] -= 1

    background = Background(clock)
    background.every("slow", 5, slow)
    background.start()
    await clock.advance(60)
    assert set(overlaps) == {1}
    await asyncio.wait_for(background.stop(), 5)
