"""The long form: seed after seed, the plays in turn, until so many simulated hours have passed.

    PYTHONHASHSEED=0 python tests/sim --seeds 2000 --hours 100

A play that fails is named with its seed, and the others go on; `--play NAME --from SEED --seeds 1` plays it again.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("", "sim", "powercut", "store")]

from collections.abc import Callable, Coroutine  # noqa: E402
from typing import Any  # noqa: E402

from kinds import kinds_in_trouble  # noqa: E402
from plays import trouble  # noqa: E402
from simulated_pairs import come_together_again, lose_the_master  # noqa: E402
from simulated_trios import change_masters  # noqa: E402
from simulation import Simulation  # noqa: E402

ASYNC, SYNC = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}
TWO = {"minInSyncReplicas": "2"}
KILLS, CUTS = ("kill", "stop", "part"), ("kill", "power", "stop", "part")


def _two(settings: dict[str, str]) -> dict[str, dict[str, str]]:
    return {"broker-a": settings, "broker-b": settings}


PLAYS: dict[str, Callable[[Simulation], Coroutine[Any, Any, Any]]] = {
    "brokers-killed": lambda simulation: trouble(simulation, _two(ASYNC), (*KILLS, "clock")),
    "brokers-cut": lambda simulation: trouble(simulation, _two(SYNC), (*CUTS, "clock")),
    "pair-killed": lambda simulation: lose_the_master(simulation, ASYNC, (*KILLS, "twice", "alone")),
    "pair-cut": lambda simulation: lose_the_master(simulation, SYNC, (*CUTS, "twice", "alone", "blackout")),
    "pair-together": lambda simulation: come_together_again(simulation, SYNC, CUTS),
    "trio-killed": lambda simulation: change_masters(simulation, ASYNC, (*KILLS, "alone", "clock")),
    "trio-cut": lambda simulation: change_masters(simulation, {**SYNC, **TWO}, (*CUTS, "alone", "clock")),
    "kinds-killed": lambda simulation: kinds_in_trouble(simulation, ASYNC, KILLS),
    "kinds-cut": lambda simulation: kinds_in_trouble(simulation, SYNC, CUTS),
    "kinds-leaps": lambda simulation: kinds_in_trouble(simulation, ASYNC, (*KILLS, "clock", "clock")),
    "pair-kinds-leaps": lambda simulation: kinds_in_trouble(simulation, ASYNC, (*KILLS, "clock"), has_slave=True),
    "pair-kinds": lambda simulation: kinds_in_trouble(simulation, ASYNC, KILLS, has_slave=True),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--hours", type=float, default=100.0, help="go on with further seeds until so many are played")
    parser.add_argument("--play", choices=PLAYS, action="append", help="this one only")
    parser.add_argument("--pace", type=float, default=1.0, help="how many times longer the pauses between deeds are")
    options = parser.parse_args()
    if "PYTHONHASHSEED" not in os.environ:  # or a seed would not play the same again
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    logging.disable(logging.WARNING)
    plays = options.play or list(PLAYS)
    seconds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    began_s, seed = time.monotonic(), options.first
    failed: list[str] = []
    while seed < options.first + options.seeds or seconds.total() < options.hours * 3600:
        name = plays[seed % len(plays)]
        folder = Path(tempfile.mkdtemp(prefix="arrowmq-sim-"))
        try:
            with Simulation(seed, folder) as simulation:
                simulation.pace = options.pace
                simulation.run(PLAYS[name](simulation))
        except Exception:
            failed.append(f"{name} {seed}")
            print(f"\nFAILED: --play {name} --from {seed} --seeds 1\n{traceback.format_exc()}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seconds[name] += round(simulation.loop.time())
        counts["starts"] += sum(machine.lives for machine in simulation.machines.values())
        counts["frames"] += simulation.network.sent
        seed += 1
        if (seed - options.first) % 100 == 0:
            _report(seed - options.first, seconds, counts, failed, time.monotonic() - began_s)
    _report(seed - options.first, seconds, counts, failed, time.monotonic() - began_s)
    return 1 if failed else 0


def _report(seeds: int, seconds: Counter[str], counts: Counter[str], failed: list[str], took_s: float) -> None:
    print(
        f"{seeds} seeds, {seconds.total() / 3600:.1f} simulated hours in {took_s / 60:.1f} min; "
        f"{counts['starts']} processes, {counts['frames']} writes to the network; {len(failed)} failed {failed[:5]}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
