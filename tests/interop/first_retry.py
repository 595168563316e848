"""How long the first retry of a new group takes: fresh groups of a Java push consumer, on our servers and on Apache's.

    make first-retry            or: python tests/interop/first_retry.py --groups 50 --on arrowmq

Each group fails at the only message of a topic once, and the time until that comes again is noted. It is due after
10 s; a client that missed the route of the group's new retry topic finds it at its next poll, after 30 s. The clients
have their own defaults, and each group a client of its own. Ends with 1 if a retry did not come at all, or if more of
ours than of Apache's took longer than 20 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(1, str(HERE.parent))

from oracle import java  # noqa: E402
from oracle.target import BROKERS, Target  # noqa: E402

LATE_S = 20
PATIENCE_S = 100


def delays(kind: str, groups: int, folder: Path) -> list[float | None]:
    """Seconds from each group's failure to the message's return; None where it did not return."""
    with Target(kind, folder / kind) as target:
        command, env = java.command(
            "FirstRetry",
            [target.namesrv, str(groups), str(PATIENCE_S)],
            folder,
            classpath=java.compiled(sorted((HERE / "java").glob("*.java"))),
        )
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("delay ")]
    if len(lines) != groups:
        raise RuntimeError(f"the Java program failed: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return [None if line == "-1" else int(line) / 1000 for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--on", choices=BROKERS, action="append")
    given = parser.parse_args()
    late: dict[str, int] = {}
    is_missing = False
    with tempfile.TemporaryDirectory(prefix="arrowmq-first-retry-") as name:
        for kind in given.on or BROKERS:
            found = delays(kind, given.groups, Path(name))
            came = [delay for delay in found if delay is not None]
            late[kind] = len(found) - sum(delay < LATE_S for delay in came)
            is_missing |= len(came) < len(found)
            rounded = Counter(round(delay / 10) * 10 for delay in came)
            shown = ", ".join(f"{count} after {seconds} s" for seconds, count in sorted(rounded.items()))
            print(f"{kind}: {shown}; {len(found) - len(came)} not at all", flush=True)
    is_worse = late.get("arrowmq", 0) > late.get("apache", given.groups)
    sys.exit(1 if is_missing or is_worse else 0)


if __name__ == "__main__":
    main()
