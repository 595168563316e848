"""Where ArrowMQ's answers differ from Apache's, and why.

What is not listed here is a failure; so is a line that no longer applies, unless it is about something that changes
from second to second.

A line holds: the steps it is about (a pattern over their names), the fields (a pattern), the reason. `always` is False
for fields that may be equal by chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    steps: str
    fields: str
    reason: str
    always: bool = True
    left_out: bool = False  # only where ArrowMQ does not say the field at all

    def covers(self, step: str, field: str, said_here: str | None) -> bool:
        if self.left_out and said_here is not None:
            return False
        return bool(re.fullmatch(self.steps, step) and re.fullmatch(self.fields, field))


_WORDS = r"line \d+ word \d+"

DIFFERENCES = (
    # Words
    Difference(
        r"topicRoute unknown|topicStatus unknown|consumerProgress (unknown|of an heir)|resetOffsetByTime unknown topic",
        r"line 4 word \d+",
        "the NameServer's refusal goes on after Apache's words with the cause in this cluster and the remedy",
    ),
    Difference(
        r"updateTopic (of the system|unknown attribute)|cloneGroupOffset to an unknown group|"
        r"update(Broker|Namesrv)Config on the black list",
        r"line 2 word \d+",
        "a refusal goes on after Apache's words: what is allowed, or which key it was",
    ),
    # Topics of the system
    Difference(
        r"topicList.*|dashboard (fetchAllTopicList|fetchTopicsByCLuster|getAllTopicConfig)",
        r".*RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC.*",
        "topics of Apache's RocksDB transactions, which ArrowMQ does not have",
    ),
    Difference(
        r"topicList of clusters|dashboard fetchConsumeStatsInBroker",
        r"DefaultCluster RMQ_SYS_TRANS_(OP_)?HALF_TOPIC.*|.*CID_RMQ_SYS_TRANS.*",
        "the group that reads half messages: ArrowMQ notes its place at the start, Apache at its first check",
        always=False,
    ),
    Difference(
        r"(wipe|add)WritePerm", r"line 1 word 10", "the number of topics; Apache's two RocksDB topics are missing"
    ),
    # Better answers
    Difference(
        r"queryCq of a group",
        r".* word 6",
        "Apache answers whether the group's filter passes an entry only in extended queues; ArrowMQ always",
    ),
    Difference(
        r"statsAll.*",
        r"line \d+ word [4-7]|Orders .*|Traces .*|broker-a .*",
        "Apache counts from its second sample on, up to a minute late; ArrowMQ from the first message on",
    ),
    Difference(
        r"dashboard fetchConsumeStatsInBroker",
        r".*\.pullOffset|totalInflightDiff",
        "Apache leaves out how far was pulled and so counts a negative number of messages in flight",
    ),
    Difference(
        r"exportMetadata.*|exportMetrics",
        r"subscriptionGroupTable\.MadeInCluster.*|.*\.groupSize",
        "a group that is deleted and keeps its offsets comes back at once in Apache, with default settings",
    ),
    # Numbers of the moment
    Difference(
        r"dashboard (viewBrokerStatsData|examineConsumeStats|fetchConsumeStatsInBroker)",
        r"stats(Minute|Hour|Day)\..*|.*consumeTps",
        "Apache counts from its second sample on, up to a minute, an hour or a day late; ArrowMQ at once",
        always=False,
    ),
    Difference(
        r"dashboard getConsumerRunningInfo",
        r"properties\.\w+|mqTable.*|statusTable.*",
        "names that Java gives to objects, and times: the client answers, the broker hands it on",
        always=False,
    ),
    Difference(
        r"dashboard viewMessage|dashboard examine(Consumer|Producer)ConnectionInfo",
        r".*Host\.port|\w+HostBytes has .*",
        "the ports of this run",
        always=False,
    ),
    Difference(r"consumerProgress of a .*", r"line 1 word 3", "messages a second of the moment", always=False),
    Difference(r"queryMsgById consumed by a client", r"line 1 word 6", "how long the client took", always=False),
    Difference(r"dashboard consumeMessageDirectly", r"spentTimeMills", "how long the client took", always=False),
    Difference(r"sendMsgStatus", r"rt=.*", "how long each send took", always=False),
    Difference(r"checkMsgSendRT", r"row \d+ RT|line 1 word 3", "how long each send took", always=False),
    Difference(r"clusterRT", r"row \d+ .*|line .*", "how long each send took", always=False),
    Difference(
        r"clusterList.*", r"row 1 (In|Out)TPS.*|row 1 Hour|row 1 SPACE", "rates, age and disk of the moment", False
    ),
    Difference(r"clusterList more", r"row 1 .*", "rates and counts of the moment", always=False),
    Difference(r"exportMetrics", r".*[dD]iskRatio|.*Tps|.*Num", "rates and disk of the moment", always=False),
    Difference(
        r"consumerStatus of a client",
        rf"{_WORDS}",
        "times, and names that Java gives to objects: the client answers, the broker hands it on",
        always=False,
    ),
    Difference(
        r"producer",
        r"producer group \(CLIENT_INNER_PRODUCER\).*",
        "mqadmin's own clients: Apache may take a heartbeat after the farewell and show them for two more minutes",
        always=False,
    ),
    Difference(r"consumerProgress", r"Reader .*", "the group of consumeMessage, for the same reason", always=False),
    Difference(
        r"exportMetrics", r".*\.groupSize|.*clientInfo.*", "the group of consumeMessage, likewise", always=False
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(bootTimestamp|runtime|(put|get\w*)Tps|commitLogDir.*|.*DiskRatio.*|.*TimeMax|putLatency.*|putMessageDistributeTime|"
        r"remainHowManyDataToFlush|pageCacheLockTimeMills|dispatchMaxBuffer|earliestMessageTimeStamp|msg\w+TotalTodayNow|"
        r"putMessage\w+|timer\w+|\w+HeadWaitTimeMills|\w+QueueSize|commitLogMaxOffset|consumeQueueDiskRatio|"
        r"scheduleMessageOffset.*)",
        "rates, times and disk of the moment",
        always=False,
    ),
    Difference(
        r"brokerStatus.*|dashboard fetchBrokerRuntimeStats",
        r"(table\.)?(waitingPulls|differingSubscriptions|getTransferedTps|remainTransientStoreBufferNumbs)",
        "keys that only ArrowMQ has, and one of a memory pool that it does not have",
    ),
    # Settings
    Difference(
        r"getBrokerConfig",
        r"\w+",
        "settings without effect here are not shown; docs/configuration.md lists each",
        left_out=True,
    ),
    Difference(
        r"getBrokerConfig",
        r"maxSendsPerSecond|enableTopicMessageTypeCheck|maxProcessMemoryBytes|maxUnflushedBytes|commitLogMaxBytes|"
        r"storePathCommitLog",
        "settings that only ArrowMQ has, and one that Apache shows only if it is set",
    ),
    Difference(
        r"getBrokerConfig",
        r"storePathRootDir|(haL|l)istenPort|metrics(ExporterType|PromExporterHost)|brokerFastFailureEnable",
        "each server's own files and ports; ArrowMQ has metrics on, for this machine; the test keeps Apache patient",
    ),
    Difference(r"exportConfigs", r".*\.useTLS", "TLS is set by tls.server.mode; useTLS has no effect here"),
    Difference(
        r"getNamesrvConfig",
        r"server\w+|writeBuffer\w+|enableShutdownGracefully|shutdownWaitTimeSeconds|useEpoll\w+|"
        r"kvConfigPath|configStorePath|rocketmqHome|bindAddress|listenPort|.*<namesrv>.*",
        "settings of Netty, which have no effect here; each server's own files and port",
    ),
    Difference(
        r"exportMetadata.*",
        r"dataVersion\..*|exportTime|.*RMQ_SYS_ROCKSDB.*",
        "versions count the changes of each broker; Apache's RocksDB topics",
        always=False,
    ),
)
