"""Which of Apache's thread pools a request belongs to.

ArrowMQ has none of them: a request is processed in the event loop iteration that read it. What can be told in the same
words is how many requests of a kind wait for their answer: for a disk, a NameServer, another client.
"""

from __future__ import annotations

from collections import Counter

from arrowmq.wire.codes import RequestCode

ADMIN = "admin"  # every request that is not named here
PROCESSORS: dict[str, frozenset[int]] = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.RECALL_MESSAGE,
        }
    ),
    "async_put": frozenset(),
    "pull": frozenset({RequestCode.PULL_MESSAGE}),
    "ack": frozenset(),
    "query_message": frozenset({RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}),
    "client_manager": frozenset({RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG}),
    "heartbeat": frozenset({RequestCode.HEART_BEAT}),
    "lite_pull": frozenset({RequestCode.LITE_PULL_MESSAGE}),
    "transaction": frozenset({RequestCode.END_TRANSACTION}),
    "consumer_manager": frozenset(
        {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.QUERY_CONSUMER_OFFSET,
        }
    ),
    "reply": frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}),
    ADMIN: frozenset(),
}
_PROCESSOR_OF = {code: processor for processor, codes in PROCESSORS.items() for code in codes}


def waiting_by_processor(waiting: Counter[int]) -> dict[str, int]:
    """From requests by code to requests by processor; each processor is named."""
    found = dict.fromkeys(PROCESSORS, 0)
    for code, count in waiting.items():
        found[_PROCESSOR_OF.get(code, ADMIN)] += count
    return found
