"""Half messages: their outcome from the client, and the question for it to the client.

The transaction id that a client gets, and gives back with the outcome, carries where the half message lies. Apache's
proxy has it in its memory for 30 s under the message's id, and another proxy does not have it at all; here any proxy
can take an outcome at any time.

    message id : offset in the half queue : commit log offset : broker
"""

from __future__ import annotations

import logging

from arrowmq.clock import Clock
from arrowmq.proxy.backs.back import Back
from arrowmq.proxy.faults import OK, BrokerFault, Fault
from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.proxy.messages import service_pb2 as calls
from arrowmq.proxy.service import validation
from arrowmq.proxy.service.caller import Caller
from arrowmq.proxy.service.clients import Client, ClientTable
from arrowmq.proxy.service.message_form import message_of
from arrowmq.wire import properties as prop
from arrowmq.wire import sysflag
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import CheckTransactionState, EndTransaction
from arrowmq.wire.headers.declare import decode_header
from arrowmq.wire.records import decode_record

log = logging.getLogger(__name__)


def transaction_id(message_id: str, half_offset: int, commit_log_offset: int, broker: str) -> str:
    return f"{message_id}:{half_offset}:{commit_log_offset}:{broker}"


def parse_transaction_id(text: str) -> tuple[str, int, int, str]:
    """Message id, offset in the half queue, commit log offset, broker."""
    parts = text.rsplit(":", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        raise Fault(v2.INTERNAL_SERVER_ERROR, "cannot found transaction data")
    return parts[0], int(parts[1]), int(parts[2]), parts[3]


class Transactions:
    def __init__(self, back: Back, clock: Clock) -> None:
        self._back, self._clock = back, clock
        self.clients: ClientTable = ClientTable(self.check_of)

    async def end_transaction(
        self, caller: Caller, request: calls.EndTransactionRequest
    ) -> calls.EndTransactionResponse:
        topic = request.topic.name
        validation.check_topic(topic)
        if not request.transaction_id.strip():
            raise Fault(v2.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        message_id, half_offset, commit_log_offset, broker = parse_transaction_id(request.transaction_id)
        outcome = {
            int(v2.COMMIT): sysflag.TRANSACTION_COMMIT,
            int(v2.ROLLBACK): sysflag.TRANSACTION_ROLLBACK,
        }.get(int(request.resolution), sysflag.TRANSACTION_NOT)
        header = EndTransaction(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half_offset,
            commit_log_offset=commit_log_offset,
            commit_or_rollback=outcome,
            from_transaction_check=request.source == v2.SOURCE_SERVER_CHECK,
            msg_id=message_id,
            transaction_id=message_id,
            bname=broker,
        )
        if outcome == sysflag.TRANSACTION_NOT:
            await self._back.notify(broker, RequestCode.END_TRANSACTION, header)  # "not known yet" is not answered
            return calls.EndTransactionResponse(status=OK)
        client = self.clients.get(caller.client_id)
        # Apache's proxy does not wait for the broker here; a client should know when its outcome was not taken.
        reply = await self._back.ask(broker, RequestCode.END_TRANSACTION, header, client=client, user=caller.user)
        if not reply.is_ok:
            raise BrokerFault(reply.code, reply.remark)
        return calls.EndTransactionResponse(status=OK)

    def check(self, broker: str, command: Command) -> None:
        """A broker asks the proxy what became of a half message: some producer of its topic is asked."""
        found = self._question(broker, command)
        if found is None:
            return
        topic, question = found
        client = self.clients.producer_of(topic)
        if client is None or not client.send(question):
            # The broker asks again, perhaps another proxy.
            log.debug("no producer to ask about a half message topic=%s broker=%s", topic, broker)

    def check_of(self, client: Client, command: Command) -> None:
        """A broker in this process asks one of its clients."""
        found = self._question(command.ext.get("bname", ""), command)
        if found is None or client.send(found[1]):
            return
        other = self.clients.producer_of(found[0])
        if other is not None:
            other.send(found[1])

    def _question(self, broker: str, command: Command) -> tuple[str, calls.TelemetryCommand] | None:
        try:
            header = decode_header(CheckTransactionState, command.ext)
            record = decode_record(command.body)
        except WireError as error:
            log.warning("a broker's question about a half message cannot be read broker=%s: %s", broker, error)
            return None
        topic = record.properties.get(prop.REAL_TOPIC) or record.topic
        question = calls.TelemetryCommand()
        recover = question.recover_orphaned_transaction_command
        recover.message.CopyFrom(message_of(record, topic, None, record.reconsume_times, self._clock.now_ms()))
        recover.transaction_id = transaction_id(
            recover.message.system_properties.message_id,
            header.tran_state_table_offset,
            header.commit_log_offset,
            broker or (header.bname or ""),
        )
        return topic, question
