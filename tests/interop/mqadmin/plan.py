"""The subcommands that are compared, in the order in which they run, and those that are not, each with why.

In arguments, {namesrv} and {broker} are addresses, {client} is the online consumer's id, {id} and {offset_id} name the
message with key order-1, {folder} is a folder that the subcommand may write to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mqadmin.fields import Fields, document, keyed, lines, pairs, table, unordered

TOPIC, GROUP, PRODUCER_GROUP = "Orders", "Billing", "Shop"
PAST_GROUP = "Archive"  # consumed once, and is offline


@dataclass(frozen=True, slots=True)
class Step:
    """One run of mqadmin."""

    subcommand: str
    arguments: str = ""
    read: Callable[[str], Fields] = lines
    writes: str = ""  # the file below {folder} that holds the answer
    given: tuple[str, str] = ("", "")  # a file below {folder} that the subcommand reads: name, content
    label: str = ""  # tells runs of the same subcommand apart
    routed: str = ""  # a topic that the NameServer must know first
    limit_ms: int = 60_000  # those that repeat themselves are stopped after this

    @property
    def name(self) -> str:
        return f"{self.subcommand} {self.label}".strip()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of Apache's admin client, as the RocketMQ dashboard makes it."""

    method: str
    arguments: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return f"dashboard {self.method}"


_TOPIC_LIST = (
    '[{"topicName":"ListedA","readQueueNums":2,"writeQueueNums":2,"perm":6},'
    '{"topicName":"ListedB","readQueueNums":3,"writeQueueNums":3,"perm":4}]'
)
_GROUP_LIST = '[{"groupName":"ListedG","retryMaxTimes":3},{"groupName":"ListedH","consumeEnable":false}]'

_ON_TOPICS = (
    Step("topicList", read=unordered),
    Step("topicList", "-c", read=unordered, label="of clusters"),
    Step("topicRoute", f"-t {TOPIC}", read=document),
    Step("topicRoute", f"-t {TOPIC} -l", label="as list"),
    Step("topicRoute", "-t NoSuchTopic", label="unknown"),
    Step("topicStatus", f"-t {TOPIC}", read=table),
    Step("topicStatus", "-t NoSuchTopic", label="unknown"),
    Step("topicClusterList", f"-t {TOPIC}"),
    Step("allocateMQ", f"-t {TOPIC} -i 10.0.0.1,10.0.0.2,10.0.0.3", read=document),
    Step("updateTopic", "-b {broker} -t Made -r 3 -w 3"),
    Step("updateTopic", "-c DefaultCluster -t MadeInCluster -r 2 -w 2 -p 4 -a +message.type=FIFO", label="attributes"),
    Step("updateTopic", "-b {broker} -t MadeInOrder -r 2 -w 2 -o true", label="ordered"),
    Step("updateTopic", "-b {broker} -t TBW102", label="of the system"),
    Step("updateTopic", "-b {broker} -t bad/name", label="badly named"),
    Step("updateTopic", "-b {broker} -t MadeBadly -a +no.such.attribute=1", label="unknown attribute"),
    Step("updateTopicPerm", "-b {broker} -t Made -p 4", routed="Made"),
    Step("updateTopicPerm", "-b {broker} -t Made -p 4", label="again"),
    Step("updateTopicPerm", "-c DefaultCluster -t Made -p 6", label="of a cluster"),
    Step("updateTopicList", "-b {broker} -f {folder}/topics.json", given=("topics.json", _TOPIC_LIST)),
    Step("topicRoute", "-t ListedB", read=document, label="of a listed topic", routed="ListedB"),
    # Of a topic that has the flag already: whether a broker registers before the list is shorter again is chance.
    Step("updateOrderConf", "-m put -t MadeInOrder -v broker-a:4"),
    Step("updateOrderConf", "-m get -t MadeInOrder", label="get"),
    Step("updateOrderConf", "-m delete -t MadeInOrder", label="delete"),
    Step("deleteTopic", "-c DefaultCluster -t Made"),
    Step("deleteTopic", "-c DefaultCluster -t NeverMade", label="unknown"),
)

_ON_MESSAGES = (
    Step("queryMsgById", f"-t {TOPIC} -i {{offset_id}}"),
    Step("queryMsgById", f"-t {TOPIC} -i {{offset_id}} -g {GROUP} -d {{client}}", label="consumed by a client"),
    Step("queryMsgById", f"-t {TOPIC} -i 7F00000100002A9F0000000000FFFFFF", label="unknown"),
    Step("queryMsgByUniqueKey", f"-t {TOPIC} -i {{id}}"),
    Step("queryMsgByUniqueKey", f"-t {TOPIC} -i {{id}} -a", label="all"),
    Step("queryMsgByKey", f"-t {TOPIC} -k order-1", read=table),
    Step("queryMsgByKey", f"-t {TOPIC} -k customer-0", read=table, label="of several"),
    Step("queryMsgByKey", f"-t {TOPIC} -k nobody", label="unknown"),
    Step("queryMsgByOffset", f"-t {TOPIC} -b broker-a -i 1 -o 0"),
    Step("queryMsgTraceById", "-i {traced_id} -t Traces"),
    Step("printMsg", f"-t {TOPIC} -d true", read=unordered),
    Step("printMsg", f"-t {TOPIC} -s TagA -d true", read=unordered, label="of a tag"),
    Step("printMsgByQueue", f"-t {TOPIC} -a broker-a -i 2 -p true -d true -f true"),
    Step("consumeMessage", f"-t {TOPIC} -b broker-a -i 3 -o 0 -c 2 -g Reader"),
    Step("queryCq", f"-b {{broker}} -t {TOPIC} -q 1 -i 0 -c 5"),
    Step("queryCq", f"-b {{broker}} -t {TOPIC} -q 1 -i 0 -c 5 -g {GROUP}", label="of a group"),
    Step("sendMessage", f"-t {TOPIC} -b broker-a -i 0 -p hello -k tool-key -c ToolTag", read=table),
    Step("sendMsgStatus", "-b broker-a -c 3 -s 16", read=unordered, routed="broker-a"),
    Step("checkMsgSendRT", f"-t {TOPIC} -a 4 -s 16", read=table),
)

_ON_GROUPS = (
    Step("updateSubGroup", "-b {broker} -g Made -r 5 -q 2"),
    Step("updateSubGroup", "-c DefaultCluster -g MadeInCluster -s false -d true -m true -o true", label="switches"),
    Step(
        "updateSubGroup",
        '-b {broker} -g MadePolicy -p \'{{"type":"EXPONENTIAL","exponentialRetryPolicy":'
        '{{"initial":5000,"max":7200000,"multiplier":2}}}}\'',
        label="retry policy",
    ),
    Step("updateSubGroupList", "-b {broker} -f {folder}/groups.json", given=("groups.json", _GROUP_LIST)),
    Step("getConsumerConfig", "-g Made", read=pairs),
    Step("getConsumerConfig", "-g MadePolicy", read=pairs, label="retry policy"),
    Step("getConsumerConfig", "-g ListedH", read=pairs, label="of a list"),
    Step("setConsumeMode", f"-b {{broker}} -t {TOPIC} -g Made -m POP -q 2"),
    Step("setConsumeMode", f"-b {{broker}} -t {TOPIC} -g Made -m PULL", label="back"),
    Step("deleteSubGroup", "-b {broker} -g Made -r true"),
    Step("deleteSubGroup", "-c DefaultCluster -g MadeInCluster", label="of a cluster"),
    Step("consumerProgress", read=unordered),
    Step("consumerProgress", f"-g {GROUP}", read=table, label="of a group"),
    Step("consumerProgress", f"-g {GROUP} -t {TOPIC} -s true", read=table, label="of a topic, with clients"),
    Step("consumerProgress", f"-g {PAST_GROUP}", read=table, label="offline"),
    Step("consumerProgress", "-g Nobody", label="unknown"),
    Step("consumerStatus", f"-g {GROUP}"),
    Step("consumerStatus", f"-g {GROUP} -i {{client}}", label="of a client"),
    Step("consumerStatus", f"-g {PAST_GROUP}", label="offline"),
    Step("consumerConnection", f"-g {GROUP}", read=unordered),
    Step("consumerConnection", f"-g {GROUP} -b {{broker}}", read=unordered, label="at a broker"),
    Step("consumerConnection", f"-g {PAST_GROUP}", label="offline"),
    Step("producerConnection", f"-g {PRODUCER_GROUP} -t {TOPIC}"),
    Step("producerConnection", f"-g Nobody -t {TOPIC}", label="unknown"),
    Step("producer", "-b {broker}", read=unordered),
    Step("brokerConsumeStats", "-b {broker}", read=unordered),
    Step("statsAll", f"-t {TOPIC}", read=keyed),
    Step("statsAll", "-a", read=keyed, label="of active topics"),
    Step("startMonitoring", limit_ms=3000),
)

_ON_OFFSETS = (
    Step("cloneGroupOffset", f"-s {PAST_GROUP} -d Nobody -t {TOPIC} -o true", label="to an unknown group"),
    Step("updateSubGroup", "-b {broker} -g Heir", label="of an heir"),
    Step("cloneGroupOffset", f"-s {PAST_GROUP} -d Heir -t {TOPIC} -o true"),
    Step("consumerProgress", "-g Heir", read=table, label="of an heir"),
    Step("resetOffsetByTime", f"-g {PAST_GROUP} -t {TOPIC} -s 0", read=table),
    Step("consumerProgress", f"-g {PAST_GROUP}", read=table, label="after the reset"),
    Step("resetOffsetByTime", f"-g {PAST_GROUP} -t {TOPIC} -s now", read=table, label="to now"),
    Step("resetOffsetByTime", f"-g {PAST_GROUP} -t {TOPIC} -s 0 -b {{broker}} -q 1 -o 2", label="of one queue"),
    Step("resetOffsetByTime", f"-g {GROUP} -t {TOPIC} -s 0", read=table, label="online"),
    Step("resetOffsetByTime", f"-g Nobody -t {TOPIC} -s 0", read=table, label="unknown group"),
    Step("resetOffsetByTime", f"-g {GROUP} -t NoSuchTopic -s 0", label="unknown topic"),
    Step("skipAccumulatedMessage", f"-g {PAST_GROUP} -t {TOPIC}", read=table),
    Step("consumerProgress", f"-g {PAST_GROUP}", read=table, label="after the skip"),
)

_ON_SERVERS = (
    Step("clusterList", read=table),
    Step("clusterList", "-m", read=table, label="more"),
    Step("clusterRT", "-a 2 -s 16 -i 1", read=table, limit_ms=6000, routed="broker-a"),
    Step("brokerStatus", "-b {broker}", read=pairs),
    Step("brokerStatus", "-c DefaultCluster", read=pairs, label="of a cluster"),
    Step("getBrokerConfig", "-b {broker}", read=pairs),
    Step("updateBrokerConfig", "-b {broker} -k fileReservedTime -v 48"),
    Step("updateBrokerConfig", "-c DefaultCluster -k longPollingEnable -v true", label="of a cluster"),
    Step("updateBrokerConfig", "-b {broker} -k brokerConfigPath -v x", label="on the black list"),
    Step("cleanExpiredCQ", "-b {broker}"),
    Step("cleanExpiredCQ", "-c DefaultCluster", label="of a cluster"),
    Step("cleanUnusedTopic", "-b {broker}"),
    Step("deleteExpiredCommitLog", "-b {broker}"),
    Step("haStatus", "-b {broker}"),
    Step("exportMetadata", "-c DefaultCluster -f {folder}", read=document, writes="metadata.json"),
    Step("exportMetadata", "-b {broker} -t -f {folder}", read=document, writes="topic.json", label="topics"),
    Step(
        "exportMetadata", "-b {broker} -g -f {folder}", read=document, writes="subscriptionGroup.json", label="groups"
    ),
    Step("exportConfigs", "-c DefaultCluster -f {folder}", read=document, writes="configs.json"),
    Step("exportMetrics", "-c DefaultCluster -f {folder}", read=document, writes="metrics.json"),
    Step("rocksDBConfigToJson", "-b {broker} -t topics"),
)

_ON_NAMESRV = (
    Step("getNamesrvConfig", read=pairs),
    Step("updateNamesrvConfig", "-k enableTopicList -v true"),
    Step("updateNamesrvConfig", "-k kvConfigPath -v x", label="on the black list"),
    Step("updateKvConfig", "-s SPACE -k key -v value"),
    Step("deleteKvConfig", "-s SPACE -k key"),
    Step("deleteKvConfig", "-s SPACE -k key", label="again"),
    Step("wipeWritePerm", "-b broker-a"),
    Step("topicRoute", f"-t {TOPIC}", read=document, label="without the right to write"),
    Step("addWritePerm", "-b broker-a"),
    Step("topicRoute", f"-t {TOPIC}", read=document, label="with it again"),
    Step("wipeWritePerm", "-b no-such-broker", label="unknown broker"),
)

_QUEUE = {"topic": TOPIC, "broker": "broker-a", "queue": 1}

_MADE_TOPIC = {"topicName": "Dashed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False}
_MADE_GROUP = {"groupName": "Dashed", "retryQueueNums": 2, "retryMaxTimes": 5, "brokerId": 0}
_FAR_FUTURE_MS = 4_000_000_000_000

# The dashboard's pages: cluster, topic, consumer, producer, message, and its collector of statistics.
CALLS = (
    Call("examineBrokerClusterInfo"),
    Call("fetchAllTopicList"),
    Call("fetchTopicsByCLuster", ("DefaultCluster",)),
    Call("getTopicClusterList", (TOPIC,)),
    Call("examineTopicConfig", ("{broker}", TOPIC)),
    Call("examineTopicRouteInfo", (TOPIC,)),
    Call("examineTopicStats", (TOPIC,)),
    Call("getAllTopicConfig", ("{broker}", 5000)),
    Call("getUserTopicConfig", ("{broker}", False, 5000)),
    Call("getAllSubscriptionGroup", ("{broker}", 5000)),
    Call("getUserSubscriptionGroup", ("{broker}", 5000)),
    Call("examineSubscriptionGroupConfig", ("{broker}", GROUP)),
    Call("examineConsumeStats", (GROUP, TOPIC)),
    Call("examineConsumerConnectionInfo", (GROUP,)),
    Call("examineProducerConnectionInfo", (PRODUCER_GROUP, TOPIC)),
    Call("getConsumerRunningInfo", (GROUP, "{client}", False)),
    Call("queryTopicConsumeByWho", (TOPIC,)),
    Call("queryTopicsByConsumer", (PAST_GROUP,)),
    Call("querySubscription", (GROUP, TOPIC)),
    Call("queryConsumeTimeSpan", (TOPIC, PAST_GROUP)),
    Call("getConsumeStatus", (TOPIC, GROUP, "")),
    Call("fetchConsumeStatsInBroker", ("{broker}", False, 5000)),
    Call("fetchBrokerRuntimeStats", ("{broker}",)),
    Call("viewBrokerStatsData", ("{broker}", "TOPIC_PUT_NUMS", TOPIC)),
    Call("viewBrokerStatsData", ("{broker}", "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")),
    Call("viewBrokerStatsData", ("{broker}", "NO_SUCH_STATS", TOPIC)),
    Call("getKVListByNamespace", ("ORDER_TOPIC_CONFIG",)),
    Call("getNameServerAddressList"),
    Call("searchOffset", (_QUEUE, 0)),
    Call("maxOffset", (_QUEUE,)),
    Call("minOffset", (_QUEUE,)),
    Call("earliestMsgStoreTime", (_QUEUE,)),
    Call("viewMessage", (TOPIC, "{id}")),
    Call("consumeMessageDirectly", (GROUP, "{client}", TOPIC, "{offset_id}")),
    Call("queryMessage", (TOPIC, "order-1", 64, 0, _FAR_FUTURE_MS)),
    Call("queryMessage", (TOPIC, "nobody", 64, 0, _FAR_FUTURE_MS)),
    Call("messageTrackDetail", ({"topic": TOPIC, "id": "{offset_id}"},)),
    Call("getBrokerConfig", ("{broker}",)),
    Call("createAndUpdateTopicConfig", ("{broker}", _MADE_TOPIC)),
    Call("examineTopicConfig", ("{broker}", "Dashed")),
    Call("createAndUpdateSubscriptionGroupConfig", ("{broker}", _MADE_GROUP)),
    Call("examineSubscriptionGroupConfig", ("{broker}", "Dashed")),
    Call("examineConsumeStats", ("Dashed",)),
    Call("deleteSubscriptionGroup", ("{broker}", "Dashed", True)),
    Call("examineSubscriptionGroupConfig", ("{broker}", "Dashed")),
    Call("deleteTopicInBroker", (["{broker}"], "Dashed")),
    Call("deleteTopicInNameServer", (["{namesrv}"], "Dashed")),
    Call("examineTopicRouteInfo", ("Dashed",)),
    Call("resetOffsetByTimestamp", (TOPIC, PAST_GROUP, _FAR_FUTURE_MS, True)),
    Call("resetOffsetByTimestampOld", (PAST_GROUP, TOPIC, _FAR_FUTURE_MS, True)),
)

# Every method of the admin client that the dashboard's services call (rocketmq-dashboard, July 2026)
DASHBOARD = {
    "examineBrokerClusterInfo", "examineConsumerConnectionInfo", "viewMessage", "queryTopicConsumeByWho",
    "examineTopicRouteInfo", "examineConsumeStats", "deleteTopicInBroker", "viewBrokerStatsData", "queryMessage",
    "listAcl", "getUser", "getConsumerRunningInfo", "fetchBrokerRuntimeStats", "fetchAllTopicList",
    "deleteTopicInNameServer", "consumeMessageDirectly", "updateUser", "updateAcl", "resetOffsetByTimestampOld",
    "resetOffsetByTimestamp", "messageTrackDetail", "listUser", "getBrokerConfig", "getAllTopicConfig",
    "getAllSubscriptionGroup", "examineTopicStats", "examineTopicConfig", "examineSubscriptionGroupConfig",
    "examineProducerConnectionInfo", "deleteUser", "deleteSubscriptionGroup", "deleteAcl", "createUser",
    "createAndUpdateTopicConfig", "createAndUpdateSubscriptionGroupConfig", "createAcl",
}  # fmt: skip

STEPS = _ON_TOPICS + _ON_MESSAGES + _ON_GROUPS + _ON_OFFSETS + _ON_SERVERS + _ON_NAMESRV

CONTROLLER = "needs brokers that obey a controller: compared with those of a trio, test_mqadmin_controller.py"
_AUTH = "needs brokers that know users: test_access.py runs it against both"
_LITE = "lite topics are not part of ArrowMQ"
_STATIC = "static topics (queues mapped over brokers) are not part of ArrowMQ"
_LOCAL = "reads files on its own machine and asks no server"

_COLD = "throttling of cold reads is not part of ArrowMQ: they run in a thread of their own and disturb nobody"

LEFT_OUT = {
    "getColdDataFlowCtrInfo": _COLD,
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "setCommitLogReadAheadMode": "the kernel decides about read-ahead of ArrowMQ's files",
    "exportPopRecord": "concerns Apache's KV store of pop records; ArrowMQ has none",
    "switchTimerEngine": "ArrowMQ has one timer engine (Apache's FILE_TIME_WHEEL files)",
    "addBroker": "speaks to a broker container; ArrowMQ starts one process a broker",
    "removeBroker": "speaks to a broker container; ArrowMQ starts one process a broker",
    "resetMasterFlushOffset": "concerns a slave: needs a pair of brokers",
    "getSyncStateSet": CONTROLLER,
    "getBrokerEpoch": CONTROLLER,
    "getControllerMetaData": CONTROLLER,
    "getControllerConfig": CONTROLLER,
    "updateControllerConfig": CONTROLLER,
    "electMaster": CONTROLLER,
    "cleanBrokerMetadata": CONTROLLER,
    "createUser": _AUTH,
    "updateUser": _AUTH,
    "deleteUser": _AUTH,
    "getUser": _AUTH,
    "listUser": _AUTH,
    "copyUser": _AUTH,
    "createAcl": _AUTH,
    "updateAcl": _AUTH,
    "deleteAcl": _AUTH,
    "getAcl": _AUTH,
    "listAcl": _AUTH,
    "copyAcl": _AUTH,
    "getBrokerLiteInfo": _LITE,
    "getParentTopicInfo": _LITE,
    "getLiteTopicInfo": _LITE,
    "getLiteClientInfo": _LITE,
    "getLiteGroupInfo": _LITE,
    "triggerLiteDispatch": _LITE,
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "checkRocksdbCqWriteProgress": "ArrowMQ keeps queues in Apache's files, never in RocksDB",
    "exportMetadataInRocksDB": _LOCAL,
    "dumpCompactionLog": _LOCAL,
}
