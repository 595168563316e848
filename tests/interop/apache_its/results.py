"""What came of each test: read from the events that `RunTests` writes, kept in a file between runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PASSED, IGNORED = "passed", "ignored"
# A test that was started and gave no result, and one whose turn never came: the class took too long, or its JVM ended.
HUNG, NOT_RUN = "hung", "not run"
# What an event means if none follows it.
BEFORE_A_RESULT = {"planned": NOT_RUN, "started": HUNG}
# Stands for the name of the test where a class has only one result: Apache has switched it off, or it could not begin.
WHOLE_CLASS = "(class)"


@dataclass(frozen=True, slots=True)
class Result:
    """`status` is an event of `RunTests` (passed, failed, assumed, ignored), hung, or not run."""

    status: str
    seconds: float = 0.0
    error: str = ""
    earlier: str = ""  # the status of the try before this one

    @property
    def is_fine(self) -> bool:
        """Ignored are tests that Apache has switched off."""
        return self.status in (PASSED, IGNORED)

    @property
    def sentence(self) -> str:
        """The first line of the error."""
        return self.error.partition("\n")[0][:200]


Results = dict[str, Result]  # by "Class#test"


def read_events(lines: Iterable[str]) -> Results:
    """The results of one class. What happened to it as a whole happened to each of its tests that did not run."""
    found: Results = {}
    whole_class: Results = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # the JVM was ended in the middle of its last line
            continue
        result = Result(event["event"], event["seconds"], event["error"])
        name = f"{event['class']}#{event['test'] or WHOLE_CLASS}"
        if result.status in BEFORE_A_RESULT:
            result = Result(BEFORE_A_RESULT[result.status])
        elif not event["test"]:
            whole_class.setdefault(name, result)
            continue
        if found.get(name, result).status != "failed":  # a second failure, of what cleans up, hides the first
            found[name] = result
    for failure in whole_class.values():
        found = {name: failure if result.status == NOT_RUN else result for name, result in found.items()}
    return found or whole_class


def counted(results: Iterable[Result]) -> str:
    """For instance "14 passed, 2 failed"."""
    statuses = [result.status for result in results]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(sorted(statuses, reverse=True)))


class ResultsFile:
    """The results of all clusters, written after every class, so that an interrupted run can go on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.of: dict[str, Results] = {}
        if path.exists():
            kept = json.loads(path.read_text())
            self.of = {kind: {name: Result(**one) for name, one in tests.items()} for kind, tests in kept.items()}

    def add(self, kind: str, results: Mapping[str, Result]) -> None:
        with self._lock:
            self.of.setdefault(kind, {}).update(results)
            content = {kind: {name: asdict(one) for name, one in tests.items()} for kind, tests in self.of.items()}
            self.path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def classes(self, kind: str) -> set[str]:
        return {name.partition("#")[0] for name in self.of.get(kind, {})}
