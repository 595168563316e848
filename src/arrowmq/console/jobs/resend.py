"""Sending many dead letters again: at a rate, with a result for each, stopped and gone on with, each exactly once.

A letter is sent once with an id that the record holds beforehand. If it is not known whether a send took effect (no
answer, or the console was killed), the topic is asked for that id before anything is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from arrowmq.client import names
from arrowmq.client.admin import Admin
from arrowmq.client.errors import ArrowMQError, NoRoute, Refused, SendFailed
from arrowmq.client.message import ReceivedMessage
from arrowmq.console.errors import Problem, conflict, not_found
from arrowmq.console.jobs import record as states
from arrowmq.console.jobs.letters import LetterFilter, parse_place, place_of, read_letters
from arrowmq.console.jobs.record import JobRow, Record, ResultRow
from arrowmq.console.live.hub import Hub
from arrowmq.inspect.texts import body_text
from arrowmq.wire.errors import WireError
from arrowmq.wire.message_queue import MessageQueue

log = logging.getLogger(__name__)

MOST_LETTERS = 100_000
RUNNING_AT_ONCE = 4
MOST_AT_ONCE = 64
STEP_S = 0.1
PAUSE_S = 1.0
ATTEMPTS = 30
READ = 32

_T = TypeVar("_T")


class ResendJobs:
    def __init__(self, directory: Path, hub: Hub) -> None:
        self.record = Record(directory)
        self.hub = hub
        self._running: dict[int, asyncio.Task[None]] = {}
        self._stopping: set[int] = set()

    def start(self) -> None:
        for job in self.record.interrupted():
            if self.record.jobs(None, job)[0].state == states.SELECTING:
                self.record.forget_letters(job)  # chosen in part is not chosen
            self.record.set_state(job, states.STOPPED, "the console ended while it ran; it can go on")

    async def stop(self) -> None:
        self._stopping.update(self._running)
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self.record.close()

    async def do(self, work: Callable[..., _T], *values: Any) -> _T:
        """The record waits for the disk, so not in the loop."""
        return await asyncio.to_thread(work, *values)

    # -- what a person does

    async def begin(
        self, admin: Admin, group: str, who: str, chosen: LetterFilter, rate: float, again: bool, retry_max_times: int
    ) -> int:
        if len(self._running) >= RUNNING_AT_ONCE:
            raise Problem(429, f"{RUNNING_AT_ONCE} jobs run already: wait for one, or stop one")
        filter_ = {name: value for name, value in msgspec.to_builtins(chosen).items() if value}
        job = await self.do(self.record.add_job, group, who, filter_, rate, again)
        self._run(admin, job, retry_max_times)
        return job

    async def go_on(self, admin: Admin, job: int, rate: float | None, retry_max_times: int) -> JobRow:
        row = await self.row(job)
        if job in self._running:
            raise conflict(f"job {job} runs already")
        if row.state == states.DONE and not row.failed:
            raise conflict(f"job {job} is done: nothing is left to send")
        if len(self._running) >= RUNNING_AT_ONCE:
            raise Problem(429, f"{RUNNING_AT_ONCE} jobs run already: wait for one, or stop one")
        if rate is not None:
            await self.do(self.record.set_rate, job, rate)
        # Now, not when its work begins: who asks for the job next must not find it stopped still.
        await self.do(self.record.set_state, job, states.RUNNING if row.total else states.SELECTING)
        self._run(admin, job, retry_max_times)
        return row

    async def halt(self, job: int) -> JobRow:
        await self.row(job)
        task = self._running.get(job)
        if task is None:
            raise conflict(f"job {job} does not run")
        self._stopping.add(job)
        await asyncio.wait({task})
        return await self.row(job)

    async def row(self, job: int) -> JobRow:
        found = await self.do(self.record.jobs, None, job)
        if not found:
            raise not_found(f"there is no job {job}")
        return found[0]

    # -- the job itself

    def _run(self, admin: Admin, job: int, retry_max_times: int) -> None:
        """With the rights of who began it, or goes on with it."""
        self._stopping.discard(job)
        task = asyncio.create_task(self._work(admin, job, retry_max_times), name=f"resend job {job}")
        self._running[job] = task
        task.add_done_callback(lambda _: self._running.pop(job, None))

    async def _work(self, admin: Admin, job: int, retry_max_times: int) -> None:
        try:
            row = await self.row(job)
            is_chosen = row.state != states.SELECTING and bool(row.total)
            if is_chosen or await self._select(admin, row, retry_max_times):
                await self.do(self.record.set_state, job, states.RUNNING)
                await self._settle(admin, row)
                await self._send(admin, row)
                is_stopped = job in self._stopping and bool((await self.row(job)).waiting)
            else:
                is_stopped = True
            await self.do(self.record.set_state, job, states.STOPPED if is_stopped else states.DONE)
        except (ArrowMQError, WireError, Problem) as failure:
            await self.do(self.record.set_state, job, states.STOPPED, str(failure)[:500])
        except Exception as failure:
            log.exception("a resend job broke job=%d", job)
            await self.do(self.record.set_state, job, states.BROKEN, f"{type(failure).__name__}: {failure}"[:500])
        self._stopping.discard(job)
        await self._publish(job)

    async def _publish(self, job: int) -> None:
        self.hub.publish("job", await self.row(job))

    async def _select(self, admin: Admin, row: JobRow, retry_max_times: int) -> bool:
        """Writes down which letters are meant, before the first is sent: later ones are not the job's.

        False if it was stopped meanwhile. Chosen in part is not chosen: who goes on has them chosen anew.
        """
        await self.do(self.record.forget_letters, row.id)
        chosen = msgspec.convert(row.filter, LetterFilter)
        found: list[tuple[str, str, str | None]] = []
        count = 0
        is_whole = False
        try:
            async for letter, message in read_letters(admin, row.group, retry_max_times):
                body = body_text(message.body) if chosen.text else ""
                if chosen.fits(letter, body):
                    found.append((letter.place, letter.msg_id, letter.origin))
                    count += 1
                if len(found) >= 1000:
                    await self.do(self.record.add_letters, row.id, count - len(found), found)
                    found = []
                if row.id in self._stopping:
                    return False
                if count >= MOST_LETTERS:
                    break
            if found:
                await self.do(self.record.add_letters, row.id, count - len(found), found)
            is_whole = True
        finally:
            if not is_whole:
                await self.do(self.record.forget_letters, row.id)
        return True

    async def _settle(self, admin: Admin, row: JobRow) -> None:
        """What an earlier run left as sending: whether it is in its topic decides."""
        for unsure in await self.do(self.record.letters, row.id, (states.SENDING,), MOST_LETTERS):
            await self._ask(admin, row, unsure)

    async def _ask(self, admin: Admin, row: JobRow, letter: ResultRow) -> bool:
        """True if the message is there and the record says so now."""
        assert letter.new_id is not None
        if letter.origin is None:
            return False
        try:
            found = await admin.message_by_id(letter.origin, letter.new_id)
        except (NoRoute, Refused):
            return False
        if found is None:
            return False
        await self.do(self.record.ended, row.group, row.id, [(letter.number, letter.place, states.SENT, None)])
        return True

    async def _send(self, admin: Admin, row: JobRow) -> None:
        rate = (await self.row(row.id)).rate
        reader = _Reader(admin, row.group)
        at_once = max(1, min(MOST_AT_ONCE, round(rate * STEP_S)))
        loop = asyncio.get_running_loop()
        due = loop.time()
        told = 0.0
        # What failed is tried again, once each time that a person goes on with the job.
        failed = await self.do(self.record.letters, row.id, (states.FAILED,), MOST_LETTERS)
        again = [(each.number, each.place, states.WAITING, None) for each in failed]
        await self.do(self.record.ended, row.group, row.id, again)
        while row.id not in self._stopping:
            some = await self.do(self.record.letters, row.id, (states.WAITING,), at_once)
            if not some:
                return
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due, loop.time() - STEP_S) + len(some) / rate
            await self._send_some(row, some, reader)
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                await self._publish(row.id)

    async def _send_some(self, row: JobRow, some: list[ResultRow], reader: _Reader) -> None:
        known = await self.do(self.record.resent, row.group, [letter.place for letter in some])
        skipped = [
            (letter.number, known[letter.place][0])
            for letter in some
            if letter.place in known and known[letter.place][2] != row.id and not row.again
        ]
        if skipped:
            await self.do(self.record.skip, row.id, skipped)
        left = {number for number, _ in skipped}
        ready: list[tuple[ResultRow, ReceivedMessage, str]] = []
        ends: list[tuple[int, str, str, str | None]] = []
        for letter in some:
            if letter.number in left:
                continue
            message = await reader.read(letter.place)
            if message is None:
                ends.append(
                    (letter.number, letter.place, states.FAILED, "the letter is gone: it was too old to be kept")
                )
            else:
                ready.append((letter, message, letter.new_id or reader.admin.session.new_msg_id()))
        await self.do(
            self.record.will_send, row.group, row.id, [(each.number, each.place, new_id) for each, _, new_id in ready]
        )
        outcomes = await asyncio.gather(*(self._send_one(reader.admin, row, *each) for each in ready))
        ends += [
            (letter.number, letter.place, *outcome) for (letter, _, _), outcome in zip(ready, outcomes, strict=True)
        ]
        await self.do(self.record.ended, row.group, row.id, ends)

    async def _send_one(
        self, admin: Admin, row: JobRow, letter: ResultRow, message: ReceivedMessage, new_id: str
    ) -> tuple[str, str | None]:
        """(state, error). Only what a broker refused, or what is surely not stored, is a failure."""
        for attempt in range(ATTEMPTS):
            try:
                await admin.resend_dead_letter(message, msg_id=new_id, retries=0)
                return states.SENT, None
            except (Refused, NoRoute) as refused:
                return states.FAILED, str(refused)
            except SendFailed as failed:
                if failed.causes and all(isinstance(cause, Refused) for cause in failed.causes):
                    return states.FAILED, str(failed)
                problem: Exception = failed
            except ArrowMQError as failure:
                problem = failure
            log.warning("a resend has no answer job=%d letter=%s reason=%s", row.id, letter.msg_id, problem)
            await asyncio.sleep(min(PAUSE_S * (attempt + 1), 5.0))
            asked = msgspec.structs.replace(letter, new_id=new_id)
            try:
                if await self._ask(admin, row, asked):
                    return states.SENT, None
            except (ArrowMQError, WireError):
                continue  # the broker is still away: nothing is known, so nothing is sent
            if row.id in self._stopping:
                # It is not in the topic, so it was not sent.
                return states.WAITING, None
        return states.SENDING, "no broker answered; when the job goes on, the topic is asked first"


class _Reader:
    """Reads letters by their places; they come in order, so one pull serves many."""

    def __init__(self, admin: Admin, group: str) -> None:
        self.admin = admin
        self._topic = names.dlq_topic(admin.namespace.wrap(group))
        self._read: dict[str, ReceivedMessage] = {}

    async def read(self, place: str) -> ReceivedMessage | None:
        found = self._read.pop(place, None)
        if found is not None:
            return found
        broker, queue_id, offset, _ = parse_place(place)
        messages = await self.admin.messages_at(MessageQueue(self._topic, broker, queue_id), offset, READ)
        if len(self._read) > 8 * READ:
            self._read.clear()
        self._read.update({place_of(message): message for message in messages})
        return self._read.pop(place, None)


async def read_one(admin: Admin, group: str, place: str) -> ReceivedMessage | None:
    return await _Reader(admin, group).read(place)
