"""Sends that come to a broker which is master no longer go on to the one that is, so that a switch fails no send.

Clients learn a route when they ask for it, Java's every 30 seconds. Until then they send to the old master. That one, a
slave now, passes the request on and gives the answer back. Before a planned switch, the controller has the master step
aside: it keeps new sends waiting, until all members of the sync state set have what it took; then the switch is
decided, and what waited goes to the new master. A new master whose set is still too small keeps sends waiting as well:
its slaves are about to join. A request is passed on once: who gets it as a slave refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from arrowmq.remoting.errors import RemotingError
from arrowmq.remoting.handlers import Answer, Call, TakenOver
from arrowmq.touches import Touches
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.command import ONEWAY_FLAG
from arrowmq.wire.frames import Command

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.clock import Timer

log = logging.getLogger(__name__)

CODES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
)
MARK = "forwarded by a slave"  # as remark of the request: its fields may be signed
PATIENCE_S = 2.5  # a little less than clients have
RETRY_S = 0.02
MOST_WAITING = 20_000
MOST_WAITING_BYTES = 64 << 20


class Forwarding:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_holding = False
        self._held: list[Call] = []
        self._held_bytes = 0
        self._end_of_hold: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.forwarded = 0
        # Before the hook that refuses what comes to a slave. Who may send, the master checks: it gets what was signed.
        broker.hooks.add(self._hook, Touches(codes=CODES, only_while=self._is_at_work), is_first=True)

    def _is_at_work(self) -> bool:
        return self._is_holding or self._forwards

    @property
    def _forwards(self) -> bool:
        role = self._broker.role
        return role.is_slave and bool(role.master.address)

    def _hook(self, call: Call) -> None:
        if self._is_holding and len(self._held) < MOST_WAITING and self._held_bytes < MOST_WAITING_BYTES:
            self._held.append(call)
            self._held_bytes += len(call.body)
            raise TakenOver
        if self._forwards and call.command.remark != MARK and len(self._tasks) < MOST_WAITING:
            self._forward_soon(call)
            raise TakenOver

    @property
    def waiting(self) -> int:
        """How many sends wait for a switch, or for slaves to join."""
        return len(self._held)

    def hold(self, longest_s: float) -> None:
        """Keep sends waiting until `release`, or so long."""
        if self._end_of_hold is not None:
            self._end_of_hold.cancel()
        self._end_of_hold = self._broker.clock.call_later(longest_s, self.release)
        self._is_holding = True
        self._broker.permit.changed()

    def release(self) -> None:
        """What waited is served now, or passed on, by whatever this broker is by now."""
        if not self._is_holding:
            return
        self._is_holding = False
        if self._end_of_hold is not None:
            self._end_of_hold.cancel()
            self._end_of_hold = None
        held, self._held, self._held_bytes = self._held, [], 0
        for call in held:
            self._broker.handlers.serve(call)
        self._broker.permit.changed()

    def stop(self) -> None:
        self.release()
        for task in self._tasks:
            task.cancel()

    def _forward_soon(self, call: Call) -> None:
        task = asyncio.ensure_future(self._forward(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, call: Call) -> None:
        clock, command = self._broker.clock, call.command
        deadline_s = clock.monotonic() + PATIENCE_S
        is_oneway = bool(command.flag & ONEWAY_FLAG)
        reason = "no master is known"
        while (left_s := deadline_s - clock.monotonic()) > 0:
            if not self._forwards:
                self._broker.handlers.serve(call)  # this broker is master by now
                return
            address = self._broker.role.master.address
            request = Command.request(command.code, command.ext, command.body, oneway=is_oneway)
            request.version, request.language, request.remark = command.version, command.language, MARK
            try:
                if is_oneway:
                    await self._broker.remoting.invoke_oneway(address, request)
                    return
                answer = await self._broker.remoting.invoke(address, request, left_s)
            except (RemotingError, OSError) as failure:
                reason = str(failure)
            else:
                # What it says that is not master yet: it has heard of it later than this broker.
                if answer.code not in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY):
                    self.forwarded += 1
                    call.reply(Answer(answer.code, answer.ext, answer.body, answer.remark))
                    return
                reason = answer.remark or "it is not master"
            await clock.sleep(RETRY_S)
        call.refuse(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is a slave, and its master did not take it: {reason}"
        )
