"""The blocking producer, and its transactions as `with` blocks."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

from arrowmq.client.produce import producer as client
from arrowmq.client.produce import transactions
from arrowmq.client.produce.outgoing import Message, MessageDetails
from arrowmq.client.produce.receipt import SendReceipt
from arrowmq.sync.facade import Facade, arguments_of, blocking
from arrowmq.sync.loop_thread import LoopThread


class Transaction:
    """The blocking form of `arrowmq.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: transactions.Transaction) -> None:
        self._thread = thread
        self._transaction = transaction

    @property
    def msg_id(self) -> str:
        return self._transaction.msg_id

    @property
    def receipt(self) -> SendReceipt:
        return self._transaction.receipt

    def commit(self) -> None:
        self._thread.call(self._transaction.commit)

    def rollback(self) -> None:
        self._thread.call(self._transaction.rollback)

    def leave_undecided(self) -> None:
        self._transaction.leave_undecided()


class Producer(Facade[client.Producer]):
    __doc__ = client.Producer.__doc__

    @arguments_of(client.Producer)
    def __init__(self, make: Callable[[], client.Producer]) -> None:
        self._begin(make)

    send = blocking(client.Producer.send)
    send_oneway = blocking(client.Producer.send_oneway)
    send_batch = blocking(client.Producer.send_batch)
    send_in_transaction = blocking(client.Producer.send_in_transaction)
    request = blocking(client.Producer.request)
    reply = blocking(client.Producer.reply)
    recall = blocking(client.Producer.recall)
    queues = blocking(client.Producer.queues)
    flush = blocking(client.Producer.flush)

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def submit(
        self, topic: str | Message, body: bytes = b"", **details: Unpack[MessageDetails]
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin a send and go on; the future has the receipt. Waits only while too much is in flight."""
        done: concurrent.futures.Future[SendReceipt] = concurrent.futures.Future()

        async def begin() -> None:
            task = await self._client.submit(topic, body, **details)
            task.add_done_callback(lambda ended: _hand_over(ended, done))

        self._thread.call(begin)
        return done

    @contextmanager
    def transaction(
        self, topic: str | Message, body: bytes = b"", **details: Unpack[MessageDetails]
    ) -> Iterator[Transaction]:
        """Commits at the end of the block, rolls back on an exception."""

        async def build() -> transactions.Transaction:
            return self._client.transaction(topic, body, **details)

        inner = self._thread.call(build)
        self._thread.call(inner.__aenter__)
        try:
            yield Transaction(self._thread, inner)
        except BaseException as error:
            failure = error
            self._thread.call(lambda: inner.__aexit__(type(failure), failure, None))
            raise
        self._thread.call(lambda: inner.__aexit__(None, None, None))


def _hand_over(task: asyncio.Task[SendReceipt], done: concurrent.futures.Future[SendReceipt]) -> None:
    if done.cancelled():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
