"""`arrowmq cluster show`: the brokers of a cluster and how they are."""

from __future__ import annotations

from typing import Any

import click

from arrowmq.cli.cluster_link import Failure, Link, NotReachable, connected
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column
from arrowmq.client.admin.inspect import each_of
from arrowmq.client.errors import ArrowMQError
from arrowmq.inspect.texts import second_text
from arrowmq.wire.bodies import ClusterInfo


@click.group("cluster")
def cluster_group() -> None:
    """Brokers of a cluster and how they are."""


@cluster_group.command("show", epilog=examples("arrowmq cluster show"))
@click.option("--cluster", help="Only this cluster.")
@connected
async def show(link: Link, cluster: str | None) -> None:
    """Show every broker: address, version, rates, disk, and since when it runs.

    A broker that does not answer is shown as such, and the exit code is 3.
    """
    places = places_of(await link.admin.cluster_info(), cluster)
    found = await each_of(places, lambda place: _look(link, place[3]))
    rows = [
        {"cluster": place[0], "broker": place[1], "brokerId": place[2], "address": place[3], **found[place]}
        for place in places
    ]
    if link.screen.as_json:
        link.screen.json(rows)
    elif not rows:
        link.screen.say("The NameServer runs, but no broker is registered at it.")
    else:
        link.screen.table(
            [
                Column("cluster", "CLUSTER"),
                Column("broker", "BROKER"),
                Column("brokerId", "ID", is_number=True),
                Column("address", "ADDRESS"),
                Column("version", "VERSION", is_extra=True),
                Column("inPerSecond", "IN/s", lambda rate: f"{rate:.1f}", is_number=True),
                Column("outPerSecond", "OUT/s", lambda rate: f"{rate:.1f}", is_number=True),
                Column("diskRatio", "DISK", lambda ratio: f"{ratio:.0%}", is_number=True),
                Column("started", "STARTED", second_text, is_extra=True),
            ],
            rows,
        )
        for row in rows:
            if row["problem"]:
                link.screen.say(f"{row['broker']} does not answer: {row['problem']}", "red")
    silent = [row["broker"] for row in rows if row["problem"]]
    if silent:
        raise NotReachable(f"{', '.join(silent)}: registered, but without an answer")


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


async def _look(link: Link, address: str) -> dict[str, Any]:
    try:
        runtime = await link.admin.broker_runtime(address)
    except ArrowMQError as error:
        return {"problem": str(error)}
    return {
        "problem": None,
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
