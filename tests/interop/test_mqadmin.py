"""Apache's mqadmin says of ArrowMQ what it says of Apache's own broker, field by field, or there is a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mqadmin.comparison import Comparison, compare, report, run
from mqadmin.plan import LEFT_OUT, STEPS
from oracle import hands

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Both targets after each other: side by side they would only wait for each other."""
    return compare(run("apache", tmp_path_factory.mktemp("apache")), run("arrowmq", tmp_path_factory.mktemp("arrowmq")))


def test_every_field_is_equal_or_differs_for_a_listed_reason(comparison: Comparison) -> None:
    assert comparison.unexplained == [], report(comparison)


def test_no_listed_reason_has_outlived_its_difference(comparison: Comparison) -> None:
    assert comparison.stale == [], report(comparison)


def test_every_subcommand_of_mqadmin_is_compared_or_left_out_for_a_reason(tmp_path: Path) -> None:
    # Asked for nothing, mqadmin lists what it can do, and asks no server.
    with hands.start("java-5.5-json", "127.0.0.1:1", "127.0.0.1:1", tmp_path) as hand:
        known = set(re.findall(r"^   (\w+) ", hand.do("mqadmin", arguments=[])["printed"], re.MULTILINE))
    covered = {step.subcommand for step in STEPS}
    assert len(known) > 90
    assert covered & set(LEFT_OUT) == set()
    assert known == covered | set(LEFT_OUT)
