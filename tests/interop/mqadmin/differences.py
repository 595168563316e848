"""Where ArrowMQ's answers differ from Apache's, and why.

What is not listed here is a failure; so is a line that no longer applies, unless it is about something that changes
from second to second.

A line holds: the steps it is about (a pattern over their names), the fields (a pattern), the reason. `always` is False
for fields that may be equal by chance. `like` is what both values must look like: a number may be another number, but
not a word, and not nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SETTINGS_PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def without_effect() -> frozenset[str]:
    """Settings that the page of settings says are only shown, or refused."""
    return frozenset(
        re.findall(r"^\| `(\S+)` \|.*\| (?:shown only|refused) \|", SETTINGS_PAGE.read_text(), re.MULTILINE)
    )


@dataclass(frozen=True, slots=True)
class Difference:
    steps: str
    fields: str
    reason: str
    always: bool = True
    like: str = ""  # a pattern that both values fit
    left_out: bool = False  # only where ArrowMQ does not say the field at all
    added: bool = False  # only where Apache does not say the field at all
    only: frozenset[str] = frozenset()  # further narrows the fields

    def covers(self, step: str, field: str, apache: str | None, arrowmq: str | None) -> bool:
        if not (re.fullmatch(self.steps, step) and re.fullmatch(self.fields, field)):
            return False
        if self.only and field not in self.only:
            return False
        if self.left_out or self.added:
            return (self.left_out and arrowmq is None) or (self.added and apache is None)
        if self.like:
            return all(said is not None and re.fullmatch(self.like, said) for said in (apache, arrowmq))
        return True


NUMBER = r"-?\d+(\.\d+)?(E-?\d+)?"
NUMBERS = rf"\s*({NUMBER}\s*)*"
# What Java calls an object, a time of day to the second or millisecond, a client's instance, a number
OF_A_CLIENT = rf"\d{{14}}(\d{{3}})?|.*@[0-9a-f]+|\d+i\d+|last\w+=\d+[,\]]|{NUMBER}"

DIFFERENCES = (
    # Words
    Difference(
        r"topicRoute unknown|topicStatus unknown|consumerProgress (unknown|of an heir)|resetOffsetByTime unknown topic",
        r"line 4 word \d+",
        "the NameServer's refusal goes on after Apache's words with the cause in this cluster and the remedy",
        added=True,
    ),
    Difference(
        r"dashboard (examineTopicRouteInfo|examineConsumeStats)",
        r"message",
        "the NameServer's refusal goes on after Apache's words with the cause in this cluster and the remedy",
        like=r"(?s).*No topic route info in name server for the topic: (%RETRY%)?Dashed.*",
    ),
    Difference(
        r"updateTopic of the system",
        r"line 2 word 1[4-6]",
        "a refusal goes on after Apache's words: what to do",
        added=True,
    ),
    Difference(
        r"updateTopic unknown attribute",
        r"line 2 word (9|1[0-5])",
        "a refusal goes on after Apache's words: which attributes there are",
    ),
    Difference(
        r"cloneGroupOffset to an unknown group",
        r"line 2 word (1[1-9]|2[0-2])",
        "a refusal goes on after Apache's words: what makes a group",
    ),
    Difference(
        r"updateBrokerConfig on the black list",
        r"line 2 word (1[3-9]|2[0-2])",
        "a refusal goes on after Apache's words: which key it was",
    ),
    Difference(
        r"updateNamesrvConfig on the black list",
        r"line 2 word 1[4-9]",
        "a refusal goes on after Apache's words: which key it was",
        added=True,
    ),
    # Topics of the system
    Difference(
        r"topicList.*|exportMetadata.*|dashboard (fetchAllTopicList|fetchTopicsByCLuster|getAllTopicConfig)",
        r".*RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC.*",
        "topics of Apache's RocksDB transactions, which ArrowMQ does not have",
        left_out=True,
    ),
    Difference(
        r"topicList of clusters|dashboard fetchConsumeStatsInBroker",
        r"DefaultCluster RMQ_SYS_TRANS_(OP_)?HALF_TOPIC.*|.*CID_RMQ_SYS_TRANS.*",
        "the group that reads half messages: ArrowMQ notes its place at the start, Apache at its first check",
        always=False,
    ),
    Difference(
        r"(wipe|add)WritePerm",
        r"line 1 word 10",
        "the number of topics; Apache's two RocksDB topics are missing",
        like=r"\d+",
    ),
    # Better answers
    Difference(
        r"queryCq of a group",
        r"line \d+ word 6",
        "Apache answers whether the group's filter passes an entry only in extended queues; ArrowMQ always",
        like=r"eval=(true|false),",
    ),
    Difference(
        r"statsAll.*",
        r"(Orders (Archive|Billing)|broker-a NO_CONSUMER): (In|Out)(TPS|Msg24Hour)",
        "Apache counts from its second sample on, up to a minute late; ArrowMQ from the first message on",
        like=NUMBER,
    ),
    Difference(
        r"statsAll of active topics",
        r"Traces NO_CONSUMER: \w+",
        "active is what was counted; Apache may begin to count after the only message of this topic",
        always=False,
        added=True,
    ),
    Difference(
        r"dashboard fetchConsumeStatsInBroker",
        r"consumeStatsList\.(Archive|Billing)\[0\]\.offsetTable\..*\.pullOffset|totalInflightDiff",
        "Apache leaves out how far was pulled and so counts a negative number of messages in flight",
        like=NUMBER,
    ),
    Difference(
        r"exportMetadata|exportMetadata groups",
        r"subscriptionGroupTable\.MadeInCluster\..*",
        "a group that is deleted and keeps its offsets comes back at once in Apache, with default settings",
        left_out=True,
    ),
    Difference(
        r"exportMetrics",
        r"evaluateReport\.broker-a\.runtimeQuota\.groupSize",
        "a group that is deleted and keeps its offsets comes back at once in Apache, with default settings",
        like=NUMBER,
    ),
    # Numbers of the moment
    Difference(
        r"dashboard viewBrokerStatsData",
        r"stats(Minute|Hour|Day)\.(sum|tps|avgpt)",
        "Apache counts from its second sample on, up to a minute, an hour or a day late; ArrowMQ at once",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"dashboard (examineConsumeStats|fetchConsumeStatsInBroker)",
        r"consumeTps|consumeStatsList\.(Archive|Billing)\[0\]\.consumeTps",
        "Apache counts from its second sample on, up to a minute late; ArrowMQ at once",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"dashboard getConsumerRunningInfo",
        r"properties\.(consumeTimestamp|allocateMessageQueueStrategy|messageListener|instanceName|offsetStore|"
        r"defaultMQPushConsumerImpl)|statusTable\..*(RT|TPS)",
        "names that Java gives to objects, and times: the client answers, the broker hands it on",
        always=False,
        like=OF_A_CLIENT,
    ),
    Difference(
        r"dashboard (viewMessage|queryMessage)", r"(.*\.)?(born|store)Host\.port", "the ports of this run", like=NUMBER
    ),
    Difference(
        r"dashboard (viewMessage|queryMessage)",
        r"(.*\.)?(born|store)HostBytes has -?\d+",
        "the ports of this run, byte by byte",
        always=False,
    ),
    Difference(
        r"consumerProgress (of a .*|offline|after the (reset|skip))",
        r"line 1 word 3",
        "messages a second of the moment",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"queryMsgById consumed by a client",
        r"line 1 word 6",
        "how long the client took",
        always=False,
        like=r"\w+=\d+[,\]]",
    ),
    Difference(
        r"dashboard consumeMessageDirectly", r"spentTimeMills", "how long the client took", always=False, like=NUMBER
    ),
    Difference(r"sendMsgStatus", r"rt=\d+ms, SendResult=.*", "how long each send took", always=False),
    Difference(r"checkMsgSendRT", r"row \d+ RT|line 1 word 3", "how long each send took", always=False, like=NUMBER),
    Difference(r"clusterRT", r"row \d+ RT", "how long each send took", always=False, like=NUMBER),
    Difference(
        r"clusterRT",
        r"row [4-9] .*",
        "a round more or less before the test ends it",
        always=False,
        left_out=True,
        added=True,
    ),
    Difference(
        r"clusterList",
        r"row 1 (In|Out)TPS\(LOAD\)|row 1 Hour|row 1 SPACE",
        "rates, age and disk of the moment",
        always=False,
        like=r"[\d.]+(\(\d+,\d+ms(\|\d+,\d+ms)?\))?",
    ),
    Difference(
        r"clusterList more|brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"row 1 OutTotalToday|(table\.)?(msgGetTotalTodayNow|putMessageTimesTotal)",
        "Apache also counts what its own services read and write",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"exportMetrics",
        r".*\.((commitLog|consumeQueue)DiskRatio|\w+(In|Out)Tps)",
        "disk and rates of the moment",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"exportMetrics",
        r".*\.messageAverageSize",
        "the mean over all messages, of which Apache counts some of its own",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"consumerStatus of a client",
        r"line \d+ word \d+",
        "times, and names that Java gives to objects: the client answers, the broker hands it on",
        always=False,
        like=OF_A_CLIENT,
    ),
    Difference(
        r"producer",
        r"producer group \(CLIENT_INNER_PRODUCER\).*",
        "mqadmin's own clients: Apache may take a heartbeat after the farewell and show them for two more minutes",
        always=False,
    ),
    Difference(
        r"consumerProgress",
        r"Reader (0 OFFLINE|1 V5_5_0 PULL) 0 0",
        "the group of consumeMessage, for the same reason",
        always=False,
    ),
    Difference(
        r"exportMetrics",
        r"evaluateReport\.broker-a\.runtimeVersion\.clientInfo has JAVA%V5_5_0",
        "the group of consumeMessage, likewise",
        always=False,
    ),
    # What a broker is doing
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(put|getFound|getMiss|getTotal|getTransferred)Tps",
        "rates of the moment: Apache has none before its second sample, and counts the reads of its own services",
        always=False,
        like=NUMBERS,
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(runtime|commitLogDirCapacity|commitLogDiskRatio|consumeQueueDiskRatio|remainHowManyDataToFlush)",
        "age and disk of the moment",
        always=False,
        like=rf"{NUMBER}|.* seconds \]|Total : .* GiB\.|{NUMBER} (B|KiB|MiB)",
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?commitLogDiskRatio_<data>/.*",
        "each server's own folder",
        left_out=True,
        added=True,
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(\w+EntireTimeMax|putLatency99\d?|pageCacheLockTimeMills|timerReadBehind|dispatchMaxBuffer|"
        r"\w+QueueSize|\w+HeadWaitTimeMills)",
        "how long the requests of this run took and waited",
        always=False,
        like=NUMBER,
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?putMessageDistributeTime",
        "how long sends took, divided by the bounds of ArrowMQ's metrics",
        like=r"null|(\[[<=\d~ms]+\]:\d+ ?)+|\[.*\]:\d+\s*",
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(waitingPulls|fastPathClosedBy|differingSubscriptions|getTransferedTps|brokerRole|"
        r"ha(Epoch|RoleSince|LagBytes|LagSeconds|Slaves|SlavesInSync)|pop(AndPull|InFlight|ReviveLateMs|Waiting))",
        "keys that only ArrowMQ has: what waits, replicas, pop; getTransferedTps is how older dashboards spell it",
        added=True,
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?remainTransientStoreBufferNumbs",
        "of a memory pool that ArrowMQ does not have",
        left_out=True,
    ),
    # Settings
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"\w+",
        "settings without effect here are not shown unless they are set; docs/configuration.md lists each",
        left_out=True,
        only=without_effect(),
    ),
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"maxSendsPerSecond|enableTopicMessageTypeCheck|maxProcessMemoryBytes|maxUnflushedBytes|commitLogMaxBytes|"
        r"scrubBytesPerSecond|trustedProxies|metricsAuthenticationEnabled|aclFile|"
        r"ha(TrustedSources|CheckCrc|CopyWholeLog|SlaveAddresses)",
        "settings that only ArrowMQ has",
        added=True,
    ),
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"storePath(CommitLog|EpochFile|BrokerIdentity)|haMasterAddress",
        "settings that Apache shows only if they are set",
        added=True,
    ),
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"auth(entication|orization)(Enabled|Whitelist|Strategy|Provider|MetadataProvider)|initAuthenticationUser|"
        r"innerClientAuthenticationCredentials|migrateAuthFromV1Enabled",
        "settings about users, which Apache shows only if they are in its file; ArrowMQ shows no secret of them",
        added=True,
    ),
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"haTransferBatchSize",
        "what a slave is sent at once: larger pieces copy a log several times as fast",
        like=NUMBER,
    ),
    Difference(
        r"getBrokerConfig|dashboard getBrokerConfig",
        r"storePathRootDir|(haL|l)istenPort|metrics(ExporterType|PromExporterHost)|brokerFastFailureEnable",
        "each server's own files and ports; ArrowMQ has metrics on, for this machine; the test keeps Apache patient",
    ),
    Difference(
        r"exportConfigs",
        r"brokerConfigs\.broker-a\.useTLS",
        "TLS is set by tls.server.mode; useTLS has no effect here",
        left_out=True,
    ),
    Difference(
        r"getNamesrvConfig",
        r"\w+",
        "settings of Netty, which have no effect here; docs/configuration.md lists each",
        left_out=True,
        only=without_effect(),
    ),
    Difference(
        r"getNamesrvConfig",
        r"kvConfigPath|configStorePath|rocketmqHome|listenPort",
        "each server's own files and port",
    ),
    Difference(
        r"exportMetadata.*",
        r"dataVersion\.(counter|timestamp|stateVersion)|exportTime",
        "versions count the changes of each broker",
        always=False,
        like=NUMBER + r"|<ms>",
    ),
)
