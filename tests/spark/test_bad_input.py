"""Bad input: a sentence that names the option at fault, and no half-written output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from live import Server
from test_pipelines import count, kill_letters
from test_source import connect, fill, run_stream, source

from arrowmq.cli.pipeline.command import pipeline_group
from arrowmq.spark import pipelines
from arrowmq.spark.options import OptionError
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.spark.source.ranges import Bounds, stream_starts
from arrowmq.spark.stream_start import unhurried
from arrowmq.wire.message_queue import MessageQueue


@pytest.fixture
def lonely_namesrv(tmp_path: Path) -> Iterator[str]:
    """A NameServer that no broker has registered with."""
    command = [sys.executable, "-c", "from arrowmq.cli import main; main()", "namesrv", "--port", "0"]
    command += ["--dir", str(tmp_path / "namesrv"), "--log-level", "warning", "--stop-with-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().split()[2]
        process.stdin.close()


# ------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["archive", "--topics", "Nowhere", "--to", "out"], "option topic: topic Nowhere does not exist"),
        (["archive", "--topic-pattern", "No.such.*", "--to", "out"], "option topicPattern: no topic's name matches"),
        (["archive", "--topic-pattern", "(", "--to", "out"], "option topicPattern: '(' is not a regular expression"),
        (["archive", "--topics", "BadInput", "--sql", "price >", "--to", "out"], "option sql: "),
        (["archive", "--topics", "BadInput", "--tags", "a ||", "--to", "out"], "option tags: 'a ||' is not"),
        (["archive", "--topics", "BadInput", "--format", "iceberg", "--to", "out"], "Iceberg has no build"),
        (["replay", "--store", "nowhere", "--work", "out"], "option path: nowhere does not exist"),
        (["replay", "--archive", "a", "--since", "lunch", "--work", "out"], "option since: 'lunch' is not a time"),
        (["dead-letters", "--group", "Immortal", "--resend", "--work", "out"], "group Immortal has no dead letters"),
        (["trace", "--topic", "Nowhere", "--report", "out"], "option topic: topic Nowhere does not exist"),
    ],
)
def test_a_command_that_cannot_succeed_ends_before_it_writes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    fill(server, "BadInput", 4)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(pipeline_group, [*arguments, "-n", server.namesrv])
    assert 1 == done.exit_code
    assert said in done.output
    assert 1 == len(done.output.strip().splitlines())
    assert [] == list(tmp_path.iterdir())


def test_a_command_without_a_cluster_says_who_is_missing(lonely_namesrv: str, tmp_path: Path) -> None:
    for address, said in (
        (lonely_namesrv, f"option namesrv: no broker is registered with {lonely_namesrv}"),
        ("127.0.0.1:1", "no NameServer answers (option namesrv)"),
        ("somewhere", "option namesrv: 'somewhere' is not host:port"),
    ):
        arguments = ["archive", "-n", address, "--topics", "orders", "--to", str(tmp_path / "lake")]
        done = CliRunner().invoke(pipeline_group, arguments)
        assert 1 == done.exit_code
        assert said in done.output
    assert not (tmp_path / "lake").exists()


# --------------------------------------------------------------------------------------------- offsets out of range


def test_a_new_stream_begins_within_its_queue_or_not_at_all() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    held = {queue: Bounds(100, 200)}
    for start in (100, 150, 200):
        assert {queue: start} == stream_starts("startingOffsets", {queue: start}, held, fail_on_data_loss=True)
    for start, nearest in ((99, 100), (201, 200)):
        with pytest.raises(OptionError, match=rf"option startingOffsets: queue broker-a:3 .*100 to 200, not {start}"):
            stream_starts("startingOffsets", {queue: start}, held, fail_on_data_loss=True)
        assert {queue: nearest} == stream_starts("startingOffsets", {queue: start}, held, fail_on_data_loss=False)


def test_offsets_out_of_range_are_refused_by_table_and_stream(spark: Any, server: Server, tmp_path: Path) -> None:
    """The stream would otherwise wait in silence and skip whatever comes before the offset."""
    fill(server, "OutOfRange", 8)
    beyond = '{"OutOfRange":{"0":99}}'
    with pytest.raises(Exception, match=r"option startingOffsets: .*would start at 99, after its end 2"):
        source(spark, server, topic="OutOfRange", startingOffsets=beyond).count()
    with pytest.raises(Exception, match=r"option startingOffsets: names queue 9 of topic OutOfRange, which is not"):
        source(spark, server, topic="OutOfRange", startingOffsets='{"OutOfRange":{"9":0}}').count()
    with pytest.raises(Exception, match=r"option startingOffsets: queue broker-a:0 .*holds 0 to 2, not 99"):
        run_stream(spark, server, tmp_path, topic="OutOfRange", startingOffsets=beyond)
    assert [] == list(tmp_path.glob("data/*.parquet"))


def test_a_topic_that_was_made_anew_ends_its_stream_in_every_trigger(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    """The checkpoint is further than the topic: with AvailableNow, too, that is lost data and not an idle stream."""
    from arrowmq.wire.codes import RequestCode
    from arrowmq.wire.frames import Command

    fill(server, "Anew", 40)
    options = {"topic": "Anew", "startingOffsets": "earliest"}
    run_stream(spark, server, tmp_path, **options)
    cluster = connect(server)
    for code in (RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.DELETE_TOPIC_IN_BROKER):
        command = Command.request(code, {"topic": "Anew"})
        if code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
            cluster.ask_namesrv(command, "deleting a topic")
        else:
            cluster.ask_broker("broker-a", command, "deleting a topic")
    cluster.close()
    fill(server, "Anew", 4)
    with pytest.raises(Exception, match=r"option failOnDataLoss: queue broker-a:\d of topic Anew ends at 1, but .*10"):
        run_stream(spark, server, tmp_path, **options)
    assert 40 == spark.read.parquet(str(tmp_path / "data")).count()


# --------------------------------------------------------------------------------------------- what is to be written


def test_a_topic_that_cannot_come_into_being_is_refused_before_a_row_is_sent(spark: Any, tmp_path: Path) -> None:
    with Server(tmp_path, "autoCreateTopicEnable=false") as strict:
        frame = spark.range(10).selectExpr("cast(id as string) as body")
        for delivery in ("at-least-once", "exactly-once"):
            writer = frame.write.format("arrowmq").options(namesrv=strict.namesrv, topic="Nowhere", delivery=delivery)
            with pytest.raises(Exception, match=r"option topic: topic Nowhere does not exist .*arrowmq topic create"):
                writer.mode("append").save()
        assert "Nowhere" not in connect(strict).topics()


def test_a_body_that_does_not_fit_its_schema_leaves_nothing_of_its_batch(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    """Parsed strictly on the way from topic to topic: the good rows before the bad one must not be seen either."""
    cluster = connect(server)
    bodies = [b'{"amount": 1}', b'{"amount": 2}', b'{"amount": "three"}', b'{"amount": 4}']
    queue = MessageQueue("Amounts", "broker-a", 0)
    Sender(cluster, "tests", {}).send([Outgoing(queue, body, {"UNIQ_KEY": f"A{n}"}) for n, body in enumerate(bodies)])
    Sender(cluster, "tests", {}).send([Outgoing(MessageQueue("Sums", "broker-a", 0), b"first", {"UNIQ_KEY": "S"})])
    cluster.close()

    def run(mode: str) -> None:
        stream = spark.readStream.format("arrowmq").options(namesrv=server.namesrv, topic="Amounts")
        parsed = f"from_json(cast(body as string), 'amount int', map('mode', '{mode}')).amount as amount"
        rows = stream.option("startingOffsets", "earliest").load().selectExpr(parsed)
        rows = rows.where("amount is not null").selectExpr("cast(amount * 10 as string) as body")
        writer = rows.writeStream.format("arrowmq").options(namesrv=server.namesrv, topic="Sums")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        unhurried(lambda: writer.start().awaitTermination())

    with pytest.raises(Exception, match=r"MALFORMED_RECORD_IN_PARSING|Malformed records"):
        run("FAILFAST")
    assert [b"first"] == [bytes(row.body) for row in count(spark, server, "Sums")]
    run("PERMISSIVE")
    assert [b"10", b"20", b"40", b"first"] == sorted(bytes(row.body) for row in count(spark, server, "Sums"))


def test_a_repair_that_fails_decides_and_sends_nothing(spark: Any, server: Server, tmp_path: Path) -> None:
    kill_letters(server, "Clumsy", [b"good", b"bad", b"good too"], "Clumsily")

    def clumsy(message: dict[str, Any]) -> Any:
        return 7 if message["body"] == b"bad" else message

    options = {"namesrv": server.namesrv, "groups": ["Clumsy"], "work": str(tmp_path / "work")}
    with pytest.raises(Exception, match="option repair: the function gave int, not a message"):
        pipelines.resend(spark, **options, repair=clumsy)
    assert [] == list((tmp_path / "work").glob("trail/_spark_metadata/[0-9]*"))
    assert connect(server).route("Clumsily") is None
    done = pipelines.resend(spark, **options)
    assert (3, 3) == (done.decided, done.sent)
