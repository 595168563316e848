"""Apache's mqadmin says of ArrowMQ what it says of Apache's own broker, field by field, or there is a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mqadmin.comparison import Comparison, compare, report, run
from mqadmin.differences import Difference
from mqadmin.page import PAGE, page
from mqadmin.plan import CALLS, DASHBOARD, LEFT_OUT, STEPS, Step
from mqadmin.stage import Said
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


def test_every_call_of_the_dashboard_is_compared_or_left_out_for_a_reason() -> None:
    """Users and permissions are the only ones left out; mqadmin's subcommands of the same names are, too."""
    left_out = {name for name in DASHBOARD if name in LEFT_OUT}
    assert {call.method for call in CALLS} >= DASHBOARD - left_out
    assert left_out == {name for name in DASHBOARD if name.endswith(("User", "Acl"))}


@pytest.mark.parametrize(
    ("apache", "arrowmq", "is_covered"),
    [("1.5", "2", True), ("1.5", "many", False), ("1.5", None, False), (None, "2", False)],
)
def test_a_number_may_be_another_number_but_not_a_word_and_not_nothing(
    apache: str | None, arrowmq: str | None, is_covered: bool
) -> None:
    rate = Difference("clusterList", "row 1 .*", "rates of the moment", like=r"[\d.]+")
    assert is_covered == rate.covers("clusterList", "row 1 InTPS", apache, arrowmq)
    assert not rate.covers("clusterList", "row 2 InTPS", "1", "2")


def test_the_page_is_what_the_plan_says() -> None:
    assert page() == PAGE.read_text(), "run python -m tests.interop.mqadmin --page"


def test_a_field_that_differs_is_found() -> None:
    step = Step("topicStatus")
    theirs = [Said(step, {"row 1 Max Offset": "3", "row 1 QID": "0"}, "")]
    ours = [Said(step, {"row 1 Max Offset": "4", "row 1 QID": "0", "row 2 QID": "1"}, "")]
    assert {(one.name, one.apache, one.arrowmq) for one in compare(theirs, ours).unexplained} == {
        ("row 1 Max Offset", "3", "4"),
        ("row 2 QID", None, "1"),
    }
