"""The escape bridge: what an acting master has to write goes to brokers of other names, which take messages.

A slave's log is its master's, so nothing may be written here. What delay levels and timers deliver meanwhile, open half
messages and popped messages that were not acknowledged are sent to another broker that has the topic, as by a client
(to a retry topic any other broker will do: it makes one). The services that put messages are not made for waiting:
their put is answered "not yet" while a message is on its way, and "stored" when they come again with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from arrowmq.broker.names import RETRY_PREFIX, SELF_TEST_TOPIC, revive_topic
from arrowmq.broker.pop.retry_topics import normal_topic
from arrowmq.broker.pop.revive import ORIGIN_GROUP
from arrowmq.remoting.errors import RemotingError
from arrowmq.store import Put, PutStatus
from arrowmq.wire import fastjson
from arrowmq.wire import properties as keys
from arrowmq.wire.bodies import TopicRouteData
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetRouteInfo, SendMessage
from arrowmq.wire.sysflag import TRANSACTION_PREPARED, transaction_type

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
        self._revive_topic = revive_topic(broker.config.broker_cluster_name)
        self._sending: dict[Key, asyncio.Task[bool]] = {}
        self._next = itertools.count()
        self.escaped = 0

    def put(self, record: Record) -> Put:
        """In the place of the store's own put, while this slave acts."""
        if record.topic == self._revive_topic:
            return Put(PutStatus.SERVICE_NOT_AVAILABLE, reason="a slave writes no check points")
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
            target = await self._queue(record)
            if target is None:
                return False
            address, queue_id = target
            is_half = transaction_type(record.sys_flag) == TRANSACTION_PREPARED
            header = SendMessage(
                producer_group=record.properties.get(keys.PGROUP, GROUP) if is_half else GROUP,
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

    async def _queue(self, record: Record) -> tuple[str, int] | None:
        """A queue of the topic at another broker, in turn."""
        found = await self._queues(record.topic)
        if not found and record.topic.startswith(RETRY_PREFIX):
            # Those who pop a topic are asked for its retries by every broker that has it.
            normal = normal_topic(record.topic, record.properties.get(ORIGIN_GROUP, ""))
            found = [(address, 0) for address, _ in await self._queues(normal) or await self._queues(SELF_TEST_TOPIC)]
        return found[next(self._next) % len(found)] if found else None

    async def _queues(self, topic: str) -> list[tuple[str, int]]:
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
        return found

    async def stop(self) -> None:
        """What is on its way is given up: it is sent again by who acts next, perhaps twice."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._sending.clear()
