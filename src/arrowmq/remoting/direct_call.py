"""Calls from inside the process: a service is asked with values and answers with values, without frames or bytes.

    answer = await DirectCall(broker.handlers, client, body=b"...").ask(services.send.send, SendMessage(...))

The client is any `Channel`. The answer is the one that a socket would have got, a refusal as well (look at its code):
the request hooks of the table see the call first, with the request's fields in `call.ext`. Asking a handler without a
`DirectCall`, `services.offsets.query(QueryConsumerOffset(...))`, passes them by: that is for the broker itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from arrowmq.remoting.channel import Channel
from arrowmq.remoting.errors import ConnectionLost
from arrowmq.remoting.handlers import (
    LATER,
    Answer,
    Call,
    HandlerTable,
    Outcome,
    Reply,
    answer_to_error,
    codes_of,
    release,
)
from arrowmq.wire.codes import CURRENT_VERSION, LanguageCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header, encode_header

Request = TypeVar("Request")


class DirectCall(Call):
    """One question. Language and version are the client's own, as tools show them."""

    __slots__ = ("_answer", "_table")

    def __init__(
        self,
        table: HandlerTable,
        client: Channel,
        body: bytes = b"",
        *,
        code: int = 0,  # of a handler of several codes that tells them apart; else the handler's first
        language: int = LanguageCode.PYTHON,
        version: int = CURRENT_VERSION,
    ) -> None:
        super().__init__(Command(code, language=language, version=version, body=body), client)
        self._table = table
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def ask(self, handler: Callable[[Request, Call], Outcome], request: Request) -> Answer:
        """The handler's answer, also if it takes its time. Who asked has to `release` an answer whose body is in
        pieces: they are views of the store's files. Raises ConnectionLost if the client is gone before."""
        outcome = self.ask_now(handler, request)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def ask_now(self, handler: Callable[[Request, Call], Outcome], request: Request) -> Answer | Awaitable[Answer]:
        """The answer itself where the handler has it at once; else what `ask` would have waited for."""
        try:
            outcome = self._begin(handler, request)
        except Exception as error:
            outcome = answer_to_error(error, self)
        if isinstance(outcome, Awaitable):
            return self._when_there(outcome)
        if outcome is LATER:
            return self._answer
        self.reply(cast(Reply, outcome))
        return self._answer.result()

    async def _when_there(self, waiting: Awaitable[Outcome]) -> Answer:
        try:
            outcome = await waiting
        except Exception as error:
            outcome = answer_to_error(error, self)
        if outcome is LATER:
            return await self._answer
        self.reply(cast(Reply, outcome))
        return self._answer.result()

    def _begin(self, handler: Callable[[Request, Call], Outcome], request: Request) -> Outcome | Awaitable[Outcome]:
        command = self.command
        command.code = command.code or codes_of(handler)[0]
        if self._table.hooks_of(command.code):
            if isinstance(request, Header):
                command.ext.update(encode_header(request))
            self._table.check(self)
        return handler(request, self)

    def _deliver(self, reply: Reply) -> None:
        if self._answer.done():  # who asked has given up
            release(reply)
        elif self.connection.closed:
            release(reply)
            gone = f"{self.connection.peer_text} is gone, and its request with it"
            self._answer.set_exception(ConnectionLost(self.connection.peer_text, gone))
        else:
            self._answer.set_result(reply if isinstance(reply, Answer) else Answer(header=reply))
