"""One line for each refused request and each change of users, rights and settings: who, from where, what, why.

The lines go to the logger `arrowmq.audit`. Names in them come from strangers, so they are cut and freed of control
characters: a name must not write lines of its own. A flood of refusals is one too: of more than `PER_SECOND` in a
second the rest is told by number.
"""

from __future__ import annotations

import logging

from arrowmq.clock import Clock
from arrowmq.wire.codes import request_name

log = logging.getLogger("arrowmq.audit")

PER_SECOND = 200
TEXT_MAX_LENGTH = 160


class Audit:
    def __init__(self, server: str, clock: Clock) -> None:
        self.server = server
        self._clock = clock
        self._second = 0.0
        self._lines = 0
        self._untold = 0
        self.refused = 0  # requests since the start

    def denied(self, code: int | str, who: str, source: str, resource: str, why: str) -> None:
        """A request was refused, or a gRPC call, which has a name instead of a code."""
        self.refused += 1
        if not self._may_write():
            return
        log.warning(
            "refused server=%s user=%s from=%s request=%s resource=%s reason=%s",
            self.server,
            clean(who) or "-",
            clean(source),
            code if isinstance(code, str) else f"{request_name(code)}({code})",
            clean(resource) or "-",
            clean(why),
        )

    def asked(self, code: int, who: str, source: str, resource: str) -> None:
        """An administrator's request was let through to its handler."""
        log.info(
            "asked server=%s user=%s from=%s request=%s(%d) resource=%s",
            self.server,
            clean(who) or "-",
            clean(source),
            request_name(code),
            code,
            clean(resource) or "-",
        )

    def changed(self, what: str, who: str, source: str) -> None:
        """An administrator changed something; `what` holds no secret."""
        log.info(
            "changed server=%s user=%s from=%s what=%s", self.server, clean(who) or "-", clean(source), clean(what)
        )

    def _may_write(self) -> bool:
        now = self._clock.monotonic()
        if now - self._second >= 1.0:
            if self._untold:
                log.warning("refused server=%s requests=%d, which have no line of their own", self.server, self._untold)
            self._second, self._lines, self._untold = now, 0, 0
        self._lines += 1
        if self._lines > PER_SECOND:
            self._untold += 1
            return False
        return True


def clean(text: str) -> str:
    """Fit to stand in a line: printable, without blanks at its ends, and not long."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return shown if len(shown) <= TEXT_MAX_LENGTH else shown[:TEXT_MAX_LENGTH] + "…"
