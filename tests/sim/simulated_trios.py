"""Three brokers of one name under a controller, which says who is master: masters change, acknowledged messages stay.

The controller keeps its decisions in SQLite, which has files of its own: `ControllerMachine` lets it lose its process,
not its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from auditor import Auditor
from plays import NAMES_PORT, Client, Cluster, make_topic, produce_in_trouble, until
from simulated_pairs import HA_PORT, MASTER, log_bytes, stored_in
from simulation import Machine, Simulation, node_maker

from arrowmq.broker.role import Role
from arrowmq.controller.broker_sets import BrokerSet
from arrowmq.controller.sqlite_storage import SqliteStorage
from arrowmq.server import Node

CONTROLLER_PORT = 9878
CONTROLLED = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "brokerHeartbeatInterval": "300",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "1000",
    "haSendHeartbeatInterval": "500",
    "slaveTimeout": "2000",
    "haMaxTimeSlaveNotCatchup": "2000",
}


class ControllerMachine(Machine):
    """With a disk that never fails."""

    def lose_power(self) -> None:
        self.kill()

    def _abandon(self, node: Node) -> None:
        """The system gives the lock of a killed process free; no transaction is open between two callbacks."""
        storage = node.controller.storage if node.controller is not None else None
        if isinstance(storage, SqliteStorage) and storage._database is not None:
            storage._database.close()


class Trio(Cluster):
    """A controller with its NameServer, and the brokers."""

    def __init__(self, simulation: Simulation, settings: Mapping[str, str], members: int = 3) -> None:
        make = node_maker({}, namesrv_port=NAMES_PORT, controller_port=CONTROLLER_PORT)
        above = simulation.machine("namesrv", make, kind=ControllerMachine)
        own = {
            **CONTROLLED,
            "brokerName": MASTER,
            "haListenPort": str(HA_PORT),
            "controllerAddr": f"{above.host}:{CONTROLLER_PORT}",
            **settings,
        }
        super().__init__(simulation, {f"member-{number + 1}": own for number in range(members)}, above)

    @property
    def decided(self) -> BrokerSet | None:
        controller = self.namesrv.node.controller if self.namesrv.node is not None else None
        return None if controller is None else controller.decider.get(MASTER)

    def find(self, broker: str) -> Machine:
        return (self.masters or self.running or self.machines)[0]

    @property
    def running(self) -> list[Machine]:
        return [machine for machine in self.brokers.values() if machine.is_running]

    @property
    def masters(self) -> list[Machine]:
        """Who thinks that it is one: more than one for a while, perhaps."""
        return [
            machine
            for machine in self.running
            if machine.node is not None
            and machine.node.broker is not None
            and machine.node.broker.role.current is Role.SYNC_MASTER
        ]

    def are_level(self) -> bool:
        """One master, all in its set, with the same log, shown to readers."""
        decided, brokers = self.decided, [machine.node.broker for machine in self.running if machine.node is not None]
        if decided is None or len(brokers) < len(self.brokers) or len(decided.sync_state_set) < len(self.brokers):
            return False
        stores = [broker.store for broker in brokers if broker is not None]
        ends = {end for store in stores for end in (int(store.appended), int(store.confirmed))}
        return len(self.masters) == 1 and len(ends) == 1


async def change_masters(simulation: Simulation, settings: Mapping[str, str], faults: tuple[str, ...]) -> Auditor:
    """Trouble at everybody, the controller too; then everybody is back, agrees, and has what was acknowledged."""
    trio, auditor = Trio(simulation, settings), Auditor()
    await trio.start()
    clients = [Client(simulation, number + 1) for number in range(2)]
    await until(trio.are_level, 60.0)
    await clients[0].start(make_topic(clients[0], trio))
    await produce_in_trouble(trio, clients, auditor, faults, 60)
    await trio.start_again()
    await until(trio.are_level, 300.0)
    await asyncio.sleep(1.0)
    for machine in trio.brokers.values():
        auditor.check_stored(stored_in(machine))
    assert 1 == len({log_bytes(machine) for machine in trio.brokers.values()})
    decided = trio.decided
    assert decided is not None
    auditor.elections = decided.master_epoch
    return auditor
