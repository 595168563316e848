"""Dead letters: what died, of which group, why and how often it was tried; repaired by a function and sent again.

A resend has two steps, each a stream that goes on where it stopped. First every letter is decided, once, and the
decision is written down with the message to be sent: that is the audit trail. Then what the trail says is sent, each
message exactly once. So a run that is killed anywhere neither decides nor sends anything twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arrowmq.spark.cluster import Cluster
from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.pipelines.progress import Display, counted
from arrowmq.spark.pipelines.repair import RESENT, RESENT_TIMES, TRAIL_SCHEMA, Repair, decisions, load_repair, unchanged
from arrowmq.spark.source.options import connection_of

PREFIX = "%DLQ%"
STEP_LETTERS = 20_000
STEP_FILES = 8
# Files of the trail are sent however old they are: a run may have been stopped for long.
ANY_AGE = "36500d"


@dataclass(frozen=True)
class Resent:
    """What this run decided and sent; the trail holds that of all runs."""

    decided: int
    sent: int
    trail: str


def dead_topics(namesrv: str, groups: list[str] | None, patience_s: float = 60.0) -> list[str]:
    """The dead letter topics of these groups, or of all."""
    cluster = Cluster(connection_of(Options({"namesrv": namesrv, "patienceMs": str(int(patience_s * 1000))})))
    try:
        found = [topic for topic in cluster.topics() if topic.startswith(PREFIX)]
    finally:
        cluster.close()
    if groups is None:
        return found
    missing = [group for group in groups if PREFIX + group not in found]
    if missing:
        raise OptionError("group", f"group {missing[0]} has no dead letters")
    return [PREFIX + group for group in groups]


def dead_letters(spark: Any, *, namesrv: str, groups: list[str] | None = None, trace_topic: str | None = None) -> Any:
    """A DataFrame of what died: group, origin, how often it was tried, and why as far as that is known.

    RocketMQ does not keep the reason with the message. Where consumers write traces, `trace_topic` (usually
    RMQ_SYS_TRACE_TOPIC) tells how the last try ended.
    """
    topics = dead_topics(namesrv, groups)
    if not topics:
        return spark.createDataFrame([], _dead_schema())
    reader = spark.read.format("arrowmq").option("namesrv", namesrv).option("topics", ",".join(topics))
    table = table_of(reader.load())
    if trace_topic is None:
        return table
    return _with_reasons(spark, table, namesrv, trace_topic)


def table_of(frame: Any) -> Any:
    return frame.selectExpr(
        f"substring(topic, {len(PREFIX) + 1}) as consumerGroup",
        "coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) as originTopic",
        "msgId",
        "coalesce(properties['DLQ_ORIGIN_MESSAGE_ID'], properties['ORIGIN_MESSAGE_ID'], msgId) as originMsgId",
        "concat('not consumed in ', reconsumeTimes, if(reconsumeTimes = 1, ' try', ' tries')) as why",
        "reconsumeTimes",
        f"cast(coalesce(properties['{RESENT_TIMES}'], '0') as int) as resentTimes",
        "tags",
        "`keys`",
        "body",
        "properties",
        "bornTimestamp",
        "storeTimestamp as diedAt",
        "brokerName",
        "queueOffset",
    )


def _with_reasons(spark: Any, table: Any, namesrv: str, trace_topic: str) -> Any:
    """How the last traced try of each message by that group ended."""
    from arrowmq.spark.pipelines.trace import views

    reader = spark.read.format("arrowmq").option("namesrv", namesrv).option("topic", trace_topic)
    views(spark, reader.option("columns", "body,storeTimestamp").load())
    last = spark.sql(
        "select b.consumerGroup, b.msgId, max_by(a.outcome, b.at) as outcome "
        "from trace_before b join trace_after a on a.requestId = b.requestId and a.msgId = b.msgId "
        "where not a.succeeded group by 1, 2"
    )
    joined = table.join(last, ["consumerGroup", "msgId"], "left")
    # Without the time that the try took: reasons are there to be counted.
    reason = "coalesce(concat(why, ', the last: ', outcome), why) as why"
    return joined.selectExpr(*(reason if name == "why" else f"`{name}`" for name in table.columns))


def resend(
    spark: Any,
    *,
    namesrv: str,
    work: str,
    groups: list[str] | None = None,
    repair: str | Repair | None = None,
    topic: str | None = None,
    display: Display | None = None,
) -> Resent:
    """Repairs dead letters and sends them to `topic`, or to where they came from, once each; writes the trail.

    `work` keeps the checkpoints and the trail (`work/trail`, Parquet): run again, it goes on with new ones only.
    """
    from pyspark.sql import functions

    decide = load_repair(repair) if isinstance(repair, str) else (repair or unchanged)
    topics = dead_topics(namesrv, groups)
    if not topics:
        raise OptionError("group", "there are no dead letters")
    display = display or Display()
    reader = spark.readStream.format("arrowmq").option("namesrv", namesrv).option("topics", ",".join(topics))
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", STEP_LETTERS)
    target = functions.col("originTopic") if topic is None else functions.lit(topic)
    letters = table_of(reader.load()).withColumn("target", target)
    trail = counted(letters.mapInArrow(lambda batches: decisions(batches, decide), TRAIL_SCHEMA))
    writer = trail.writeStream.format("parquet").option("checkpointLocation", f"{work}/decided").queryName("decide")
    writer = writer.trigger(availableNow=True)
    decided = display.stream(lambda: writer.start(f"{work}/trail"), "decide")

    kept = spark.readStream.format("parquet").schema(TRAIL_SCHEMA)
    kept = kept.option("maxFilesPerTrigger", STEP_FILES).option("maxFileAge", ANY_AGE).load(f"{work}/trail")
    messages = kept.where(functions.col("action") == RESENT)
    messages = messages.selectExpr("target as topic", "body", "tags", "`keys`", "properties")
    sender = counted(messages).writeStream.format("arrowmq").option("namesrv", namesrv).queryName("resend")
    sender = sender.option("checkpointLocation", f"{work}/sent").trigger(availableNow=True)
    sent = display.stream(sender.start, "resend")
    return Resent(decided, sent, f"{work}/trail")


def _dead_schema() -> str:
    return (
        "consumerGroup string, originTopic string, msgId string, originMsgId string, why string, reconsumeTimes int, "
        "resentTimes int, tags string, `keys` array<string>, body binary, properties map<string,string>, "
        "bornTimestamp timestamp, diedAt timestamp, brokerName string, queueOffset bigint"
    )
