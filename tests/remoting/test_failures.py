"""Goal: a failure that happens ten thousand times is in the log, and the log is still readable."""

from __future__ import annotations

import logging

import pytest

from arrowmq.remoting.failures import QUIET_S, REMEMBERED, FailureLog


def test_the_same_failure_is_written_once_in_a_while_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = FailureLog(lambda: now)
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            failures.report("SEND_MESSAGE", "10.0.0.1:5000", OSError("disk full"))
        failures.report("SEND_MESSAGE", "10.0.0.1:5000", KeyError("another kind"))
        failures.report("PULL_MESSAGE", "10.0.0.1:5000", OSError("another request"))
        assert len(caplog.records) == 3
        assert caplog.records[0].exc_info is not None
        now = QUIET_S
        failures.report("SEND_MESSAGE", "10.0.0.2:5000", OSError("disk full"))
    assert "peer=10.0.0.2:5000 (999 more like it since the last one)" in caplog.records[3].message


def test_what_it_remembers_is_bounded() -> None:
    failures = FailureLog(lambda: 0.0)
    for number in range(10 * REMEMBERED):
        failures.report(f"code {number}", "10.0.0.1:5000", OSError())
    assert failures.remembered <= REMEMBERED
