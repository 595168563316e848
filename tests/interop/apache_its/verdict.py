"""Whether the results on ours are the expected ones, and the results of all clusters side by side."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from apache_its.expected import listed_in, reason_of
from apache_its.results import PASSED, Result, Results, counted

MISSING = Result("-")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Names of tests. Good is a run without any of the first three."""

    failed: list[str]  # and not listed
    passes_now: list[str]  # although listed
    unknown: list[str]  # listed, and the class has no such test
    second_try: list[str]  # passed only then

    @property
    def is_good(self) -> bool:
        return not (self.failed or self.passes_now or self.unknown)

    def sentences(self) -> str:
        """One line for each name, with what to do."""
        advice = {
            "fails and is not listed in expected.py": self.failed,
            "passes now: take it off the list in expected.py": self.passes_now,
            "is listed in expected.py and does not exist": self.unknown,
            "passed at the second try, alone": self.second_try,
        }
        return "".join(f"{name} {text}\n" for text, names in advice.items() for name in names)


def judge(ours: Results, whole_classes: Collection[str]) -> Verdict:
    """Names that are listed and gave no result are unknown only in classes of which every test ran."""
    listed = listed_in(whole_classes)
    return Verdict(
        failed=sorted(name for name, result in ours.items() if not result.is_fine and reason_of(name) is None),
        passes_now=sorted(name for name, result in ours.items() if result.status == PASSED and reason_of(name)),
        unknown=sorted(listed - ours.keys()),
        second_try=sorted(name for name, result in ours.items() if result.status == PASSED and result.earlier),
    )


def side_by_side(results: dict[str, Results]) -> str:
    """A line for each class, and below it one for each test that did not pass everywhere."""
    kinds = sorted(results)
    names = sorted({name for tests in results.values() for name in tests})
    lines = ["".join([f"{'':64}", *(f"{kind:24}" for kind in kinds)])]
    for group in sorted({name.partition("#")[0] for name in names}):
        tests = [name for name in names if name.partition("#")[0] == group]
        counts = [counted(results[kind][name] for name in tests if name in results[kind]) for kind in kinds]
        lines.append("".join([f"{group:64}", *(f"{count:24}" for count in counts)]))
        for name in tests:
            each = [results[kind].get(name, MISSING) for kind in kinds]
            if not all(result.is_fine for result in each):
                reason = reason_of(name)
                statuses = "".join(f"{result.status:24}" for result in each)
                lines.append(f"    {name.partition('#')[2]:60}{statuses}{reason.value if reason else ''}")
    for kind in kinds:
        lines.append(f"{kind}: {len(results[kind])} tests: {counted(results[kind].values())}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def errors(results: Results, names: Collection[str]) -> str:
    return "".join(f"{name}: {results[name].sentence}\n" for name in names if name in results)
