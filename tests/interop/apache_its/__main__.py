"""Runs Apache's integration tests on Apache's brokers and on ours; exit code 1 if ours are not as `expected.py` says.

python -m tests.interop.apache_its [CLASS | CLASS#TEST | PACKAGE]... [--on arrowmq] [--lanes N]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from oracle.target import BROKERS

from apache_its.catalogue import UnknownTestError, classes, select
from apache_its.page import PAGE, page
from apache_its.results import ResultsFile
from apache_its.suite import Suite
from apache_its.verdict import errors, judge, side_by_side

WORK = Path(__file__).resolve().parents[3] / "build" / "apache-its"
NOT_FINISHED = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make apache-its", description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="TlsIT (a class), TlsIT#testName, pop (a package); without any: all")
    parser.add_argument("--on", choices=BROKERS, action="append", help="only this cluster (else both, ours first)")
    parser.add_argument("--lanes", type=int, default=3, help="classes that run at a time")
    parser.add_argument("--work", type=Path, default=WORK, help="a folder for logs and results, emptied at the start")
    parser.add_argument("--resume", action="store_true", help="keep the results in the folder, run what is missing")
    parser.add_argument("--minutes", type=float, default=0, help="begin no class after this time (then: --resume)")
    parser.add_argument("--class-timeout", type=float, default=900, help="seconds that a class may take")
    parser.add_argument("--page", action="store_true", help="write docs/apache-its.md and run nothing")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.page:
        PAGE.write_text(page())
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    known = classes()
    try:
        selection = select(options.tests, known)
    except UnknownTestError as error:
        print(error, file=sys.stderr)
        return 2
    if not options.resume:
        shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True, exist_ok=True)
    results = ResultsFile(options.work / "results.json")
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    suite = Suite(known, options.work, results, options.lanes, options.class_timeout, deadline)
    try:
        is_finished = all(suite.run(kind, selection) for kind in options.on or BROKERS)
    except KeyboardInterrupt:
        is_finished = False
    if not is_finished:
        print("not finished: run it again with --resume for the rest")
        return NOT_FINISHED

    report = side_by_side(results.of)
    (options.work / "report.txt").write_text(report)
    print(report)
    ours = {name: one for name, one in results.of.get("arrowmq", {}).items() if name.partition("#")[0] in selection}
    verdict = judge(ours, [name for name, tests in selection.items() if not tests] if ours else [])
    print(verdict.sentences(), errors(ours, verdict.failed), sep="\n", end="")
    print("as expected" if verdict.is_good else f"not as expected; logs are in {options.work}")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
