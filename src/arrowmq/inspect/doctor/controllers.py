"""Checks of sets of brokers under a controller."""

from __future__ import annotations

from collections.abc import Iterator

from arrowmq.client.admin.controlled import ControlledSet
from arrowmq.inspect.doctor.facts import ERROR, NOTE, WARNING, Facts, Finding
from arrowmq.inspect.texts import bytes_text, second_text

LONG_OUT_OF_SYNC_MS = 60_000
RECENT_CUT_MS = 7 * 24 * 3600 * 1000


def controllers_decide(facts: Facts) -> list[Finding]:
    """A controller leads; without one, the brokers go on, and nobody follows a master that is lost."""
    return [
        Finding(
            ERROR,
            "no-controller-leads",
            f"Nobody would follow the master of {name} if it were lost: {found}.",
            "start the controllers that controllerAddr names; where they keep their decisions in etcd, see that most "
            "of its members run",
        )
        for name, found in facts.controlled.items()
        if isinstance(found, str)
    ]


def sets_have_masters(facts: Facts) -> list[Finding]:
    return [
        Finding(
            ERROR,
            "set-without-master",
            f"{found.name} has no master: none of those that have all messages is alive "
            f"({', '.join(str(replica.broker_id) for replica in found.replicas.in_sync_replicas) or 'none is known'}).",
            f"start one of them. Only if they are lost for good, make another master and lose what it has not got: "
            f"set enableElectUncleanMaster=true at the controller at {found.leader_address}",
        )
        for found in _known(facts)
        if found.replicas.master_broker_id is None
    ]


def members_are_in_sync(facts: Facts) -> list[Finding]:
    """Who is out of the sync state set does not count, and cannot become master."""
    findings = []
    for found in _known(facts):
        for replica in found.replicas.not_in_sync_replicas:
            since_ms = replica.out_of_sync_since
            shown = f"Broker {replica.broker_id} of {found.name} at {replica.broker_address}"
            since = "" if since_ms is None else f" since {second_text(since_ms)}"
            if not replica.alive:
                findings.append(
                    Finding(
                        ERROR,
                        "member-gone",
                        f"{shown} is not alive, and out of the sync state set{since}: one broker less may be lost.",
                        "start it; if it is gone for good, forget it: mqadmin cleanBrokerMetadata "
                        f"-a {found.leader_address} -bn {found.name} -b {replica.broker_id}",
                    )
                )
            elif since_ms is not None and facts.now_ms - since_ms > LONG_OUT_OF_SYNC_MS:
                findings.append(
                    Finding(
                        WARNING,
                        "member-out-of-sync",
                        f"{shown} lives, but is out of the sync state set{since}: it cannot become master.",
                        "see what `arrowmq cluster show` and its log say of its copying; a learner (asyncLearner=true) "
                        "never joins",
                    )
                )
    return findings


def enough_wait_for_each_other(facts: Facts) -> list[Finding]:
    """Settings under which a fail-over loses what was acknowledged."""
    findings = []
    for master in facts.masters:
        config = master.config
        if config.get("enableControllerMode") != "true":
            continue
        waits = config.get("allAckInSyncStateSet") == "true" or config.get("inSyncReplicas", "1") not in ("", "1")
        if not waits:
            what = "acknowledges what no other broker has: a fail-over loses it"
        elif config.get("minInSyncReplicas", "1") in ("", "1"):
            what = "goes on alone when all others left the sync state set: what it takes then is lost with it"
        else:
            continue
        findings.append(
            Finding(
                NOTE,
                "failover-may-lose",
                f"{master.name} {what}.",
                "set allAckInSyncStateSet=true and minInSyncReplicas=2 (docs/failover.md)",
            )
        )
    return findings


def tails_were_cut(facts: Facts) -> list[Finding]:
    """Bytes that a master of a later epoch did not have."""
    findings = []
    for broker in facts.reached:
        at_ms = broker.number("haLastCutAt")
        if at_ms is None or facts.now_ms - at_ms > RECENT_CUT_MS:
            continue
        count, size = int(broker.number("haCutTails") or 0), int(broker.number("haCutBytes") or 0)
        findings.append(
            Finding(
                NOTE,
                "tail-was-cut",
                f"{broker.name} at {broker.address} has cut the end of its log {count} times ({bytes_text(size)}), "
                f"last at {second_text(int(at_ms))}: its new master did not have these messages, and they were not "
                "acknowledged to all that was promised.",
                f"they lie in {broker.runtime.get('haLastCut', '')} on its machine: look whether somebody misses them, "
                "then delete the file",
            )
        )
    return findings


def _known(facts: Facts) -> Iterator[ControlledSet]:
    return (found for found in facts.controlled.values() if isinstance(found, ControlledSet))


CONTROLLER_CHECKS = {
    "a controller leads": controllers_decide,
    "every set has a master": sets_have_masters,
    "all members are in sync": members_are_in_sync,
    "a fail-over loses nothing": enough_wait_for_each_other,
    "no log was cut lately": tails_were_cut,
}
