"""Transactions: a message that is stored at once, but seen by consumers only when the sender's own work is done.

The broker keeps a half message. When the local work is decided it is told so; if it is not told in time it asks back
(CHECK_TRANSACTION_STATE), any producer of the group. A producer remembers its own decisions for a while, so that it can
answer even when the word of the decision was lost; for transactions of other processes it asks the user's checker.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from arrowmq.client.errors import ArrowMQError, InvalidUse, Refused
from arrowmq.client.message import ReceivedMessage
from arrowmq.client.produce.outgoing import Message, Packed
from arrowmq.client.produce.receipt import SendReceipt, SendStatus
from arrowmq.client.session import Session
from arrowmq.remoting.handlers import LATER, Call, Outcome
from arrowmq.wire import properties as prop
from arrowmq.wire import sysflag
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.ids import parse_offset_message_id
from arrowmq.wire.records import decode_record

if TYPE_CHECKING:
    from arrowmq.client.produce.producer import Producer

log = logging.getLogger("arrowmq.client")

REMEMBERED_DECISIONS = 10_000
END_ATTEMPTS = 3


class TransactionState(IntEnum):
    """The values are the transaction bits of a message's sys flag."""

    UNKNOWN = sysflag.TRANSACTION_NOT
    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK


#: Asked by the broker's check-back for a transaction that this process did not decide itself.
Checker = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]


class TransactionListener(Protocol):
    """The Java client's shape: run the local work, and answer check-backs. Both may be `async def`."""

    def execute(
        self, message: Message, transaction_id: str, argument: Any
    ) -> TransactionState | Awaitable[TransactionState]: ...

    def check(self, message: ReceivedMessage) -> TransactionState | Awaitable[TransactionState]: ...


class Decisions:
    """What became of this producer's transactions, the latest of them."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, TransactionState] = OrderedDict()

    def set(self, transaction_id: str, state: TransactionState) -> None:
        self._states[transaction_id] = state
        self._states.move_to_end(transaction_id)
        while len(self._states) > REMEMBERED_DECISIONS:
            self._states.popitem(last=False)

    def forget(self, transaction_id: str) -> None:
        self._states.pop(transaction_id, None)

    def get(self, transaction_id: str) -> TransactionState | None:
        return self._states.get(transaction_id)


class Transactions:
    """The part of a producer that ends transactions and answers the brokers' questions about them."""

    def __init__(self, session: Session, group: str, checker: Checker | None) -> None:
        self._session = session
        self._group = group
        self._checker = checker
        self.decisions = Decisions()
        session.remoting.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._check_asked)

    def prepare(self, packed: Packed) -> None:
        """Turn a message into a half message."""
        packed.properties.pop(prop.DELAY, None)
        packed.properties[prop.TRAN_MSG] = "true"
        packed.properties[prop.PGROUP] = self._group
        packed.sys_flag |= sysflag.TRANSACTION_PREPARED
        self.decisions.set(packed.msg_id, TransactionState.UNKNOWN)

    async def end(self, receipt: SendReceipt, state: TransactionState) -> None:
        """Tell the broker. If it cannot be reached it will ask, and is then answered from the decisions."""
        if state is TransactionState.UNKNOWN:
            return
        self.decisions.set(receipt.msg_id, state)
        ext = self._end_fields(receipt.topic, receipt.msg_id, receipt.transaction_id, state)
        ext["tranStateTableOffset"] = str(receipt.queue_offset)
        ext["commitLogOffset"] = str(parse_offset_message_id(receipt.offset_msg_id).physical_offset)
        ext["bname"] = receipt.broker_name  # a proxy has one address for all brokers
        what = f"{state.name.lower()} of transaction {receipt.msg_id} to {receipt.topic}"
        for attempt in range(END_ATTEMPTS):
            route = await self._session.route(self._session.options.namespace.wrap(receipt.topic), for_sending=True)
            address = route.master(receipt.broker_name)
            if address is None:
                break
            try:
                await self._session.ask(address, Command.request(RequestCode.END_TRANSACTION, ext), what)
                return
            except Refused:
                raise
            except ArrowMQError as failure:
                log.warning("%s (attempt %d of %d)", failure, attempt + 1, END_ATTEMPTS)
        log.warning("%s could not be told to %s, it will ask for it", what, receipt.broker_name)

    def _end_fields(
        self, topic: str, msg_id: str, transaction_id: str | None, state: TransactionState
    ) -> dict[str, str]:
        return {
            "topic": self._session.options.namespace.wrap(topic),
            "producerGroup": self._group,
            "commitOrRollback": str(int(state)),
            "fromTransactionCheck": "false",
            "msgId": msg_id,
            "transactionId": transaction_id or msg_id,
        }

    # -- the broker asks

    def _check_asked(self, call: Call) -> Outcome:
        self._session.spawn(self._answer_check(call), "answer a transaction check")
        return LATER

    async def _answer_check(self, call: Call) -> None:
        try:
            await self._tell_state(call)
        finally:
            call.reply(None)  # a one-way request: this only says that it is done with

    async def _tell_state(self, call: Call) -> None:
        asked = call.ext
        message = ReceivedMessage(decode_record(call.body, check_crc=False), asked.get("bname", ""))
        group = message.properties.get(prop.PGROUP)
        if group != self._group:
            log.warning(
                "a broker asks about transaction %s of group %s, this is %s", message.msg_id, group, self._group
            )
            return
        state = await self._state_of(message)
        log.info("transaction %s was asked about by %s: %s", message.msg_id, call.connection.peer_text, state.name)
        if state is TransactionState.UNKNOWN:
            return
        transaction_id = asked.get("transactionId") or message.msg_id
        ext = self._end_fields(message.topic, message.msg_id, transaction_id, state)
        ext["tranStateTableOffset"] = asked["tranStateTableOffset"]
        ext["commitLogOffset"] = asked["commitLogOffset"]
        ext["fromTransactionCheck"] = "true"
        if "bname" in asked:
            ext["bname"] = asked["bname"]
        request = Command.request(RequestCode.END_TRANSACTION, ext, oneway=True)
        self._session.prepare(call.connection.peer_text, request)
        call.connection.send_oneway(request)

    async def _state_of(self, message: ReceivedMessage) -> TransactionState:
        known = self.decisions.get(message.msg_id)
        if known is not None:
            return known  # also when it is undecided: then it is running here, and nobody else can know better
        if self._checker is None:
            return TransactionState.UNKNOWN
        try:
            return await state_from(self._checker(message))
        except Exception:
            log.exception("the transaction checker failed for %r; the broker will ask again", message)
            return TransactionState.UNKNOWN


async def state_from(outcome: TransactionState | Awaitable[TransactionState] | None) -> TransactionState:
    state = await outcome if inspect.isawaitable(outcome) else outcome
    return TransactionState.UNKNOWN if state is None else TransactionState(state)


class Transaction:
    """`async with producer.transaction(...) as tx:` The half message is stored on entry.

    Leaving the block commits, an exception rolls back. `await tx.rollback()` or `tx.commit()` decide earlier, and
    `tx.leave_undecided()` leaves it to the checker.
    """

    def __init__(self, producer: Producer, packed: Packed, transactions: Transactions, timeout_s: float | None) -> None:
        self._producer = producer
        self._packed = packed
        self._transactions = transactions
        self._timeout_s = timeout_s
        self._receipt: SendReceipt | None = None
        self._is_decided = False

    @property
    def msg_id(self) -> str:
        return self._packed.msg_id

    @property
    def receipt(self) -> SendReceipt:
        if self._receipt is None:
            raise InvalidUse("the transaction has not begun: enter it with `async with`")
        return self._receipt

    async def __aenter__(self) -> Transaction:
        if self._receipt is not None:
            raise InvalidUse("a transaction is entered once; make another for another message")
        receipt = await self._producer.send_half(self._packed, self._timeout_s)
        self._receipt = receipt
        if receipt.status is not SendStatus.SEND_OK:
            await self.rollback()
            raise ArrowMQError(
                f"half message {receipt.msg_id} was not kept as promised ({receipt.status.name}); it is rolled back"
            )
        return self

    async def commit(self) -> None:
        await self._decide(TransactionState.COMMIT)

    async def rollback(self) -> None:
        await self._decide(TransactionState.ROLLBACK)

    def leave_undecided(self) -> None:
        """The outcome is not known here; the broker asks the group's checker for it."""
        self._transactions.decisions.forget(self.msg_id)
        self._is_decided = True

    async def _decide(self, state: TransactionState) -> None:
        if self._is_decided:
            raise InvalidUse(f"transaction {self.msg_id} is decided already")
        self._is_decided = True
        await self._transactions.end(self.receipt, state)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_decided:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except ArrowMQError as failure:  # the user's own error matters more
            log.warning("%s", failure)
