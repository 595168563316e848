"""Writing to topics: what a row becomes, and that exactly-once means once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live import Server, wait_for
from pyspark.sql.types import StringType, StructField, StructType

from arrowmq.spark import run_stream
from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Connection, Refusal
from arrowmq.spark.options import OptionError
from arrowmq.spark.sink.batch_decisions import BEGUN, DONE, BatchDecisions, Entry
from arrowmq.spark.sink.send import Halves, Outgoing, Sender, may_leave
from arrowmq.spark.sink.transactions import BATCH_PROPERTY, QUERY_PROPERTY, Committer
from arrowmq.spark.sink.writer import Sent, SinkOptions, StreamWriter
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue

GROUP = "sink-tests"


def write(frame: Any, server: Server, topic: str | None = None, **options: str) -> None:
    writer = frame.write.format("arrowmq").option("namesrv", server.namesrv).options(**options)
    (writer if topic is None else writer.option("topic", topic)).mode("append").save()


def read(spark: Any, server: Server, topic: str) -> Any:
    return spark.read.format("arrowmq").option("namesrv", server.namesrv).option("topic", topic).load()


def test_columns_become_a_message(spark: Any, server: Server) -> None:
    frame = spark.sql(
        "select 'text' as body, 'SinkColumns' as topic, 'new' as tags, array('k1', 'k2') as keys, "
        "'customer-7' as shardingKey, map('city', 'Zürich', 'empty', '') as properties"
    )
    write(frame, server)
    (row,) = read(spark, server, "SinkColumns").collect()
    assert (b"text", "new", ["k1", "k2"]) == (bytes(row.body), row.tags, row["keys"])
    assert {"city": "Zürich", "__SHARDINGKEY": "customer-7"} == {
        name: value for name, value in row.properties.items() if name in ("city", "__SHARDINGKEY", "empty")
    }


def test_a_sharding_key_keeps_its_rows_together_and_in_order(spark: Any, server: Server) -> None:
    frame = spark.range(400).selectExpr("cast(id as string) as body", "concat('key', id % 5) as shardingKey")
    write(frame.coalesce(1), server, "SinkSharded")
    rows = sorted(read(spark, server, "SinkSharded").collect(), key=lambda row: row.queueOffset)
    for number in range(5):
        mine = [row for row in rows if row.properties["__SHARDINGKEY"] == f"key{number}"]
        assert 1 == len({row.queueId for row in mine})
        assert [str(item) for item in range(number, 400, 5)] == [bytes(row.body).decode() for row in mine]


def test_a_broker_of_several_threads_gets_one_batch_of_a_queue_at_a_time() -> None:
    """Apache's takes requests of one connection in any order: a million rows once came out of their order there."""
    first, second = (MessageQueue("t", "broker-a", number) for number in range(2))
    commands = [Command.request(RequestCode.SEND_BATCH_MESSAGE, {}) for _ in range(4)]
    batches = [[Outgoing(queue, b"x", {})] for queue in (first, second, first, second)]
    waiting = list(zip(batches, commands, strict=True))
    assert commands == may_leave(waiting, 0, 0, keeps_order=True)
    assert commands[:2] == may_leave(waiting, 0, 0, keeps_order=False)
    assert [] == may_leave(waiting, 0, 2, keeps_order=False)
    assert commands[2:3] == may_leave(waiting, 1, 2, keeps_order=False)
    assert commands[2:] == may_leave(waiting, 2, 2, keeps_order=False)
    delayed = [([Outgoing(first, b"x", {"DELAY": "1"})], command) for command in commands]
    assert commands == may_leave(delayed, 0, 0, keeps_order=False)


def test_queues_and_delays_can_be_chosen(spark: Any, server: Server) -> None:
    write(spark.sql("select 'x' as body, 3 as queueId"), server, "SinkQueue")
    assert [3] == [row.queueId for row in read(spark, server, "SinkQueue").collect()]
    write(spark.sql("select 'later' as body, 1 as delayLevel"), server, "SinkQueue")
    wait_for(lambda: read(spark, server, "SinkQueue").count() == 2, "the delayed message after its second")


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("select 1 as amount", {"topic": "t"}, "column amount is not one of a message"),
        ("select 1 as body", {"topic": "t"}, "column body is int, but must be binary or string"),
        ("select 'a' as tags", {"topic": "t"}, "no column body"),
        ("select 'a' as body", {}, "option topic: say where to write"),
        ("select 'a' as body", {"topic": "t", "delivery": "twice"}, "option delivery: 'twice' is none of"),
        (
            "select 'a' as body, 3 as delayLevel",
            {"topic": "t", "delivery": "exactly-once"},
            "option delivery: .*delayLevel",
        ),
        ("select 'a' as body", {"topic": "t", "producergrup": "g"}, "did you mean producerGroup"),
    ],
)
def test_a_frame_that_holds_no_messages_is_refused(
    spark: Any, server: Server, query: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        write(spark.sql(query), server, **options)


def test_one_bad_row_leaves_nothing_of_an_exactly_once_write(spark: Any, server: Server) -> None:
    write(spark.sql("select 'there' as body"), server, "SinkBadRow")
    frame = spark.range(200).selectExpr("if(id = 150, '', concat('row ', id)) as body")
    with pytest.raises(Exception, match="empty body"):
        write(frame, server, "SinkBadRow", delivery="exactly-once")
    assert [b"there"] == [bytes(row.body) for row in read(spark, server, "SinkBadRow").collect()]


# Spark writes a file of its log under another name, with a checksum beside it (on a local disk), and renames the file,
# then the checksum. A kill may come before all of it (and after the sink's commit), before the renaming, or in between.
def not_written(log: Path, number: str) -> None:
    (log / f".{number}.crc").unlink()
    (log / number).unlink()


def not_renamed(log: Path, number: str) -> None:
    (log / number).rename(log / f".{number}.7d1f.tmp")
    (log / f".{number}.crc").rename(log / f"..{number}.7d1f.tmp.crc")


def checksum_not_renamed(log: Path, number: str) -> None:
    (log / f".{number}.crc").rename(log / f"..{number}.7d1f.tmp.crc")


@pytest.mark.parametrize("leave", [not_written, not_renamed, checksum_not_renamed])
def test_a_stream_arrives_exactly_once_over_restarts(
    spark: Any, server: Server, tmp_path: Path, leave: Callable[[Path, str], None]
) -> None:
    source, target = f"SinkFrom-{leave.__name__}", f"SinkTo-{leave.__name__}"
    write(spark.range(500).selectExpr("cast(id as string) as body"), server, source)

    def run() -> None:
        stream = spark.readStream.format("arrowmq").option("namesrv", server.namesrv).option("topic", source)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200).load()
        writer = stream.select("body").writeStream.format("arrowmq").option("namesrv", server.namesrv)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_stream(writer.trigger(availableNow=True))

    run()
    commits = tmp_path / "checkpoint" / "commits"
    last = max((path.name for path in commits.iterdir() if path.name.isdigit()), key=int)
    leave(commits, last)
    if leave is checksum_not_renamed:
        leave(tmp_path / "checkpoint" / "offsets", last)
    write(spark.range(500, 600).selectExpr("cast(id as string) as body"), server, source)
    run()
    found = Counter(bytes(row.body) for row in read(spark, server, target).collect())
    assert {str(number).encode(): 1 for number in range(600)} == dict(found)


# --------------------------------------------------------------------------------------- the commit, without Spark


def connect(server: Server) -> Cluster:
    return Cluster(Connection((server.namesrv,), patience_s=20))


def send_halves(cluster: Cluster, topic: str, query: str, batch: int, bodies: list[str]) -> Halves:
    sender = Sender(cluster, GROUP, {})
    marks = {"TRAN_MSG": "true", "PGROUP": GROUP, QUERY_PROPERTY: query, BATCH_PROPERTY: str(batch)}
    for number, body in enumerate(bodies):
        properties = {**marks, "UNIQ_KEY": f"{query}{batch}{body}{id(sender):x}".upper()}
        sender.send([Outgoing(MessageQueue(topic, "broker-a", number % 4), body.encode(), properties)])
    return sender.halves


def visible(cluster: Cluster, topic: str) -> Counter[str]:
    from arrowmq.spark.source.pull import Subscription, read_range
    from arrowmq.spark.source.ranges import OffsetRange
    from arrowmq.wire.records import decode_records

    found: Counter[str] = Counter()
    route = cluster.route(topic)
    for queue, end in cluster.max_offsets(route.readable if route else []).items():
        for pulled in read_range(cluster, OffsetRange(queue, 0, end), Subscription()):
            found.update(record.body.decode() for record in decode_records(pulled.records))
    return found


class Crash(RuntimeError):
    """The process dies here."""


@pytest.fixture
def target(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic that exists, named after the test."""
    name = f"Commit{abs(hash(request.node.name)) % 10**8}"
    cluster = connect(server)
    Sender(cluster, GROUP, {}).send([Outgoing(MessageQueue(name, "broker-a", 0), b"first", {"UNIQ_KEY": name})])
    cluster.close()
    return name


@pytest.mark.parametrize("crash_after", range(12))
def test_a_commit_cut_off_anywhere_is_taken_up_and_nothing_is_there_twice(
    server: Server, target: str, crash_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rows: the crash comes before the book is written (0), between rows (1 to 10), and before `done` (11)."""
    bodies = [f"row {number}" for number in range(10)]
    query = f"query-{target}"
    cluster = connect(server)
    halves = send_halves(cluster, target, query, 0, bodies)
    first = Committer(cluster, GROUP)
    left = [crash_after]

    def crash() -> None:
        if left[0] == 0:
            raise Crash
        left[0] -= 1

    whole_end, whole_write = Committer._end, BatchDecisions.write

    def end(self: Committer, broker: str, places: list[tuple[int, int]], decision: int) -> None:
        for place in places:
            crash()
            whole_end(self, broker, [place], decision)

    def book_write(self: BatchDecisions, entry: Entry) -> None:
        if crash_after == 0 or entry.state == DONE:
            crash()
        whole_write(self, entry)

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_end", end)
        patched.setattr(BatchDecisions, "write", book_write)
        if crash_after < 11:
            with pytest.raises(Crash):
                first.end_batch(query, 0, halves, accepts_lost_record=False)
    cluster.close()

    # The same batch again, as Spark repeats it: new half messages, a new process.
    again = connect(server)
    repeated = send_halves(again, target, query, 0, bodies)
    second = Committer(again, GROUP)
    second.end_batch(query, 0, repeated, accepts_lost_record=False)
    second.end_batch(query, 0, repeated, accepts_lost_record=False)
    assert Counter({"first": 1, **dict.fromkeys(bodies, 1)}) == visible(again, target)
    latest = second.decisions.latest(query)
    assert latest is not None
    assert (0, DONE) == (latest.batch_id, latest.state)


def test_a_batch_that_is_given_up_after_its_commit_began_is_not_rolled_back(server: Server, target: str) -> None:
    cluster = connect(server)
    query = f"given-up-{target}"
    halves = send_halves(cluster, target, query, 0, ["a", "b"])
    committer = Committer(cluster, GROUP)
    committer.decisions.write(Entry(query, 0, BEGUN, halves, cluster.max_offsets(committer._targets(halves))))
    committer.give_up(query, 0, halves)
    Committer(connect(server), GROUP).end_batch(query, 0, Halves(), accepts_lost_record=False)
    assert Counter({"first": 1, "a": 1, "b": 1}) == visible(cluster, target)


def test_what_a_commit_is_about_to_begin_is_not_rolled_back_by_who_gives_it_up(server: Server, target: str) -> None:
    """A driver that dies slowly has Spark give the batch up while the process of its commit lives on."""
    cluster = connect(server)
    query = f"slow-{target}"
    sent = Sent(2, query, send_halves(cluster, target, query, 0, ["a", "b"]))
    schema = StructType([StructField("body", StringType())])
    options = {"namesrv": server.namesrv, "topic": target, "producerGroup": GROUP}
    writer = StreamWriter(SinkOptions.parse(options, schema, is_stream=True))
    writer.abort([sent], 0)
    writer.commit([sent], 0)
    assert Counter({"first": 1, "a": 1, "b": 1}) == visible(cluster, target)
    # Where a task has failed there is no commit to come.
    lost = Sent(1, query, send_halves(cluster, target, query, 1, ["c"]))
    writer.abort([lost, None], 1)
    with pytest.raises(Refusal, match="comes too late"):
        Committer(cluster, GROUP)._end("broker-a", lost.halves.places["broker-a"], 8)


@pytest.mark.parametrize("is_done", [False, True])
def test_of_two_drivers_that_commit_a_batch_at_once_the_first_in_the_topic_decides(
    server: Server, target: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"two-{target}"
    ours, theirs = connect(server), connect(server)
    mine = send_halves(ours, target, query, 0, ["a", "b", "c"])
    other = send_halves(theirs, target, query, 0, ["a", "b", "c"])
    rival = Committer(theirs, GROUP)
    whole = BatchDecisions.write

    def write_later(self: BatchDecisions, entry: Entry) -> None:
        """The other driver comes in between our look and our record."""
        monkeypatch.undo()
        whole(rival.decisions, Entry(query, 0, BEGUN, other, theirs.max_offsets(rival._targets(other))))
        if is_done:
            rival.end_batch(query, 0, Halves(), accepts_lost_record=False)
        whole(self, entry)

    monkeypatch.setattr(BatchDecisions, "write", write_later)
    Committer(ours, GROUP).end_batch(query, 0, mine, accepts_lost_record=False)
    assert Counter({"first": 1, "a": 1, "b": 1, "c": 1}) == visible(ours, target)
    latest = BatchDecisions(ours).latest(query)
    assert latest is not None
    assert (0, DONE) == (latest.batch_id, latest.state)


def test_a_record_that_can_be_read_only_a_moment_later_is_waited_for(
    server: Server, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's broker enters a message into its queue after it has acknowledged it."""
    query = f"moment-{target}"
    cluster = connect(server)
    stale: list[Entry | None] = [None, None, None]  # before the record is written, and twice after
    whole = BatchDecisions.latest
    monkeypatch.setattr(BatchDecisions, "latest", lambda self, name: stale.pop() if stale else whole(self, name))
    halves = send_halves(cluster, target, query, 0, ["a", "b"])
    Committer(cluster, GROUP).end_batch(query, 0, halves, accepts_lost_record=False)
    assert [] == stale
    assert Counter({"first": 1, "a": 1, "b": 1}) == visible(cluster, target)


def test_a_repetition_that_cannot_be_rolled_back_now_does_not_fail_its_batch(
    server: Server, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"unsaid-{target}"
    cluster = connect(server)
    committer = Committer(cluster, GROUP)
    committer.end_batch(query, 0, send_halves(cluster, target, query, 0, ["a"]), accepts_lost_record=False)
    repeated = send_halves(cluster, target, query, 0, ["a"])

    def lost(*_: Any) -> None:
        raise LinkLost("the broker is away")

    monkeypatch.setattr(Committer, "_end", lost)
    committer.end_batch(query, 0, repeated, accepts_lost_record=False)
    assert Counter({"first": 1, "a": 1}) == visible(cluster, target)


def test_a_broker_that_is_busy_is_asked_again_to_end_half_messages(
    server: Server, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"busy-{target}"
    cluster = connect(server)
    halves = send_halves(cluster, target, query, 0, ["a", "b"])
    refusals = [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY]
    whole = Committer._end

    def end(self: Committer, broker: str, places: list[tuple[int, int]], decision: int) -> None:
        if refusals:
            raise Refusal(refusals.pop(), "busy", "committing half messages")
        whole(self, broker, places, decision)

    monkeypatch.setattr(Committer, "_end", end)
    Committer(cluster, GROUP).end_batch(query, 0, halves, accepts_lost_record=False)
    assert Counter({"first": 1, "a": 1, "b": 1}) == visible(cluster, target)


def test_a_missing_book_stops_the_stream_instead_of_risking_duplicates(server: Server, target: str) -> None:
    cluster = connect(server)
    halves = send_halves(cluster, target, "forgotten", 5, ["x"])
    with pytest.raises(ValueError, match=r"option delivery: the batch decisions have no record of query forgotten"):
        Committer(cluster, GROUP).end_batch("forgotten", 5, halves, accepts_lost_record=False)
    Committer(cluster, GROUP).end_batch("forgotten", 5, halves, accepts_lost_record=True)
    assert 1 == visible(cluster, target)["x"]


def test_a_book_entry_larger_than_a_message_is_kept_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrowmq.spark.sink.batch_decisions.PART_BYTES", 200)
    cluster = connect(server)
    places = [(number * 7 % 1000, number * number) for number in range(500)]
    entry = Entry("large", 3, BEGUN, Halves({"broker-a": places}, {"t"}), {MessageQueue("t", "broker-a", 1): 9})
    BatchDecisions(cluster).write(entry)
    assert entry == BatchDecisions(cluster).latest("large")
    assert json.dumps(places) == json.dumps(entry.halves.places["broker-a"])


def test_a_broker_that_asks_about_a_lost_attempt_is_told_to_roll_it_back(tmp_path: Path) -> None:
    with Server(tmp_path, "transactionTimeOut=500", "transactionCheckInterval=500") as asking:
        cluster = connect(asking)
        Sender(cluster, GROUP, {}).send([Outgoing(MessageQueue("Asked", "broker-a", 0), b"first", {"UNIQ_KEY": "A"})])
        lost = send_halves(cluster, "Asked", "asked", 0, ["lost"])
        kept = send_halves(cluster, "Asked", "asked", 0, ["kept"])
        committer = Committer(cluster, GROUP)
        committer.end_batch("asked", 0, kept, accepts_lost_record=False)
        asked: list[str] = []
        answer = committer._answer

        def note(broker: str, question: Any) -> None:
            answer(broker, question)
            asked.append(broker)

        committer._answer = note  # type: ignore[method-assign]

        def was_asked() -> bool:
            committer.answer_questions(kept)
            return bool(asked)

        wait_for(was_asked, "a question of the broker about the half message that nobody ended")
        # The decision stands: what comes later cannot make the message visible.
        with pytest.raises(Refusal, match="committing half messages"):
            wait_for(lambda: committer._end("broker-a", lost.places["broker-a"], 8) is not None, "a refusal")
        assert Counter({"first": 1, "kept": 1}) == visible(cluster, "Asked")


def test_a_batch_write_that_names_itself_is_written_once(spark: Any, server: Server) -> None:
    """As foreachBatch repeats it after a crash: the same id, the same version."""
    frame = spark.sql("select 'named' as body")
    for version in ("0", "0", "1"):
        write(frame, server, "SinkNamed", delivery="exactly-once", txnAppId="test-named", txnVersion=version)
    assert 2 == read(spark, server, "SinkNamed").count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnAppId": "a"}, "option txnAppId: txnAppId and txnVersion are used together"),
        ({"txnAppId": "a", "txnVersion": "1"}, "option txnAppId: needs delivery=exactly-once"),
    ],
)
def test_half_a_name_is_refused(options: dict[str, str], said: str) -> None:
    schema = StructType([StructField("body", StringType())])
    with pytest.raises(OptionError, match=said):
        SinkOptions.parse({"namesrv": "h:1", "topic": "t", **options}, schema, is_stream=False)
