"""How a slave proves to an ArrowMQ master who it is, before the first byte of Apache's protocol.

It asks the master for a ticket at the broker's own port, where requests are signed and rights are checked while users
are on (EXCHANGE_BROKER_HA_INFO with the field `haTicket`, which Apache's brokers ignore), and shows it at the HA port:

     0  8  HELLO, as a report the negative offset that no slave has
     8 16  the ticket

A ticket is good once, for half a minute, for the broker id that it was asked for. A master that gives none is Apache's,
or an older one: then nothing is sent, and what follows is Apache's protocol from its first byte.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, NamedTuple

from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ExchangeHAInfo, decode_header

if TYPE_CHECKING:
    from arrowmq.clock import Clock
    from arrowmq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

HELLO = b"\xf0ARROWMQ"
TICKET_BYTES = 16
READER = -1  # the id of one that only reads along: an analytic replica
TICKET_S = 30.0
MOST_TICKETS = 256
ASK_TIMEOUT_S = 3.0


class Hello(NamedTuple):
    """What a slave says first, and whether the master says that its HA port speaks TLS."""

    data: bytes = b""
    has_tls: bool = False


class Ticket(NamedTuple):
    broker_id: int
    until_s: float


class Tickets:
    """What a master gave out. So many at most: the oldest is forgotten for a new one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: dict[bytes, Ticket] = {}

    def give(self, broker_id: int) -> str:
        while len(self._given) >= MOST_TICKETS:
            del self._given[next(iter(self._given))]
        number = secrets.token_bytes(TICKET_BYTES)
        self._given[number] = Ticket(broker_id, self._clock.monotonic() + TICKET_S)
        return number.hex()

    def take(self, number: bytes) -> int | None:
        """The broker id of a ticket that is good; it is used up by this."""
        ticket = self._given.pop(number, None)
        return ticket.broker_id if ticket is not None and self._clock.monotonic() < ticket.until_s else None


class Greeting:
    """The master's side of one connection: takes the hello off what comes, if there is one."""

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._pending = b""
        self.is_over = False
        self.broker_id: int | None = None  # of a ticket that was good
        self.is_forged = False

    def take(self, data: bytes) -> bytes | None:
        """Bytes of the slave; those behind the hello come back once it is over, None before."""
        data = self._pending + data
        if len(data) < len(HELLO) and HELLO.startswith(data):
            self._pending = data
            return None
        if not data.startswith(HELLO):
            self.is_over = True
            return data
        if len(data) < len(HELLO) + TICKET_BYTES:
            self._pending = data
            return None
        self.is_over = True
        self.broker_id = self._tickets.take(data[len(HELLO) : len(HELLO) + TICKET_BYTES])
        self.is_forged = self.broker_id is None
        return data[len(HELLO) + TICKET_BYTES :]


async def hello_for(remoting: RemotingClient, address: str, broker_id: int) -> Hello:
    """What to send first to the HA port of the master at this address: no bytes if it gives no ticket."""
    command = Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfo(ha_ticket=str(broker_id)))
    try:
        answer = await remoting.invoke(address, command, ASK_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            log.warning("master %s gives no ticket for its HA port: code %d %s", address, answer.code, answer.remark)
            return Hello()
        given = decode_header(ExchangeHAInfo, answer.ext)
        number = bytes.fromhex(given.ha_ticket or "")
    except (RemotingError, WireError, OSError, ValueError) as failure:
        log.debug("master %s gives no ticket for its HA port: %s", address, failure)
        return Hello()
    return Hello(HELLO + number if len(number) == TICKET_BYTES else b"", bool(given.ha_tls))
