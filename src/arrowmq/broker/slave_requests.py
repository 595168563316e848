"""What a slave refuses, and with which code: as Apache's slave does, and changes that would not last.

sends           SYSTEM_BUSY; with enableSlaveActingMaster they come as far as the store, which takes none
pulls           SYSTEM_BUSY, unless slaveReadEnable is true
administration  of topics and groups SYSTEM_ERROR: a slave's tables are its master's, and this would be lost
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrowmq.broker.role import A_SLAVE
from arrowmq.broker.send.flow import WORDS
from arrowmq.remoting.handlers import Call, Refused
from arrowmq.touches import Touches
from arrowmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
CHANGES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)


def refuse_on_slaves(broker: Broker) -> None:
    """Adds the hook that says no."""
    role, config = broker.role, broker.config

    def hook(call: Call) -> None:
        if not role.is_slave:
            return
        code = call.command.code
        if code in SENDS:
            if config.enable_slave_acting_master:
                raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {A_SLAVE.reason}")
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{WORDS}: {A_SLAVE.reason}")
        if code in PULLS and not config.slave_read_enable:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"{WORDS}: this broker is a slave that is not read from, its slaveReadEnable is false",
            )
        if code in CHANGES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker: ask its master, whose tables it copies",
            )

    touches = Touches(codes=SENDS | PULLS | CHANGES, only_while=lambda: role.is_slave)
    broker.hooks.add(hook, touches)
