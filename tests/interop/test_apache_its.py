"""How a run of Apache's integration tests is chosen, read and judged. The run itself: `make apache-its`."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from apache_its import verdict
from apache_its.catalogue import LEFT_OUT, WITH_A_CLUSTER_OF_THEIR_OWN, UnknownTestError, select
from apache_its.expected import EXPECTED, Reason, is_expected_to_fail, listed_in, reason_of
from apache_its.page import PAGE, page
from apache_its.results import Result, ResultsFile, read_events

POP = "org.apache.rocketmq.test.client.consumer.pop"
KNOWN = {
    "TlsIT": "org.apache.rocketmq.test.tls.TlsIT",
    "PopOrderlyIT": f"{POP}.PopOrderlyIT",
    "BatchAckIT": f"{POP}.BatchAckIT",
}
LISTED = [test for tests in EXPECTED.values() for test in tests]


def event(what: str, test: str, error: str = "") -> str:
    return json.dumps({"event": what, "class": "TlsIT", "test": test, "seconds": 1.5, "error": error})


def test_every_expected_failure_is_a_test_listed_once_under_one_reason() -> None:
    assert [] == [test for test in LISTED if not re.fullmatch(r"\w+IT#\w+(\[\d\])?", test)]
    assert [] == [test for test, times in Counter(LISTED).items() if times > 1]
    assert [] == [test for test in LISTED if test.partition("#")[0] in LEFT_OUT]
    assert all(EXPECTED.values())
    assert set() == WITH_A_CLUSTER_OF_THEIR_OWN & LEFT_OUT.keys()


def test_only_what_needs_the_inside_or_fails_there_too_may_fail_on_apache() -> None:
    may_fail = {test for test in LISTED if is_expected_to_fail(test, "apache")}
    assert may_fail == {*EXPECTED.get(Reason.INSIDE, ()), *EXPECTED.get(Reason.APACHE_TOO, ())}
    assert all(is_expected_to_fail(test, "arrowmq") for test in LISTED)
    assert reason_of("TlsIT#testSendAndReceiveMessageOverTLS") is None


def test_the_page_is_what_the_list_says() -> None:
    assert page() == PAGE.read_text(), "run python -m tests.interop.apache_its --page"


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], {"TlsIT": (), "PopOrderlyIT": (), "BatchAckIT": ()}),
        (["pop"], {"PopOrderlyIT": (), "BatchAckIT": ()}),
        (["consumer/pop/"], {"PopOrderlyIT": (), "BatchAckIT": ()}),
        (["TlsIT#a", "TlsIT#b"], {"TlsIT": ("a", "b")}),
        (["TlsIT", "TlsIT#b"], {"TlsIT": ()}),
        (["TlsIT#b", "TlsIT"], {"TlsIT": ()}),
    ],
)
def test_classes_tests_and_packages_can_be_chosen(words: list[str], chosen: dict[str, tuple[str, ...]]) -> None:
    assert chosen == select(words, KNOWN)


@pytest.mark.parametrize("word", ["TlsITT", "pop#a", "op"])
def test_a_name_that_nothing_has_is_refused(word: str) -> None:
    with pytest.raises(UnknownTestError, match=word):
        select([word], KNOWN)


def test_a_test_without_an_end_hung_and_those_after_it_did_not_run() -> None:
    lines = [event("planned", name) for name in ("a", "b", "c")]
    lines += [event("started", "a"), event("passed", "a"), event("started", "b"), '{"event": "pas']
    statuses = {name: result.status for name, result in read_events(lines).items()}
    assert {"TlsIT#a": "passed", "TlsIT#b": "hung", "TlsIT#c": "not run"} == statuses


def test_a_class_that_cannot_be_prepared_fails_in_each_of_its_tests() -> None:
    lines = [event("planned", "a"), event("planned", "b"), event("assumed", "", "needs a proxy\n\tat Somewhere")]
    results = read_events(lines)
    assert {"TlsIT#a": "assumed", "TlsIT#b": "assumed"} == {name: result.status for name, result in results.items()}
    assert "needs a proxy" == results["TlsIT#a"].sentence


def test_a_class_that_is_switched_off_has_one_result() -> None:
    assert {"TlsIT#(class)": Result("ignored", 1.5)} == read_events([event("planned", ""), event("ignored", "")])


def test_the_first_failure_of_a_test_is_the_one_that_counts() -> None:
    lines = [event("planned", "a"), event("failed", "a", "lost a message"), event("failed", "a", "cannot clean up")]
    assert "lost a message" == read_events(lines)["TlsIT#a"].error


def test_results_outlive_a_run(tmp_path: Path) -> None:
    ResultsFile(tmp_path / "results.json").add("arrowmq", {"TlsIT#a": Result("passed", 1.5, earlier="hung")})
    kept = ResultsFile(tmp_path / "results.json")
    assert {"arrowmq": {"TlsIT#a": Result("passed", 1.5, "", "hung")}} == kept.of
    assert {"TlsIT"} == kept.classes("arrowmq")


def test_a_run_is_judged_by_the_list() -> None:
    """An unlisted failure, a listed pass and a listed name that is no test each spoil it; ignored tests do not."""
    listed = sorted(listed_in({LISTED[0].partition("#")[0]}))
    as_listed = {test: Result("failed") for test in listed}
    whole = [LISTED[0].partition("#")[0]]
    assert verdict.judge({**as_listed, "TlsIT#a": Result("passed"), "TlsIT#b": Result("ignored")}, whole).is_good

    spoilt = verdict.judge({**as_listed, listed[0]: Result("passed"), "TlsIT#a": Result("hung")}, whole)
    assert (["TlsIT#a"], [listed[0]], []) == (spoilt.failed, spoilt.passes_now, spoilt.unknown)
    assert not spoilt.is_good
    assert f"{listed[0]} passes now" in spoilt.sentences()
    del as_listed[listed[0]]
    assert [listed[0]] == verdict.judge(as_listed, whole).unknown
    assert verdict.judge(as_listed, []).is_good


def test_a_pass_at_the_second_try_is_named() -> None:
    judged = verdict.judge({"TlsIT#a": Result("passed", earlier="failed")}, [])
    assert judged.is_good
    assert "TlsIT#a passed at the second try" in judged.sentences()


def test_results_of_both_clusters_stand_side_by_side() -> None:
    results = {
        "apache": {"TlsIT#a": Result("passed"), "TlsIT#b": Result("passed")},
        "arrowmq": {"TlsIT#a": Result("passed"), "TlsIT#b": Result("failed")},
    }
    lines = [line.split() for line in verdict.side_by_side(results).splitlines()]
    assert ["b", "passed", "failed"] in lines
    assert ["TlsIT", "2", "passed", "1", "passed,", "1", "failed"] in lines
    assert not [line for line in lines if line[0] == "a"]
