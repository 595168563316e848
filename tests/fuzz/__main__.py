"""`make fuzz`: every target for some minutes, under atheris where it is installed, else by chance alone.

    python tests/fuzz [TARGET …] [--minutes 5]

An input that breaks a target ends it, and its file is named: put it into `found/TARGET/`. Ends with a table of all, and
with 1 if one was broken.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests"), *(str(ROOT / "tests" / name) for name in ("store", "sim", "powercut"))]

from watching import table, watched  # noqa: E402

MOST_STARTING_S = 1800  # a thousand recorded requests come first, under a sanitizer and on a busy machine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--alone", help="one target in this process")
    given = parser.parse_args()
    if given.alone:
        return fuzz(given.alone, given.minutes)
    from targets import TARGETS

    runs = []
    for name in given.targets or TARGETS:
        words = [sys.executable, "-u", str(HERE), "--alone", name, "--minutes", str(given.minutes)]
        runs.append(watched(name, words, given.minutes * 60 + MOST_STARTING_S))
    failed = sum(bool(run.fault) for run in runs)
    print(f"\n{table(runs)}\n\n{len(runs) - failed} passed, {failed} failed")
    return 1 if failed else 0


def fuzz(name: str, minutes: float) -> int:
    work = ROOT / "build" / "fuzz" / name
    work.mkdir(parents=True, exist_ok=True)
    try:
        import atheris
    except ImportError:
        return by_chance(name, minutes, work)
    with atheris.instrument_imports(include=["arrowmq"]):
        from targets import TARGETS

        target = TARGETS[name]
    for number, data in enumerate(target.corpus()):
        (work / f"corpus-{number}").write_bytes(data)
    counters = count_native_coverage()
    native = f", {counters} counters for native code" if counters else ""
    print(f"{name}: {minutes:g} minutes{native}", flush=True)
    options = [f"-max_total_time={int(minutes * 60)}", "-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], str(work), f"-artifact_prefix={work}/found-", *options], target.run)
    atheris.Fuzz()
    return 0


def count_native_coverage() -> int:
    """How many counters say what an input reached in the native modules, under `make native-fuzz`; 0 without."""
    loaded = ctypes.CDLL(None)
    return int(loaded.arrowmq_count_coverage()) if hasattr(loaded, "arrowmq_count_coverage") else 0


def by_chance(name: str, minutes: float, work: Path) -> int:
    from mutating import mutated
    from targets import TARGETS

    target, chance = TARGETS[name], random.Random()
    corpus = target.corpus()
    ends, count = time.monotonic() + minutes * 60, 0
    for data in corpus:
        target.run(data)
    print(f"#{len(corpus)} INITED", flush=True)
    while time.monotonic() < ends:
        data = mutated(chance, corpus)
        try:
            target.run(data)
        except BaseException:
            (work / "found").write_bytes(data)
            print(f"{name}: broken by {work / 'found'}", flush=True)
            raise
        count += 1
    print(f"stat::number_of_executed_units: {count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
