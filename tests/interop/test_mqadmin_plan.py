"""What the comparison of mqadmin's subcommands covers, and how it judges a field. The comparison: `test_mqadmin.py`."""

from __future__ import annotations

import pytest
from mqadmin.comparison import compare
from mqadmin.differences import Difference
from mqadmin.page import PAGE, page
from mqadmin.plan import CALLS, DASHBOARD, LEFT_OUT, Step
from mqadmin.stage import Said

pytestmark = pytest.mark.interop


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
