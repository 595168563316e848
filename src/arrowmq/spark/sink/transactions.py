"""Ends the half messages of a batch, once: the commit of the exactly-once sink.

    tasks       send half messages; each answer says where the half message lies
    commit      writes `begun` with all those places into the decisions topic, ends each half message, writes `done`
    repeated    finds the batch among the decisions: `done` → nothing to do; `begun` → looks which messages are visible
                already (a committed message names the half message it was made from) and ends the others;
                in both cases the half messages of the repetition are rolled back
    at once     a driver that was killed may live on for a moment, with its commit under way: whose `begun` is the first
                in the topic decides, and each looks again after it has written its own
    asked back  a broker asks about half messages that nobody ended: those of batches that are done, or of attempts
                that lost, are rolled back; of a batch that is under way the answer is "not known yet"

Half messages are only ever committed by the place they were first sent to, never in answer to a question of the
broker, who by then has copied them to another place: so none can be committed twice.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator

from arrowmq.spark.blocking_link import LinkLost
from arrowmq.spark.cluster import Cluster, Refusal
from arrowmq.spark.options import OptionError
from arrowmq.spark.sink.batch_decisions import BEGUN, DONE, BatchDecisions, Entry
from arrowmq.spark.sink.exchange import Run, end_frames
from arrowmq.spark.sink.send import BUSY, Halves
from arrowmq.spark.source.pull import Subscription, read_range
from arrowmq.spark.source.ranges import OffsetRange
from arrowmq.wire import fastjson
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import RecordError
from arrowmq.wire.frames import Command
from arrowmq.wire.message_queue import MessageQueue
from arrowmq.wire.records import decode_record, decode_records

log = logging.getLogger("arrowmq.spark.sink.transactions")

QUERY_PROPERTY = "SPARK_QUERY_ID"
BATCH_PROPERTY = "SPARK_BATCH_ID"
COMMIT, ROLLBACK = 8, 12
HEARTBEAT_S = 20.0
ENDS_A_WRITE = 256
SETTLE_S = 1.0  # how long a look at the target must show nothing new after a connection was lost in the middle

Place = tuple[int, int]  # offset in the half queue, offset in the commit log
Places = dict[str, list[Place]]


class Committer:
    """The producer that brokers know: ends half messages and answers questions about them. One for each process."""

    def __init__(self, cluster: Cluster, producer_group: str) -> None:
        self.cluster = cluster
        self.group = producer_group
        self.decisions = BatchDecisions(cluster)
        self._client_id = f"spark@{os.getpid()}#{uuid.uuid4().hex[:8]}"
        self._heartbeats: dict[str, float] = {}
        self._questions: list[tuple[str, Command]] = []

    # --------------------------------------------------------------------------------------------- commit of a batch

    def end_batch(self, query_id: str, batch_id: int, halves: Halves, *, accepts_lost_record: bool) -> None:
        self.answer_questions(halves)
        known = self.decisions.latest(query_id)
        if known is None and batch_id > 0 and not accepts_lost_record:
            raise OptionError(
                "delivery",
                f"the batch decisions have no record of query {query_id} before batch {batch_id}: the broker that "
                "holds it is away, or it is older than the retention time. Bring that broker back; or, if no batch of "
                "this query was interrupted while committing, continue with acceptLostRecord=true",
            )
        if known is not None and known.state == BEGUN:
            self._finish(known)
        if known is None or known.batch_id < batch_id:
            before = self.cluster.max_offsets(self._targets(halves))
            entry = Entry(query_id, batch_id, BEGUN, halves, before)
            self.decisions.write(entry)
            known = self._standing(entry)
            self._finish(known, is_fresh=known.is_of(halves))
        if not known.is_of(halves):
            log.info("batch %d of query %s is committed already; its repetition is rolled back", batch_id, query_id)
            self.roll_back(self._without(halves, known.halves))
        self.answer_questions(halves)

    def _standing(self, entry: Entry) -> Entry:
        """The decision on a batch, once a record about it can be read: Apache's broker enters one into its queue a
        moment after it has acknowledged it."""
        deadline = time.monotonic() + self.cluster.connection.patience_s
        while True:
            known = self.decisions.latest(entry.query_id)
            if known is not None and known.batch_id >= entry.batch_id:
                return known
            if time.monotonic() > deadline:
                raise LinkLost(
                    f"the record of batch {entry.batch_id} was stored and cannot be read (option patienceMs)"
                )
            time.sleep(0.01)

    def give_up(self, query_id: str, batch_id: int, halves: Halves) -> None:
        """Rolls back what a failed batch has sent, unless its commit has begun: then the next run takes that up."""
        known = self.decisions.latest(query_id)
        if known is not None and known.batch_id >= batch_id:
            halves = self._without(halves, known.halves)
        self.roll_back(halves)

    def roll_back(self, halves: Halves) -> None:
        """If that cannot be said now, brokers ask about them later, and are told then: no reason to fail."""
        for broker, places in halves.places.items():
            try:
                self._end(broker, places, ROLLBACK)
            except LinkLost as lost:
                log.warning("half messages on broker %s are rolled back when it asks about them: %s", broker, lost)

    def _finish(self, entry: Entry, *, is_fresh: bool = False) -> None:
        """Ends the half messages of a batch; of one that another process began, those that are not visible yet."""
        if entry.state == DONE:
            return
        if not is_fresh:
            log.info("taking up the commit of batch %d of query %s", entry.batch_id, entry.query_id)
        self._commit(entry, dict(entry.halves.places) if is_fresh else self._missing(entry))
        self.decisions.write(Entry(entry.query_id, entry.batch_id, DONE))

    def _commit(self, entry: Entry, places: Places) -> None:
        deadline = time.monotonic() + self.cluster.connection.patience_s
        while any(places.values()):
            try:
                for broker in list(places):
                    self._end(broker, places[broker], COMMIT)
                    del places[broker]
            except (LinkLost, Refusal) as trouble:
                is_passing = isinstance(trouble, LinkLost) or trouble.code in BUSY
                if not is_passing or time.monotonic() > deadline:
                    raise
                # Some of what was sent may have been done: only the target topic can tell.
                log.warning("committing batch %d: %s; looking what is visible", entry.batch_id, trouble)
                time.sleep(0.2)
                places = self._missing(entry)

    def _missing(self, entry: Entry) -> Places:
        """The half messages of a batch whose messages are not visible, once the target has settled."""
        seen: dict[str, set[int]] = {}
        cursors = dict(entry.before)
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < SETTLE_S:
            ends = self.cluster.max_offsets(cursors)
            for queue, start in list(cursors.items()):
                if ends[queue] > start and self._look(OffsetRange(queue, start, ends[queue]), seen):
                    quiet_since = time.monotonic()
                cursors[queue] = max(start, ends[queue])
            time.sleep(0.05)
        return {
            broker: [place for place in places if place[1] not in seen.get(broker, ())]
            for broker, places in entry.halves.places.items()
        }

    def _look(self, wanted: OffsetRange, seen: dict[str, set[int]]) -> bool:
        """Notes the half messages that the messages of a stretch were made from; whether there were any."""
        found = seen.setdefault(wanted.queue.broker_name, set())
        before = len(found)
        for pulled in read_range(self.cluster, wanted, Subscription(fail_on_data_loss=False)):
            for record in decode_records(pulled.records):
                if record.prepared_transaction_offset:
                    found.add(record.prepared_transaction_offset)
        return len(found) > before

    def _targets(self, halves: Halves) -> list[MessageQueue]:
        """Every queue that a half message may become visible in."""
        found: set[MessageQueue] = set()
        for topic in halves.topics:
            route = self.cluster.known_route(topic)
            found.update(queue for queue in route.readable + route.writable if queue.broker_name in halves.places)
        return sorted(found)

    @staticmethod
    def _without(halves: Halves, kept: Halves) -> Halves:
        """What is in `halves` and not in `kept`: Spark may hand over the very messages that the book has."""
        known = {broker: set(places) for broker, places in kept.places.items()}
        return Halves(
            {
                broker: [place for place in places if place not in known.get(broker, ())]
                for broker, places in halves.places.items()
            },
            halves.topics,
        )

    def _end(self, broker: str, places: list[tuple[int, int]], decision: int) -> None:
        """Ends half messages of one broker, with requests sent ahead; their order is kept."""
        address = self.cluster.address(broker)
        refused: Refusal | None = None
        try:
            for answer in self._unusual_answers(broker, address, places, decision):
                if answer.code == ResponseCode.SUCCESS:
                    continue
                if decision == COMMIT:
                    refused = Refusal(answer.code, answer.remark, f"committing half messages on broker {broker}")
                # Ended before, or gone: either way nobody will see it, which is all that a rollback wants.
                log.debug("ending on broker %s: %s", broker, answer.remark)
        except LinkLost:
            self.cluster.drop(address)
            raise
        if refused is not None:
            raise refused  # after the last answer, so that none is left in the connection

    def _unusual_answers(self, broker: str, address: str, places: list[Place], decision: int) -> Iterable[Command]:
        """Asks for the end of half messages; the answers that say more than success."""
        link = self.cluster.link(address)
        if self.cluster.connection.credentials is not None:
            # A signature is made over the fields of a command: then they have to be one.
            commands = (self._ending(broker, queue_offset, log_offset, decision) for queue_offset, log_offset in places)
            return link.call_many(commands, window=256)
        run = Run(len(places))

        def pieces() -> Iterator[tuple[bytes, int]]:
            for first in range(0, len(places), ENDS_A_WRITE):
                some = places[first : first + ENDS_A_WRITE]
                yield end_frames(self.group, broker, some, decision, run.first_opaque + first), len(some)

        link.exchange(pieces(), run)
        return run.unusual()

    def _ending(
        self, broker: str, queue_offset: int, log_offset: int, decision: int, *, question: Command | None = None
    ) -> Command:
        ext = {
            "producerGroup": self.group,
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(log_offset),
            "commitOrRollback": str(decision),
            "fromTransactionCheck": "false" if question is None else "true",
            "msgId": "" if question is None else question.ext.get("msgId", ""),
            "transactionId": "" if question is None else question.ext.get("transactionId", ""),
            "bname": broker,
        }
        return Command.request(RequestCode.END_TRANSACTION, ext, oneway=question is not None)

    # --------------------------------------------------------------------------------------------- questions of brokers

    def answer_questions(self, halves: Halves) -> None:
        """Makes itself known to the brokers and answers what they have asked since last time."""
        for broker in halves.places:
            try:
                self._greet(broker)
            except LinkLost as lost:
                log.warning("broker %s cannot be greeted now: %s", broker, lost)
        questions, self._questions = self._questions, []
        for broker, question in questions:
            try:
                self._answer(broker, question)
            except LinkLost as lost:
                log.warning("a question of broker %s is left open, it asks again: %s", broker, lost)

    def _greet(self, broker: str) -> None:
        address = self.cluster.address(broker)
        try:
            link = self.cluster.link(address)
            link.on_request = lambda command: self._ask(broker, command)
            link.drain()
            if time.monotonic() - self._heartbeats.get(address, -HEARTBEAT_S) >= HEARTBEAT_S:
                body = fastjson.dumps(
                    {
                        "clientID": self._client_id,
                        "consumerDataSet": [],
                        "producerDataSet": [{"groupName": self.group}],
                        "heartbeatFingerprint": 0,
                        "withoutSub": False,
                    }
                )
                link.call(Command.request(RequestCode.HEART_BEAT, body=body))
                self._heartbeats[address] = time.monotonic()
        except LinkLost:
            self.cluster.drop(address)
            self._heartbeats.pop(address, None)
            raise

    def _ask(self, broker: str, command: Command) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._questions.append((broker, command))

    def _answer(self, broker: str, question: Command) -> None:
        """Rolls back what can never be committed any more; says nothing of a batch that is under way."""
        try:
            record = decode_record(bytes(question.body), check_crc=False)
        except RecordError as wrong:
            log.warning("broker %s asked about a half message that cannot be read: %s", broker, wrong)
            return
        query_id, batch = record.properties.get(QUERY_PROPERTY), record.properties.get(BATCH_PROPERTY)
        if query_id is None or batch is None:
            return  # of another producer that uses the same group
        known = self.decisions.latest(query_id)
        if known is None or known.batch_id < int(batch) or (known.batch_id == int(batch) and known.state == BEGUN):
            return
        ext = question.ext
        answer = self._ending(
            broker, int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"]), ROLLBACK, question=question
        )
        self.cluster.link(self.cluster.address(broker)).send([answer])


_committers: dict[tuple[int, int, str], Committer] = {}


def committer_of(cluster: Cluster, producer_group: str) -> Committer:
    """The committer of this process: its connections and what it has read of the decisions outlive a batch."""
    return _committers.setdefault((os.getpid(), id(cluster), producer_group), Committer(cluster, producer_group))


def end_batch(
    cluster: Cluster, producer_group: str, query_id: str, batch_id: int, halves: Halves, *, accepts_lost_record: bool
) -> None:
    committer = committer_of(cluster, producer_group)
    committer.end_batch(query_id, batch_id, halves, accepts_lost_record=accepts_lost_record)


def give_up(cluster: Cluster, producer_group: str, query_id: str, batch_id: int, halves: Halves) -> None:
    if len(halves):
        committer_of(cluster, producer_group).give_up(query_id, batch_id, halves)


def roll_back(cluster: Cluster, producer_group: str, halves: Halves) -> None:
    if len(halves):
        committer_of(cluster, producer_group).roll_back(halves)
