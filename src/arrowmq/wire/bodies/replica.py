"""Bodies of replication and of the controller."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

from msgspec import field

from arrowmq.wire.bodies.declare import Body
from arrowmq.wire.bodies.route import BrokerMemberGroup


class HAClientRuntimeInfo(Body, kw_only=True):
    activated: bool | None = None
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str | None = None
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class HAConnectionInfo(Body, kw_only=True):
    addr: str | None = None
    diff: int = 0
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_byte_in_second: int = 0


class HARuntimeInfo(Body, kw_only=True):
    """Answer to GET_BROKER_HA_STATUS."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionInfo] = []
    in_sync_slave_nums: int = 0
    master: bool = False
    master_commit_log_max_offset: int = 0


class SyncStateSet(Body, kw_only=True):
    sync_state_set: list[int] = []
    sync_state_set_epoch: int = 0


class ElectMasterResultBody(Body, kw_only=True):
    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = []


class ReplicaIdentity(Body, kw_only=True):
    alive: bool | None = None
    broker_address: str | None = None
    broker_id: int | None = None
    broker_name: str | None = None
    out_of_sync_since: int | None = None  # of ArrowMQ's controllers, in milliseconds; Apache's tools pass it by


class MasterSwitch(Body, kw_only=True):
    """An election that changed the master, as ArrowMQ's controllers remember it."""

    at_ms: int = 0
    epoch: int = 0
    master_id: int | None = None
    previous_id: int | None = None
    reason: str = ""
    took_ms: int = 0


class BrokerReplicas(Body, kw_only=True):
    in_sync_replicas: list[ReplicaIdentity] = []
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    not_in_sync_replicas: list[ReplicaIdentity] = []
    switches: list[MasterSwitch] | None = None  # ArrowMQ's own
    sync_state_set_epoch: int = 0


class BrokerReplicasInfo(Body, kw_only=True):
    """Answer to CONTROLLER_GET_SYNC_STATE_DATA."""

    replicas_info_table: dict[str, BrokerReplicas] = {}


class EpochEntry(Body, kw_only=True):
    end_offset: int = 0
    epoch: int = 0
    start_offset: int = 0


class EpochEntryCache(Body, kw_only=True):
    broker_id: int = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = []
    max_offset: int = 0
