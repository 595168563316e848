"""What the protocol says no with: a code and a sentence, in the `status` of an answer."""

from __future__ import annotations

from arrowmq.proxy.messages import definition_pb2 as v2
from arrowmq.wire.codes import ResponseCode

#: The code of a broker's answer → the protocol's; everything else is an INTERNAL_SERVER_ERROR.
_OF_BROKERS = {
    int(ResponseCode.SUCCESS): v2.OK,
    int(ResponseCode.SYSTEM_BUSY): v2.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): v2.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): v2.CONSUMER_GROUP_NOT_FOUND,
}


class Fault(Exception):
    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message or v2.Code.Name(code)

    @property
    def status(self) -> v2.Status:
        return status_of(self.code, self.message)


class BrokerFault(Fault):
    """A broker's own no."""

    def __init__(self, broker_code: int, remark: str | None) -> None:
        super().__init__(_OF_BROKERS.get(broker_code, v2.INTERNAL_SERVER_ERROR), remark or str(broker_code))
        self.broker_code = broker_code


def status_of(code: int, message: str = "") -> v2.Status:
    return v2.Status(code=code, message=message or v2.Code.Name(code))  # type: ignore[arg-type]


OK = v2.Status(code=v2.OK, message="OK")
