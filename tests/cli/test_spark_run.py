"""What a pipeline says when it fails: one sentence, the one that matters."""

from __future__ import annotations

import pytest

from arrowmq.cli.pipeline.spark_run import NOISE, sentence

IN_A_TASK = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when it performs x: Traceback
  File "stream.py", line 77, in prepareForTriggerAvailableNow
arrowmq.spark.options.OptionError: option topic: topic nosuch does not exist; create it
 SQLSTATE: 38000"""
IN_JAVA = """An error occurred while calling o69.create.
: java.io.IOException: Mkdirs failed to create file:/proc/x/y
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:1)
Caused by: java.lang.RuntimeException: deeper"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (IN_A_TASK, "option topic: topic nosuch does not exist; create it"),
        (IN_JAVA, "Mkdirs failed to create file:/proc/x/y"),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601\n== SQL ==",
            "[PARSE_SYNTAX_ERROR] Syntax error at 'x'.",
        ),
        (
            "asking failed for 3 s (option patienceMs): no NameServer answers",
            "asking failed for 3 s: no NameServer answers",
        ),
        ("", "ValueError"),
    ],
)
def test_a_failure_is_one_sentence(said: str, expected: str) -> None:
    assert expected == sentence(ValueError(said))


def test_what_workers_warn_of_is_not_taken_for_noise() -> None:
    assert NOISE.match("WARNING: Using incubator modules: jdk.incubator.vector\n")
    assert NOISE.match('Setting default log level to "WARN".\n')
    assert not NOISE.match("asking for the route of topic orders: no NameServer answers; trying again\n")
