"""The escape bridge: what an acting master has to write goes to brokers of other names, which take messages.

A slave's log is its master's, so nothing may be written here. What delay levels and timers deliver meanwhile is sent to
another broker that has the topic, as by a client. The services that put messages are not made for waiting: their put is
answered "not yet" while a message is on its way, and "stored" when they come again with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from arrowmq.remoting.errors import RemotingError
from arrowmq.store import Put, PutStatus
from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetRouteInfo, SendMessage

if TYPE_CHECKING:
    from arrowmq.broker import Broker
    from arrowmq.wire.records import Record

log = logging.getLogger(__name__)

GROUP = "CID_RMQ_SYS_INNER_ESCAPE"
TIMEOUT_S = 3.0
MOST_ON_THEIR_WAY = 1024
WRITE = 2
NOT_YET = PutStatus.PUT_TO_REMOTE_BROKER_FAIL  # of which the services that put say nothing in the log

Key = tuple[str, int, str, bytes]


class EscapeBridge:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sending: dict[Key, asyncio.Task[bool]] = {}
        self._next = itertools.count()
        self.escaped = 0

    def put(self, record: Record) -> Put:
        """In the place of the store's own put, while this slave acts."""
        # Not by all properties: a timer stamps each try with its time.
        unique_id = record.properties.get(keys.UNIQ_KEY) or bytes(record.properties_raw).decode("utf-8", "replace")
        key = (record.topic, record.queue_id, unique_id, bytes(record.body))
        task = self._sending.get(key)
        if task is None:
            if len(self._sending) < MOST_ON_THEIR_WAY:
                self._sending[key] = asyncio.ensure_future(self._send(record))
            return Put(NOT_YET, reason="it is on its way to another broker")
        if not task.done():
            return Put(NOT_YET, reason="it is on its way to another broker")
        del self._sending[key]
        if task.cancelled() or task.exception() is not None or not task.result():
            return Put(PutStatus.PUT_TO_REMOTE_BROKER_FAIL, reason="no other broker took it")
        self.escaped += 1
        return Put(PutStatus.PUT_OK, count=1)

    async def _send(self, record: Record) -> bool:
        try:
            target = await self._queue(record.topic)
            if target is None:
                return False
            address, queue_id = target
            header = SendMessage(
                producer_group=GROUP,
                topic=record.topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue_id,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                flag=record.flag,
                properties=bytes(record.properties_raw).decode("utf-8", "replace"),
                reconsume_times=record.reconsume_times,
            )
            command = Command.request(RequestCode.SEND_MESSAGE, header, bytes(record.body))
            answer = await self._broker.remoting.invoke(address, command, TIMEOUT_S)
        except (RemotingError, WireError, OSError) as failure:
            log.warning("escape of a message of topic %s failed: %s", record.topic, failure)
            return False
        return answer.code == ResponseCode.SUCCESS

    async def _queue(self, topic: str) -> tuple[str, int] | None:
        """A queue of the topic at another broker, in turn."""
        found: list[tuple[str, int]] = []
        for address in self._broker.config.namesrv_addresses:
            command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))
            try:
                answer = await self._broker.remoting.invoke(address, command, TIMEOUT_S)
            except (RemotingError, OSError):
                continue
            if answer.code != ResponseCode.SUCCESS:
                continue
            route = fastjson.loads(answer.body, type=TopicRouteData)
            masters = {data.broker_name: data.broker_addrs.get(0) for data in route.broker_datas}
            for queue in route.queue_datas:
                master = masters.get(queue.broker_name)
                if queue.broker_name != self._broker.config.broker_name and master and queue.perm & WRITE:
                    found += [(master, number) for number in range(queue.write_queue_nums)]
            break
        return found[next(self._next) % len(found)] if found else None

    async def stop(self) -> None:
        """What is on its way is given up: it is sent again by who acts next, perhaps twice."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._sending.clear()
