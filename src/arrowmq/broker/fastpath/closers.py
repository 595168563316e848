"""What closes the fast path of every broker, by name; a capability that brings another adds it to `broker.permit`.

Steps that a request passes (flow control is one) are not here: they close it by what they declare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.broker.fastpath.permit import Does
from arrowmq.broker.names import SLAVE
from arrowmq.broker.settings.config import READ, WRITE

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker


def add_closers(broker: Broker) -> None:
    config, store, clock, permit = broker.config, broker.store, broker.clock, broker.permit
    transactions = broker.services.transactions.transactions
    region = (config.region_id, config.trace_on)

    def role() -> str | None:
        return "brokerRole is SLAVE" if config.broker_role == SLAVE else None

    def writing() -> str | None:
        return None if config.broker_permission & WRITE else f"brokerPermission is {config.broker_permission}"

    def reading() -> str | None:
        return None if config.broker_permission & READ else f"brokerPermission is {config.broker_permission}"

    def start_time() -> str | None:
        accepts_from_ms = config.start_accept_send_request_time_stamp
        return f"not before {accepts_from_ms} ms" if 0 < accepts_from_ms > clock.now_ms() else None

    def changed_region() -> str | None:
        """The answers' templates have it as it was when the broker started."""
        return "changed since the start" if (config.region_id, config.trace_on) != region else None

    def pull_consumers() -> str | None:
        return "pulls of clients without a heartbeat are refused" if config.reject_pull_consumer_enable else None

    def no_transactions() -> str | None:
        return "rejectTransactionMessage is true" if config.reject_transaction_message else None

    def owed() -> str | None:
        return "an op record could not be written yet" if transactions.owes else None

    def merging() -> str | None:
        return "check points stay in memory for a while" if config.enable_pop_buffer_merge else None

    def threshold() -> str | None:
        return "messages in flight are bounded" if config.enable_pop_message_threshold else None

    def no_timer() -> str | None:
        return "timerWheelEnable is false" if not config.timer_wheel_enable else None

    permit.close_while("role", role)
    permit.close_while("broker permission", writing, Does.WRITES)
    permit.close_while("broker permission", reading, Does.READS)
    permit.close_while("start time", start_time, Does.WRITES)
    permit.close_while("store", store.why_not_writable, Does.WRITES)
    permit.close_while("region", changed_region, Does.WRITES)
    permit.close_while("rejectPullConsumerEnable", pull_consumers, Does.READS)
    permit.close_while("rejectTransactionMessage", no_transactions, Does.TRANSACTIONS)
    permit.close_while("transactions", owed, Does.TRANSACTIONS)
    permit.close_while("enablePopBufferMerge", merging, Does.POPS)
    permit.close_while("enablePopMessageThreshold", threshold, Does.POPS)
    permit.close_while("timer", no_timer, Does.POPS)
