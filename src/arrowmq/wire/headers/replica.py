"""Headers between brokers, and between brokers and a controller: replication, election, broker containers."""

from __future__ import annotations

from arrowmq.wire.headers.declare import Header


class ExchangeHAInfo(Header, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO, request and answer; without any field it is a question."""

    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None
    table_versions: str | None = None  # ArrowMQ's own: which tables a slave has to ask for
    ha_ticket: str | None = None  # ArrowMQ's own: asked for with a broker's id, given for its HA connection
    ha_tls: bool | None = None  # ArrowMQ's own, beside a ticket: the HA port speaks TLS


class NotifyMinBrokerIdChange(Header, kw_only=True):
    min_broker_id: int | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ResetMasterFlushOffset(Header, kw_only=True):
    master_flush_offset: int


class AddBroker(Header, kw_only=True):
    config_path: str | None = None


class RemoveBroker(Header, kw_only=True):
    broker_name: str
    broker_cluster_name: str
    broker_id: int


class AlterSyncStateSet(Header, kw_only=True):
    broker_name: str | None = None
    master_broker_id: int | None = None
    master_epoch: int | None = None
    invoke_time: int | None = None


class AlterSyncStateSetResult(Header, kw_only=True):
    new_sync_state_set_epoch: int | None = None


class ElectMaster(Header, kw_only=True):
    cluster_name: str
    broker_name: str
    broker_id: int
    designate_elect: bool = False
    invoke_time: int | None = None


class ElectMasterResult(Header, kw_only=True):
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class RegisterBrokerToController(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: int | None = None
    broker_address: str | None = None
    invoke_time: int | None = None


class RegisterBrokerToControllerResult(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class GetReplicaInfo(Header, kw_only=True):
    broker_name: str | None = None


class GetReplicaInfoResult(Header, kw_only=True):
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None


class GetMetaDataResult(Header, kw_only=True):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


class NotifyBrokerRoleChanged(Header, kw_only=True):
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    master_broker_id: int | None = None


class CleanBrokerData(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool | None = None
    invoke_time: int | None = None


class GetNextBrokerId(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResult(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: int | None = None


class ApplyBrokerId(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: int | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResult(Header, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
