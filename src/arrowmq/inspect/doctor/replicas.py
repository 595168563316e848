"""Checks of masters and slaves."""

from __future__ import annotations

from arrowmq.inspect.doctor.facts import ERROR, NOTE, WARNING, BrokerFacts, Facts, Finding
from arrowmq.inspect.texts import bytes_text

FAR_BEHIND_BYTES = 256 << 20


def slaves_follow(facts: Facts) -> list[Finding]:
    """Every slave copies from its master, and is not far behind."""
    masters = {broker.name: broker for broker in facts.masters}
    found = []
    for slave in facts.brokers:
        if slave.broker_id == 0 or slave.problem:
            continue
        shown = f"Slave {slave.broker_id} of {slave.name} at {slave.address}"
        master = masters.get(slave.name)
        if master is None:
            continue  # that is said of the name as a whole
        state = slave.runtime.get("haState")
        if state is not None and state != "copying":
            reason = slave.runtime.get("haReason") or state
            found.append(
                Finding(
                    ERROR,
                    "slave-not-connected",
                    f"{shown} does not copy from its master: {reason}.",
                    "do what the reason says; if it says nothing, check that the master's haListenPort can be reached",
                )
            )
        elif (behind := lag_bytes(master, slave)) is not None and behind > FAR_BEHIND_BYTES:
            found.append(
                Finding(
                    WARNING,
                    "slave-far-behind",
                    f"{shown} is {bytes_text(behind)} behind its master: what it lacks is lost if the master is.",
                    "check its disk and the network between them; it may also just have begun",
                )
            )
    return found


def lag_bytes(master: BrokerFacts, slave: BrokerFacts) -> int | None:
    """By the ends of both logs, which any broker tells."""
    theirs, ours = master.number("commitLogMaxOffset"), slave.number("commitLogMaxOffset")
    return None if theirs is None or ours is None else max(0, int(theirs - ours))


def one_master_each(facts: Facts) -> list[Finding]:
    """NameServers that name different masters for one broker name: two of them take messages."""
    masters: dict[str, set[str]] = {}
    for namesrv in facts.namesrvs:
        for name, addresses in namesrv.brokers.items():
            if 0 in addresses:
                masters.setdefault(name, set()).add(addresses[0])
    return [
        Finding(
            ERROR,
            "two-masters",
            f"Broker {name} has {len(addresses)} masters: {', '.join(sorted(addresses))}. Messages go to both, and "
            "their logs part for ever.",
            "stop one of them, or give it another brokerName",
        )
        for name, addresses in sorted(masters.items())
        if len(addresses) > 1
    ]


def promises_are_kept(facts: Facts) -> list[Finding]:
    """SYNC_MASTER with inSyncReplicas=1 counts the master alone, and waits for nobody."""
    found = []
    for broker in facts.masters:
        if broker.config.get("brokerRole") != "SYNC_MASTER" or broker.config.get("enableControllerMode") == "true":
            continue  # under a controller, other settings decide: `controllers.py`
        if broker.config.get("inSyncReplicas", "1") == "1":
            found.append(
                Finding(
                    WARNING,
                    "sync-master-waits-for-nobody",
                    f"{broker.name} is SYNC_MASTER with inSyncReplicas=1, which counts the master itself: senders wait "
                    "for no slave.",
                    "set inSyncReplicas=2, or say ASYNC_MASTER",
                )
            )
        elif not any(other.name == broker.name and other.broker_id != 0 for other in facts.brokers):
            found.append(
                Finding(
                    NOTE,
                    "sync-master-without-slave",
                    f"{broker.name} is SYNC_MASTER and has no slave: senders hear SLAVE_NOT_AVAILABLE.",
                    "start a slave of that name (brokerRole=SLAVE, brokerId=1)",
                )
            )
    return found


REPLICA_CHECKS = {
    "slaves follow their masters": slaves_follow,
    "every name has one master": one_master_each,
    "replicas keep what is promised": promises_are_kept,
}
