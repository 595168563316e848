"""Checks of open transactions: producers are asked what became of half messages that they did not end.

A round goes through the half queue from the first open one. Each that is old enough is renewed at the end of the queue
with its count of checks raised, and some live member of its producer group is asked; which one does not matter, because
any member must be able to answer for the group. A half message that was asked about transactionCheckMax times, or is
older than the files are kept, is parked in TRANS_CHECK_MAX_TIME_TOPIC, where an administrator can revive it. A round
asks about so many at most, the oldest first; the others wait for the next.

A slave that acts for its master can write nothing to the half queue. It hands each open half message that is old enough
on to a broker of another name, as if its producer had sent it there; that one asks about it from then on. How far it
came is an offset of CID_RMQ_SYS_TRANS, which the master takes over when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from arrowmq.broker.address import BrokerAddress
from arrowmq.broker.background import Background
from arrowmq.broker.clients.table import Clients
from arrowmq.broker.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SLAVE
from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.topics.table import Topics
from arrowmq.broker.transactions.log import HALF_QUEUE, NotStored, TransactionLog, transaction_id
from arrowmq.broker.transactions.service import immunity_ms
from arrowmq.clock import Clock
from arrowmq.store import MessageStore, PutStatus
from arrowmq.wire import properties as keys
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import CheckTransactionState
from arrowmq.wire.records import Record, encode_record

log = logging.getLogger(__name__)

LONGEST_ROUND_MS = 60_000
CHECKS_A_TURN = 16
# Each of them writes the half message anew: more at a time would hold up the messages of others. A batch of Spark has
# hundreds of thousands open, and ends them without being asked.
CHECKS_A_ROUND = 2000
HAND_ON_S = 5.0  # for one of them to be taken by another broker
HAND_ON_LOOK_S = 0.02


class TransactionChecks:
    writes_topics_only = True  # an acting master does this too

    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        store: MessageStore,
        topics: Topics,
        clients: Clients,
        transactions: TransactionLog,
        background: Background,
        clock: Clock,
    ) -> None:
        self.config = config
        self.address = address
        self.store = store
        self.topics = topics
        self.clients = clients
        self.transactions = transactions
        self.clock = clock
        self.rounds = 0
        self.asked = 0
        self.parked = 0
        self.handed_on = 0
        self._unasked: Counter[str] = Counter()
        self._is_running = False
        self._has_copied = config.broker_role == SLAVE  # the log grew without this service having a part in it
        background.every("check open transactions", config.transaction_check_interval / 1000, self.round)

    def resume(self) -> None:
        """Ask from here on: a master's duty. What has ended by now is in the log."""
        if self._has_copied:
            self.transactions.load(was_clean=True)
        self._is_running = True

    async def suspend(self) -> None:
        self._is_running, self._has_copied = False, True

    def progress_taken(self) -> None:
        """The offsets are another broker's, which did this in the meantime: `resume` reads the log from there."""
        self._has_copied = True

    async def round(self) -> None:
        """Goes through what is open now; what comes meanwhile is for the next round."""
        if not self._is_running:
            return
        transactions = self.transactions
        began_ms = self.clock.now_ms()
        transactions.mark()
        end = self.store.max_offset(HALF_TOPIC, HALF_QUEUE)
        offset = transactions.next_open(transactions.done_before)
        steps = 0
        try:
            while offset < end and steps < CHECKS_A_ROUND and self.clock.now_ms() - began_ms < LONGEST_ROUND_MS:
                if not (await self._hand_on(offset) if self._is_acting else self._step(offset, began_ms)):
                    break
                transactions.done_up_to(offset + 1)
                offset = transactions.next_open(offset + 1)
                steps += 1
                if steps % CHECKS_A_TURN == 0:
                    await asyncio.sleep(0)
        except NotStored as refused:
            log.warning("checks of transactions wait: %s", refused)
        transactions.done_up_to(min(offset, end))
        for group, count in self._unasked.items():
            log.warning("nobody of producer group[%s] is there to be asked about %d half messages", group, count)
        self._unasked.clear()
        await transactions.persist_progress()
        self.rounds += 1

    async def stop(self) -> None:
        """Notes how far everything is done with, so that the next start has less to read."""
        if not self._is_running:
            return  # what is known here is of the time when this was master, and the queue may be another by now
        transactions = self.transactions
        transactions.mark()
        end = self.store.max_offset(HALF_TOPIC, HALF_QUEUE)
        transactions.done_up_to(min(transactions.next_open(transactions.done_before), end))
        await transactions.persist_progress()

    @property
    def _is_acting(self) -> bool:
        return self.store.escape is not None

    async def _hand_on(self, offset: int) -> bool:
        """Has another broker take one open half message. False if it is too young, or nobody takes it now."""
        half = self.transactions.half_of(offset)
        if half is None or not half.properties.get(keys.REAL_TOPIC):
            log.error("half message %d cannot be read and is passed over", offset)
            return True
        now_ms = self.clock.now_ms()
        own_ms = immunity_ms(half, self.config.transaction_time_out)
        if 0 <= now_ms - half.store_timestamp < max(own_ms or 0, self.config.transaction_time_out):
            return False
        record = self.transactions.as_sent(half)
        last_s = self.clock.monotonic() + HAND_ON_S
        while self._is_running and self.clock.monotonic() < last_s:
            if self.store.put(record).status is PutStatus.PUT_OK:
                self.handed_on += 1
                return True
            await self.clock.sleep(HAND_ON_LOOK_S)
        return False

    def _step(self, offset: int, began_ms: int) -> bool:
        """Deals with one open half message. False if it, and so all after it, are too young."""
        half = self.transactions.half_of(offset)
        if half is None:
            log.error("half message %d cannot be read and is passed over", offset)
            return True
        age_ms = self.clock.now_ms() - half.store_timestamp
        checks = int(half.properties.get(keys.TRANSACTION_CHECK_TIMES, "0") or 0)
        if checks >= self.config.transaction_check_max or age_ms > self.store.config.file_reserved_time * 3_600_000:
            self._park(half, checks)
            return True
        if half.store_timestamp >= began_ms:
            return False
        own_ms = immunity_ms(half, self.config.transaction_time_out)
        if own_ms is not None and 0 <= age_ms and self.clock.now_ms() - half.born_timestamp <= own_ms:
            # It asked for more time than others. It is moved on, so that those behind it do not wait for it.
            self.transactions.renew(half, checks)
            return True
        if own_ms is None and checks == 0 and 0 <= age_ms < self.config.transaction_time_out:
            return False
        self._ask(self.transactions.renew(half, checks + 1))
        return True

    def _park(self, half: Record, checks: int) -> None:
        self.topics.create_internal(CHECK_MAX_TIME_TOPIC, 1)
        self.transactions.park(half)
        self.parked += 1
        log.error(
            "transaction %s of group[%s] is parked in %s: %d checks brought no decision",
            transaction_id(half),
            half.properties.get(keys.PGROUP),
            CHECK_MAX_TIME_TOPIC,
            checks,
        )

    def _ask(self, half: Record) -> None:
        """Asks one member of the producer group; its answer is an END_TRANSACTION of its own."""
        group = half.properties.get(keys.PGROUP, "")
        member = self.clients.available_producer(group)
        if member is None:
            self._unasked[group] += 1
            return
        header = CheckTransactionState(
            topic=HALF_TOPIC,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=transaction_id(half),
            transaction_id=transaction_id(half),
            offset_msg_id=self.address.message_id(half.physical_offset),
            bname=self.config.broker_name,
        )
        command = Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, self._shown(half), oneway=True)
        member.connection.send_oneway(command)
        self.asked += 1

    def _shown(self, half: Record) -> bytes:
        """The half message as the producer sees it: with the topic and queue that it was sent to."""
        shown = Record(
            topic=half.properties.get(keys.REAL_TOPIC, half.topic),
            queue_id=int(half.properties.get(keys.REAL_QID, "0")),
            flag=half.flag,
            queue_offset=half.queue_offset,
            physical_offset=half.physical_offset,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_timestamp=half.store_timestamp,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.prepared_transaction_offset,
            body=half.body,
            properties_raw=half.properties_raw,
        )
        return encode_record(shown)
