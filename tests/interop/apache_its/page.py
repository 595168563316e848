"""docs/apache-its.md: how Apache's integration tests are run against ArrowMQ, which do not pass, and why."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from apache_its.catalogue import LEFT_OUT
from apache_its.expected import EXPECTED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "apache-its.md"

HEAD = """# Apache's integration tests

Apache RocketMQ 5.5.0 comes with tests that start a NameServer and three brokers and use them through its clients. They
are on Maven Central, compiled (`rocketmq-test`, classifier `tests`). `make apache-its` runs them, unchanged, against
three brokers of Apache's and three of ArrowMQ's that run as processes of their own, and puts the results side by side:

    make apache-its                                            # everything, on both
    make apache-its OPTIONS="--on arrowmq pop"                 # the classes of one package, on ours only
    make apache-its OPTIONS="TlsIT LagCalculationIT#testCalculateLag --lanes 3"
    make apache-its OPTIONS="--minutes 5 --work FOLDER"        # begins no class after five minutes …
    make apache-its OPTIONS="--resume --work FOLDER"           # … and goes on from there

It takes long, so no other target runs it. Give it the machine alone: many tests wait for seconds only, and fail on
either broker when it is busy.

A test that fails is tried once more, alone on a fresh cluster, and named. The run fails when a test fails on ArrowMQ
that is not in the list below, and also when one of the list passes: the list (`tests/interop/apache_its/expected.py`)
gets shorter, never longer. Logs, stack traces and `results.json` are in `build/apache-its`, or where `--work` says.

What the tests find where they would start brokers is `tests/interop/apache_its/java`: handles that ask the running
processes over the network, send changed settings to them (UPDATE_BROKER_CONFIG), and have them stopped and started.

This page is written by `python -m tests.interop.apache_its --page`.

## Tests that do not pass on ArrowMQ

| class | tests | why |
|---|---|---|
"""

LEFT_OUT_HEAD = """
## Classes that are not run

| class or package | why |
|---|---|
"""


def page() -> str:
    rows = ""
    for reason, tests in EXPECTED.items():
        for name, of_class in groupby(sorted(tests), key=lambda test: test.partition("#")[0]):
            rows += f"| `{name}` | {_names(test.partition('#')[2] for test in of_class)} | {reason.value} |\n"
    left_out = "".join(f"| `{name}` | {reason} |\n" for name, reason in LEFT_OUT.items())
    return f"{HEAD}{rows}{LEFT_OUT_HEAD}{left_out}"


def _names(tests: Iterable[str]) -> str:
    """Tests with parameters once, with their parameters' numbers: `test[0, 1]`."""
    numbers: dict[str, list[str]] = {}
    for test in tests:
        name, _, number = test.rstrip("]").partition("[")
        numbers.setdefault(name, []).extend([number] if number else [])
    return ", ".join(f"`{name}[{', '.join(each)}]`" if each else f"`{name}`" for name, each in numbers.items())
