"""Goal: brokers, clients and tools get from a running NameServer what Apache's would give them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from arrowmq import refusals
from arrowmq.clock import VirtualClock
from arrowmq.config import ConfigError
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.namesrv.kvconfig import KvConfig
from arrowmq.namesrv.name_server import NameServer
from arrowmq.namesrv.retry_routes import LONGEST_WAIT_S
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import Call, HandlerTable
from arrowmq.remoting.server import RemotingServer
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, TopicRouteData
from arrowmq.wire.checksum import crc32
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from waiting import until

Ask = Callable[..., Awaitable[Command]]
A = "10.0.0.1:10911"


class House:
    """A NameServer on a virtual clock, and clients of it."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.clock = VirtualClock()
        self.config = NamesrvConfig(
            listen_port=0,
            bind_address="127.0.0.1",
            kv_config_path=str(path / "kvConfig.json"),
            config_store_path=str(path / "namesrv.properties"),
            **config,
        )
        self.namesrv = NameServer(self.config, self.clock)
        self.client = RemotingClient()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.namesrv.port}"

    async def ask(
        self, code: RequestCode, ext: dict[str, str] | None = None, body: bytes = b"", **more: Any
    ) -> Command:
        command = Command.request(code, ext, body)
        for name, value in more.items():
            setattr(command, name, value)
        return await self.client.invoke(self.address, command, 5)

    async def register(self, name: str = "broker-a", address: str = A, *topics: str, **ext: str) -> Command:
        names = topics or ("TopicA", "TopicB")
        body = fastjson.dumps(
            RegisterBrokerBody(
                topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                    topic_config_table={n: TopicConfig(topic_name=n, topic_sys_flag=len(n) % 4) for n in names}
                )
            )
        )
        fields = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "C",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "0",
            "bodyCrc32": str(crc32(body)),
            **ext,
        }
        return await self.ask(RequestCode.REGISTER_BROKER, fields, body)

    async def has_route(self, topic: str = "TopicA") -> bool:
        return (await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == 0

    async def stop(self) -> None:
        await self.client.close()
        await self.namesrv.stop()


@pytest.fixture
async def open_house(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[House]]]:
    houses: list[House] = []

    async def start(**config: Any) -> House:
        house = House(tmp_path, **config)
        houses.append(house)
        await house.namesrv.start()
        return house

    yield start
    for house in houses:
        await house.stop()


async def test_a_route_is_compact_standard_json(open_house: Any) -> None:
    house = await open_house()
    await house.register()
    for version in (121, 317, 479):  # Node, Go, Java
        answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"}, version=version)
        assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in answer.body
        assert b" " not in answer.body
        assert set(json.loads(answer.body)) == {"brokerDatas", "filterServerTable", "queueDatas"}


async def test_a_broker_whose_connection_ends_is_out_of_the_route_at_once(open_house: Any) -> None:
    house = await open_house()
    other = RemotingClient()
    house.client, mine = other, house.client
    await house.register()
    house.client = mine
    assert await house.has_route()
    await other.close()
    await until(lambda: not house.namesrv.tables.live)
    assert not await house.has_route()


async def test_a_silent_broker_is_taken_out_by_the_scan_and_its_connection_closed(open_house: Any) -> None:
    house = await open_house()
    await house.register(heartbeatTimeoutMillis="10000")
    heartbeat = {"clusterName": "C", "brokerAddr": A, "brokerName": "broker-a"}
    await house.clock.advance(9)
    assert (await house.ask(RequestCode.BROKER_HEARTBEAT, heartbeat)).code == 0
    await house.clock.advance(9)
    assert await house.has_route()
    connection = house.client.connection(house.address)
    await house.clock.advance(6)
    await until(lambda: connection.closed)
    answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"})
    assert answer.code == 17
    assert "broker broker-a (10.0.0.1:10911) was not heard for 10 s and was taken out" in answer.remark


async def test_registrations_that_cannot_be_right_are_refused(open_house: Any) -> None:
    house = await open_house()
    answer = await house.register(bodyCrc32="1")
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    answer = await house.register("broker-a", A, "Only")
    assert answer.code == 1
    assert answer.remark.startswith("register broker failed")
    answer = await house.ask(RequestCode.REGISTER_BROKER, {"brokerName": "broker-a"})
    assert answer.code == 1
    assert "brokerAddr" in answer.remark
    fields = {"brokerName": "b", "brokerAddr": A, "clusterName": "C", "haServerAddr": "", "brokerId": "0"}
    answer = await house.ask(RequestCode.REGISTER_BROKER, fields, b"{not json")
    assert answer.code == 1
    assert await house.ask(RequestCode.REGISTER_BROKER, fields)  # without a body: a broker without topics
    assert list(house.namesrv.tables.brokers) == ["b"]


def compressed(*, mappings: bool) -> bytes:
    def counted(text: str) -> bytes:
        return len(text.encode()).to_bytes(4, "big") + text.encode()

    data = counted('{"counter":1,"stateVersion":0,"timestamp":5}') + (2).to_bytes(4, "big")
    data += counted('TopicA 8 4 6 SINGLE_TAG {"message.type":"NORMAL"}') + counted("TopicB 1 1 4 SINGLE_TAG")
    data += counted("[]")
    if mappings:
        data += (1).to_bytes(4, "big") + counted(
            '{"bname":"broker-a","topic":"TopicA","totalQueues":2,"currIdMap":{0:1}}'
        )
    return zlib.compress(data, 9)


@pytest.mark.parametrize(("version", "mappings"), [(399, False), (479, True)])
async def test_a_compressed_registration_is_understood(open_house: Any, version: int, mappings: bool) -> None:
    house = await open_house()
    fields = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "C", "haServerAddr": "", "brokerId": "0"}
    fields["compressed"] = "true"
    body = compressed(mappings=mappings)
    assert (await house.ask(RequestCode.REGISTER_BROKER, fields, body, version=version)).code == 0
    answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"})
    route = fastjson.loads(answer.body, TopicRouteData)
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums) == (8, 4)
    assert (route.topic_queue_mapping_by_broker is not None) == mappings
    for broken in (b"no zlib", zlib.compress(b"\0\0"), zlib.compress(b"\xff\xff\xff\xff"), zlib.compress(body[:30])):
        assert (await house.ask(RequestCode.REGISTER_BROKER, fields, broken)).code == 1


async def test_a_registration_of_an_old_broker_is_a_bare_topic_table(open_house: Any) -> None:
    house = await open_house()
    body = (
        b'{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}},"dataVersion":{"counter":1,"timestamp":2}}'
    )
    fields = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "C", "haServerAddr": "", "brokerId": "0"}
    await house.ask(RequestCode.REGISTER_BROKER, fields, body, version=36)
    assert await house.has_route("U")


async def test_data_versions_are_told(open_house: Any) -> None:
    house = await open_house()
    fields = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "C", "brokerId": "0"}
    version = b'{"counter":0,"stateVersion":0,"timestamp":0}'
    answer = await house.ask(RequestCode.QUERY_DATA_VERSION, fields, version)
    assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
    await house.register()
    answer = await house.ask(RequestCode.QUERY_DATA_VERSION, fields, version)
    assert (answer.ext, answer.body) == ({"changed": "false"}, version)


async def test_topics_are_listed_by_cluster_and_by_kind(open_house: Any) -> None:
    house = await open_house()
    await house.register("broker-a", A, "1", "22", "333", "4444")  # a topic's sys flag is its length modulo 4

    async def topics(code: RequestCode, ext: dict[str, str] | None = None) -> list[str]:
        return list(json.loads((await house.ask(code, ext)).body)["topicList"])

    assert await topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["1", "22", "333", "4444"]
    assert await topics(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}) == ["1", "22", "333", "4444"]
    assert await topics(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"}) == []
    assert await topics(RequestCode.GET_UNIT_TOPIC_LIST) == ["1", "333"]
    assert await topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["22", "333"]
    assert await topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["22"]
    answer = await house.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(answer.body) == {"brokerAddr": A, "topicList": ["C", "broker-a"]}


async def test_lists_can_be_switched_off(open_house: Any) -> None:
    house = await open_house(enable_all_topic_list=False, enable_topic_list=False)
    for code, ext in (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}),
        (RequestCode.GET_UNIT_TOPIC_LIST, None),
    ):
        answer = await house.ask(code, ext)
        assert (answer.code, answer.remark) == (1, "disable")


async def test_topics_are_added_deleted_and_made_read_only(open_house: Any) -> None:
    house = await open_house()
    await house.register()
    body = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
    await house.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "New"}, body)
    await house.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "Lost"}, body.replace(b"broker-a", b"broker-x"))
    assert (await house.has_route("New"), await house.has_route("Lost")) == (True, False)
    await house.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "New", "clusterName": "C"})
    assert not await house.has_route("New")
    answer = await house.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.ext == {"wipeTopicCount": "2"}
    answer = await house.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.ext == {"addTopicCount": "2"}


async def test_order_topics_reach_brokers_and_if_wanted_clients(open_house: Any) -> None:
    house = await open_house(order_message_enable=True)
    assert (await house.register()).body == b""
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:8"}
    await house.ask(RequestCode.PUT_KV_CONFIG, put)
    assert (await house.register()).body == b'{"table":{"TopicA":"broker-a:8"}}'
    answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"})
    assert json.loads(answer.body)["orderTopicConf"] == "broker-a:8"


async def test_key_value_configuration_outlives_the_server(open_house: Any, tmp_path: Path) -> None:
    house = await open_house()
    missing = await house.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
    assert (await house.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})).code == 22
    for key in ("k", "l"):
        await house.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": key, "value": "ü"})
    await house.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "l"})
    assert json.loads((tmp_path / "kvConfig.json").read_bytes()) == {"configTable": {"N": {"k": "ü"}}}
    assert json.loads((tmp_path / "kvConfig.json.bak").read_bytes()) == {"configTable": {"N": {"k": "ü", "l": "ü"}}}
    again = await open_house()
    assert (await again.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})).ext == {"value": "ü"}
    assert (
        await again.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    ).body == '{"table":{"k":"ü"}}'.encode()
    assert (await again.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "", "key": "k", "value": "v"})).code == 1


def test_a_damaged_key_value_file_is_replaced_by_its_predecessor_or_named(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":{"N":')
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        KvConfig(path).load()
    path.with_name("kvConfig.json.bak").write_bytes(b'{"configTable":{"N":{"k":"v"}}}')
    kv_config = KvConfig(path)
    kv_config.load()
    assert kv_config.get("N", "k") == "v"


async def test_the_configuration_is_shown_and_changed_but_for_the_black_list(open_house: Any, tmp_path: Path) -> None:
    house = await open_house()
    text = (await house.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "orderMessageEnable=false\n" in text
    changed = await house.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\nunknownKey=1\n")
    assert changed.code == 0
    assert house.config.order_message_enable
    assert "orderMessageEnable=true\n" in (tmp_path / "namesrv.properties").read_text()
    for key in ("kvConfigPath", "configStorePath", "rocketmqHome", "configBlackList"):
        answer = await house.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, f"enableTopicList=false\n{key}=/x\n".encode())
        assert answer.code == 16
        assert answer.remark.startswith("Can not update config in black list.")
    assert house.config.enable_topic_list
    answer = await house.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"enableTopicList=perhaps")
    assert (answer.code, answer.remark) == (1, "enableTopicList=perhaps: expected true or false")


async def test_a_server_told_to_wait_is_not_ready_at_first(open_house: Any) -> None:
    house = await open_house(need_wait_for_service=True)
    await house.register()
    answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"})
    assert (answer.code, answer.remark) == (1, "name server not ready")
    await house.clock.advance(45)
    assert await house.has_route()


async def test_a_zone_sees_its_own_brokers(open_house: Any) -> None:
    house = await open_house()
    await house.register("broker-a", A, __ZONE_NAME="east")
    await house.register("broker-b", "10.0.0.2:10911", __ZONE_NAME="west")
    for ext, count in (({}, 2), ({"__ZONE_MODE": "true"}, 2), ({"__ZONE_MODE": "true", "__ZONE_NAME": "West"}, 1)):
        answer = await house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA", **ext})
        assert len(json.loads(answer.body)["brokerDatas"]) == count


async def test_members_are_told_of_a_new_lowest_id_on_their_own_port(open_house: Any) -> None:
    house = await open_house(notify_min_broker_id_changed=True)
    heard: list[dict[str, str]] = []
    handlers = HandlerTable()

    def note(call: Call) -> None:
        heard.append(dict(call.ext))

    handlers.add_callback(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, note)
    slave = RemotingServer(handlers)
    port = await slave.start("127.0.0.1", 0)
    await house.register("broker-a", f"127.0.0.1:{port}", brokerId="1", enableActingMaster="true")
    await house.register("broker-a", A, enableActingMaster="true")
    await until(lambda: heard)
    assert heard == [{"minBrokerId": "0", "minBrokerAddr": A, "haBrokerAddr": "10.0.0.1:10912"}]
    await slave.close()


async def test_an_unknown_code_is_refused_in_apaches_words_and_a_known_one_by_its_name(open_house: Any) -> None:
    house = await open_house()
    answer = await house.ask(9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    answer = await house.ask(RequestCode.SEND_MESSAGE)
    assert 3 == answer.code
    assert (answer.remark or "").startswith("request type 10 SEND_MESSAGE is not served by this NameServer: it is no")


@pytest.mark.parametrize("refusal", refusals.NAMESRV_SETTINGS, ids=lambda each: str(each.key))
async def test_a_setting_that_promises_too_much_is_refused_at_run_time(open_house: Any, refusal: Any) -> None:
    house = await open_house()
    before = await house.ask(RequestCode.GET_NAMESRV_CONFIG)
    asked = f"orderMessageEnable=true\n{refusal.key}={refusal.values.example}\n"
    answer = await house.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, asked.encode())
    assert (1, True) == (answer.code, f"{refusal.key}={refusal.values.example}: {refusal.reason}" in answer.remark)
    assert before.body == (await house.ask(RequestCode.GET_NAMESRV_CONFIG)).body
    harmless = f"{refusal.key}=false\n"
    assert 0 == (await house.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, harmless.encode())).code


async def test_a_retry_topic_asked_for_again_is_answered_when_a_broker_registers_it(open_house: Any) -> None:
    """The first heartbeat of a new group makes the topic, between a Java client's first question for it and its second;
    it would ask a third time after 30 s, and get no retries until then."""
    house = await open_house()
    await house.register()
    assert not await house.has_route("%RETRY%G")
    asked = asyncio.ensure_future(house.has_route("%RETRY%G"))
    await until(lambda: house.namesrv.retry_routes.waiting == 1)
    await house.register("broker-a", A, "TopicA", "%RETRY%G")
    assert await asked
    assert 0 == house.namesrv.retry_routes.waiting


async def test_a_retry_topic_that_does_not_come_is_waited_for_a_moment_and_only_by_who_asks_again(
    open_house: Any,
) -> None:
    house = await open_house()
    await house.register()
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert not await house.has_route("%RETRY%G")
    assert not await house.has_route("%RETRY%other")
    assert not await house.has_route("TopicC")
    assert not await house.has_route("TopicC")
    other = RemotingClient()
    house.client, mine = other, house.client
    assert not await house.has_route("%RETRY%G")
    house.client = mine
    await other.close()
    at_once_s = loop.time() - started
    assert not await house.has_route("%RETRY%G")
    assert loop.time() - started - at_once_s >= LONGEST_WAIT_S - 0.01
    assert at_once_s < LONGEST_WAIT_S
    assert 0 == house.namesrv.retry_routes.waiting


async def test_five_thousand_topics_are_registered_and_asked_for(open_house: Any) -> None:
    house = await open_house()
    names = [f"Topic{number}" for number in range(5000)]
    assert (await house.register("broker-a", A, *names)).code == 0
    assert len(json.loads((await house.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"]) == 5000
    answers = await asyncio.gather(
        *(house.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name}) for name in names[::10])
    )
    assert {answer.code for answer in answers} == {0}
