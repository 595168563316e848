"""The tests that do not pass on ours yet, each with its reason.

A run fails when a test that is not listed fails, and also when one that is listed passes: then take it off. Every
capability that is added shortens this list.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum


class Reason(Enum):
    """Why a test does not pass on ours."""

    STATIC_TOPICS = "needs static topics"
    BATCH_QUEUES = "needs queues of batches (BatchCQ)"
    INSIDE = "needs something inside the broker's JVM"
    APACHE_TOO = "fails on Apache's broker outside of the JVM, too"

    @property
    def also_on_apache(self) -> bool:
        return self in (Reason.INSIDE, Reason.APACHE_TOO)


EXPECTED: dict[Reason, tuple[str, ...]] = {
    Reason.STATIC_TOPICS: (
        "CreateAndUpdateTopicIT#testStaticTopicNotAffected",
        "StaticTopicIT#testCommandsWithBrokers",
        "StaticTopicIT#testCommandsWithCluster",
        "StaticTopicIT#testCreateProduceConsumeStaticTopic",
        "StaticTopicIT#testDoubleReadCheckConsumerOffset",
        "StaticTopicIT#testNoTargetBrokers",
        "StaticTopicIT#testRemappingAndClear",
        "StaticTopicIT#testRemappingProduceConsumeStaticTopic",
        "StaticTopicIT#testRemappingWithNegativeLogicOffset",
    ),
    Reason.BATCH_QUEUES: ("BatchSendIT#testBatchSend_SysInnerBatch",),
    Reason.INSIDE: (
        "LagCalculationIT#testEstimateLag",
        "OffsetNotFoundIT#testConsumeStopAndResume",
        "OffsetResetForPopIT#testResetOffsetThenAckOldForPopOrderly",
        "OffsetResetForPopIT#testRestOffsetToSkipMsgForPopOrderly",
    ),
}


def reason_of(test: str) -> Reason | None:
    return next((reason for reason, tests in EXPECTED.items() if test in tests), None)


def listed_in(classes: Collection[str]) -> set[str]:
    """The listed tests of these classes."""
    return {test for tests in EXPECTED.values() for test in tests if test.partition("#")[0] in classes}


def is_expected_to_fail(test: str, kind: str) -> bool:
    reason = reason_of(test)
    return reason is not None and (kind == "arrowmq" or reason.also_on_apache)
