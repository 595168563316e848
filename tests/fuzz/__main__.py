"""`make fuzz`: every target for some minutes, under atheris where it is installed, else by chance alone.

    python tests/fuzz [TARGET …] [--minutes 5]

Ends with 1 at the first input that breaks a target, and names the file that holds it; put it into `found/TARGET/`.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests"), *(str(ROOT / "tests" / name) for name in ("store", "sim", "powercut"))]
MOST_GROWTH_MIB = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--alone", help="one target in this process")
    given = parser.parse_args()
    if given.alone:
        return fuzz(given.alone, given.minutes)
    from targets import TARGETS

    failed = []
    for name in given.targets or TARGETS:
        words = [sys.executable, str(HERE), "--alone", name, "--minutes", str(given.minutes)]
        if subprocess.run(words, timeout=given.minutes * 60 + 600).returncode:
            failed.append(name)
    print(f"{len(given.targets or TARGETS) - len(failed)} passed, {len(failed)} failed")
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
    for number, data in enumerate(TARGETS[name].corpus()):
        (work / f"corpus-{number}").write_bytes(data)
    places = count_native_coverage()
    native = f", native code counted at {places} places" if places else ""
    print(f"{name}: {minutes:g} minutes{native}", flush=True)
    options = [f"-max_total_time={int(minutes * 60)}", "-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], str(work), f"-artifact_prefix={work}/found-", *options], TARGETS[name].run)
    atheris.Fuzz()
    return 0


def count_native_coverage() -> int:
    """Under `make native-fuzz` the native modules say what an input reached; 0 without."""
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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() < ends:
        data = mutated(chance, corpus)
        try:
            target.run(data)
        except BaseException:
            (work / "found").write_bytes(data)
            print(f"{name}: broken by {work / 'found'}", flush=True)
            raise
        count += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(f"{name}: {count} inputs, memory grew by {grown} MiB", flush=True)
    return 1 if grown > MOST_GROWTH_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
