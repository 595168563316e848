"""Every record of a cluster's stores, verified: counts, sizes, keys, hot topics, gaps, duplicates, damage.

Several stores may belong to one broker: a master, its slaves, a backup. Those are copies and are compared with each
other, position by position. Stores of different brokers are looked at together only for messages sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from arrowmq.spark.options import OptionError
from arrowmq.spark.pipelines.audit_report import audit_report
from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.pipelines.report import is_brief
from arrowmq.spark.store.files import NotAStore, StoreDirectory

MOST_ROWS = 200  # of gaps, duplicates, differences and damage; their numbers are counted in full
COLUMNS = "topic,brokerName,queueId,queueOffset,msgId,keys,storeTimestamp,storeHost,storeSize"
# Topics in which one message lies several times by design: each retry, each delay, each half message.
REPEATING = "^(%RETRY%|SCHEDULE_TOPIC_XXXX|RMQ_SYS_|rmq_sys_)"


@dataclass
class Audited:
    """Lists hold at most 200 rows each; the numbers beside them count all."""

    messages: int = 0
    bytes: int = 0
    stores: list[Any] = field(default_factory=list)
    topics: list[Any] = field(default_factory=list)
    hot_keys: list[Any] = field(default_factory=list)
    times: list[Any] = field(default_factory=list)  # records by hour; by minute, where they lie within three hours
    damage: list[Any] = field(default_factory=list)
    damage_count: int = 0
    gaps: list[Any] = field(default_factory=list)
    gap_count: int = 0
    missing: int = 0
    differences: list[Any] = field(default_factory=list)
    duplicates: list[Any] = field(default_factory=list)
    duplicate_count: int = 0
    report: Path | None = None

    @property
    def is_sound(self) -> bool:
        """No damage, no gap, and no copy that lacks or contradicts what another has in the middle of a queue. A copy
        that ends earlier (a backup, a slave that follows) or begins later (retention) is sound."""
        are_copies_sound = not any(row.holes or row.others for row in self.differences)
        return are_copies_sound and not self.damage_count and not self.gap_count


def audit(
    spark: Any,
    *,
    stores: list[str],
    topics: str | None = None,
    report: str | None = None,
    display: Display | None = None,
) -> Audited:
    """Scans the stores (folders of brokers, of their slaves, of backups) and compares what they hold."""
    check_stores(stores)
    display = display or Display()
    result = Audited()
    records = reduce(lambda left, right: left.union(right), (_scan(spark, path, topics) for path in stores)).cache()
    try:
        records.createOrReplaceTempView("audited_records")
        display.job(spark, "verify records", lambda: _count(spark, result))
        display.job(spark, "look for gaps", lambda: _gaps(spark, result))
        families = _families(result.stores)
        spark.createDataFrame(list(families.items()) or [("", 0)], "store string, family int").join(
            records, "store"
        ).createOrReplaceTempView("audited_family_records")
        if len(set(families.values())) < len(families):
            display.job(spark, "compare copies", lambda: _differences(spark, result))
        display.job(spark, "look for duplicates", lambda: _duplicates(spark, result))
    finally:
        records.unpersist()
    display.job(spark, "list damage", lambda: _damage(spark, stores, result))
    if report is not None:
        result.report = audit_report(result, stores).write(report)
    return result


def check_stores(stores: list[str]) -> None:
    """Refuses paths without a store, and a store that is named twice: it would look like a perfect copy."""
    seen: dict[Path, str] = {}
    for path in stores:
        try:
            root = StoreDirectory(path.removeprefix("file://")).root.resolve()
        except NotAStore as wrong:
            raise OptionError("path", str(wrong)) from None
        if root in seen:
            raise OptionError("path", f"{path} is the same store as {seen[root]}")
        seen[root] = path


def _scan(spark: Any, path: str, topics: str | None) -> Any:
    from pyspark.sql import functions

    reader = spark.read.format("arrowmq.store").option("path", path).option("columns", COLUMNS)
    frame = (reader if topics is None else reader.option("topic", topics)).load()
    # A store whose broker cannot be told is nobody's copy.
    broker = functions.coalesce("brokerName", functions.lit(path))
    return frame.withColumn("store", functions.lit(path)).withColumn("broker", broker)


def _count(spark: Any, result: Audited) -> None:
    result.topics = spark.sql(
        "select topic, count(*) as messages, sum(storeSize) as bytes, count(distinct broker, queueId) as queues, "
        "sum(size(`keys`)) as keyCount, percentile_approx(storeSize, 0.5) as medianBytes, "
        "max(storeSize) as largestBytes, min(storeTimestamp) as first, max(storeTimestamp) as last "
        "from audited_records group by topic order by bytes desc, topic"
    ).collect()
    result.messages = sum(row.messages for row in result.topics)
    result.bytes = sum(row.bytes for row in result.topics)
    result.stores = spark.sql(
        "select store, broker, count(*) as messages, sum(storeSize) as bytes, count(distinct topic) as topics, "
        "min(storeTimestamp) as first, max(storeTimestamp) as last, collect_set(storeHost) as hosts "
        "from audited_records group by 1, 2 order by 1"
    ).collect()
    by_time = (
        "select date_trunc('{}', storeTimestamp) as moment, count(*) as messages from audited_records "
        "group by 1 order by 1"
    )
    result.times = spark.sql(by_time.format("hour")).collect()
    if is_brief(row.moment for row in result.times):
        result.times = spark.sql(by_time.format("minute")).collect()
    result.hot_keys = spark.sql(
        "select topic, key, count(*) as messages from (select topic, explode(`keys`) as key from audited_records "
        f"where not topic rlike '{REPEATING}') group by 1, 2 having count(*) > 1 order by 3 desc, 1, 2 limit 20"
    ).collect()


def _gaps(spark: Any, result: Audited) -> None:
    """Queue offsets that no record of a store has, between the first and the last of a queue."""
    spark.sql(
        "with steps as (select store, broker, topic, queueId, queueOffset, lead(queueOffset) over "
        "(partition by store, topic, queueId order by queueOffset) as following from audited_records) "
        "select store, broker, topic, queueId, queueOffset + 1 as firstMissing, following - 1 as lastMissing, "
        "following - queueOffset - 1 as missing from steps where following > queueOffset + 1"
    ).createOrReplaceTempView("audited_gaps")
    (total,) = spark.sql("select count(*) as gaps, coalesce(sum(missing), 0) as missing from audited_gaps").collect()
    result.gap_count, result.missing = total.gaps, total.missing
    if total.gaps:
        result.gaps = spark.sql(
            f"select * from audited_gaps order by missing desc, topic, queueId limit {MOST_ROWS}"
        ).collect()


def _families(stores: list[Any]) -> dict[str, int]:
    """Which stores are copies of one broker: its name alone does not tell, as many a cluster has a broker-a, but
    copies also share the address that the broker has written into its records."""
    found: dict[str, int] = {}
    for number, row in enumerate(stores):
        family = number
        for other in stores[:number]:
            if other.broker == row.broker and set(other.hosts) & set(row.hosts):
                family = found[other.store]
                break
        found[row.store] = family
    return found


def _differences(spark: Any, result: Audited) -> None:
    """What one copy of a broker's queue has and another has not, or has otherwise."""
    result.differences = spark.sql(
        "with copies as (select family, collect_set(store) as stores from audited_family_records group by 1 "
        "having count(distinct store) > 1), "
        "ranges as (select store, topic, queueId, min(queueOffset) as low, max(queueOffset) as high "
        "from audited_family_records group by 1, 2, 3), "
        "held as (select r.family, any_value(r.broker) as broker, topic, queueId, queueOffset, "
        "collect_set(store) as holders, any_value(c.stores) as stores, count(distinct msgId, storeSize) as contents "
        "from audited_family_records r join copies c on c.family = r.family group by r.family, 3, 4, 5), "
        "odd as (select broker, topic, queueId, queueOffset, contents, "
        "explode(if(contents > 1, stores, array_except(stores, holders))) as store from held "
        "where contents > 1 or size(holders) < size(stores)) "
        "select o.store, o.broker, o.topic, o.queueId, count_if(o.contents > 1) as others, "
        "count_if(o.contents = 1 and o.queueOffset between n.low and n.high) as holes, "
        "count_if(o.contents = 1 and o.queueOffset < n.low) as older, "
        "count_if(o.contents = 1 and (n.high is null or o.queueOffset > n.high)) as newer, "
        "min(o.queueOffset) as firstOffset, max(o.queueOffset) as lastOffset from odd o left join ranges n "
        "on n.store = o.store and n.topic = o.topic and n.queueId = o.queueId group by 1, 2, 3, 4 "
        f"order by others + holes desc, newer desc, 1, 3, 4 limit {MOST_ROWS}"
    ).collect()


def _duplicates(spark: Any, result: Audited) -> None:
    """One id at several positions of a topic: sent twice. Copies of one position in several stores are none."""
    spark.sql(
        "select topic, msgId, count(distinct family, queueId, queueOffset) as positions, "
        f"count(distinct family) as brokers from audited_family_records where not topic rlike '{REPEATING}' "
        "group by topic, msgId having count(distinct family, queueId, queueOffset) > 1"
    ).createOrReplaceTempView("audited_duplicates")
    result.duplicate_count = spark.table("audited_duplicates").count()
    if result.duplicate_count:
        result.duplicates = spark.sql(
            f"select * from audited_duplicates order by positions desc, topic, msgId limit {MOST_ROWS}"
        ).collect()


def _damage(spark: Any, stores: list[str], result: Audited) -> None:
    found = spark.read.format("arrowmq.store").option("path", ",".join(stores)).option("table", "damage").load()
    found = found.cache()
    try:
        result.damage_count = found.count()
        result.damage = found.orderBy("path", "commitLogOffset").limit(MOST_ROWS).collect()
    finally:
        found.unpersist()
