"""Both runs side by side: what is equal, what differs for a listed reason, and what differs for none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oracle.target import Target

from mqadmin.differences import DIFFERENCES, Difference
from mqadmin.plan import STEPS, Step
from mqadmin.stage import CONFIG, Said, Stage


@dataclass(slots=True)
class Found:
    """One field that differs: what Apache said, what ArrowMQ said, and the listed reason, if there is one."""

    step: str
    name: str
    apache: str | None
    arrowmq: str | None
    reason: Difference | None

    def __str__(self) -> str:
        return f"{self.step}: {self.name}: Apache says {self.apache!r}, ArrowMQ {self.arrowmq!r}"


@dataclass(slots=True)
class Comparison:
    equal: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    reasons: Sequence[Difference] = DIFFERENCES

    @property
    def unexplained(self) -> list[Found]:
        return [one for one in self.found if one.reason is None]

    @property
    def stale(self) -> list[Difference]:
        """Reasons that explained nothing, though they are about something that should always differ."""
        used = {id(one.reason) for one in self.found}
        return [reason for reason in self.reasons if reason.always and id(reason) not in used]


def run(kind: str, folder: Path, steps: Iterable[Step] = STEPS) -> list[Said]:
    with Target(kind, folder / "servers", **CONFIG) as target, Stage(target, folder / "tools") as stage:
        return stage.run(steps)


def compare(apache: list[Said], arrowmq: list[Said], reasons: Sequence[Difference] = DIFFERENCES) -> Comparison:
    comparison = Comparison(reasons=reasons)
    for theirs, ours in zip(apache, arrowmq, strict=True):
        step, differs = theirs.step.name, False
        for name in [*theirs.fields, *(name for name in ours.fields if name not in theirs.fields)]:
            said, answered = theirs.fields.get(name), ours.fields.get(name)
            if said != answered:
                differs = True
                reason = next((one for one in reasons if one.covers(step, name, said, answered)), None)
                comparison.found.append(Found(step, name, said, answered, reason))
        if not differs:
            comparison.equal.append(step)
    return comparison


def report(comparison: Comparison) -> str:
    lines = [f"{len(comparison.equal)} runs of mqadmin say the same: {', '.join(comparison.equal)}", ""]
    for reason in comparison.reasons:
        mine = [one for one in comparison.found if one.reason is reason]
        if mine:
            steps = sorted({one.step for one in mine})
            lines.append(f"{len(mine)} fields of {', '.join(steps)} differ: {reason.reason}")
    lines += ["", f"{len(comparison.unexplained)} fields differ for no listed reason"]
    lines += [f"  {one}" for one in comparison.unexplained]
    lines += [f"a listed reason explains nothing any more: {one.steps}: {one.reason}" for one in comparison.stale]
    return "\n".join(lines)
