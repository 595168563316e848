"""A broker as a controller sees one: it asks for an id, registers, sends heartbeats, and takes notices at its port."""

from __future__ import annotations

import asyncio
from typing import Any

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.handlers import Call, HandlerTable, handles
from arrowmq.remoting.server import RemotingServer
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import SyncStateSet
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import (
    AlterSyncStateSet,
    ApplyBrokerId,
    BrokerHeartbeat,
    ElectMaster,
    ElectMasterResult,
    GetNextBrokerId,
    GetNextBrokerIdResult,
    GetReplicaInfo,
    GetReplicaInfoResult,
    NotifyBrokerRoleChanged,
    RegisterBrokerToController,
    RegisterBrokerToControllerResult,
)
from arrowmq.wire.headers.declare import Header, decode_header

CLUSTER = "c"


class PlayedBroker:
    def __init__(self, name: str, controller: str, *, lease_ms: int = 10_000, priority: int | None = None) -> None:
        self.name = name
        self.controller = controller
        self.lease_ms = lease_ms
        self.priority = priority
        self.broker_id = 0
        self.epoch = 0
        self.max_offset = 0
        self.notices: list[NotifyBrokerRoleChanged] = []
        self.noticed = asyncio.Event()
        self._client = RemotingClient()
        self._server = RemotingServer(HandlerTable(self))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    async def start(self) -> None:
        await self._server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        """As if the process were gone: its connections end, and nobody listens any more."""
        await self._server.close()
        await self._client.close()

    async def hang_up(self) -> None:
        """Lose the connection to the controller, and live on."""
        await self._client.close()
        self._client = RemotingClient()

    @handles(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    def role_changed(self, request: NotifyBrokerRoleChanged, call: Call) -> None:
        del call
        self.notices.append(request)
        self.noticed.set()

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self._client.invoke(self.controller, Command.request(code, header, body), 5)

    async def _expect(self, code: int, header: Header, body: bytes = b"") -> Command:
        answer = await self.ask(code, header, body)
        assert ResponseCode.SUCCESS == answer.code, answer.remark
        return answer

    async def join(self) -> RegisterBrokerToControllerResult:
        """Everything a new broker does until it has its role."""
        answer = await self._expect(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerId(cluster_name=CLUSTER, broker_name=self.name)
        )
        self.broker_id = decode_header(GetNextBrokerIdResult, answer.ext).next_broker_id or 0
        await self._expect(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerId(
                cluster_name=CLUSTER,
                broker_name=self.name,
                applied_broker_id=self.broker_id,
                register_check_code=f"{self.address};1",
            ),
        )
        return await self.register()

    async def register(self) -> RegisterBrokerToControllerResult:
        answer = await self._expect(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RegisterBrokerToController(
                cluster_name=CLUSTER, broker_name=self.name, broker_id=self.broker_id, broker_address=self.address
            ),
        )
        await self.beat()
        result = decode_header(RegisterBrokerToControllerResult, answer.ext)
        if result.master_broker_id is None:
            await self.elect()
        return result

    async def beat(self) -> dict[str, Any]:
        header = BrokerHeartbeat(
            cluster_name=CLUSTER,
            broker_addr=self.address,
            broker_name=self.name,
            broker_id=self.broker_id,
            epoch=self.epoch,
            max_offset=self.max_offset,
            confirm_offset=self.max_offset,
            heartbeat_timeout_mills=self.lease_ms,
            election_priority=self.priority,
        )
        return (await self._expect(RequestCode.BROKER_HEARTBEAT, header)).ext

    async def elect(self, broker_id: int | None = None, *, is_designated: bool = False) -> Command:
        header = ElectMaster(
            cluster_name=CLUSTER,
            broker_name=self.name,
            broker_id=self.broker_id if broker_id is None else broker_id,
            designate_elect=is_designated,
        )
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def replica_info(self) -> tuple[GetReplicaInfoResult, SyncStateSet]:
        answer = await self._expect(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfo(broker_name=self.name))
        return decode_header(GetReplicaInfoResult, answer.ext), fastjson.loads(answer.body, SyncStateSet)

    async def alter(self, *members: int) -> Command:
        """As master: change the set from what it is."""
        info, known = await self.replica_info()
        header = AlterSyncStateSet(
            broker_name=self.name, master_broker_id=self.broker_id, master_epoch=info.master_epoch
        )
        wanted = SyncStateSet(sync_state_set=list(members), sync_state_set_epoch=known.sync_state_set_epoch)
        return await self.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, fastjson.dumps(wanted))


def elected(answer: Command) -> ElectMasterResult:
    return decode_header(ElectMasterResult, answer.ext)
