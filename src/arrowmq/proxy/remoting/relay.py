"""What brokers ask clients, on the connections that the proxy has made for them: handed on, and the answer back."""

from __future__ import annotations

from typing import cast

from arrowmq.proxy.remoting.broker_names import NAME
from arrowmq.proxy.remoting.link import BROKER, LINK, ClientLink, answer_of, passed_on
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, Outcome, Refused
from arrowmq.wire.codes import RequestCode as Code
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.command import ONEWAY_FLAG
from arrowmq.wire.frames import Command

ASK_CLIENT_TIMEOUT_S = 15.0

RELAYED = (
    Code.CHECK_TRANSACTION_STATE,
    Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
)


def relay_requests(remoting: RemotingClient) -> None:
    for code in RELAYED:
        remoting.on_request(code, _relay)


def _relay(call: Call) -> Outcome:
    link = cast(ClientLink, call.connection.attributes[LINK])
    request = passed_on(call.command)
    if request.code == Code.CHECK_TRANSACTION_STATE and NAME not in request.ext:
        # A client answers by another request, and names in it the broker that it was told here.
        request.ext = {**request.ext, NAME: call.connection.attributes[BROKER]}
    if request.flag & ONEWAY_FLAG:
        link.client.send_oneway(request)
        return None
    return _ask(link, request)


async def _ask(link: ClientLink, request: Command) -> Answer:
    try:
        return answer_of(await link.client.request(request, ASK_CLIENT_TIMEOUT_S))
    except RemotingError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
