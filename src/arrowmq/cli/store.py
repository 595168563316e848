"""`arrowmq store`: look into a store directory, check it, and rebuild what is derived from its log.

For directories of ArrowMQ and of Apache's broker alike: file sizes are read off the files. `check`, `dump` and `stats`
change nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from arrowmq.auth.signature import sign
from arrowmq.cli.cluster_link import connect_options, identity_options
from arrowmq.cli.examples import examples
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.store import MessageStore, StoreConfig, StoreError
from arrowmq.store.integrity.check import StoreCheck
from arrowmq.store.integrity.inspection import StoreView, detect_config
from arrowmq.store.integrity.repair import repair as repair_store
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import Record

DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting that the files cannot tell."
)


@click.group("store")
def store_group() -> None:
    """Check, dump, measure and rebuild a store directory."""


def config_of(directory: Path, settings: tuple[str, ...]) -> StoreConfig:
    found = detect_config(directory)
    words = dict(word.partition("=")[::2] for word in settings)
    given = StoreConfig.from_broker_config(words)
    default = StoreConfig()
    changed = {
        name: getattr(given, name) for name in StoreConfig.__slots__ if getattr(given, name) != getattr(default, name)
    }
    return replace(found, **changed)


@contextmanager
def told_plainly() -> Iterator[None]:
    """A store's error is a sentence for the user, not a stack trace."""
    try:
        yield
    except (StoreError, PermissionError) as problem:
        raise click.ClickException(str(problem)) from problem


def progress_bar(console: Console, *columns: Any) -> Progress:
    return Progress(
        TextColumn("{task.description:>8}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


@store_group.command("check", epilog=examples("arrowmq store check arrowmq-data"))
@DIRECTORY
@SETTINGS
def check(directory: Path, settings: tuple[str, ...]) -> None:
    """Verify every record, checksum, queue entry and index entry. Ends with status 1 if something is wrong."""
    console = Console()
    with told_plainly():
        view = StoreView(directory, config_of(directory, settings))
        stats = view.stats()
        started = time.monotonic()
        with progress_bar(console, DownloadColumn()) as records, progress_bar(console, MofNCompleteColumn()) as entries:
            bars = {
                "records": (records, records.add_task("records", total=stats.log_bytes)),
                "queues": (entries, entries.add_task("queues", total=stats.messages)),
                "index": (entries, entries.add_task("index", total=stats.index_entries)),
            }

            def advance(stage: str, amount: int) -> None:
                bar, task = bars[stage]
                bar.advance(task, amount)

            report = StoreCheck(view).run(advance)
    took_s = time.monotonic() - started
    for problem in report.problems:
        console.print(f"[red]{problem.where}[/red]: {problem.what}", highlight=False, soft_wrap=True)
    if report.problem_count > len(report.problems):
        console.print(f"… and {report.problem_count - len(report.problems)} more")
    console.print(
        f"{report.records} records ({report.record_bytes} bytes), {report.queue_entries} queue entries, "
        f"{report.index_entries} index entries in {took_s:.1f} s; the log ends at {report.end}",
        highlight=False,
    )
    if not report.is_clean:
        console.print("The broker did not stop in order, or still runs (there is a file `abort`).", highlight=False)
    if not report.is_sound:
        advice = "`arrowmq store rebuild` makes queues and index anew."
        if report.holes:
            advice += f" `arrowmq store repair {directory} --from ADDRESS` takes damaged records from a replica."
        console.print(f"[red]{report.problem_count} problems.[/red] {advice}", highlight=False)
        raise SystemExit(1)
    console.print("[green]All sound.[/green]")


@store_group.command("stats", epilog=examples("arrowmq store stats arrowmq-data --json"))
@DIRECTORY
@SETTINGS
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def stats(directory: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Show what the directory holds: topics, queues, offsets, files."""
    with told_plainly():
        view = StoreView(directory, config_of(directory, settings))
        found = view.stats()
    topics = {
        topic: [
            [queue.queue_id, queue.min_offset, queue.max_offset] for queue in sorted(queues, key=lambda q: q.queue_id)
        ]
        for topic, queues in sorted(found.topics.items())
    }
    if as_json:
        click.echo(
            json.dumps(
                {
                    "segments": found.segments,
                    "segmentBytes": view.config.mapped_file_size_commit_log,
                    "minPhysicalOffset": found.min_physical_offset,
                    "messages": found.messages,
                    "indexFiles": found.index_files,
                    "indexEntries": found.index_entries,
                    "isClean": found.is_clean,
                    "batchTopics": found.batch_topics,
                    "topics": topics,
                }
            )
        )
        return
    table = Table("topic", "queue", "min", "max", "messages")
    for topic, queues in topics.items():
        for queue_id, smallest, largest in queues:
            table.add_row(topic, str(queue_id), str(smallest), str(largest), str(largest - smallest))
    console = Console()
    console.print(table)
    console.print(
        f"{found.messages} messages, {found.segments} segments of {view.config.mapped_file_size_commit_log} bytes from "
        f"{found.min_physical_offset} on, {found.index_entries} index entries in {found.index_files} files, "
        + ("stopped in order" if found.is_clean else "not stopped in order, or running"),
        highlight=False,
    )
    for topic in found.batch_topics:
        console.print(f"{topic}: a BatchCQ topic; its queues are not counted here", highlight=False)


@store_group.command("dump", epilog=examples("arrowmq store dump arrowmq-data --topic orders --limit 10 --bodies"))
@DIRECTORY
@SETTINGS
@click.option("--topic", help="Only this topic.")
@click.option("--queue", type=int, help="Only this queue of it.")
@click.option("--from", "start", type=int, default=0, help="Physical offset of a record to start at.")
@click.option("--limit", type=int, default=0, help="At most so many messages; 0 means all.")
@click.option("--bodies", is_flag=True, help="With the bodies (text where it is UTF-8, else hex).")
def dump(
    directory: Path,
    settings: tuple[str, ...],
    topic: str | None,
    queue: int | None,
    start: int,
    limit: int,
    bodies: bool,
) -> None:
    """Print the messages of the log, one JSON object a line."""
    with told_plainly():
        view = StoreView(directory, config_of(directory, settings))
        printed = 0
        for record in view.records(start):
            if (topic is not None and record.topic != topic) or (queue is not None and record.queue_id != queue):
                continue
            click.echo(json.dumps(described(record, bodies), ensure_ascii=False))
            printed += 1
            if printed == limit:
                break


def described(record: Record, with_body: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "storeTimestamp": record.store_timestamp,
        "bornTimestamp": record.born_timestamp,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "msgId": record.msg_id,
        "properties": record.properties,
        "bodyBytes": len(record.body),
    }
    if with_body:
        try:
            found["body"] = record.decompressed_body().decode()
        except ValueError:
            found["bodyHex"] = record.body.hex()
    return found


@store_group.command("rebuild", epilog=examples("arrowmq store rebuild arrowmq-data"))
@DIRECTORY
@SETTINGS
def rebuild(directory: Path, settings: tuple[str, ...]) -> None:
    """Make the consume queues and the index anew from the commit log. The broker must be stopped."""
    console = Console()
    with told_plainly():
        config = config_of(directory, settings)
        total = sum(path.stat().st_size for path in (directory / "commitlog").iterdir())
        store = MessageStore(directory, config)
        with progress_bar(console, DownloadColumn()) as bar:
            task = bar.add_task("log", total=total)
            recovered = store.open(rebuilds=True, progress=lambda amount: bar.advance(task, amount))
            store.close()
    console.print(
        f"{recovered.records_read} records read, {recovered.entries_rebuilt} entries written to {recovered.queues} "
        f"queues, {recovered.cut_bytes} bytes cut off the end ({recovered.reason}), {len(recovered.holes)} damaged "
        "places left in the log",
        highlight=False,
    )


@store_group.command("repair", epilog=examples("arrowmq store repair arrowmq-data --from 10.0.0.2:10911"))
@DIRECTORY
@SETTINGS
@click.option("--from", "address", required=True, metavar="HOST:PORT", help="A master or slave with the same log.")
@identity_options
def repair(directory: Path, settings: tuple[str, ...], address: str, **identity: Any) -> None:
    """Replace damaged records by those of a replica. The broker must be stopped. Status 1 if some are left."""
    console = Console()
    connect = connect_options(**identity)
    credentials = connect.get("credentials")

    def sign_with_key(request: Command) -> None:
        if credentials is not None:
            sign(request.ext, request.body, credentials[0], credentials[1].encode())

    with told_plainly(), asyncio.Runner() as runner:
        remoting = RemotingClient(tls=connect.get("tls"), sign=sign_with_key)

        def fetch(place: int) -> bytes | None:
            request = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})
            answer = runner.run(remoting.invoke(address, request, identity["timeout_s"]))
            if answer.code == ResponseCode.NO_PERMISSION:
                why = f"{address} refuses: {answer.remark}"
                raise click.ClickException(f"{why}; --access-key must be of a user who may see the message")
            return bytes(answer.body) if answer.code == ResponseCode.SUCCESS and answer.body else None

        try:
            result = repair_store(directory, config_of(directory, settings), fetch)
        except RemotingError as problem:
            raise click.ClickException(f"{problem}; what was repaired before is kept, repeat the command") from problem
        finally:
            runner.run(remoting.close())
    for reason in result.left:
        console.print(f"[red]not repaired[/red] {reason}", highlight=False, soft_wrap=True)
    console.print(f"{result.records} records ({result.record_bytes} bytes) were taken from {address}", highlight=False)
    if result.left:
        raise SystemExit(1)
