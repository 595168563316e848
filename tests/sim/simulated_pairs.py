"""Masters with their slaves: what one acknowledged, the other has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from auditor import Auditor, Queue
from driving import read_queue
from impatient import insist
from plays import BROKER_PORT, QUEUES, TOPIC, Client, Cluster, make_topic, produce_in_trouble, until
from simulation import Machine, Simulation, node_maker

from arrowmq.replica.follower import REFUSED
from arrowmq.wire.records import decode_record

MASTER = "broker-a"
HA_PORT = 10912
SAFE = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "2000"}


class Pair(Cluster):
    """One master and its slaves."""

    def __init__(self, simulation: Simulation, settings: Mapping[str, str], slaves: int = 1) -> None:
        super().__init__(simulation, {MASTER: {"haListenPort": str(HA_PORT), **SAFE, **settings}})
        self.slaves = [self._slave(number + 1, settings) for number in range(slaves)]

    def _slave(self, number: int, settings: Mapping[str, str]) -> Machine:
        own = {
            "brokerName": MASTER,
            "brokerId": str(number),
            "namesrvAddr": self.names_address,
            "haListenPort": str(HA_PORT),
            **settings,
            "brokerRole": "SLAVE",
        }
        return self.simulation.machine(f"slave-{number}", node_maker(own, broker_port=BROKER_PORT))

    @property
    def machines(self) -> list[Machine]:
        return [*super().machines, *self.slaves]

    @property
    def master(self) -> Machine:
        return self.brokers[MASTER]

    def are_level(self) -> bool:
        """All have the same log, and may show it to readers."""
        stores = [machine.node.broker.store for machine in (self.master, *self.slaves)]  # type: ignore[union-attr]
        return len({end for store in stores for end in (int(store.appended), int(store.confirmed))}) == 1

    def is_refused(self, machine: Machine) -> bool:
        """Whether a slave says that its log is not its master's: it got bytes that the master lost with its power. What
        was acknowledged the master has, and an operator decides."""
        assert machine.node is not None
        assert machine.node.broker is not None
        return machine is not self.master and machine.node.broker.extensions[0].follower.state == REFUSED  # type: ignore[attr-defined]

    def audit_death(self, machine: Machine, auditor: Auditor) -> None:
        """What the master acknowledged until now, each slave that runs has already."""
        for slave in self.slaves:
            if machine is self.master and slave.is_running:
                auditor.check_stored(written_in(slave))


async def lose_the_master(simulation: Simulation, settings: Mapping[str, str], faults: tuple[str, ...]) -> Auditor:
    """Trouble, and then the master's machine never comes back: the slave has all that was acknowledged."""
    pair, auditor = Pair(simulation, settings), Auditor()
    await pair.start()
    clients = [Client(simulation, number + 1) for number in range(2)]
    await clients[0].start(make_topic(clients[0], pair))
    await until(pair.are_level, 60.0)
    eager = clients[0].start(insist(clients[0], pair.master, BROKER_PORT, auditor, "eager", 30))
    await produce_in_trouble(pair, clients, auditor, faults, 50, eager)
    simulation.network.heal()
    (slave,) = pair.slaves
    if pair.master.is_running:
        pair.master.lose_power()
    if not slave.is_running:
        await slave.start()
    auditor.check_stored(stored_in(slave))
    return auditor


async def come_together_again(simulation: Simulation, settings: Mapping[str, str], faults: tuple[str, ...]) -> Auditor:
    """Trouble, and then everybody is back: the logs are the same, byte by byte."""
    pair, auditor = Pair(simulation, settings, slaves=2), Auditor()
    await pair.start()
    clients = [Client(simulation, number + 1) for number in range(2)]
    await clients[0].start(make_topic(clients[0], pair))
    await produce_in_trouble(pair, clients, auditor, faults, 50)
    await pair.start_again()
    with suppress(TimeoutError):
        await until(pair.are_level, 120.0)
    for machine in (pair.master, *pair.slaves):
        if not pair.is_refused(machine):
            auditor.check_stored(written_in(machine))
    await asyncio.sleep(1.0)
    assert 1 == len({log_bytes(machine) for machine in (pair.master, *pair.slaves) if not pair.is_refused(machine)})
    return auditor


def stored_in(machine: Machine) -> dict[Queue, list[bytes]]:
    """The topic's messages as they lie in a broker's store, whatever it tells its clients."""
    assert machine.node is not None
    assert machine.node.broker is not None
    store = machine.node.broker.store
    return {(MASTER, queue_id): read_queue(store, TOPIC, queue_id) for queue_id in range(QUEUES)}


def written_in(machine: Machine) -> dict[Queue, list[bytes]]:
    """The same, with what readers do not get yet."""
    assert machine.node is not None
    assert machine.node.broker is not None
    store = machine.node.broker.store
    found: dict[Queue, list[bytes]] = {}
    for queue_id in range(QUEUES):
        queue = store.consume_queues.find(TOPIC, queue_id)
        entries = [] if queue is None else queue.entries(0, queue.tail.next_offset)
        records = [store.commit_log.view(entry.physical_offset, entry.size) for entry in entries]
        found[MASTER, queue_id] = [decode_record(record).body for record in records if record is not None]
    return found


def log_bytes(machine: Machine) -> bytes:
    """The log up to its end; it has not been cut at its beginning yet."""
    assert machine.node is not None
    assert machine.node.broker is not None
    end = int(machine.node.broker.store.appended)
    files = sorted(Path(machine.root / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]
