"""What a program may hang into the way of its messages: before and after sending, before and after consuming.

An error in a hook is logged and the message goes on; only `refuses_send`, which exists to say no, stops a send.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from arrowmq.client.produce.receipt import SendReceipt

if TYPE_CHECKING:
    from arrowmq.client.message import ReceivedMessage
    from arrowmq.client.produce.outgoing import Packed

log = logging.getLogger("arrowmq.client")


class Hook:
    """Derive and override what is of interest; the methods run in the event loop and must not block."""

    def refuses_send(self, packed: Packed) -> None:
        """Raise to stop this send; the error reaches the sender."""

    def before_send(self, packed: Packed) -> None:
        """May add to `packed.properties`."""

    def after_send(
        self, packed: Packed, receipt: SendReceipt | None, error: BaseException | None, took_ms: float
    ) -> None:
        """The receipt, or the error of the last attempt."""

    def before_consume(self, group: str, messages: list[ReceivedMessage]) -> None:
        """The messages are about to be handed out."""

    def after_consume(
        self, group: str, messages: list[ReceivedMessage], error: BaseException | None, took_ms: float
    ) -> None:
        """They were acknowledged (no error), or will come again."""

    async def close(self) -> None:
        """The client ends."""


class Hooks:
    """Several hooks as one."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self.hooks = list(hooks)

    def __bool__(self) -> bool:
        return bool(self.hooks)

    def before_send(self, packed: Packed) -> None:
        for hook in self.hooks:
            hook.refuses_send(packed)
        for hook in self.hooks:
            try:
                hook.before_send(packed)
            except Exception:
                log.exception("hook %r failed before a send", hook)

    def after_send(
        self, packed: Packed, receipt: SendReceipt | None, error: BaseException | None, took_ms: float
    ) -> None:
        for hook in self.hooks:
            try:
                hook.after_send(packed, receipt, error, took_ms)
            except Exception:
                log.exception("hook %r failed after a send", hook)

    def before_consume(self, group: str, messages: list[ReceivedMessage]) -> None:
        for hook in self.hooks:
            try:
                hook.before_consume(group, messages)
            except Exception:
                log.exception("hook %r failed before consuming", hook)

    def after_consume(
        self, group: str, messages: list[ReceivedMessage], error: BaseException | None, took_ms: float
    ) -> None:
        for hook in self.hooks:
            try:
                hook.after_consume(group, messages, error, took_ms)
            except Exception:
                log.exception("hook %r failed after consuming", hook)

    async def close(self) -> None:
        for hook in self.hooks:
            try:
                await hook.close()
            except Exception:
                log.exception("hook %r failed at the end", hook)
