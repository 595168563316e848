"""`python -m benchmarks.failover [PART …] [--systems NAME …] [--rounds N]`: how long a lost master is missed.

A trio of ArrowMQ's brokers with its controller and NameServer, then one of Apache's, each with a Java producer (2
threads) and our Python producer (two tasks) that send one message after another and repeat what failed after 5 ms. The
Java producer has the settings that docs/failover.md recommends: it asks for routes every 250 ms and gives up a
connection after 500; with its defaults (30 s and 3 s) these waits would be all that there is to see.

  killed     the master is killed (-9); default settings
  switched   a planned switch: failed sends, and the longest pause between two acknowledgements
  stopped    it stands still (SIGSTOP); the fast settings of docs/failover.md, producers with a time-out of a second
  cut        its network is cut, nobody is told; the same settings (Linux, as root)
  slow       only if asked for: as stopped, with the default settings: a lease of 10 seconds, a time-out of 3

Of each round, in milliseconds from the deed: the controller has noticed; another is elected; it has taken the role; the
NameServer tells clients of it; the first acknowledgement of either producer after its silence. Median and worst of the
rounds; a trio that does not come together again within three minutes ends its part there, and the table says so. Run it
alone on the machine (20 minutes, most of them Apache's); what it prints goes to bench-results/failover.md as well,
every round to bench-results/failover.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from oracle import hands, network
from oracle.java import Value
from oracle.scene import Scene
from oracle.trio import ARROW, FAST, JAVA, JAVA_PROPERTIES, Trio

from benchmarks.__main__ import RESULTS, say
from benchmarks.failover import goals
from benchmarks.failover.rounds import HARMS, Rounds

#: By their settings: how many rounds each part has
WITH_DEFAULTS = {"killed": 20, "switched": 10}
WITH_FAST = {"stopped": 6, "cut": 6}
SLOW = {"slow": 4}
DEFAULT_PARTS = (*WITH_DEFAULTS, *WITH_FAST)


def measure(part: str, count: int, kind: str) -> dict[str, Any]:
    """One part, on a trio of its own."""
    is_fast = part in WITH_FAST
    config: dict[str, Value] = dict(FAST) if is_fast else {}
    with (
        tempfile.TemporaryDirectory(prefix=f"bench-failover-{kind}-") as name,
        Trio(Path(name), [kind] * 3, kind, names=kind, has_cable=part == "cut", minInSyncReplicas=2, **config) as trio,
        hands.start(
            "java-5.5-json", trio.names.address, trio.brokers[1].address, Path(name) / "hand", jvm=JAVA_PROPERTIES
        ) as hand,
        Scene(hand, "bench") as scene,
    ):
        return Rounds(part, trio, hand, scene, count=count, timeout_ms=1000 if is_fast else 3000).play()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*HARMS, []], default=[], metavar="PART")
    parser.add_argument("--systems", nargs="+", choices=[ARROW, JAVA], default=[ARROW, JAVA])
    parser.add_argument("--rounds", type=int, help="of each part, instead of 20 (killed), 10 (switched), 6, 6 and 4")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are taken down
    parts = set(options.parts or DEFAULT_PARTS)
    if "cut" in parts and not network.can_be_made():
        say("cut is left out: networks cannot be made here (Linux, as root, with iproute2)")
        parts.discard("cut")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    RESULTS.mkdir(exist_ok=True)
    for part, count in (WITH_DEFAULTS | WITH_FAST | SLOW).items():
        for kind in options.systems if part in parts else ():
            found.setdefault(part, {})[kind] = measure(part, options.rounds or count, kind)
            (RESULTS / "failover.json").write_text(json.dumps(found, indent=1) + "\n")
    tables = [goals.steps(part, by_system) for part, by_system in found.items()]
    text = "\n\n".join([*tables, goals.java_part(found), goals.judged(found)])
    (RESULTS / "failover.md").write_text(text + "\n")
    print(text, flush=True)


if __name__ == "__main__":
    main()
