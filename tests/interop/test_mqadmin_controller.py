"""mqadmin's controller commands say of our trio and controller what they say of Apache's, field by field."""

from __future__ import annotations

import pytest
from mqadmin import controlled
from mqadmin.comparison import Comparison, compare, report
from mqadmin.plan import CONTROLLER, LEFT_OUT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    said = [controlled.run(kind, tmp_path_factory.mktemp(kind)) for kind in ("apache", "arrowmq")]
    return compare(said[0], said[1], controlled.DIFFERENCES)


def test_every_field_is_equal_or_differs_for_a_listed_reason(comparison: Comparison) -> None:
    assert comparison.unexplained == [], report(comparison)


def test_no_listed_reason_has_outlived_its_difference(comparison: Comparison) -> None:
    assert comparison.stale == [], report(comparison)


def test_every_command_that_needs_a_controller_is_compared() -> None:
    assert {name for name, reason in LEFT_OUT.items() if reason == CONTROLLER} == controlled.SUBCOMMANDS
