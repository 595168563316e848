"""Asking the controllers, whichever leads: ours or Apache's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from arrowmq.clock import Clock
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import ConnectFailed, RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import ElectMasterResultBody, SyncStateSet
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import (
    AlterSyncStateSet,
    ApplyBrokerId,
    BrokerHeartbeat,
    ElectMaster,
    ElectMasterResult,
    GetMetaDataResult,
    GetNextBrokerId,
    GetNextBrokerIdResult,
    GetReplicaInfo,
    GetReplicaInfoResult,
    RegisterBrokerToController,
    RegisterBrokerToControllerResult,
)
from arrowmq.wire.headers.declare import Header, decode_header

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0


class ControllerUnreachable(Exception):
    """No controller that leads has answered; what was asked may have been done or not."""


class ControllerRefused(Exception):
    """A controller said no."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


@dataclass(frozen=True, slots=True)
class Decided:
    """What a controller says of this broker's set; without a master, `master_id` is None."""

    master_id: int | None
    master_address: str
    master_epoch: int
    members: tuple[int, ...]
    members_epoch: int


class Controllers:
    def __init__(
        self, addresses: Sequence[str], cluster: str, name: str, remoting: RemotingClient, clock: Clock
    ) -> None:
        self._addresses = list(addresses)
        self._cluster = cluster
        self._name = name
        self._remoting = remoting
        self._clock = clock
        self._beats: set[asyncio.Task[bool]] = set()
        self.leader = ""

    # Who leads

    async def find_leader(self) -> str:
        """Ask all at once: one that hangs delays nobody. Raises `ControllerUnreachable`."""
        asked = [asyncio.ensure_future(self._who_leads(address)) for address in self._addresses]
        reasons = []
        try:
            for answer in asyncio.as_completed(asked):
                found, reason = await answer
                if not found:
                    reasons.append(reason)
                    continue
                if found != self.leader:
                    log.info("controller leads address=%s", found)
                self.leader = found
                return found
        finally:
            for each in asked:
                each.cancel()
        self.leader = ""
        raise ControllerUnreachable(f"no controller answers that knows who leads: {'; '.join(reasons)}")

    async def _who_leads(self, address: str) -> tuple[str, str]:
        """The leader that one knows, or an empty text and why not."""
        try:
            command = Command.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            answer = await self._remoting.invoke(address, command, TIMEOUT_S)
        except (RemotingError, OSError) as failure:
            return "", str(failure)
        found = decode_header(GetMetaDataResult, answer.ext).controller_leader_address
        if answer.code != ResponseCode.SUCCESS or not found:
            return "", f"{address} knows of no leader"
        return found, ""

    async def _ask(self, code: int, header: Header, body: bytes = b"") -> Command:
        """Ask the leader; once more if it is another by now."""
        for attempt in (1, 2):
            address = self.leader or await self.find_leader()
            try:
                answer = await self._remoting.invoke(address, Command.request(code, header, body), TIMEOUT_S)
            except ConnectFailed as failure:
                self.leader = ""
                if attempt == 2:
                    raise ControllerUnreachable(str(failure)) from failure
                continue
            except (RemotingError, OSError) as failure:
                self.leader = ""
                raise ControllerUnreachable(str(failure)) from failure
            if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self.leader = ""
                continue
            return answer
        raise ControllerUnreachable("no controller leads")

    async def _ask_well(self, code: int, header: Header, body: bytes = b"") -> Command:
        answer = await self._ask(code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise ControllerRefused(answer.code, answer.remark or f"code {answer.code}")
        return answer

    # Ids

    async def next_broker_id(self) -> int:
        header = GetNextBrokerId(cluster_name=self._cluster, broker_name=self._name)
        answer = await self._ask_well(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = decode_header(GetNextBrokerIdResult, answer.ext).next_broker_id
        if found is None:
            raise ControllerUnreachable("it gave no broker id")
        return found

    async def apply_broker_id(self, broker_id: int, check_code: str) -> None:
        header = ApplyBrokerId(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=broker_id,
            register_check_code=check_code,
        )
        await self._ask_well(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    # Roles

    async def register(self, broker_id: int, address: str) -> Decided:
        header = RegisterBrokerToController(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            broker_address=address,
            invoke_time=self._clock.now_ms(),
        )
        answer = await self._ask_well(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        found = decode_header(RegisterBrokerToControllerResult, answer.ext)
        return _decided(found.master_broker_id, found.master_address, found.master_epoch, answer.body)

    async def elect(self, broker_id: int) -> Decided:
        """Ask for a master; that may be another broker, also the one there is."""
        header = ElectMaster(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            designate_elect=False,
            invoke_time=self._clock.now_ms(),
        )
        answer = await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            raise ControllerRefused(answer.code, answer.remark or f"code {answer.code}")
        found = decode_header(ElectMasterResult, answer.ext)
        members = _body(answer.body, ElectMasterResultBody).sync_state_set
        return Decided(
            found.master_broker_id,
            found.master_address or "",
            found.master_epoch or 0,
            tuple(members),
            found.sync_state_set_epoch or 0,
        )

    async def decided(self) -> Decided:
        """Raises `ControllerRefused` with CONTROLLER_BROKER_METADATA_NOT_EXIST where the set is not known."""
        answer = await self._ask_well(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfo(broker_name=self._name))
        found = decode_header(GetReplicaInfoResult, answer.ext)
        return _decided(found.master_broker_id, found.master_address, found.master_epoch, answer.body)

    async def alter_sync_state_set(
        self, master_id: int, master_epoch: int, members: Sequence[int], members_epoch: int
    ) -> tuple[tuple[int, ...], int]:
        header = AlterSyncStateSet(
            broker_name=self._name,
            master_broker_id=master_id,
            master_epoch=master_epoch,
            invoke_time=self._clock.now_ms(),
        )
        body = fastjson.dumps(SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=members_epoch))
        answer = await self._ask_well(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        found = _body(answer.body, SyncStateSet)
        return tuple(found.sync_state_set), found.sync_state_set_epoch

    # Heartbeats

    async def heartbeat(self, header: BrokerHeartbeat, timeout_s: float) -> bool:
        """To every controller: whoever leads next should know who is alive. Whether the one that leads has answered; as
        soon as it has, nobody waits for the others."""
        asked = [asyncio.ensure_future(self._beat(address, header, timeout_s)) for address in self._addresses]
        self._beats.update(asked)
        for each in asked:
            each.add_done_callback(self._beats.discard)
        for heard in asyncio.as_completed(asked):
            if await heard:
                return True
        return False

    def stop(self) -> None:
        for beat in self._beats:
            beat.cancel()

    async def _beat(self, address: str, header: BrokerHeartbeat, timeout_s: float) -> bool:
        try:
            command = Command.request(RequestCode.BROKER_HEARTBEAT, header)
            answer = await self._remoting.invoke(address, command, timeout_s)
        except (RemotingError, OSError):
            if address == self.leader:
                self.leader = ""
            return False
        if answer.code != ResponseCode.SUCCESS:
            return False
        # Apache's controllers answer alike, whether they lead or not.
        leads = answer.ext.get("isLeader")
        return leads == "true" if leads is not None else address == self.leader


BodyKind = TypeVar("BodyKind", SyncStateSet, ElectMasterResultBody)


def _body(data: bytes, kind: type[BodyKind]) -> BodyKind:
    try:
        return fastjson.loads(data, kind)
    except WireError as error:
        raise ControllerUnreachable(f"the controller's answer cannot be read: {error}") from error


def _decided(master_id: int | None, address: str | None, epoch: int | None, data: bytes) -> Decided:
    found = _body(data, SyncStateSet) if data else SyncStateSet()
    return Decided(master_id, address or "", epoch or 0, tuple(found.sync_state_set), found.sync_state_set_epoch)
