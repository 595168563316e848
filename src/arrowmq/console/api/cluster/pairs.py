"""The cluster's pairs: who is master, how far slaves are, epochs, sync state sets; and a switch of the master."""

from __future__ import annotations

import functools
from typing import Annotated

import msgspec

from arrowmq.client.admin import Admin
from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.console.api.changes import confirmed
from arrowmq.console.api.declare import Call, Done, Name, Struct, endpoint
from arrowmq.console.errors import conflict, not_found
from arrowmq.console.live.snapshot import BrokerRow
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.errors import WireError

KEPT_S = 3.0


class SlaveRow(Struct, kw_only=True):
    address: str
    behind_bytes: int
    acknowledged: int
    is_in_sync: bool
    bytes_per_second: int


class EpochRow(Struct, kw_only=True):
    epoch: int
    start: int
    end: int


class ReplicaRow(Struct, kw_only=True):
    broker_id: int | None
    address: str | None
    is_alive: bool | None
    is_in_sync: bool
    is_master: bool


class PairRow(Struct, kw_only=True):
    """A set of brokers of one name."""

    cluster: str
    broker: str
    members: list[BrokerRow]
    log_end: int | None
    slaves: list[SlaveRow]
    epochs: list[EpochRow]
    controller: str | None
    master_epoch: int | None
    sync_state_epoch: int | None
    replicas: list[ReplicaRow]
    #: What the brokers or the controller do not tell, and why
    lacks: dict[str, str]


class ClusterAnswer(Struct, kw_only=True):
    rows: list[PairRow]


@endpoint("GET", "/api/cluster", tag="cluster")
async def cluster(call: Call) -> ClusterAnswer:
    """Each set of brokers: members, how far the slaves are, epochs, and the controller's view."""
    snapshot = await call.console.gatherer.fresh()
    by_name: dict[tuple[str, str], list[BrokerRow]] = {}
    for row in snapshot.brokers:
        by_name.setdefault((row.cluster, row.broker), []).append(row)
    rows = []
    for (cluster_name, broker), members in sorted(by_name.items()):
        ask = functools.partial(_pair, call, cluster_name, broker, members)
        rows.append(await call.kept(("pair", broker), KEPT_S, ask))
    return ClusterAnswer(rows=rows)


async def _pair(call: Call, cluster_name: str, broker: str, members: list[BrokerRow], admin: Admin) -> PairRow:
    pair = PairRow(
        cluster=cluster_name,
        broker=broker,
        members=members,
        log_end=None,
        slaves=[],
        epochs=[],
        controller=None,
        master_epoch=None,
        sync_state_epoch=None,
        replicas=[],
        lacks={},
    )
    master = next((row for row in members if row.broker_id == 0 and row.problem is None), None)
    if master is None:
        pair.lacks["ha"] = "no master of this set answers"
        return pair
    try:
        status = await admin.ha_status(master.address)
        pair.log_end = status.master_commit_log_max_offset
        pair.slaves = [
            SlaveRow(
                address=each.addr or "?",
                behind_bytes=each.diff,
                acknowledged=each.slave_ack_offset,
                is_in_sync=each.in_sync,
                bytes_per_second=each.transferred_byte_in_second,
            )
            for each in status.ha_connection_info
        ]
    except (ArrowMQError, WireError) as failure:
        pair.lacks["ha"] = reason(failure)
    try:
        epochs = await admin.epochs(master.address)
        pair.epochs = [
            EpochRow(epoch=each.epoch, start=each.start_offset, end=each.end_offset) for each in epochs.epoch_list
        ]
    except (ArrowMQError, WireError) as failure:
        pair.lacks["epochs"] = reason(failure)
    await _ask_controller(admin, pair, master.address)
    return pair


async def _ask_controller(admin: Admin, pair: PairRow, master: str) -> None:
    try:
        config = await admin.broker_config(master)
        if config.get("enableControllerMode") != "true" or not config.get("controllerAddr"):
            pair.lacks["controller"] = "enableControllerMode is not set: masters are named by configuration"
            return
        pair.controller = config["controllerAddr"].split(";")[0]
        found = (await admin.sync_state(pair.controller, [pair.broker])).replicas_info_table.get(pair.broker)
    except (ArrowMQError, WireError) as failure:
        pair.lacks["controller"] = reason(failure)
        return
    if found is None:
        pair.lacks["controller"] = f"the controller does not know {pair.broker}"
        return
    pair.master_epoch, pair.sync_state_epoch = found.master_epoch, found.sync_state_set_epoch
    for is_in_sync, some in ((True, found.in_sync_replicas), (False, found.not_in_sync_replicas)):
        for each in some:
            pair.replicas.append(
                ReplicaRow(
                    broker_id=each.broker_id,
                    address=each.broker_address,
                    is_alive=each.alive,
                    is_in_sync=is_in_sync,
                    is_master=each.broker_id == found.master_broker_id,
                )
            )


def reason(failure: Exception) -> str:
    """Why a broker does not tell: a code it does not know is a capability it lacks."""
    if isinstance(failure, Refused) and failure.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "this broker does not know the request"
    return str(failure)


class Switch(Struct, kw_only=True, forbid_unknown_fields=True):
    cluster: Name
    broker: Name
    broker_id: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    #: The broker's name once more
    confirm: str = ""


@endpoint("POST", "/api/cluster/switch", tag="cluster")
async def switch_master(call: Call, body: Switch) -> Done:
    """Make another replica the master of its set; the controller decides whether it may."""
    confirmed(body.confirm, body.broker, "broker", "writers are refused until the switch is over")
    answer = await cluster(call)
    pair = next((row for row in answer.rows if row.broker == body.broker), None)
    if pair is None:
        raise not_found(f"there is no broker of the name {body.broker}")
    if pair.controller is None:
        raise conflict(f"{body.broker} has no controller: its master is named by configuration")
    admin = await call.admin()
    await admin.elect_master(pair.controller, body.cluster, body.broker, body.broker_id)
    call.console.cache.forget()
    await call.console.gatherer.beat()
    return Done(done=f"replica {body.broker_id} is the master of {body.broker}")
