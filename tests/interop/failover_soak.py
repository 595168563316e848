"""`make failover-soak`: seeded fail-overs under load, audited (OPTIONS="--on apache --failovers 20 --seed 7").

A trio of brokers under a controller; a Java producer with a thread a key, an orderly Java listener, transactions and
delayed messages beside them. Each round a seeded chance decides what happens to the master (kill -9, SIGSTOP, its
network cut, a planned switch) and when; then it comes back, and all are in sync again. At the end: every acknowledged
message was delivered, each key in order, and lies in the log where its sender was told; no epoch had two masters, and
nobody but its master wrote in it, not even into a tail that was cut off later; the logs of all brokers are
byte-identical. On a machine with other work to do, leases may end by themselves: such elections are counted too.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from oracle import hands, network
from oracle.audit import Audit, foreign_writers, longest_gap, records_in, records_of
from oracle.scene import Scene
from oracle.trio import ARROW, FAST, JAVA, JAVA_POLL_MS, JAVA_PROPERTIES, Trio

KEYS = 6
LONG_GAP_MS = 2500
# Unfinished transactions are asked for soon, so that the end of a run is not a wait for that; and more often than 15
# times, after which a broker gives up: a Java producer tells a new master of itself after up to 30 seconds.
CHECKS = {"transactionTimeOut": 2000, "transactionCheckInterval": 3000, "transactionCheckMax": 1000}


def play(
    trio: Trio,
    folder: Path,
    failovers: int,
    seed: int,
    harms: list[str],
    settle_s: float = 1.0,
    minutes: float = float("inf"),
) -> dict[str, Any]:
    """The rounds, and what the auditor found."""
    chance = random.Random(seed)
    rounds: list[dict[str, Any]] = []
    until_s = time.monotonic() + minutes * 60
    with (
        hands.start(
            "java-5.5-json", trio.names.address, trio.brokers[1].address, folder / "hand", jvm=JAVA_PROPERTIES
        ) as hand,
        hands.start("java-5.5-json", trio.names.address, trio.brokers[1].address, folder / "listening") as ears,
        Scene(hand, "soak") as scene,
    ):
        master = trio.brokers[trio.new_master()].address
        topic = scene.topic(queues=KEYS, brokers=master)
        delayed, decided = scene.topic(label="d", brokers=master), scene.topic(label="x", brokers=master)
        for each in (topic, delayed, decided):
            trio.wait_topic(each)
        listener = scene.listener(ears, topic, orderly=True, brief=True)
        late, ends = scene.listener(ears, delayed), scene.listener(ears, decided)
        producer = scene.producer(hand, timeout=1000, retries=0, poll=JAVA_POLL_MS)
        transactional = scene.producer(hand, transactional=True, timeout=3000)
        hand.do("pulse", name="pulse", producer=producer.name, topic=topic, keys=KEYS)
        expected_late: set[str] = set()
        expected_ends: set[str] = set()
        for number in range(failovers):
            if time.monotonic() > until_s:
                break
            sent = producer.send(delayed, [{"body": f"late {number}", "delay": 2}])
            expected_late |= {f"late {number}"} if sent[0].get("status") == "SEND_OK" else set()
            fates = [{"body": f"end {number}", "props": {"fate": "unknown", "check": "commit"}}]
            sent = hand.do("transact", producer=transactional.name, topic=decided, messages=fates)
            expected_ends |= {f"end {number}"} if sent[0].get("status") == "SEND_OK" else set()
            time.sleep(chance.uniform(0.05, settle_s))  # the load runs on
            master = trio.new_master()
            # Only the first broker has a cable, so it loses its network in half of the rounds in which it is master.
            is_cut = "cut" in harms and master == 1 and chance.random() < 0.5
            harm = "cut" if is_cut else chance.choice([harm for harm in harms if harm != "cut"])
            moment = time.time() * 1000
            trio.harm(master, harm)
            trio.wait("another is master", partial(has_followed, trio, master))
            elected = time.time() * 1000
            trio.wait("the route is new", partial(is_routed, trio))
            routed = time.time() * 1000
            chosen = trio.new_master()
            time.sleep(chance.uniform(0.1, settle_s))
            trio.heal(master, harm)
            trio.wait("all are in sync", lambda: trio.in_sync() == set(trio.brokers), 180)
            healed = time.time() * 1000
            rounds.append(
                {
                    "harm": harm,
                    "at": moment,
                    "elected_ms": elected - moment,
                    "routed_ms": routed - moment,
                    "healed_ms": healed - moment,
                }
            )
            print(
                f"{number + 1}/{failovers} {harm}: master {master} -> {chosen}, elected {elected - moment:.0f} ms, "
                f"all in sync {healed - moment:.0f} ms",
                flush=True,
            )
        pulse = hand.do("stop-pulse", name="pulse")
        audit = Audit(pulse["acknowledged"])
        delivered = delivered_names(listener, audit)
        late.until(expected_late, 90)
        ends.until(expected_ends, 120)
        missing_late = expected_late - {record["body"] for record in late.seen()}
        missing_ends = expected_ends - {record["body"] for record in ends.seen()}
        trio.wait("all logs are equal", lambda: len({trio.log(number) for number in trio.brokers}) == 1, 60)
        print("all delivered, all logs equal", flush=True)
        for each, following in zip(rounds, [*(later["at"] for later in rounds[1:]), time.time() * 1000], strict=True):
            each["back_ms"] = audit.first_after_ms(each["at"] + each["elected_ms"], each["at"])
            gap = longest_gap((send.acknowledged for send in audit.sends), each["at"], following)
            if gap is not None and gap[0] > LONG_GAP_MS:
                print(f"{each['harm']}: nothing was acknowledged for {gap[0]:.0f} ms, until {gap[1] - each['at']:.0f}")
        written = records_of(trio.commit_log(1))
        return {
            "failovers": len(rounds),
            "elections": trio.epoch(),
            "seed": seed,
            "acknowledged": len(audit.sends),
            "lost": sorted(audit.lost(delivered) | missing_late | missing_ends),
            "out_of_order": audit.out_of_order(delivered),
            "misplaced": audit.misplaced(written, topic),
            "one_master_an_epoch": trio.masters_by_epoch_are_unique(),
            "foreign_writers": found_foreign(trio, topic),
            "failed_sends": pulse["failures"],
            "rounds": rounds,
        }


def has_followed(trio: Trio, master: int) -> bool:
    trio.pause_still()
    return trio.master() not in (None, master)


def is_routed(trio: Trio) -> bool:
    """Whether clients are told of the master that there is, whoever it is by now."""
    trio.pause_still()
    master = trio.master()
    return master is not None and trio.route().get(0) == trio.brokers[master].address


def found_foreign(trio: Trio, topic: str) -> list[str]:
    hosts = {}
    for number, broker in trio.brokers.items():
        host, _, port = broker.address.partition(":")
        hosts[number] = (socket.inet_aton(host), int(port))
    masters = {epoch: hosts[min(numbers)] for epoch, numbers in trio.masters_by_epoch().items()}
    tails = [
        (start, epoch, records_in(path.read_bytes()))
        for number in trio.brokers
        for start, epoch, path in trio.cut_tails(number)
    ]
    print(f"{len(tails)} tails were cut, with {sum(len(records) for _, _, records in tails)} messages", flush=True)
    return foreign_writers(records_of(trio.commit_log(1)), tails, trio.epochs(1), masters, topic)


def delivered_names(listener: Any, audit: Audit, patience_s: float = 120) -> list[str]:
    deadline = time.monotonic() + patience_s
    names: list[str] = []
    while time.monotonic() < deadline:
        names = [record.partition("@")[0] for record in listener.seen()]
        if not audit.lost(names):
            break
        listener.seen(len(names) + 1, 2)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=[ARROW, JAVA], default=ARROW, help="whose brokers and controller")
    parser.add_argument("--failovers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no round after so many")
    parser.add_argument("--fast", action="store_true", help="with the fast settings of docs/failover.md")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are taken down
    has_cable = network.can_be_made()
    harms = ["kill", "kill", "pause", "switch", *(["cut"] if has_cable else [])]
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="failover-") as name:
        folder = Path(name)
        config = FAST if arguments.fast else {}
        with Trio(
            folder, [arguments.on] * 3, arguments.on, has_cable=has_cable, minInSyncReplicas=2, **CHECKS, **config
        ) as trio:
            found = play(trio, folder, arguments.failovers, arguments.seed, harms, minutes=arguments.minutes)
    for harm in sorted({each["harm"] for each in found["rounds"]}):
        for what in ("elected_ms", "routed_ms", "back_ms"):
            values = [each[what] for each in found["rounds"] if each["harm"] == harm and each[what] is not None]
            if values:
                print(f"{harm:6} {what:11} median {statistics.median(values):7.0f}  worst {max(values):7.0f}")
    summary = {key: value for key, value in found.items() if key != "rounds"}
    print(json.dumps(summary))
    is_well = not (found["lost"] or found["out_of_order"] or found["misplaced"] or found["foreign_writers"])
    return 0 if is_well and found["one_master_an_epoch"] else 1


if __name__ == "__main__":
    sys.exit(main())
