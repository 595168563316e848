"""The pipelines on real data, stopped and started again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Golden
from live import Server
from test_source import connect, fill

from arrowmq.cli.pipeline.command import pipeline_group
from arrowmq.spark import pipelines
from arrowmq.spark.pipelines.files import Folder
from arrowmq.spark.sink.send import Outgoing, Sender
from arrowmq.wire.message_queue import MessageQueue


def count(spark: Any, server: Server, topic: str) -> list[Any]:
    return list(spark.read.format("arrowmq").option("namesrv", server.namesrv).option("topic", topic).load().collect())


def test_an_archive_holds_each_message_once_and_can_be_replayed(spark: Any, server: Server, tmp_path: Path) -> None:
    fill(server, "Archived", 300)
    options = {"namesrv": server.namesrv, "topics": "Archived", "path": str(tmp_path / "lake")}
    first = pipelines.archive(spark, **options, max_offsets_per_trigger=200)
    fill(server, "Archived", 50, first=300)
    second = pipelines.archive(spark, **options, report=str(tmp_path / "archive.html"))
    assert (300, 50) == (first.rows, second.rows)
    table = spark.read.parquet(first.path)
    assert 350 == table.count() == table.select("msgId").distinct().count()
    assert {"topic", "date", "hour"} <= set(table.columns)
    page = (tmp_path / "archive.html").read_text()
    assert "<svg" in page
    assert ">350<" in page

    again = {"namesrv": server.namesrv, "archive": str(tmp_path / "lake"), "work": str(tmp_path / "replay")}
    again |= {"topic": "Replayed", "where": "tags = 'tag1'"}
    assert 117 == pipelines.replay(spark, **again).rows
    assert (0, 117) == (pipelines.replay(spark, **again).rows, pipelines.replay(spark, **again).total)
    with pytest.raises(ValueError, match=r"option work: .* keeps a replay whose topic is Replayed, not Other"):
        pipelines.replay(spark, **{**again, "topic": "Other"})
    with pytest.raises(ValueError, match="option where: 'no condition' is no condition on messages"):
        pipelines.replay(spark, **{**again, "where": "no condition", "work": str(tmp_path / "other")})
    rows = count(spark, server, "Replayed")
    assert 117 == len({bytes(row.body) for row in rows}) == len(rows)
    assert all(row.properties["REPLAYED_FROM"].startswith("Archived ") and "n" in row.properties for row in rows)


def test_a_kill_between_a_file_and_its_checksum_does_not_end_a_replay(spark: Any, tmp_path: Path) -> None:
    """Hadoop keeps the checksum of a local file in a second one; the two are not written at the same moment."""
    folder = Folder(spark, str(tmp_path / "work folder"))
    assert folder.read_json("sent.json") is None
    folder.write_json("sent.json", {"pieces": 1})
    (tmp_path / "work folder" / ".sent.json.crc").write_bytes(b"crc\0\0\0\2\0" + b"\1" * 4)
    assert {"pieces": 1} == folder.read_json("sent.json")
    folder.write_json("sent.json", {"pieces": 2})
    assert {"pieces": 2} == Folder(spark, f"file://{tmp_path}/work folder").read_json("sent.json")


def test_a_time_range_of_a_store_is_replayed(spark: Any, server: Server, golden: Golden, tmp_path: Path) -> None:
    path, expected = golden.store("store-clean")
    wanted = [message for message in expected["messages"] if message["topic"] == "TopicSync"]
    done = pipelines.replay(
        spark, namesrv=server.namesrv, store=str(path), from_topic="TopicSync", topic="FromStore",
        work=str(tmp_path), rate=10_000, since="2020-01-01 00:00:00",
    )  # fmt: skip
    assert len(wanted) == done.rows
    assert sorted(message["keys"].split()[0] for message in wanted if message["keys"]) == sorted(
        row["keys"][0] for row in count(spark, server, "FromStore") if row["keys"]
    )


def kill_letters(server: Server, group: str, bodies: list[bytes], origin: str = "Repaired") -> None:
    """Dead letters as a broker writes them."""
    cluster = connect(server)
    for number, body in enumerate(bodies):
        properties = {
            "UNIQ_KEY": f"DEAD{number:028d}",
            "DLQ_ORIGIN_TOPIC": origin,
            "DLQ_ORIGIN_MESSAGE_ID": f"ORIGIN{number:026d}",
            "KEYS": f"k{number}",
            "currency": "EUR",
        }
        Sender(cluster, "tests", {}).send([Outgoing(MessageQueue(f"%DLQ%{group}", "broker-a", 0), body, properties)])
    cluster.close()


def test_dead_letters_are_shown_repaired_and_resent_once(spark: Any, server: Server, tmp_path: Path) -> None:
    kill_letters(server, "Repair", [b'{"amount": "12"}', b"rubbish", b'{"amount": "7"}'])
    table = pipelines.dead_letters(spark, namesrv=server.namesrv, groups=["Repair"]).collect()
    assert [("Repair", "Repaired", "k0"), ("Repair", "Repaired", "k1"), ("Repair", "Repaired", "k2")] == sorted(
        (row.consumerGroup, row.originTopic, row["keys"][0]) for row in table
    )
    (tmp_path / "fixes.py").write_text(
        "import json\n"
        "def amount_is_a_number(message):\n"
        "    try:\n"
        "        order = json.loads(message['body'])\n"
        "    except ValueError:\n"
        "        return None\n"
        "    return {**message, 'body': json.dumps({'amount': int(order['amount'])})}\n"
    )
    options = {"namesrv": server.namesrv, "groups": ["Repair"], "work": str(tmp_path / "work")}
    repair = f"{tmp_path}/fixes.py:amount_is_a_number"
    for _ in range(2):
        done = pipelines.resend(spark, **options, repair=repair)
    rows = count(spark, server, "Repaired")
    assert [7, 12] == sorted(json.loads(row.body)["amount"] for row in rows)
    assert {"EUR"} == {row.properties["currency"] for row in rows}
    trail = spark.read.parquet(done.trail).collect()
    assert [("left", False), ("resent", True), ("resent", True)] == sorted((r.action, r.wasChanged) for r in trail)
    assert {"1"} == {row.properties["RESENT_TIMES"] for row in rows}
    with pytest.raises(ValueError, match=r"option repair: .* has no function nothing"):
        pipelines.resend(spark, **options, repair=f"{tmp_path}/fixes.py:nothing")


def test_an_audit_finds_damage_gaps_and_duplicates(spark: Any, server: Server, golden: Golden, tmp_path: Path) -> None:
    """A store, a copy of it with one byte turned in the middle of a queue, and a broker that got a message twice."""
    clean, expected = golden.store("store-clean")
    copy = tmp_path / "copy"
    shutil.copytree(clean, copy)
    record = next(m for m in expected["messages"] if m["topic"] == "TopicBulk" and m["queueOffset"] == 5)
    segment = copy / "commitlog" / f"{record['commitLogOffset'] // 262144 * 262144:020d}"
    data = bytearray(segment.read_bytes())
    data[record["commitLogOffset"] % 262144 + 88] ^= 1
    segment.write_bytes(data)
    cluster = connect(server)
    for queue_id in (0, 1):
        queue = MessageQueue("Twice", "broker-a", queue_id)
        Sender(cluster, "tests", {}).send([Outgoing(queue, b"again", {"UNIQ_KEY": "TWICE"})])
    cluster.close()

    found = pipelines.audit(
        spark, stores=[str(clean), str(copy), str(server.store)], topics=None, report=str(tmp_path / "audit.html")
    )
    assert not found.is_sound
    assert [record["commitLogOffset"]] == [row.commitLogOffset for row in found.damage]
    place = ("TopicBulk", record["queueId"])
    assert [(*place, 5, 5, str(copy))] == [
        (row.topic, row.queueId, row.firstMissing, row.lastMissing, row.store) for row in found.gaps
    ]
    assert [(*place, 1, 0, 0, 0)] == [
        (row.topic, row.queueId, row.holes, row.others, row.older, row.newer) for row in found.differences
    ]
    assert ("Twice", "TWICE", 2, 1) in {(row.topic, row.msgId, row.positions, row.brokers) for row in found.duplicates}
    counts = {row.store: row.messages for row in found.stores}
    assert (len(expected["messages"]), len(expected["messages"]) - 1) == (counts[str(clean)], counts[str(copy)])
    page = (tmp_path / "audit.html").read_text()
    assert "the checksum of its body does not match" in page
    assert "http" not in page.split("</style>")[1]
    with pytest.raises(ValueError, match=r"option path: .* is the same store as"):
        pipelines.audit(spark, stores=[str(clean), f"{clean}/commitlog"])


def trace_records(server: Server, topic: str) -> None:
    """Twenty messages sent, delivered after 50 ms and consumed in 30, as RocketMQ's clients write it."""

    def record(*fields: object) -> str:
        return "\x01".join(map(str, fields)) + "\x02"

    text = ""
    for number in range(20):
        at, ids = 1_700_000_000_000 + number, f"m{number}"
        text += record("Pub", at, "r", "pg", "Traced", ids, "t", "k", "h:1", 100, 5, 0, f"o{number}", "true")
        text += record("SubBefore", at + 50, "r", "cg", f"q{number}", ids, 0, "k")
        text += record("SubAfter", f"q{number}", ids, 30, "true", "k", 0, at + 80, "cg")
    text += record("Pub", "not a number")
    cluster = connect(server)
    queue = MessageQueue(topic, "broker-a", 0)
    Sender(cluster, "tests", {}).send([Outgoing(queue, text.encode(), {"UNIQ_KEY": "T"})])
    cluster.close()


def test_latencies_come_out_of_the_trace_topic(spark: Any, server: Server, tmp_path: Path) -> None:
    trace_records(server, "TraceTopic")
    found = pipelines.trace(
        spark, namesrv=server.namesrv, trace_topic="TraceTopic", report=str(tmp_path / "trace.html")
    )
    assert (20, 20, 0, 1) == (found.sends, found.deliveries, found.failures, found.unreadable)
    assert [5, 5, 5] == found.by_topic[0].send
    assert (50, 30) == (found.by_group[0].waited[0], found.by_group[0].consumed[0])
    page = (tmp_path / "trace.html").read_text()
    assert "Traced" in page
    assert "records not understood" in page


def test_a_project_is_written_once_and_is_python(tmp_path: Path) -> None:
    folder = tmp_path / "my-orders"
    done = CliRunner().invoke(pipeline_group, ["init", str(folder), "--topic", "orders", "-n", "h:9876"])
    assert 0 == done.exit_code
    source = (folder / "transformations" / "messages.py").read_text()
    compile(source, "messages.py", "exec")
    assert 'option("topic", "orders")' in source
    assert "name: my_orders" in (folder / "spark-pipeline.yml").read_text()
    again = CliRunner().invoke(pipeline_group, ["init", str(folder), "--topic", "orders"])
    assert 1 == again.exit_code
    assert "is there already" in again.output


@pytest.mark.parametrize("command", ["archive", "replay", "dead-letters", "audit", "trace", "init"])
def test_every_command_explains_itself(command: str) -> None:
    done = CliRunner().invoke(pipeline_group, [command, "--help"])
    assert 0 == done.exit_code
    assert "Example:" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["archive", "--to", "x"], "--topics or --topic-pattern"),
        (["replay", "--work", "x"], "either --archive or --store"),
        (["dead-letters", "--resend"], "--resend needs --work"),
        (["dead-letters", "--repair", "a:b"], "add --resend"),
    ],
)
def test_commands_refuse_what_they_cannot_do_before_spark_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(pipeline_group, arguments)
    assert 2 == done.exit_code
    assert said in done.output
