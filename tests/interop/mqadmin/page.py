"""docs/mqadmin.md: which subcommands were compared, where they differ and why, which are left out and why."""

from __future__ import annotations

import re
from pathlib import Path

from mqadmin.differences import DIFFERENCES
from mqadmin.plan import CALLS, LEFT_OUT, STEPS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "mqadmin.md"

HEAD = """# Apache's own tools

`mqadmin` of Apache RocketMQ 5.5.0 works against ArrowMQ as it is: give it ArrowMQ's NameServer with `-n`.

    mqadmin clusterList -n localhost:9876
    mqadmin updateTopic -n localhost:9876 -c DefaultCluster -t orders
    mqadmin consumerProgress -n localhost:9876 -g billing

`python -m tests.interop.mqadmin` (in tests: `make mqadmin`) fills an Apache cluster and an ArrowMQ with the same data,
runs the subcommands below against both, and compares what they print field by field. Addresses, ids and times of day
are left out of the comparison; every other difference has its reason in the second table, or the run fails. The same is
done with the calls that the RocketMQ dashboard makes through Apache's admin client, listed at the end.

This page is written by `python -m tests.interop.mqadmin --page`.

## Subcommands

| subcommand | against ArrowMQ |
|---|---|
"""

MIDDLE = """
## Where the output differs

| subcommand | why |
|---|---|
"""

TAIL = """
## Calls of the dashboard

"""


def page() -> str:
    covered = {step.subcommand: [] for step in STEPS}  # type: dict[str, list[str]]
    for step in STEPS:
        covered[step.subcommand].append(step.label or "plain")
    rows = {
        name: "compared" if labels == ["plain"] else f"compared: {', '.join(labels)}"
        for name, labels in covered.items()
    }
    rows |= {name: f"left out: {reason}" for name, reason in LEFT_OUT.items()}
    table = "".join(f"| `{name}` | {rows[name]} |\n" for name in sorted(rows, key=str.lower))
    reasons = "".join(f"| {_subcommands(one.steps)} | {one.reason} |\n" for one in DIFFERENCES)
    calls = ", ".join(f"`{name}`" for name in dict.fromkeys(call.method for call in CALLS))
    return f"{HEAD}{table}{MIDDLE}{reasons}{TAIL}{calls}.\n"


def _subcommands(pattern: str) -> str:
    names = sorted({step.subcommand for step in STEPS if re.fullmatch(pattern, step.name)}, key=str.lower)
    calls = sorted({call.method for call in CALLS if re.fullmatch(pattern, call.name)})
    return ", ".join([*(f"`{name}`" for name in names), *(f"dashboard `{name}`" for name in calls)])
