"""`arrowmq pipeline …`: the Spark pipelines from the command line.

Every command runs on this machine, or on the cluster that `--master` (or spark-submit) names, and may be run again
after it was stopped or killed: it goes on with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
NAMESRV = "localhost:9876"


def _spark_options(command: Decorated) -> Decorated:
    for option in (
        click.option(
            "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
        ),
        click.option("--master", help="Spark's master, such as spark://host:7077 or yarn  [local[*]]."),
    ):
        command = option(command)
    return command


def _namesrv(command: Decorated) -> Decorated:
    return click.option(
        "-n", "--namesrv", default=NAMESRV, show_default=True, envvar="NAMESRV_ADDR", help="NameServers, host:port."
    )(command)


def _session(master: str | None, settings: tuple[str, ...], table_format: str = "parquet") -> Any:
    try:
        from arrowmq.spark import JavaMissing, session
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"{missing}: pipelines need Spark, install it with pip install 'arrowmq[spark]'"
        ) from None
    given: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--conf")
        given[name] = value
    try:
        return session("arrowmq pipeline", master=master, table_format=table_format, **given)
    except (JavaMissing, ValueError) as wrong:
        raise click.ClickException(str(wrong)) from None


def _run(spark: Any, work: Callable[[], Any]) -> Any:
    """Does the work, ends Spark, and turns failures of Spark into the one sentence that matters."""
    from pyspark.errors import PySparkException

    try:
        return work()
    except (PySparkException, ValueError, FileExistsError) as wrong:
        raise click.ClickException(_sentence(wrong)) from None
    finally:
        spark.stop()


def _sentence(wrong: BaseException) -> str:
    """The last line of a Python failure inside a Spark failure: that is where the option is named."""
    said = str(wrong)
    found = [line for line in said.splitlines() if line.startswith("arrowmq.") or "Error: " in line]
    line = found[-1] if found else said.splitlines()[0]
    head, colon, rest = line.partition(": ")
    return rest if colon and " " not in head else line


@click.group()
def pipeline_group() -> None:
    """Run Spark pipelines over topics and stores."""


@pipeline_group.command()
@_namesrv
@click.option("--topics", help="Topics, with commas between.")
@click.option("--topic-pattern", metavar="REGEX", help="Every topic whose whole name matches.")
@click.option("--tags", help="Only messages of these tags, such as 'created || paid'.")
@click.option("--sql", help="Only messages whose properties match this SQL92 expression.")
@click.option("--to", "path", required=True, metavar="FOLDER", help="Where the table and its checkpoint lie.")
@click.option(
    "--format", "table_format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True
)
@click.option("--group", help="Consumer group that progress is stored in, for lag in other tools.")
@click.option(
    "--max-per-batch", type=click.IntRange(1), default=500_000, show_default=True, help="Messages in one step."
)
@click.option(
    "--follow", metavar="INTERVAL", help="Do not end: look for new messages every INTERVAL, such as '1 minute'."
)
@click.option("--report", metavar="FILE.html", help="Write a report with charts.")
@_spark_options
def archive(
    namesrv: str, topics: str | None, topic_pattern: str | None, tags: str | None, sql: str | None, path: str,
    table_format: str, group: str | None, max_per_batch: int, follow: str | None, report: str | None,
    master: str | None, settings: tuple[str, ...],
) -> None:  # fmt: skip
    """Copy topics into Parquet or Delta, by topic, date and hour, each message exactly once.

    Example: arrowmq pipeline archive --topics orders,payments --to /data/lake --report archive.html
    """
    if not topics and not topic_pattern:
        raise click.UsageError("say what to archive: --topics or --topic-pattern")
    spark = _session(master, settings, table_format)
    from arrowmq.spark import pipelines

    done = _run(
        spark,
        lambda: pipelines.archive(
            spark, namesrv=namesrv, topics=topics, topic_pattern=topic_pattern, tags=tags, sql=sql, path=path,
            table_format=table_format, group=group, max_offsets_per_trigger=max_per_batch, follow=follow, report=report,
        ),
    )  # fmt: skip
    click.echo(
        f"{done.rows:,} messages archived to {done.path}" + (f"; report in {done.report}" if done.report else "")
    )


@pipeline_group.command()
@_namesrv
@click.option("--archive", "archive_path", metavar="FOLDER", help="What `pipeline archive` wrote.")
@click.option(
    "--format", "archive_format", type=click.Choice(["parquet", "delta"]), default="parquet", show_default=True
)
@click.option("--store", metavar="FOLDER[,FOLDER]", help="Store folders of brokers, instead of an archive.")
@click.option("--from-topic", help="Only messages of these topics.")
@click.option("--since", metavar="TIME", help="Stored at this time or later, such as '2026-11-15 08:00:00'.")
@click.option("--until", metavar="TIME", help="Stored before this time.")
@click.option("--where", metavar="CONDITION", help="SQL condition on message columns, such as \"tags = 'paid'\".")
@click.option("--to-topic", help="Topic to send to  [each message's own].")
@click.option("--rate", type=click.IntRange(1), help="Messages a second at most.")
@click.option(
    "--delivery", type=click.Choice(["exactly-once", "at-least-once"]), default="exactly-once", show_default=True
)
@click.option("--work", required=True, metavar="FOLDER", help="Keeps what a restart needs.")
@_spark_options
def replay(
    namesrv: str, archive_path: str | None, archive_format: str, store: str | None, from_topic: str | None,
    since: str | None, until: str | None, where: str | None, to_topic: str | None, rate: int | None, delivery: str,
    work: str, master: str | None, settings: tuple[str, ...],
) -> None:  # fmt: skip
    """Send messages of an archive, or of a store directory, into a topic again.

    Example: arrowmq pipeline replay --archive /data/lake --from-topic orders --to-topic orders-again --work /tmp/replay
    """
    if (archive_path is None) == (store is None):
        raise click.UsageError("say where the messages come from: either --archive or --store")
    spark = _session(master, settings, archive_format)
    from arrowmq.spark import pipelines

    done = _run(
        spark,
        lambda: pipelines.replay(
            spark, namesrv=namesrv, work=work, topic=to_topic, archive=archive_path, archive_format=archive_format,
            store=store, from_topic=from_topic, since=since, until=until, where=where, rate=rate, delivery=delivery,
        ),
    )  # fmt: skip
    click.echo(f"{done.rows:,} messages sent to {done.topic or 'their own topics'}")


@pipeline_group.command("dead-letters")
@_namesrv
@click.option("--group", "groups", multiple=True, help="Consumer group; may be repeated  [all].")
@click.option("--resend", is_flag=True, help="Send them again, where they came from or to --to-topic.")
@click.option("--repair", metavar="MODULE:FUNCTION", help="Python function that repairs a message, or drops it (None).")
@click.option("--to-topic", help="Send to this topic instead of where they came from.")
@click.option("--work", metavar="FOLDER", help="Keeps what was resent and the audit trail; needed with --resend.")
@click.option("--save", metavar="FOLDER", help="Save the table as Parquet.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows shown.")
@_spark_options
def dead_letters(
    namesrv: str, groups: tuple[str, ...], resend: bool, repair: str | None, to_topic: str | None, work: str | None,
    save: str | None, limit: int, master: str | None, settings: tuple[str, ...],
) -> None:  # fmt: skip
    """Show what died, of which group, and how often it was tried; repair and resend it.

    Example: arrowmq pipeline dead-letters --group billing --resend --repair fixes.py:add_currency --work /tmp/billing
    """
    if resend and work is None:
        raise click.UsageError("--resend needs --work, the folder that keeps what was resent")
    if (repair or to_topic) and not resend:
        raise click.UsageError("--repair and --to-topic change what is sent: add --resend")
    spark = _session(master, settings)
    from arrowmq.spark import pipelines

    wanted = list(groups) or None

    def show() -> None:
        table = pipelines.dead_letters(spark, namesrv=namesrv, groups=wanted)
        if save is not None:
            table.write.mode("overwrite").parquet(save)
        _print_dead(table, limit)

    def send() -> Any:
        assert work is not None
        return pipelines.resend(spark, namesrv=namesrv, groups=wanted, repair=repair, topic=to_topic, work=work)

    if resend:
        done = _run(spark, send)
        click.echo(f"{done.decided:,} dead letters decided; audit trail in {done.trail}")
    else:
        _run(spark, show)


def _print_dead(table: Any, limit: int) -> None:
    counted = table.groupBy("consumerGroup", "originTopic", "why").count().orderBy("count", ascending=False).collect()
    summary = Table("group", "origin", "why", "messages", title="dead letters")
    for row in counted:
        summary.add_row(row.consumerGroup, row.originTopic or "–", row.why, f"{row['count']:,}")
    latest = Table("group", "origin", "message id", "keys", "tries", "died", "body", title=f"the latest {limit}")
    for row in table.orderBy("diedAt", ascending=False).limit(limit).collect():
        body = bytes(row.body[:40]).decode("utf-8", "replace")
        latest.add_row(
            row.consumerGroup, row.originTopic or "–", row.originMsgId, " ".join(row["keys"]),
            str(row.reconsumeTimes), f"{row.diedAt:%Y-%m-%d %H:%M:%S}", body,
        )  # fmt: skip
    console = Console()
    console.print(summary)
    console.print(latest)


@pipeline_group.command()
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@click.option("--topics", help="Only these topics.")
@click.option("--report", metavar="FILE.html", help="Write a report with charts.")
@_spark_options
def audit(
    stores: tuple[str, ...], topics: str | None, report: str | None, master: str | None, settings: tuple[str, ...]
) -> None:
    """Verify every record of store folders; count, measure, and find gaps and duplicates.

    Ends with 1 if a record is damaged or a queue has a gap. Example: arrowmq pipeline audit /data/a /data/b
    """
    spark = _session(master, settings)
    from arrowmq.spark import pipelines

    found = _run(spark, lambda: pipelines.audit(spark, stores=list(stores), topics=topics, report=report))
    table = Table("topic", "messages", "bytes", "queues", "largest", title="topics")
    for row in found.topics[:30]:
        table.add_row(row.topic, f"{row.messages:,}", f"{row.bytes:,}", str(row.queues), f"{row.largestBytes:,}")
    Console().print(table)
    for damage in found.damage[:20]:
        click.echo(f"damaged: {damage.path} at {damage.commitLogOffset}: {damage.reason}", err=True)
    for gap in found.gaps[:20]:
        click.echo(
            f"gap: {gap.topic} {gap.brokerName}:{gap.queueId} lacks {gap.firstMissing} to {gap.lastMissing}", err=True
        )
    click.echo(
        f"{found.messages:,} messages verified, {len(found.damage)} damaged, {len(found.gaps)} gaps, "
        f"{len(found.duplicates)} ids more than once" + (f"; report in {found.report}" if found.report else "")
    )
    if not found.is_sound:
        raise SystemExit(1)


@pipeline_group.command()
@click.option("-n", "--namesrv", envvar="NAMESRV_ADDR", help=f"NameServers, host:port  [{NAMESRV}].")
@click.option("--store", metavar="FOLDER", help="A store folder instead of a running cluster.")
@click.option("--topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="The trace topic.")
@click.option("--report", metavar="FILE.html", help="Write a report with charts.")
@_spark_options
def trace(
    namesrv: str | None,
    store: str | None,
    topic: str,
    report: str | None,
    master: str | None,
    settings: tuple[str, ...],
) -> None:
    """Measure sending, waiting and consuming from the trace topic.

    Example: arrowmq pipeline trace --report latency.html
    """
    spark = _session(master, settings)
    from arrowmq.spark import pipelines

    address = None if store else namesrv or NAMESRV
    found = _run(spark, lambda: pipelines.trace(spark, namesrv=address, store=store, trace_topic=topic, report=report))
    table = Table("topic", "sends", "failed", "median ms", "90 % ms", "99 % ms", title="send and store")
    for row in found.by_topic:
        table.add_row(row.topic, f"{row.sends:,}", f"{row.failed:,}", *map(str, row.send))
    groups = Table(
        "group", "topic", "deliveries", "retried", "waited, median ms", "consumed, median ms", title="consume"
    )
    for row in found.by_group:
        waited, consumed = (values[0] if values else "–" for values in (row.waited, row.consumed))
        groups.add_row(
            row.consumerGroup, row.topic or "–", f"{row.deliveries:,}", f"{row.retried:,}", str(waited), str(consumed)
        )
    console = Console()
    console.print(table)
    console.print(groups)
    if found.report:
        click.echo(f"report in {found.report}")


@pipeline_group.command()
@click.argument("folder")
@_namesrv
@click.option("--topic", required=True, help="The topic that the project reads.")
def init(folder: str, namesrv: str, topic: str) -> None:
    """Write a Spark Declarative Pipelines project over a topic.

    Example: arrowmq pipeline init my-orders --topic orders; cd my-orders; spark-pipelines run
    """
    from arrowmq.spark.pipelines.project import create_project

    try:
        files = create_project(folder, namesrv=namesrv, topic=topic)
    except OSError as wrong:
        raise click.ClickException(str(wrong)) from None
    for path in files:
        click.echo(f"wrote {path}")
    click.echo(f"next: cd {folder} && spark-pipelines run --conf spark.sql.catalogImplementation=hive")
