"""Goal: a run of the fuzzers says by itself what each target went through, and whether its memory grew."""

from __future__ import annotations

import sys

from watching import MOST_GROWTH_MIB, Run, table, watched

SAID = (
    "#21\tINITED cov: 205 ft: 211 corp: 9/2198b exec/s: 0 rss: 238Mb",
    "#40\tNEW    cov: 207 ft: 220 corp: 10/2400b lim: 8 exec/s: 5 rss: 240Mb L: 3/9 MS: 1 EraseBytes-",
    "#99\tDONE   cov: 210 ft: 230 corp: 11/2500b lim: 8 exec/s: 5 rss: 240Mb",
    "stat::number_of_executed_units: 1099",
)


def test_a_row_has_what_the_fuzzer_said() -> None:
    run = Run("records")
    assert [True, False, False, False] == [run.hear(line) for line in SAID]
    run.resident_mib = [230, 260, 1240, 1243]
    assert "| records | 1,099 | 205 / 211 | 210 / 230 | 230 | 1,240 | 1,243 | 0 |  |" == table([run]).splitlines()[-1]
    assert 3 == run.grown_mib


def test_a_process_that_ends_with_an_error_or_does_not_end_is_a_fault() -> None:
    assert "" == watched("good", [sys.executable, "-c", "print(1)"], 60).fault
    assert "ended with 3" == watched("broken", [sys.executable, "-c", "raise SystemExit(3)"], 60).fault
    assert "did not end" == watched("hanging", [sys.executable, "-c", "import time; time.sleep(60)"], 0.5).fault


def test_memory_that_grows_is_a_fault() -> None:
    run = Run("growing", resident_mib=[100, 300, 301 + MOST_GROWTH_MIB])
    run.judge(0)
    assert f"memory grew by {MOST_GROWTH_MIB + 1} MiB" == run.fault
