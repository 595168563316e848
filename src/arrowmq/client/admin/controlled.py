"""Administration of brokers under a controller: who leads, who is in sync, and planned switches."""

from __future__ import annotations

from dataclasses import dataclass

from arrowmq.client.admin.cluster import ClusterAdmin
from arrowmq.client.errors import ArrowMQError
from arrowmq.remoting.address import parse_addresses
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicas, BrokerReplicasInfo
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.headers import ElectMasterResult, GetMetaDataResult
from arrowmq.wire.headers.declare import decode_header


@dataclass(frozen=True, slots=True)
class ControlledSet:
    """A broker set as its controllers have it. `controllers` names each as NAME:HOST:PORT."""

    name: str
    cluster: str
    leader_name: str
    leader_address: str
    controllers: tuple[str, ...]
    replicas: BrokerReplicas


class ControlledAdmin(ClusterAdmin):
    async def controlled_set(self, broker_name: str) -> ControlledSet | None:
        """What the controllers say of a broker set; None if it is under none."""
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(broker_name)
        if broker is None:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise ArrowMQError(f"no broker {broker_name} is registered; the NameServer knows: {known}")
        config: dict[str, str] = {}
        failure: ArrowMQError | None = None
        for address in broker.broker_addrs.values():
            try:
                config = await self.broker_config(address)
                break
            except ArrowMQError as error:
                failure = error
        else:
            if failure is not None:
                raise failure
        if config.get("enableControllerMode") != "true":
            return None
        addresses = parse_addresses(config.get("controllerAddr", ""))
        metadata = await self._metadata(addresses)
        leader = metadata.controller_leader_address or ""
        found = await self.call_body(
            leader,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
            None,
            BrokerReplicasInfo,
            fastjson.dumps([broker_name]),
        )
        replicas = found.replicas_info_table.get(broker_name)
        if replicas is None:
            raise ArrowMQError(
                f"the controller at {leader} knows no broker set {broker_name}: its data are lost or old"
            )
        peers = tuple(filter(None, (metadata.peers or "").split(";")))
        return ControlledSet(
            broker_name, broker.cluster or "", metadata.controller_leader_id or "", leader, peers, replicas
        )

    async def _metadata(self, addresses: list[str]) -> GetMetaDataResult:
        reasons = []
        for address in addresses:
            try:
                answer = await self.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
            except ArrowMQError as error:
                reasons.append(str(error))
                continue
            found = decode_header(GetMetaDataResult, answer.ext)
            if found.controller_leader_address:
                return found
            reasons.append(f"{address} knows of no leader")
        raise ArrowMQError(f"no controller leads: {'; '.join(reasons) or 'none is configured'}")

    async def switch_master(self, controlled: ControlledSet, broker_id: int) -> ElectMasterResult:
        """Make another broker master. Raises `Refused` where it is not in sync."""
        fields = {
            "clusterName": controlled.cluster,
            "brokerName": controlled.name,
            "brokerId": str(broker_id),
            "designateElect": "true",
        }
        answer = await self.call(controlled.leader_address, RequestCode.CONTROLLER_ELECT_MASTER, fields)
        return decode_header(ElectMasterResult, answer.ext)
