"""What was acknowledged and what came of it: nothing lost, each key in order."""

from __future__ import annotations

from collections.abc import Iterable


class Audit:
    """Sends are `KEY:NUMBER@BEGUN@ACKNOWLEDGED`, deliveries `KEY:NUMBER`."""

    def __init__(self, acknowledged: Iterable[str]) -> None:
        self.sends = [(name, int(begun), int(done)) for name, begun, done in (line.split("@") for line in acknowledged)]

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.sends}

    def lost(self, delivered: Iterable[str]) -> set[str]:
        return self.names - set(delivered)

    @staticmethod
    def out_of_order(delivered: Iterable[str]) -> list[str]:
        """Numbers that came before one that is lower and had not come yet; repeats are no fault."""
        highest: dict[str, int] = {}
        faults = []
        for name in delivered:
            key, _, text = name.rpartition(":")
            number = int(text)
            if number > highest.get(key, -1) + 1:
                faults.append(name)
            highest[key] = max(number, highest.get(key, -1))
        return faults

    def first_after_ms(self, moment_ms: float) -> int | None:
        """The first acknowledgement of a message that was sent after a moment, or was under way then."""
        return min((done for _, _, done in self.sends if done >= moment_ms), default=None)

    def silence_ms(self, moment_ms: float) -> float | None:
        """From a moment to the first acknowledgement that follows a pause: when senders were back."""
        times = sorted(done for _, _, done in self.sends)
        after = [done for done in times if done >= moment_ms]
        if not after:
            return None
        # What was on its way when the master went may still be acknowledged just after it.
        gaps = [(later - earlier, later) for earlier, later in zip([moment_ms, *after], after, strict=False)]
        longest, ended = max(gaps)
        return ended - moment_ms if longest > 20 else 0.0
