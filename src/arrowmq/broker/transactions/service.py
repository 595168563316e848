"""Transactions: a half message that nobody sees, ended by its producer with commit or rollback.

The first decision counts. An end that comes twice, late, for a half message that was renewed meanwhile, or for another
half message of the same transaction (a producer that sent twice) never publishes again, and never turns a rollback into
a message: what was decided is in the log (`transaction_log.py`), not in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from arrowmq.auth.guard import Guard
from arrowmq.auth.resources import Action
from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.delayed.delivery import STORED, make_known
from arrowmq.broker.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SLAVE
from arrowmq.broker.runtime.stats import BrokerStats
from arrowmq.broker.send.message_path import MessagePath, PutRefused, set_properties
from arrowmq.broker.send.message_types import TRANSACTION
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.broker.transactions.counts import TransactionCounts
from arrowmq.broker.transactions.log import HALF_QUEUE, End, NotStored, TransactionLog, transaction_id
from arrowmq.clock import Clock
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.store import MessageStore, Put, PutStatus
from arrowmq.store.config_file import JsonConfigFile
from arrowmq.touches import Touches
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.headers import EndTransaction, ResumeCheckHalfMessage, SendMessage
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.properties import encode_properties
from arrowmq.wire.records import Record, RecordError
from arrowmq.wire.sysflag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_ROLLBACK,
    with_transaction_type,
)

log = logging.getLogger(__name__)

ENDS = {TRANSACTION_COMMIT: End.COMMIT, TRANSACTION_ROLLBACK: End.ROLLBACK}
NOT_ON_DISK = "published, but not yet on disk"
# What the broker notes of a half message: the transaction's id, and where it belongs
NOTED_PROPERTIES = (keys.TRANSACTION_ID, keys.REAL_TOPIC, keys.REAL_QID)
# What makes the end of a half message that has it more than a matter of its first end
ENDING_PROPERTIES = frozenset({keys.CHECK_IMMUNITY_TIME_IN_SECONDS})


def immunity_ms(half: Record, timeout_ms: int) -> int | None:
    """How long this half message asks not to be checked; None if it does not say."""
    text = half.properties.get(keys.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if not text:
        return None
    try:
        seconds = int(text)
    except ValueError:
        return timeout_ms
    return timeout_ms if seconds == -1 else seconds * 1000


class TransactionService:
    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        topics: Topics,
        path: MessagePath,
        transactions: TransactionLog,
        stats: BrokerStats,
        clock: Clock,
        was_clean: Callable[[], bool],
        guard: Guard,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.topics = topics
        self.path = path
        self.transactions = transactions
        self.stats = stats
        self.clock = clock
        self.was_clean = was_clean
        self.guard = guard
        self.counts = TransactionCounts(transactions)
        self.repeated = 0
        path.rules.add(self.rule, Touches(properties=(keys.TRAN_MSG,)))

    def load(self) -> None:
        self.transactions.load(was_clean=self.was_clean())

    def persist(self) -> None:
        self.counts.persist(JsonConfigFile(self.store.root / "config" / "transactionMetrics"), self.clock.now_ms())

    # The beginning

    def rule(self, request: SendMessage, record: Record) -> None:
        """A send with TRAN_MSG=true becomes a half message."""
        properties = record.properties
        if properties.get(keys.TRAN_MSG, "").lower() != "true":
            return
        # Clients before 4.6.1 resend a committed message for a retry with the property still on it.
        if record.reconsume_times > 0 and properties.get(keys.DELAY, "0") not in ("0", ""):
            return
        if self.config.reject_transaction_message:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.address.host}] sending transaction message is forbidden: "
                "rejectTransactionMessage is true in its configuration",
            )
        noted = (properties[keys.UNIQ_KEY], record.topic, str(record.queue_id))
        set_properties(record, {**properties, **dict(zip(NOTED_PROPERTIES, noted, strict=True))})
        record.sys_flag = with_transaction_type(record.sys_flag, TRANSACTION_NOT)
        record.topic = HALF_TOPIC
        record.queue_id = HALF_QUEUE

    # The end

    @handles(RequestCode.END_TRANSACTION)
    def end_transaction(self, request: EndTransaction, call: Call) -> Answer | Awaitable[Answer]:
        if self.config.broker_role == SLAVE:
            raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions: ask its master")
        wanted = ENDS.get(request.commit_or_rollback)
        if wanted is None:
            return Answer(remark="the transaction stays open; the broker asks about it again")
        half = self._half_of(request)
        self.guard.require_topic(call, half.properties.get(keys.REAL_TOPIC, half.topic), Action.PUB)
        is_check = bool(request.from_transaction_check)
        if not is_check:
            self._check_immunity(half)
        try:
            return self._decide(half, wanted, is_check=is_check)
        except NotStored as refused:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"{refused.put.status.name}: {refused}, the transaction stays open"
            ) from None

    def _half_of(self, request: EndTransaction) -> Record:
        half = self.transactions.half_at(request.commit_log_offset)
        if half is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "Find prepared transaction message failed: "
                f"no half message begins at {request.commit_log_offset} (any more)",
            )
        group = half.properties.get(keys.PGROUP)
        if group != request.producer_group:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The producer group wrong: the half message is of {group}, not of {request.producer_group}",
            )
        if half.queue_offset != request.tran_state_table_offset:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The transaction state table offset wrong: "
                f"it is {half.queue_offset}, not {request.tran_state_table_offset}",
            )
        return half

    def _check_immunity(self, half: Record) -> None:
        """A producer that asked for its own time to the first check has to decide in it, or wait for the check."""
        immune_ms = immunity_ms(half, self.config.transaction_time_out)
        if immune_ms is not None and self.clock.now_ms() - half.born_timestamp > immune_ms:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction was to be ended within {immune_ms} ms (CHECK_IMMUNITY_TIME_IN_SECONDS): "
                "wait for the check",
            )

    def _decide(self, half: Record, wanted: End, *, is_check: bool) -> Answer | Awaitable[Answer]:
        transactions = self.transactions
        transactions.settle()
        if is_check or not transactions.is_open(half.queue_offset):
            decided, still_open = self._look_back(half)
            if still_open is None:
                self.repeated += 1
                return self._repeated(decided, wanted)
            half = still_open
        put = None
        if wanted is End.COMMIT:
            put = self._publish(half)
        self.counts.decided(half, wanted, self.clock.now_ms())
        transactions.end(half, wanted)
        return self._when_kept(put) if put is not None and self.path.makes_wait else Answer()

    def _look_back(self, half: Record) -> tuple[End | None, Record | None]:
        """For an end that may not be the first: what was decided, or else the half message that is still open."""
        transactions = self.transactions
        decided = transactions.decision_on(half)
        if decided is not None:
            if transactions.is_open(half.queue_offset):
                # Another half message of the same transaction was decided: the producer had sent it twice.
                transactions.end(half, End.RENEWED)
            return decided, None
        newest = transactions.newest(half)
        if transactions.is_open(newest.queue_offset) or transactions.is_parked(newest):
            return None, newest
        return None, None

    def _repeated(self, decided: End | None, wanted: End) -> Answer:
        if decided is wanted:
            return Answer(remark=f"the transaction was ended before, by {decided.value}; nothing is done twice")
        if decided is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="the transaction was ended before; nothing is done twice")
        return Answer(
            ResponseCode.SYSTEM_ERROR,
            remark=f"the transaction was ended before, by {decided.value}: a {wanted.value} comes too late",
        )

    def _publish(self, half: Record) -> Put:
        properties = dict(half.properties)
        topic, queue_text = properties.pop(keys.REAL_TOPIC, ""), properties.pop(keys.REAL_QID, "")
        if not topic or not queue_text.isdecimal():
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the half message does not say where it belongs ({topic}, {queue_text})"
            )
        message = Record(
            topic=topic,
            queue_id=int(queue_text),
            flag=half.flag,
            sys_flag=with_transaction_type(half.sys_flag, TRANSACTION_COMMIT),
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.physical_offset,
            body=half.body,
            properties_raw=encode_properties(properties),
        )
        make_known(self.topics, message)
        try:
            put = self.path.put(message)
        except PutRefused as refused:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, refused.reason) from None
        if put.status not in STORED:
            raise NotStored(put)
        self.stats.put(message.topic, message.queue_id, 1, put.size, TRANSACTION)
        return put

    async def _when_kept(self, put: Put) -> Answer:
        status = await self.path.kept(put)
        return Answer(remark=None if status is PutStatus.PUT_OK else f"{status.name}: {NOT_ON_DISK}")

    # A second chance

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    def resume_check(self, request: ResumeCheckHalfMessage, call: Call) -> None:
        """An administrator revives a parked half message: its producers are asked about it again."""
        try:
            _, _, physical_offset = parse_offset_message_id(request.msg_id)
            parked = self.store.record_at(physical_offset)
        except (ValueError, RecordError) as fault:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{request.msg_id} names no message here: {fault}") from fault
        if parked is None or parked.topic != CHECK_MAX_TIME_TOPIC:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"{request.msg_id} is no half message that waits in {CHECK_MAX_TIME_TOPIC}"
            )
        self.guard.require_topic(call, parked.properties.get(keys.REAL_TOPIC, parked.topic), Action.UPDATE)
        decided = self.transactions.decision_on(parked)
        if decided is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the transaction was ended meanwhile, by {decided.value}")
        if self.transactions.newest(parked) is not parked:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the half message was revived before")
        try:
            self.transactions.revive(parked)
        except NotStored as refused:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"Put message back to half topic failed: {refused}"
            ) from None
        log.info("half message %s revived by an administrator", transaction_id(parked))
