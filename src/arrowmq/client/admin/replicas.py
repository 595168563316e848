"""Administration of replicas: how far slaves are, epochs, sync state sets, and who is to be master."""

from __future__ import annotations

from arrowmq.client.admin.cluster import ClusterAdmin, text
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import BrokerReplicasInfo, EpochEntryCache, HARuntimeInfo
from arrowmq.wire.codes import RequestCode


class ReplicaAdmin(ClusterAdmin):
    async def ha_status(self, address: str) -> HARuntimeInfo:
        """A master: its slaves and how far each is. A slave: its master and how far it is behind."""
        return await self.call_body(address, RequestCode.GET_BROKER_HA_STATUS, None, HARuntimeInfo)

    async def epochs(self, address: str) -> EpochEntryCache:
        """Since which offset each master's epoch counts, by one broker."""
        return await self.call_body(address, RequestCode.GET_BROKER_EPOCH_CACHE, None, EpochEntryCache)

    async def controller_leader(self, controller: str) -> str:
        """The address of the controller that leads; any of them knows."""
        answer = await self.call(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return answer.ext.get("controllerLeaderAddress") or controller

    async def sync_state(self, controller: str, brokers: list[str]) -> BrokerReplicasInfo:
        """Who is master of each set of brokers, and which replicas are in sync."""
        leader = await self.controller_leader(controller)
        body = fastjson.dumps(brokers)
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        return await self.call_body(leader, code, None, BrokerReplicasInfo, body)

    async def elect_master(self, controller: str, cluster: str, broker: str, broker_id: int) -> None:
        """Make a replica the master of its set."""
        leader = await self.controller_leader(controller)
        ext = text(
            clusterName=cluster,
            brokerName=broker,
            brokerId=broker_id,
            designateElect=True,
            invokeTime=self.session.clock.now_ms(),
        )
        await self.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, ext)
