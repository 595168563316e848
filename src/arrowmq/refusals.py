"""What RocketMQ has and ArrowMQ does not do, and refuses with a sentence instead of accepting it in silence.

A broker that was told to check passwords, or to wait for replicas, and does neither, breaks a promise that nobody sees
broken. So such a setting keeps it from starting, and is not taken over at run time; such a topic or request mode is not
made; and a request that RocketMQ knows and this server does not serve is refused by its name.

Every line is one refusal: the key, the values that ask for what is not there, and what to do instead. Where a
capability is added, its lines are deleted, and nothing else has to change. Settings that promise nothing a user relies
on (thread pools, queues between threads, the tuning of a capability that is refused as a whole) have no line: they are
kept and shown, and the log names them at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from arrowmq.config import ConfigError
from arrowmq.wire.codes import RequestCode


@dataclass(frozen=True, slots=True)
class Values:
    """Some values of a key: in words, as a check, and one of them for tests."""

    words: str
    includes: Callable[[str], bool]
    example: str


@dataclass(frozen=True, slots=True)
class Refusal:
    key: str
    values: Values
    reason: str


TRUE = Values("true", lambda text: text.lower() == "true", "true")
FALSE = Values("false", lambda text: text.lower() != "true", "false")  # for Apache, what is not "true" is false
GIVEN = Values("any", bool, "anything")


def only(value: str) -> Values:
    return Values(value, lambda text: text == value, value)


def other_than(*values: str) -> Values:
    shown = " or ".join(filter(None, values))
    return Values(f"other than {shown}", lambda text: text not in values, "unheardOf")


def above(limit: int) -> Values:
    def is_above(text: str) -> bool:
        return text.lstrip("+-").isdigit() and int(text) > limit

    return Values(f"above {limit}", is_above, str(limit + 1))


# --- settings of a broker -------------------------------------------------------------------------------------------

_NO_ACL_1 = (
    "Apache 5 does not check the accounts of plain_acl.yml either: set authenticationEnabled and authorizationEnabled, "
    "and take them over with migrateAuthFromV1Enabled=true or `arrowmq acl import`"
)
_NO_ROCKSDB = "this broker keeps everything in files, not in RocksDB: set it to false"
_NO_LMQ = "this broker puts a message into one queue, not into several: send to each topic, and set it to false"
_NO_LOOKUP = "this broker does not look up its NameServers: name each of them in namesrvAddr, and set it to false"
_NO_STOP = "timer messages are always taken and delivered here: set it to false"

BROKER_SETTINGS: tuple[Refusal, ...] = (
    # Users and permissions
    Refusal("aclEnable", TRUE, _NO_ACL_1),
    # Replicas
    Refusal(
        "brokerRole",
        other_than("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        "there is no such role: take ASYNC_MASTER",
    ),
    Refusal("duplicationEnable", TRUE, "this broker's log is written by itself alone: set it to false"),
    Refusal("enableDLegerCommitLog", TRUE, "this broker has no DLedger replication: set it to false"),
    # Controller
    Refusal(
        "fetchControllerAddrByDnsLookup",
        TRUE,
        "this broker does not look up its controllers: name each of them in controllerAddr, and set it to false",
    ),
    # Pop
    Refusal("defaultMessageRequestMode", other_than("PULL", "POP"), "there is no such mode: take PULL or POP"),
    Refusal("popConsumerKVServiceEnable", TRUE, _NO_ROCKSDB),
    # What is kept where
    Refusal(
        "storeType",
        other_than("", "default"),
        "this broker keeps queues in files, not in RocksDB: leave it at default",
    ),
    Refusal("configManagerVersion", other_than("", "v1", "V1"), "this broker keeps its tables in JSON files: take v1"),
    Refusal("timerRocksDBEnable", TRUE, _NO_ROCKSDB),
    Refusal("transRocksDBEnable", TRUE, _NO_ROCKSDB),
    Refusal("indexRocksDBEnable", TRUE, _NO_ROCKSDB),
    Refusal("rocksdbCQDoubleWriteEnable", TRUE, _NO_ROCKSDB),
    Refusal(
        "readOnlyCommitLogStorePaths",
        GIVEN,
        "this broker reads its log from one folder, and would not find what lies there: move those files into it",
    ),
    Refusal("messageStorePlugIn", GIVEN, "plug-ins are Java classes, which this broker cannot load: leave it out"),
    Refusal(
        "replicasPerDiskPartition",
        above(1),
        "here the disk as a whole decides when files are deleted: give each broker a disk, or set commitLogMaxBytes",
    ),
    # Several queues for a message
    Refusal("enableLmq", TRUE, _NO_LMQ),
    Refusal("enableMultiDispatch", TRUE, _NO_LMQ),
    # Protection of a broker, and delays
    Refusal(
        "disableConsumeIfConsumerReadSlowly",
        TRUE,
        "this broker does not shut out slow consumers: watch their lag, and set it to false",
    ),
    Refusal(
        "coldDataFlowControlEnable",
        TRUE,
        "this broker does not hold back who reads old messages (they are read apart from the others): set it to false",
    ),
    Refusal(
        "filterSupportRetry",
        TRUE,
        "retries come to a group whatever it subscribes to by then: set it to false",
    ),
    Refusal(
        "allowRecallWhenBrokerNotWriteable",
        FALSE,
        "a recall is served here whatever brokerPermission says: set recallMessageEnable=false to end recalls",
    ),
    Refusal("disappearTimeAfterStart", above(0), "this broker is in the routes once it has started: leave it out"),
    Refusal("timerPrecisionMs", other_than("1000"), "timer messages come to the second here: leave it at 1000"),
    Refusal("timerStopEnqueue", TRUE, _NO_STOP),
    Refusal("timerStopDequeue", TRUE, _NO_STOP),
    # Network
    Refusal("fetchNamesrvAddrByAddressServer", TRUE, _NO_LOOKUP),
    Refusal("fetchNameSrvAddrByDnsLookup", TRUE, _NO_LOOKUP),
    Refusal("useTLS", TRUE, "TLS for this broker's own connections is switched on by tls.enable=true: write that"),
    Refusal("socksProxyConfig", other_than("", "{}"), "this broker connects directly, not by a proxy: leave it out"),
    # Metrics
    Refusal(
        "metricsExporterType",
        Values("other than DISABLE or PROM", lambda text: text.upper() not in ("", "DISABLE", "PROM"), "OTLP_GRPC"),
        "metrics are on a page for Prometheus and are sent nowhere: take PROM or DISABLE",
    ),
)

# --- settings of a NameServer ---------------------------------------------------------------------------------------

NAMESRV_SETTINGS: tuple[Refusal, ...] = (
    Refusal("clusterTest", TRUE, "this NameServer asks no other one for routes it does not have: set it to false"),
)

# --- settings of a controller ---------------------------------------------------------------------------------------

CONTROLLER_SETTINGS: tuple[Refusal, ...] = (
    Refusal(
        "controllerType",
        other_than("", "DLedger"),
        "this controller keeps its decisions in SQLite, or in etcd (--etcd), and has no Raft of its own: leave it out",
    ),
    Refusal(
        "metricsExporterType",
        Values("other than DISABLE, PROM", lambda text: text.upper() not in ("", "DISABLE", "PROM"), "LOG"),
        "a controller shows its metrics on a page for Prometheus: take PROM, or DISABLE",
    ),
)

# --- topics and groups ----------------------------------------------------------------------------------------------

TOPIC_ATTRIBUTES: tuple[Refusal, ...] = (
    Refusal(
        "cleanup.policy",
        only("COMPACTION"),
        "this broker compacts no topics, and would delete the only message of a key with its file: take DELETE",
    ),
    Refusal("message.type", only("LITE"), "this broker has no lite topics: take NORMAL, and a topic for each"),
    Refusal(
        "reserve.time",
        other_than("-1"),
        "files of the log are shared by all topics and kept as fileReservedTime says: set that, and leave this out",
    ),
)

_NO_LITE = "this broker has no lite topics: leave it out"

GROUP_ATTRIBUTES: tuple[Refusal, ...] = (
    Refusal("lite.bind.topic", GIVEN, _NO_LITE),
    Refusal("lite.sub.model", GIVEN, _NO_LITE),
    Refusal("lite.sub.reset.offset.exclusive", GIVEN, _NO_LITE),
    Refusal("lite.sub.reset.offset.unsubscribe", GIVEN, _NO_LITE),
    Refusal("lite.sub.client.quota", GIVEN, _NO_LITE),
    Refusal("lite.sub.client.max.event.cnt", GIVEN, _NO_LITE),
    Refusal("lite.sub.wildcard", GIVEN, _NO_LITE),
)

# --- requests -------------------------------------------------------------------------------------------------------

_LITE = range(RequestCode.POP_LITE_MESSAGE, RequestCode.TRIGGER_LITE_DISPATCH + 1)
_CONTROLLER = range(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST + 1)
_COLD_DATA = range(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO + 1)
_REPLICAS_OF_A_CONTROLLER = (RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
_OF_A_CONTAINER = (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER)
_OF_ROCKSDB = (
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    RequestCode.SWITCH_TIMER_ENGINE,
)
_OF_A_NAME_SERVER = (
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.BROKER_HEARTBEAT,
)
_TO_A_CLIENT = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
)

# The later line wins where two name the same code.
BROKER_REQUESTS: tuple[tuple[Iterable[int], str], ...] = (
    ((RequestCode.POP_ROLLBACK,), "its check points are in the revive topic already, it has no others to write back"),
    (_LITE, "it has no lite topics"),
    (_CONTROLLER, "a controller answers it, and none is here"),
    (_REPLICAS_OF_A_CONTROLLER, "it obeys no controller (enableControllerMode is false)"),
    (_COLD_DATA, "it does not hold back who reads old messages"),
    ((RequestCode.SET_COMMITLOG_READ_MODE,), "it leaves reading ahead to the operating system"),
    ((RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,), "it has no static topics, create an ordinary one (updateTopic)"),
    (_OF_ROCKSDB, "it keeps everything in files, not in RocksDB"),
    (_OF_A_CONTAINER, "a broker container answers it, and this process is none: start a process for each broker"),
    (_OF_A_NAME_SERVER, "a NameServer answers it, by default at port 9876"),
    (_TO_A_CLIENT, "brokers send it to clients"),
)
OF_NO_BROKER = "no broker of RocketMQ 5.5 serves it"
OF_NO_CONTROLLER = "it is no request to a controller: ask a broker, by default at port 10911"
OF_NO_NAME_SERVER = "it is no request to a NameServer: ask a broker, by default at port 10911"


# --- asking the tables ----------------------------------------------------------------------------------------------


def reason(table: Iterable[Refusal], key: str, value: str) -> str | None:
    """Why a value is refused, and what to do instead; None if it is not."""
    text = value.strip()
    for refusal in table:
        if refusal.key == key and refusal.values.includes(text):
            return f"{key}={text}: {refusal.reason}"
    return None


def check(table: Iterable[Refusal], properties: Mapping[str, str]) -> None:
    """Raises `ConfigError` if the settings ask for something that is not there."""
    refusals = tuple(table)
    for key, value in properties.items():
        why = reason(refusals, key, value)
        if why is not None:
            raise ConfigError(why)


def request_reasons(table: Iterable[tuple[Iterable[int], str]]) -> dict[int, str]:
    """Request code → why it is not served."""
    return {int(code): why for codes, why in table for code in codes}
