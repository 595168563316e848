"""`arrowmq pipeline …`: the Spark pipelines from the command line.

Every command runs on this machine, or on the cluster that `--master` (or spark-submit) names, and may be run again
after it was stopped or killed: it goes on with what is missing.
"""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.pipeline.findings import print_audit, print_dead, print_trace
from arrowmq.cli.pipeline.spark_run import Decorated, SparkRun, spark_options
from arrowmq.cli.screen import TIME, Screen

NAMESRV = "localhost:9876"
PATIENCE_S = 3.0  # of the first question to a cluster, while somebody waits at a terminal


def _namesrv(command: Decorated) -> Decorated:
    return click.option(
        "-n", "--namesrv", default=NAMESRV, show_default=True, envvar="NAMESRV_ADDR", help="NameServers, host:port."
    )(command)


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
@spark_options
def archive(
    namesrv: str, topics: str | None, topic_pattern: str | None, tags: str | None, sql: str | None, path: str,
    table_format: str, group: str | None, max_per_batch: int, follow: str | None, report: str | None,
    master: str | None, settings: tuple[str, ...], as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Copy topics into Parquet or Delta, by topic, date and hour, each message exactly once.

    Example: arrowmq pipeline archive --topics orders,payments --to /data/lake --report archive.html
    """
    if not topics and not topic_pattern:
        raise click.UsageError("say what to archive: --topics or --topic-pattern")
    run = SparkRun(master, settings, is_verbose=verbose, table_format=table_format)

    def check() -> None:
        from arrowmq.spark.pipelines.archive import check_source, source_options
        from arrowmq.spark.session import table_settings

        table_settings(table_format)
        asked = source_options(namesrv, topics, topic_pattern, tags, sql, group)
        check_source({**asked, "patienceMs": str(int(PATIENCE_S * 1000))})

    def work(spark: Any, display: Any) -> Any:
        from arrowmq.spark import pipelines

        return pipelines.archive(
            spark, namesrv=namesrv, topics=topics, topic_pattern=topic_pattern, tags=tags, sql=sql, path=path,
            table_format=table_format, group=group, max_offsets_per_trigger=max_per_batch, follow=follow,
            report=report, display=display,
        )  # fmt: skip

    done = run.do(check, work)
    screen = Screen(as_json)
    if as_json:
        screen.json({"messages": done.rows, "path": done.path, "report": done.report})
    screen.say(f"{done.rows:,} messages archived to {done.path}" + _report_at(done.report))


def _report_at(report: object) -> str:
    return f"; report in {report}" if report else ""


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
@spark_options
def replay(
    namesrv: str, archive_path: str | None, archive_format: str, store: str | None, from_topic: str | None,
    since: str | None, until: str | None, where: str | None, to_topic: str | None, rate: int | None, delivery: str,
    work: str, master: str | None, settings: tuple[str, ...], as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Send messages of an archive, or of a store directory, into a topic again.

    Example: arrowmq pipeline replay --archive /data/lake --from-topic orders --to-topic orders-again --work /tmp/replay
    """
    if (archive_path is None) == (store is None):
        raise click.UsageError("say where the messages come from: either --archive or --store")
    run = SparkRun(master, settings, is_verbose=verbose, table_format=archive_format)

    def check() -> None:
        from arrowmq.spark.pipelines.replay import check_target, check_times
        from arrowmq.spark.store.scan import ScanOptions

        check_times(since, until)
        if store is not None:
            ScanOptions.parse({"path": store}).stores()
        check_target(namesrv, to_topic, patience_s=PATIENCE_S)

    def send(spark: Any, display: Any) -> Any:
        from arrowmq.spark import pipelines

        return pipelines.replay(
            spark, namesrv=namesrv, work=work, topic=to_topic, archive=archive_path, archive_format=archive_format,
            store=store, from_topic=from_topic, since=since, until=until, where=where, rate=rate, delivery=delivery,
            display=display,
        )  # fmt: skip

    done = run.do(check, send)
    screen = Screen(as_json)
    if as_json:
        screen.json({"messages": done.rows, "chosen": done.total, "topic": done.topic})
    earlier = f" of {done.total:,}; the others were sent before" if done.rows < done.total else ""
    screen.say(f"{done.rows:,} messages sent to {done.topic or 'their own topics'}{earlier}")


@pipeline_group.command("dead-letters")
@_namesrv
@click.option("--group", "groups", multiple=True, help="Consumer group; may be repeated  [all].")
@click.option("--resend", is_flag=True, help="Send them again, where they came from or to --to-topic.")
@click.option("--repair", metavar="MODULE:FUNCTION", help="Python function that repairs a message, or drops it (None).")
@click.option("--to-topic", help="Send to this topic instead of where they came from.")
@click.option("--work", metavar="FOLDER", help="Keeps what was resent and the audit trail; needed with --resend.")
@click.option("--save", metavar="FOLDER", help="Save the table as Parquet.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows shown.")
@click.option("--trace", "trace_topic", metavar="TOPIC", help="Trace topic that says how the last try ended.")
@spark_options
def dead_letters(
    namesrv: str, groups: tuple[str, ...], resend: bool, repair: str | None, to_topic: str | None, work: str | None,
    save: str | None, limit: int, trace_topic: str | None, master: str | None, settings: tuple[str, ...],
    as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Show what died, of which group, and how often it was tried; repair and resend it.

    Example: arrowmq pipeline dead-letters --group billing --resend --repair fixes.py:add_currency --work /tmp/billing
    """
    if resend and work is None:
        raise click.UsageError("--resend needs --work, the folder that keeps what was resent")
    if (repair or to_topic) and not resend:
        raise click.UsageError("--repair and --to-topic change what is sent: add --resend")
    if (save or trace_topic) and resend:
        raise click.UsageError("--save and --trace are for the table; without --resend")
    run = SparkRun(master, settings, is_verbose=verbose)
    wanted = list(groups) or None

    def check() -> None:
        from arrowmq.spark.pipelines.dead_letters import dead_topics
        from arrowmq.spark.pipelines.repair import load_repair

        if repair is not None:
            load_repair(repair)
        if not dead_topics(namesrv, wanted, patience_s=PATIENCE_S) and resend:
            raise ValueError("there are no dead letters")

    def show(spark: Any, display: Any) -> None:
        from arrowmq.spark import pipelines

        table = pipelines.dead_letters(spark, namesrv=namesrv, groups=wanted, trace_topic=trace_topic)
        if save is not None:
            display.job(spark, "save", lambda: table.write.mode("overwrite").parquet(save))
        print_dead(Screen(as_json), *display.job(spark, "count", lambda: _counted(table, limit)))

    def send(spark: Any, display: Any) -> Any:
        from arrowmq.spark import pipelines

        assert work is not None
        return pipelines.resend(
            spark, namesrv=namesrv, groups=wanted, repair=repair, topic=to_topic, work=work, display=display
        )

    if not resend:
        run.do(check, show)
        return
    done = run.do(check, send)
    screen = Screen(as_json)
    if as_json:
        screen.json({"decided": done.decided, "sent": done.sent, "trail": done.trail})
    screen.say(f"{done.decided:,} dead letters decided, {done.sent:,} sent again; audit trail in {done.trail}")


def _counted(table: Any, limit: int) -> tuple[list[Any], list[Any]]:
    table = table.cache()
    try:
        counted = table.groupBy("consumerGroup", "originTopic", "why").count().orderBy("count", ascending=False)
        return counted.collect(), table.orderBy("diedAt", ascending=False).limit(limit).collect()
    finally:
        table.unpersist()


@pipeline_group.command()
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@click.option("--topics", help="Only these topics.")
@click.option("--report", metavar="FILE.html", help="Write a report with charts.")
@spark_options
def audit(
    stores: tuple[str, ...], topics: str | None, report: str | None, master: str | None, settings: tuple[str, ...],
    as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Verify every record of store folders; count, measure, and find gaps and duplicates.

    Stores of one broker (a slave, a backup) are compared with each other. Ends with 1 if a record is damaged, a queue
    has a gap, or copies contradict each other.

    Example: arrowmq pipeline audit /data/a /data/b --report audit.html
    """
    run = SparkRun(master, settings, is_verbose=verbose, keeps_progress=False)

    def check() -> None:
        from arrowmq.spark.pipelines.audit import check_stores

        check_stores(list(stores))

    def work(spark: Any, display: Any) -> Any:
        from arrowmq.spark import pipelines

        return pipelines.audit(spark, stores=list(stores), topics=topics, report=report, display=display)

    found = run.do(check, work)
    print_audit(Screen(as_json), found)
    if not found.is_sound:
        raise SystemExit(1)


@pipeline_group.command()
@click.option("-n", "--namesrv", envvar="NAMESRV_ADDR", help=f"NameServers, host:port  [{NAMESRV}].")
@click.option("--store", metavar="FOLDER[,FOLDER]", help="Store folders instead of a running cluster.")
@click.option("--topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="The trace topic.")
@click.option(
    "--since", "since_ms", type=TIME, help="Traces stored at this time or later, such as 2h for two hours ago."
)
@click.option("--stored", is_flag=True, help="Read the traced topics as well, for the time of storing.")
@click.option("--report", metavar="FILE.html", help="Write a report with charts.")
@spark_options
def trace(
    namesrv: str | None, store: str | None, topic: str, since_ms: int | None, stored: bool, report: str | None,
    master: str | None, settings: tuple[str, ...], as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """Measure sending, waiting and consuming from the trace topic.

    Example: arrowmq pipeline trace --report latency.html
    """
    run = SparkRun(master, settings, is_verbose=verbose, keeps_progress=False)
    address = None if store else namesrv or NAMESRV

    def check() -> None:
        from arrowmq.spark.pipelines.archive import check_source
        from arrowmq.spark.store.scan import ScanOptions

        if address is None:
            assert store is not None
            ScanOptions.parse({"path": store}).stores()
        else:
            check_source({"namesrv": address, "topic": topic, "patienceMs": str(int(PATIENCE_S * 1000))})

    def work(spark: Any, display: Any) -> Any:
        from arrowmq.spark import pipelines

        return pipelines.trace(
            spark, namesrv=address, store=store, trace_topic=topic, since_ms=since_ms, with_stored=stored,
            report=report, display=display,
        )  # fmt: skip

    print_trace(Screen(as_json), run.do(check, work))


@pipeline_group.command()
@click.argument("folder")
@_namesrv
@click.option("--topic", required=True, help="The topic that the project reads.")
def init(folder: str, namesrv: str, topic: str) -> None:
    """Write a Spark Declarative Pipelines project over a topic.

    Example: arrowmq pipeline init my-orders --topic orders; cd my-orders; spark-pipelines run
    """
    from arrowmq.spark.pipelines.project import CATALOG, create_project

    try:
        files = create_project(folder, namesrv=namesrv, topic=topic)
    except (OSError, ValueError) as wrong:
        raise click.ClickException(str(wrong)) from None
    for path in files:
        click.echo(f"wrote {path}")
    click.echo(f"next: cd {folder} && spark-pipelines run {CATALOG}")
