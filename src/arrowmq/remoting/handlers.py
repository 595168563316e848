"""From a request to the method that answers it.

A service is any object with methods marked `@handles(RequestCode.X)`. The annotation of a method's first parameter says
which header, or which body, it wants; that is decoded and checked here, before the method runs, so that a method can
also be called with values (`direct_call.py`). A handler answers by returning

- a header: success with these fields,
- an `Answer`: any code, header, body and remark,
- None: success and nothing else,
- an awaitable of one of these,
- `LATER`: it keeps the `Call` and answers with `call.reply(...)` when it can,

and says no by raising `Refused`. Whatever else a handler raises becomes a SYSTEM_ERROR answer with the error's text.

Before a handler runs, the table's request hooks have seen the call. A hook refuses as a handler does, by raising; it
declares the request codes that it touches (`arrowmq.touches`), and one that declares none sees every request, at every
port and from inside the process. None of them is passed by: what a hook touches, the fast path does not take.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from arrowmq.remoting.answer_times import AnswerTimes
from arrowmq.remoting.failures import FailureLog
from arrowmq.touches import Steps
from arrowmq.wire import fastjson
from arrowmq.wire.bodies.declare import Body as JsonBody
from arrowmq.wire.codes import ResponseCode, request_name
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header, decode_header

if TYPE_CHECKING:
    from arrowmq.remoting.channel import Channel

_failures = FailureLog()

Body = bytes | list[memoryview]


class Answer:
    """What goes back. A body of several pieces is sent without being joined.

    `on_sent` is called exactly once, when nothing here refers to the pieces any more: the kernel has them, the
    transport has its own copy, or the connection is gone.
    """

    __slots__ = ("body", "code", "header", "on_sent", "remark")

    def __init__(
        self,
        code: int = ResponseCode.SUCCESS,
        header: Header | dict[str, str] | None = None,
        body: Body = b"",
        remark: str | None = None,
        on_sent: Callable[[], object] | None = None,
    ) -> None:
        self.code = code
        self.header = header
        self.body = body
        self.remark = remark
        self.on_sent = on_sent


class Refused(Exception):
    """A handler's no: the code and the sentence that the caller gets."""

    def __init__(self, code: int, remark: str, header: Header | dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.header = header


class TakenOver(Exception):
    """Raised by a request hook that answers the call by itself, later."""


class _Later:
    __slots__ = ()

    def __repr__(self) -> str:
        return "LATER"


LATER: Final = _Later()
"""Returned by a handler that will call `call.reply` itself."""

Reply = Answer | Header | None
Outcome = Reply | _Later | Awaitable[Reply]


class Call:
    """One request under way: what was asked, by which client, and the way to answer it.

    How the answer travels is a subclass's to say: `FrameCall` writes it to the socket that the request came by,
    `DirectCall` hands it to whoever asked from inside this process.
    """

    __slots__ = ("_is_held", "began", "command", "connection", "is_answered", "times", "user", "was_suspended")

    def __init__(self, command: Command, connection: Channel) -> None:
        self.command = command
        self.connection = connection
        self.user: Any = None  # who asks, where the server's hooks have found that out
        self.is_answered = False
        self.began = time.perf_counter()
        self.times: AnswerTimes | None = None  # of the table that serves this call, if it keeps them
        self.was_suspended = False  # set by who lets a pull wait for a message
        self._is_held = False

    @property
    def body(self) -> bytes:
        return self.command.body

    @property
    def ext(self) -> dict[str, str]:
        return self.command.ext

    def hold(self) -> None:
        """The answer comes later."""
        if not self._is_held and not self.is_answered:
            self._is_held = True
            if self.times is not None and not self.was_suspended:
                self.times.waiting[self.command.code] += 1

    def suspend(self) -> None:
        """It waits for a message, not for us."""
        if self.times is not None and self._is_held and not self.was_suspended:
            self.times.waiting[self.command.code] -= 1
        self.was_suspended = True

    def reply(self, reply: Reply) -> None:
        """Answer now. Only the first answer counts."""
        if self.is_answered:
            release(reply)
            return
        self.is_answered = True
        if self.times is not None:
            if self._is_held and not self.was_suspended:
                self.times.waiting[self.command.code] -= 1
            self.times.answered(self, reply.code if isinstance(reply, Answer) else ResponseCode.SUCCESS)
        self._deliver(reply)

    def _deliver(self, reply: Reply) -> None:
        """Take the one answer to who asked; `release` it if that cannot be."""
        raise NotImplementedError

    def refuse(self, code: int, remark: str) -> None:
        self.reply(Answer(code, remark=remark))


def release(reply: Reply) -> None:
    """Tell the owner of an answer's pieces that they are no longer needed."""
    if isinstance(reply, Answer) and reply.on_sent is not None:
        on_sent, reply.on_sent = reply.on_sent, None
        on_sent()


Method = TypeVar("Method", bound=Callable[..., Any])
Read = Callable[[Any], Any]
CODES_ATTRIBUTE = "_arrowmq_handles"


def handles(*codes: int, read: Callable[[Any], Header | JsonBody] | None = None) -> Callable[[Method], Method]:
    """Marks a method as the handler of these request codes; once more, with `read`, for codes whose header is written
    in another form."""

    def mark(method: Method) -> Method:
        marked = getattr(method, CODES_ATTRIBUTE, {})
        setattr(method, CODES_ATTRIBUTE, {**dict.fromkeys(map(int, codes), read), **marked})
        return method

    return mark


def codes_of(method: Callable[..., Any]) -> list[int]:
    """The request codes that a method is marked to handle."""
    return list(getattr(method, CODES_ATTRIBUTE, ()))


Hook = Callable[[Call], object]
"""Sees a call before its handler does; raises `Refused` to refuse it."""


class Handler:
    """A bound method with what must be read for it: of the header's fields, or of the body."""

    __slots__ = ("is_of_body", "method", "read", "takes_call")

    def __init__(
        self, method: Callable[..., Outcome], read: Read | None, takes_call: bool, is_of_body: bool = False
    ) -> None:
        self.method = method
        self.read = read
        self.takes_call = takes_call
        self.is_of_body = is_of_body

    def __repr__(self) -> str:
        return getattr(self.method, "__qualname__", repr(self.method))

    def __call__(self, call: Call) -> Outcome:
        if self.read is None:
            return self.method(call) if self.takes_call else self.method()
        command = call.command
        request = self.read(command.body if self.is_of_body else command.ext)
        return self.method(request, call) if self.takes_call else self.method(request)


def _inspect(method: Callable[..., Outcome], read: Read | None = None) -> Handler:
    """Find out from the signature what the method wants: a header or a body, the call, both or nothing."""
    function = getattr(method, "__func__", method)
    wanted: type[Header] | type[JsonBody] | None = None
    takes_call = False
    for parameter in inspect.signature(method).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = _resolve(annotation, function)
        if annotation is Call:
            takes_call = True
        elif isinstance(annotation, type) and issubclass(annotation, (Header, JsonBody)) and wanted is None:
            wanted = annotation
        else:
            raise TypeError(
                f"{function.__qualname__}({parameter.name}: {annotation!r}): a handler takes a header or a body, "
                "a Call or both"
            )
    if wanted is None:
        return Handler(method, None, takes_call)
    if issubclass(wanted, JsonBody):
        return Handler(method, read or partial(fastjson.loads, type=wanted), takes_call, is_of_body=True)
    return Handler(method, read or partial(decode_header, wanted), takes_call)


def _resolve(annotation: str, function: Callable[..., Any]) -> Any:
    if annotation == "Call":
        return Call  # most modules import it for type checkers only
    names = vars(sys.modules[function.__module__])
    try:
        return eval(annotation, names)
    except NameError as error:
        raise TypeError(
            f"{function.__qualname__}: {error}; import it at run time, headers are decoded by it"
        ) from error


class HandlerTable:
    """Request code → handler, gathered from services. With `times`, it keeps how long answers took.

    A code that RocketMQ knows and no service handles is refused by its name: `server` says who refuses, `why_not` why
    (by code), and `otherwise` for the codes that it has not.
    """

    def __init__(
        self,
        *services: object,
        times: AnswerTimes | None = None,
        server: str = "this server",
        why_not: Mapping[int, str] | None = None,
        otherwise: str = "",
        hooks: Steps[Hook] | None = None,
    ) -> None:
        self.times = times
        self.hooks: Steps[Hook] = Steps("request hook") if hooks is None else hooks
        self.hooks.on_change.append(self._forget_hooks)
        self._hooks_by_code: dict[int, tuple[Hook, ...]] = {}
        self.server = server
        self.why_not = why_not or {}
        self.otherwise = otherwise
        self._handlers: dict[int, Handler] = {}
        for service in services:
            self.add_service(service)

    def add_service(self, service: object) -> None:
        seen: set[str] = set()
        for kind in type(service).__mro__:
            for name, value in vars(kind).items():
                if name in seen:
                    continue
                seen.add(name)
                for code, read in getattr(value, CODES_ATTRIBUTE, {}).items():
                    self._put(code, _inspect(getattr(service, name), read))

    def add(self, code: int, method: Callable[..., Outcome]) -> None:
        """One handler outside of a service. A parameter without annotation would be ambiguous: it must be typed."""
        self._put(int(code), _inspect(method))

    def add_callback(self, code: int, callback: Callable[[Call], Outcome]) -> None:
        """A handler that takes just the call; replaces an earlier one of the same code."""
        self._handlers[int(code)] = Handler(callback, None, True)

    def _put(self, code: int, handler: Handler) -> None:
        if code in self._handlers:
            raise ValueError(f"request code {code} has two handlers: {self._handlers[code]} and {handler}")
        self._handlers[code] = handler

    def without(self, codes: Iterable[int], why: str = "") -> HandlerTable:
        """The same table, less these codes (for the VIP port, which knows no pulls)."""
        left_out = {int(code) for code in codes}
        why_not = {**dict.fromkeys(left_out & self._handlers.keys(), why), **self.why_not}
        table = HandlerTable(
            times=self.times, server=self.server, why_not=why_not, otherwise=self.otherwise, hooks=self.hooks
        )
        table._handlers = {code: handler for code, handler in self._handlers.items() if code not in left_out}
        return table

    def __contains__(self, code: int) -> bool:
        return code in self._handlers

    def __iter__(self) -> Iterator[int]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    def check(self, call: Call) -> None:
        """Let the hooks see a call; raises what they raise."""
        for hook in self.hooks_of(call.command.code):
            hook(call)

    def hooks_of(self, code: int) -> tuple[Hook, ...]:
        """Those that may touch requests of this code."""
        hooks = self._hooks_by_code.get(code)
        if hooks is None:
            hooks = tuple(hook for hook, touches in self.hooks.declared if touches.may_touch_code(code))
            self._hooks_by_code[code] = hooks
        return hooks

    def _forget_hooks(self) -> None:
        self._hooks_by_code.clear()

    def serve(self, call: Call) -> None:
        """Run the handler of this call, if no hook refuses it, and see that it gets its answer."""
        call.times = self.times
        handler = self._handlers.get(call.command.code)
        if handler is None:
            call.refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, self._not_served(call.command.code))
            return
        try:
            if self.hooks:
                self.check(call)
            outcome = handler(call)
        except TakenOver:
            call.hold()
            return
        except Exception as error:
            call.reply(answer_to_error(error, call))
            return
        if outcome is LATER:
            call.hold()
        elif outcome is None or isinstance(outcome, (Answer, Header)):
            call.reply(outcome)
        elif inspect.isawaitable(outcome):
            call.hold()
            task = asyncio.ensure_future(_finish(outcome, call))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
        else:
            wrong = TypeError(f"{handler} returned {type(outcome).__name__}, which is no answer")
            call.reply(answer_to_error(wrong, call))

    def _not_served(self, code: int) -> str:
        name = request_name(code)
        if name == str(code):
            return f" request type {code} not supported"  # Apache's words, with the space that they begin with
        reason = self.why_not.get(code, self.otherwise)
        return f"request type {code} {name} is not served by {self.server}" + (f": {reason}" if reason else "")


_tasks: set[asyncio.Future[None]] = set()  # the loop itself holds tasks weakly only


async def _finish(outcome: Awaitable[Reply], call: Call) -> None:
    try:
        reply = await outcome
    except asyncio.CancelledError:
        call.refuse(ResponseCode.SYSTEM_ERROR, "the server stopped before this request was done: repeat it")
        raise
    except Exception as error:
        reply = answer_to_error(error, call)
    call.reply(reply)


def answer_to_error(error: Exception, call: Call) -> Answer:
    if isinstance(error, Refused):
        return Answer(error.code, error.header, remark=error.remark)
    name = request_name(call.command.code)
    if isinstance(error, WireError):
        # A field or body that does not obey the protocol is the caller's fault, and no news for the server's log.
        return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{name}: {error}")
    _failures.report(name, call.connection.peer_text, error)
    return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
