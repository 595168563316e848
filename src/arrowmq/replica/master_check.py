"""Before a slave follows a master: is its log a part of the master's?

A master sends on from whatever offset a slave names. If it was made anew, or lost its tail, or the slave was away for
longer than files are kept, Apache's pair goes silent, or joins two logs that do not belong together. Here the slave
asks first, by requests that every broker answers: where the master's log begins and ends, and whether the record that
this log ends with is the master's at that place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import KVTable
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import ViewMessage

if TYPE_CHECKING:
    from arrowmq.remoting.client import RemotingClient
    from arrowmq.store import MessageStore

ASK_TIMEOUT_S = 3.0


class NotAPart(Exception):
    """This log must not be continued with that master's."""


class NotAnswered(Exception):
    """The master does not say; it is not up, or not yet."""


class MasterLog(NamedTuple):
    begin: int
    end: int


async def master_log(remoting: RemotingClient, address: str) -> MasterLog:
    """Where a broker's log begins and ends."""
    try:
        answer = await remoting.invoke(address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO), ASK_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise NotAnswered(f"{address} answers with code {answer.code}: {answer.remark}")
        table = fastjson.loads(answer.body, type=KVTable).table
        return MasterLog(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
    except (RemotingError, WireError, OSError) as failure:
        raise NotAnswered(f"{address} does not answer: {failure}") from failure
    except (KeyError, ValueError) as failure:
        raise NotAnswered(f"{address} does not say where its log begins and ends: {failure}") from failure


async def check(store: MessageStore, remoting: RemotingClient, address: str) -> MasterLog:
    """Raises `NotAPart` with what to do, or `NotAnswered`."""
    theirs = await master_log(remoting, address)
    end = int(store.appended)
    if end == store.min_physical_offset:
        return theirs
    if end > theirs.end:
        raise NotAPart(
            f"this log ends at {end}, the master's at {theirs.end}: it was made anew or lost its end. If messages must "
            "not be lost, start this broker as the master; else delete this store and start it again as a slave"
        )
    if end < theirs.begin:
        raise NotAPart(
            f"this log ends at {end}, and the master's begins at {theirs.begin}: what lies between is deleted. Delete "
            "this store and start it again"
        )
    await compare(store, remoting, address, theirs.begin)
    return theirs


async def compare(store: MessageStore, remoting: RemotingClient, address: str, begin: int) -> None:
    """Whether the record that this log ends with is the master's at that place, if its log begins before it."""
    place = last_record(store)
    if place is None or place < begin:
        return
    ours = store.record_bytes_at(place)
    if ours is None:
        return
    command = Command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=place))
    try:
        answer = await remoting.invoke(address, command, ASK_TIMEOUT_S)
    except (RemotingError, WireError, OSError) as failure:
        raise NotAnswered(f"{address} does not answer: {failure}") from failure
    if answer.code != ResponseCode.SUCCESS or answer.body != bytes(ours):
        raise NotAPart(
            f"the master's log has another record at {place} than this one: they went different ways. If messages of "
            "this broker must not be lost, start it as the master; else delete this store and start it again as a slave"
        )


def last_record(store: MessageStore) -> int | None:
    """Where the record begins that the log ends with, if a queue has it."""
    end = int(store.appended)
    for queue in store.consume_queues:
        if queue.tail.max_physical == end:
            entry = queue.entry(queue.tail.next_offset - 1)
            if entry is not None and entry.physical_offset + entry.size == end:
                return entry.physical_offset
    return None
