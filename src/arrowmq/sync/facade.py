"""What every blocking client is made of: a thread, the asyncio client in it, and calls that wait for its coroutines.

`blocking` and `arguments_of` take names, arguments and their types over from the asyncio client, so that there is one
place where they are written.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from arrowmq.sync.loop_thread import LoopThread

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")
_T = TypeVar("_T")
_Client = TypeVar("_Client", covariant=True)  # calls that a client inherits fit its facade, too


def blocking(method: Callable[Concatenate[_C, _P], Awaitable[_R]]) -> Callable[Concatenate[Facade[_C], _P], _R]:
    """The blocking form of a coroutine method, with the same arguments and result."""

    @functools.wraps(method)
    def call(self: Facade[_C], /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        return self._thread.call(lambda: method(self._client, *arguments, **options))

    return call


def iterating(
    method: Callable[Concatenate[_C, _P], AsyncIterator[_R]],
) -> Callable[Concatenate[Facade[_C], _P], Iterator[_R]]:
    """The plain iterator over what an asynchronous one gives."""

    @functools.wraps(method)
    def iterate(self: Facade[_C], /, *arguments: _P.args, **options: _P.kwargs) -> Iterator[_R]:
        found = method(self._client, *arguments, **options)

        async def following() -> _R:
            return await anext(found)

        while True:
            try:
                yield self._thread.call(following)
            except StopAsyncIteration:
                return

    return iterate


def arguments_of(
    client: Callable[_P, _C],
) -> Callable[[Callable[[_T, Callable[[], _C]], None]], Callable[Concatenate[_T, _P], None]]:
    """For a constructor that is handed a way to make the asyncio client: its callers give that client's arguments."""

    def decorate(construct: Callable[[_T, Callable[[], _C]], None]) -> Callable[Concatenate[_T, _P], None]:
        @functools.wraps(construct)
        def __init__(self: _T, /, *arguments: _P.args, **options: _P.kwargs) -> None:
            construct(self, lambda: client(*arguments, **options))

        shown: Any = __init__
        shown.__wrapped__ = client.__init__  # what `help` and `inspect.signature` tell
        return __init__

    return decorate


class Facade(Generic[_Client]):
    """Life of a blocking client: the thread begins with it and ends with it."""

    _client: _Client
    _is_closed = False

    def _begin(self, make: Callable[[], _Client]) -> None:
        self._thread = LoopThread(f"arrowmq {type(self).__name__}")

        async def build() -> _Client:
            return make()

        try:
            self._client = self._thread.call(build)
        except BaseException:
            self._thread.stop()
            raise

    def start(self) -> None:
        client: Any = self._client
        try:
            self._thread.call(client.start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        client: Any = self._client
        try:
            self._thread.call(client.close)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
