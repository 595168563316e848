"""`arrowmq cluster show`: the brokers of a cluster and how they are."""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, NotReachable, connected
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column
from arrowmq.client.admin.controlled import ControlledSet
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError
from arrowmq.inspect.texts import bytes_text, second_text
from arrowmq.wire.bodies import ClusterInfo

SHOWN_SWITCHES = 5


@click.group("cluster")
def cluster_group() -> None:
    """Brokers of a cluster and how they are."""


@cluster_group.command("show", epilog=examples("arrowmq cluster show"))
@click.option("--cluster", help="Only this cluster.")
@connected
async def show(link: Link, cluster: str | None) -> None:
    """Show every broker: role, address, version, rates, how far a slave is behind, disk, and since when it runs.

    A broker that does not answer is shown as such, and the exit code is 3.
    """
    places = places_of(await link.admin.cluster_info(), cluster)
    found = await each_of(places, lambda place: _look(link, place[3]))
    rows = [
        {"cluster": place[0], "broker": place[1], "brokerId": place[2], "address": place[3], **found[place]}
        for place in places
    ]
    sets = await each_of(sorted({place[1] for place in places}), lambda name: _controlled(link, name))
    add_lag(rows)
    if link.screen.as_json:
        link.screen.json([{**row, "controlled": controlled_fields(sets[row["broker"]])} for row in rows])
    elif not rows:
        link.screen.say("The NameServer runs, but no broker is registered at it.")
    else:
        link.screen.table(
            [
                Column("cluster", "CLUSTER"),
                Column("broker", "BROKER"),
                Column("brokerId", "ID", is_number=True),
                Column("role", "ROLE"),
                Column("address", "ADDRESS"),
                Column("version", "VERSION", is_extra=True),
                Column("inPerSecond", "IN/s", lambda rate: f"{rate:.1f}", is_number=True),
                Column("outPerSecond", "OUT/s", lambda rate: f"{rate:.1f}", is_number=True),
                Column("lagBytes", "LAG", lambda lag: "" if lag is None else bytes_text(lag), is_number=True),
                Column("lagSeconds", "LAG s", lambda lag: "" if lag is None else f"{lag:.1f}", is_number=True),
                Column("since", "SINCE", lambda since: second_text(since) if since else "", is_extra=True),
                Column("diskRatio", "DISK", lambda ratio: f"{ratio:.0%}", is_number=True),
                Column("started", "STARTED", second_text, is_extra=True),
            ],
            rows,
        )
        for row in rows:
            if row["problem"]:
                link.screen.say(f"{row['broker']} does not answer: {row['problem']}", "red")
        for controlled in sets.values():
            for line in controlled_lines(controlled):
                link.screen.say(line)
    silent = [row["broker"] for row in rows if row["problem"]]
    if silent:
        raise NotReachable(f"{', '.join(silent)}: registered, but without an answer")


@cluster_group.command(
    "switch", epilog=examples("arrowmq cluster switch broker-a", "arrowmq cluster switch broker-a --to 3")
)
@click.argument("broker")
@click.option("--to", "target", type=click.IntRange(1), metavar="ID", help="The id that the controller gave it.")
@connected
async def switch(link: Link, broker: str, target: int | None) -> None:
    """Make another broker of a set under a controller the master, without a failed send.

    The master keeps new sends waiting until the others have all that it took; then the switch is decided, and what
    waited goes to the new master. Without --to, the in-sync broker with the lowest id takes over.
    """
    controlled = await link.admin.controlled_set(broker)
    if controlled is None:
        raise Failure(f"{broker} is under no controller (enableControllerMode): nobody else can become its master")
    replicas = controlled.replicas
    able = sorted(
        replica.broker_id or 0
        for replica in replicas.in_sync_replicas
        if replica.alive and replica.broker_id != replicas.master_broker_id
    )
    if not able:
        raise Failure(f"{broker}: nobody beside its master {replicas.master_broker_id} is alive and in sync")
    if target is not None and target == replicas.master_broker_id:
        raise Failure(f"{broker}: {target} is its master already")
    if target is not None and target not in able:
        raise Failure(f"{broker}: {target} is not alive and in sync; these are: {', '.join(map(str, able))}")
    elected = await link.admin.switch_master(controlled, able[0] if target is None else target)
    fields = {
        "broker": broker,
        "previousId": replicas.master_broker_id,
        "masterId": elected.master_broker_id,
        "address": elected.master_address,
        "epoch": elected.master_epoch,
    }
    if link.screen.as_json:
        link.screen.json(fields)
    else:
        link.screen.say(
            f"{broker}: master {elected.master_broker_id} at {elected.master_address}, epoch {elected.master_epoch}"
        )


async def _controlled(link: Link, name: str) -> ControlledSet | str | None:
    """What the controllers say of a set; in words why they do not."""
    try:
        return await link.admin.controlled_set(name)
    except ArrowMQError as error:
        return str(error)


def controlled_fields(found: ControlledSet | str | None) -> dict[str, Any] | None:
    if found is None:
        return None
    if isinstance(found, str):
        return {"problem": found}
    replicas = found.replicas
    return {
        "problem": None,
        "leader": found.leader_name,
        "leaderAddress": found.leader_address,
        "controllers": list(found.controllers),
        "masterId": replicas.master_broker_id,
        "epoch": replicas.master_epoch,
        "syncStateSet": [replica.broker_id for replica in replicas.in_sync_replicas],
        "syncStateSetEpoch": replicas.sync_state_set_epoch,
        "outOfSync": [replica.broker_id for replica in replicas.not_in_sync_replicas],
        "switches": [
            {
                "epoch": switch.epoch,
                "at": switch.at_ms,
                "from": switch.previous_id,
                "to": switch.master_id,
                "reason": switch.reason,
                "tookMs": switch.took_ms,
            }
            for switch in replicas.switches or []
        ],
    }


def controlled_lines(found: ControlledSet | str | None) -> list[str]:
    """The same for people."""
    if found is None:
        return []
    if isinstance(found, str):
        return [f"its controllers: {found}"]
    replicas = found.replicas
    in_sync = ", ".join(str(replica.broker_id) for replica in replicas.in_sync_replicas) or "nobody"
    outside = ", ".join(str(replica.broker_id) for replica in replicas.not_in_sync_replicas)
    master = "no master" if replicas.master_broker_id is None else f"master {replicas.master_broker_id}"
    lines = [
        f"{found.name}: {master}, epoch {replicas.master_epoch}; in sync: {in_sync}"
        + (f"; not in sync: {outside}" if outside else "")
        + f"; controller {found.leader_name} leads at {found.leader_address}"
    ]
    for change in (replicas.switches or [])[-SHOWN_SWITCHES:]:
        to = "nobody" if change.master_id is None else str(change.master_id)
        lines.append(
            f"  epoch {change.epoch}: {change.previous_id or 'nobody'} -> {to} at {second_text(change.at_ms)}, "
            f"decided in {change.took_ms} ms: {change.reason}"
        )
    return lines


def places_of(info: ClusterInfo, cluster: str | None = None) -> list[tuple[str, str, int, str]]:
    """(cluster, broker name, broker id, address) of every broker that is registered."""
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise Failure(f"there is no cluster {cluster}; the NameServer knows: {known}")
    return sorted(
        (broker.cluster or "", name, int(broker_id), address)
        for name, broker in info.broker_addr_table.items()
        for broker_id, address in broker.broker_addrs.items()
        if cluster is None or name in info.cluster_addr_table[cluster]
    )


def add_lag(rows: list[dict[str, Any]]) -> None:
    """How many bytes each slave is behind its master, by the ends of their logs, which any broker tells."""
    ends = {row["broker"]: row.get("end") for row in rows if row["brokerId"] == 0}
    for row in rows:
        master, own = ends.get(row["broker"]), row.get("end")
        row["lagBytes"] = None
        if row["brokerId"] != 0 and master is not None and own is not None:
            row["lagBytes"] = max(0, master - own)


async def _look(link: Link, address: str) -> dict[str, Any]:
    try:
        runtime = await link.admin.broker_runtime(address)
    except ArrowMQError as error:
        return {"problem": str(error)}
    is_slave_acting = runtime.get("haActing") == "true"
    end = first_number(runtime.get("commitLogMaxOffset"))
    return {
        "problem": None,
        "role": "acting master" if is_slave_acting else runtime.get("brokerRole"),
        "end": None if end is None else int(end),
        "lagSeconds": first_number(runtime.get("haLagSeconds")),
        "since": int(first_number(runtime.get("haSince") or runtime.get("haRoleSince")) or 0),
        "state": runtime.get("haState"),
        "version": runtime.get("brokerVersionDesc"),
        "inPerSecond": first_number(runtime.get("putTps")),
        "outPerSecond": first_number(runtime.get("getTransferredTps")),
        "diskRatio": first_number(runtime.get("commitLogDiskRatio")),
        "started": int(first_number(runtime.get("bootTimestamp")) or 0),
        "messagesToday": int(first_number(runtime.get("msgPutTotalTodayNow")) or 0),
    }


def first_number(text: str | None) -> float | None:
    """Rates come as `10s 60s 600s` averages: the first is the freshest."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
