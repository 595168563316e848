"""Messages back into a topic, from an archive or from a store directory, with a filter and a rate.

First the chosen messages are laid down in the work folder, ordered by the time they were stored and cut into pieces;
then piece after piece is sent, each as one exactly-once write that bears its number. A run that was killed, started
again with the same work folder, goes on with the piece it was at: what that piece has sent already is not sent again.
Each message says where it came from in its property REPLAYED_FROM.

Pieces are small on purpose. A piece becomes visible when it is complete, so with a rate it holds a few seconds' worth;
and a broker gives up half messages that wait for many minutes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arrowmq.spark.cluster import Cluster
from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.pipelines.files import Folder
from arrowmq.spark.pipelines.progress import Display
from arrowmq.spark.source.options import connection_of
from arrowmq.wire.properties import RESERVED

ORIGIN = "REPLAYED_FROM"
PIECE_ROWS = 50_000
PIECE_S = 5  # of a replay with a rate
STAGED_TASKS = 16
# A store holds much that is not a message of a user: half messages, delays, retries, traces.
NOT_REPLAYED = "^(RMQ_SYS_|rmq_sys_|SCHEDULE_TOPIC_|TBW102$|SELF_TEST_TOPIC$|OFFSET_MOVED_EVENT$|ARROWMQ_SPARK_|%)"
SELECTION = "selection.json"


@dataclass(frozen=True)
class Replayed:
    """`rows` were sent by this run; `total` were chosen, so with those of earlier runs it is all of them."""

    rows: int
    total: int
    topic: str | None


def replay(
    spark: Any,
    *,
    namesrv: str,
    work: str,
    topic: str | None = None,
    archive: str | None = None,
    archive_format: str = "parquet",
    store: str | None = None,
    from_topic: str | None = None,
    since: str | None = None,
    until: str | None = None,
    where: str | None = None,
    rate: int | None = None,
    delivery: str = "exactly-once",
    display: Display | None = None,
) -> Replayed:
    """Sends the messages of `archive` (what that pipeline wrote) or of `store` to `topic`, or to their own topics.

    `since` and `until` bound the store time (until excluded), `where` is any SQL condition on the message columns,
    `rate` is messages a second. `work` keeps what a restart needs: the first run chooses the messages, later ones
    with the same folder go on with those.
    """
    if (archive is None) == (store is None):
        raise ValueError("say where the messages come from: either an archive or a store")
    check_times(since, until)
    display = display or Display()
    asked = {
        "archive": archive, "store": store, "from_topic": from_topic, "since": since, "until": until, "where": where,
        "topic": topic, "delivery": delivery,
    }  # fmt: skip
    folder = Folder(spark, work)
    selection = folder.read_json(SELECTION)
    if selection is None:
        chosen = _chosen(_messages(spark, archive, archive_format, store, from_topic), from_topic, since, until, where)
        rows = PIECE_ROWS if rate is None else max(1, min(PIECE_ROWS, rate * PIECE_S))
        total = display.job(spark, "choose", lambda: _stage(chosen, folder.path("staged"), rows))
        selection = {"asked": asked, "id": f"replay-{uuid.uuid4().hex}", "total": total, "piece_rows": rows}
        folder.write_json(SELECTION, selection)
    elif changed := [name for name, value in asked.items() if selection["asked"][name] != value]:
        name = changed[0]
        raise OptionError(
            "work",
            f"{work} keeps a replay whose {name} is {selection['asked'][name]}, not {asked[name]}: "
            "use another work folder for another replay",
        )
    sent = _send(spark, folder, selection, namesrv=namesrv, rate=rate, display=display)
    return Replayed(sent, selection["total"], topic)


def _send(
    spark: Any, folder: Folder, selection: dict[str, Any], *, namesrv: str, rate: int | None, display: Display
) -> int:
    """The pieces that are missing, one after the other; gives back how many messages that were."""
    topic, delivery = selection["asked"]["topic"], selection["asked"]["delivery"]
    pieces = list(_pieces(folder, selection["piece_rows"]))
    state = folder.read_json("sent.json") or {"pieces": 0, "rows": 0}
    before = state["rows"]
    with display.steps("replay", selection["total"], "messages") as done:
        done(before)
        for number in range(state["pieces"], len(pieces)):
            files, count = pieces[number]
            frame = spark.read.parquet(*files)
            # One task: the rate is then the rate of all, and messages of one key keep their order.
            rows = frame.coalesce(1).sortWithinPartitions("storeTimestamp", "commitLogOffset", "queueOffset")
            writer = messages_again(rows, topic).write.format("arrowmq").mode("append")
            writer = writer.option("namesrv", namesrv).option("delivery", delivery)
            if delivery == "exactly-once":
                writer = writer.option("txnAppId", selection["id"]).option("txnVersion", number)
            if rate is not None:
                writer = writer.option("rate", rate)
            writer.save()
            state = {"pieces": number + 1, "rows": state["rows"] + count}
            folder.write_json("sent.json", state)
            done(state["rows"])
    return int(state["rows"] - before)


def messages_again(frame: Any, topic: str | None) -> Any:
    """The columns of the sink, out of those of a message that was read, without RocketMQ's own properties."""
    from pyspark.sql import functions

    reserved = ", ".join(f"'{name}'" for name in sorted(RESERVED | {"SPARK_QUERY_ID", "SPARK_BATCH_ID", ORIGIN}))
    columns = [
        "body",
        "tags",
        "`keys` as `keys`",
        "properties['__SHARDINGKEY'] as shardingKey",
        f"map_concat(map_filter(properties, (name, value) -> name not in ({reserved}) and not startswith(name, '__')), "
        f"map('{ORIGIN}', concat(topic, ' ', offsetMsgId))) as properties",
        "topic",
    ]
    found = frame.selectExpr(*columns)
    return found if topic is None else found.withColumn("topic", functions.lit(topic))


def _messages(spark: Any, archive: str | None, archive_format: str, store: str | None, topic: str | None) -> Any:
    if store is not None:
        reader = spark.read.format("arrowmq.store").option("path", store)
        return (reader if topic is None else reader.option("topic", topic)).load()
    assert archive is not None
    data = Folder(spark, archive)
    if not data.exists():
        raise OptionError("archive", f"{archive} does not exist")
    return spark.read.format(archive_format).load(data.path("data") if data.exists("data") else archive)


def _chosen(frame: Any, topics: str | None, since: str | None, until: str | None, where: str | None) -> Any:
    from pyspark.sql import functions

    # A message must have a body; what has none is a mark of the broker's own.
    frame = frame.where("length(body) > 0")
    if topics is None:
        frame = frame.where(~functions.col("topic").rlike(NOT_REPLAYED))
    else:
        frame = frame.where(functions.col("topic").isin([name.strip() for name in topics.split(",") if name.strip()]))
    if since is not None:
        frame = frame.where(functions.col("storeTimestamp") >= functions.lit(parse_time("since", since)))
    if until is not None:
        frame = frame.where(functions.col("storeTimestamp") < functions.lit(parse_time("until", until)))
    return frame if where is None else _filtered(frame, where)


def _filtered(frame: Any, condition: str) -> Any:
    from pyspark.errors import PySparkException

    try:
        return frame.where(condition)
    except PySparkException as wrong:
        reason = next(line for line in str(wrong).splitlines() if line.strip()).split(" SQLSTATE")[0]
        raise OptionError("where", f"{condition!r} is no condition on messages: {reason}") from None


def parse_time(option: str, text: str) -> datetime:
    """A time as people write it, in this machine's zone unless it names another."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except ValueError:
        said = f"{text!r} is not a time such as '2026-11-15 08:00:00' or 2026-11-15T08:00Z"
        raise OptionError(option, said) from None


def check_times(since: str | None, until: str | None) -> None:
    if since is not None and until is not None:
        if parse_time("since", since) >= parse_time("until", until):
            raise OptionError("until", f"{until!r} does not lie after {since!r}, so nothing is between them")
    elif since is not None or until is not None:
        parse_time("since" if until is None else "until", since or until or "")


def check_target(namesrv: str, topic: str | None, *, patience_s: float = 60.0) -> None:
    """Asks the cluster for the topic before anything is read: a topic that cannot come into being is refused."""
    connection = connection_of(Options({"namesrv": namesrv, "patienceMs": str(int(patience_s * 1000))}))
    cluster = Cluster(connection)
    try:
        if not cluster.brokers():
            raise OptionError("namesrv", f"no broker is registered with {namesrv}")
        if topic is not None and cluster.route(topic) is None and cluster.route("TBW102") is None:
            raise OptionError(
                "topic",
                f"topic {topic} does not exist and brokers do not make topics by themselves "
                f"(autoCreateTopicEnable): create it with `arrowmq topic create {topic}`",
            )
    finally:
        cluster.close()


def _stage(frame: Any, target: str, piece_rows: int) -> int:
    """Lays the messages down by the time they were stored; names of files sort as their messages do."""
    ordered = frame.repartitionByRange(STAGED_TASKS, "storeTimestamp").sortWithinPartitions(
        "storeTimestamp", "commitLogOffset"
    )
    ordered.write.mode("overwrite").option("maxRecordsPerFile", piece_rows).parquet(target)
    return int(frame.sparkSession.read.parquet(target).count())


def _pieces(folder: Folder, piece_rows: int) -> Iterator[tuple[list[str], int]]:
    """The files of each piece, one that is full or several that are not, and how many messages they hold."""
    rows = 0
    files: list[str] = []
    for path, count in folder.parquet_files("staged"):
        if files and rows + count > piece_rows:
            yield files, rows
            rows, files = 0, []
        rows += count
        files.append(path)
    if files:
        yield files, rows
