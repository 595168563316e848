"""Checks of pop: a group that is consumed in two ways at once, and messages that should have come back."""

from __future__ import annotations

from arrowmq.inspect.doctor.facts import ERROR, WARNING, Facts, Finding
from arrowmq.inspect.texts import duration_text

LATE_MS = 30_000


def groups_consume_in_one_way(facts: Facts) -> list[Finding]:
    """A pulling member commits offsets, a popping one moves them: each takes messages away from the other."""
    found = []
    for broker in facts.reached:
        for group in filter(None, broker.runtime.get("popAndPull", "").split(",")):
            found.append(
                Finding(
                    WARNING,
                    "pop-and-pull",
                    f"Group {group} pops and pulls at once at broker {broker.name}.",
                    "give the members that pop (simple consumers, 5.x clients) a group of their own, or switch all "
                    "of them with mqadmin setConsumeMode",
                )
            )
    return found


def messages_come_back(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        text = broker.runtime.get("popReviveLateMs", "0")
        late_ms = int(text) if text.isdecimal() else 0
        if late_ms > LATE_MS:
            found.append(
                Finding(
                    ERROR,
                    "pop-revive-late",
                    f"At broker {broker.name} popped messages should have come back {duration_text(late_ms)} ago.",
                    "its log says why (revive); often the disk is full, or the copy is refused as too large",
                )
            )
    return found


POP_CHECKS = {
    "groups consume in one way": groups_consume_in_one_way,
    "popped messages come back": messages_come_back,
}
