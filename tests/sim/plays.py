"""What happens in a simulated cluster: clients at work, and what goes wrong around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from auditor import Auditor, Queue
from simulated_loop import Process, SimulatedClock
from simulated_network import run_in
from simulation import Killed, Machine, Simulation, node_maker

import arrowmq
from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.records import decode_records

TOPIC, QUEUES, GROUP = "orders", 2, "billing"
NAMES_PORT, BROKER_PORT = 9876, 10911
#: Clients that notice a change within seconds.
ALERT: dict[str, Any] = {"heartbeat_interval_s": 1.0, "poll_namesrv_interval_s": 2.0, "request_timeout_s": 2.0}


class Client:
    """A program on a machine of its own, which nothing happens to."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.process = Process(f"client-{number}", f"10.0.1.{number}")
        self.clock = SimulatedClock(simulation.loop, self.process)
        self._instances = count()

    def options(self) -> dict[str, Any]:
        name = f"instance-{next(self._instances)}"  # by itself it would be made from the real clock
        return {**ALERT, "clock": self.clock, "client_ip": self.process.host, "instance_name": name}

    def start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = run_in(self.process, lambda: self.simulation.loop.create_task(work))
        return task


class Cluster:
    """A NameServer and brokers; subclasses of the settings decide how much they promise."""

    def __init__(
        self, simulation: Simulation, brokers: Mapping[str, Mapping[str, str]], namesrv: Machine | None = None
    ) -> None:
        self.simulation = simulation
        self.namesrv = namesrv or simulation.machine("namesrv", node_maker({}, namesrv_port=NAMES_PORT))
        self.names_address = f"{self.namesrv.host}:{NAMES_PORT}"
        self.brokers: dict[str, Machine] = {}
        for name, settings in brokers.items():
            own = {"brokerName": name, "namesrvAddr": self.names_address, **settings}
            self.brokers[name] = simulation.machine(name, node_maker(own, broker_port=BROKER_PORT))

    @property
    def machines(self) -> list[Machine]:
        return [self.namesrv, *self.brokers.values()]

    async def start(self) -> None:
        for machine in self.machines:
            await machine.start()

    async def start_again(self) -> None:
        """Everything that is down comes back, and everything that is parted meets again."""
        self.simulation.network.heal()
        for machine in self.machines:
            if not machine.is_running:
                await machine.start()

    def address(self, broker: str) -> str:
        return f"{self.brokers[broker].host}:{BROKER_PORT}"

    def find(self, broker: str) -> Machine:
        """The machine that a sender means by this broker's name."""
        return self.brokers[broker]

    def audit_death(self, machine: Machine, auditor: Auditor) -> None:
        """A machine has just gone down: what must hold without it?"""


async def produce(client: Client, cluster: Cluster, auditor: Auditor, lane: str, messages: int) -> None:
    """Sends one after the other, each once: what fails is in doubt, and stays so."""
    options = {"group": f"P-{lane}", "timeout_s": 3.0, "retries": 0, **client.options()}
    async with arrowmq.Producer(cluster.names_address, start_timeout_s=3600.0, **options) as producer:
        for number in range(messages):
            body = f"{lane}:{number}:".encode() + b"x" * client.simulation.chance.choice((0, 50, 900))
            auditor.sent.add(body)
            try:
                receipt = await producer.send(TOPIC, body, keys=[f"{lane}-{number}"])
            except arrowmq.ArrowMQError:
                await asyncio.sleep(client.simulation.chance.uniform(0.05, 0.5))
                continue
            if receipt.status is not arrowmq.SendStatus.SEND_OK:
                continue  # stored, and less is promised than was asked for: it may be there
            queue: Queue = (receipt.broker_name, receipt.queue_id)
            auditor.acknowledge(lane, body, queue, receipt.queue_offset)
            await client.simulation.rest(0.0, 0.2)


async def consume(client: Client, cluster: Cluster, auditor: Auditor, ends: asyncio.Event) -> None:
    async def note(message: arrowmq.ReceivedMessage) -> None:
        auditor.delivered[message.body] += 1

    options: dict[str, Any] = {"consume_from": "first", "commit_interval_s": 0.5, **client.options()}
    async with arrowmq.PushConsumer(
        cluster.names_address, group=GROUP, topic=TOPIC, handler=note, start_timeout_s=3600.0, **options
    ):
        await ends.wait()


async def make_topic(client: Client, cluster: Cluster) -> None:
    async with arrowmq.Admin(cluster.names_address, **client.options()) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)


async def disturb(cluster: Cluster, faults: tuple[str, ...], auditor: Auditor, ends: asyncio.Event) -> None:
    """One thing after the other goes wrong, for a while: at some moment, or just when a broker has acknowledged."""
    chance = cluster.simulation.chance
    while not ends.is_set():
        await cluster.simulation.rest(0.2, 8.0)
        machine = chance.choice(cluster.machines)
        if chance.random() < 0.6:
            with suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    machine = cluster.find(await auditor.next_acknowledgement())
        with suppress(Killed):
            await cause(cluster, machine, chance.choice(faults), auditor)


async def cause(cluster: Cluster, machine: Machine, fault: str, auditor: Auditor) -> None:
    simulation, chance = cluster.simulation, cluster.simulation.chance
    if fault == "part":
        others = [*simulation.machines.values()]
        hosts = [other.host for other in others if other is not machine] + ["10.0.1.1", "10.0.1.2", "10.0.1.3"]
        for host in hosts:
            if chance.random() < 0.5:
                simulation.network.part(machine.host, host)
        await asyncio.sleep(chance.uniform(0.5, 20.0))
        simulation.network.heal()
    elif fault == "clock":
        machine.set_clock(chance.choice((-3_600_000, -500, 0, 500, 3_600_000)))
    elif fault == "blackout":
        await black_out(cluster, auditor)
    elif machine.is_running:
        if fault == "alone":
            await kill_apart(cluster, machine, auditor)
        elif fault in ("kill", "twice"):
            machine.kill()
        elif fault == "power":
            machine.lose_power()
        else:
            await machine.stop()
        cluster.audit_death(machine, auditor)
        await asyncio.sleep(chance.uniform(0.1, 10.0))
        if fault == "twice":
            await kill_with_its_first_answer(cluster, machine, auditor)
            await asyncio.sleep(chance.uniform(0.1, 10.0))
        await machine.start()


async def black_out(cluster: Cluster, auditor: Auditor) -> None:
    """All brokers lose power at once; slaves are back before their master."""
    down = [machine for machine in reversed(cluster.machines) if machine is not cluster.namesrv and machine.is_running]
    for machine in down:
        machine.lose_power()
    await asyncio.sleep(cluster.simulation.chance.uniform(0.1, 10.0))
    for machine in down:
        if machine is down[-1]:
            cluster.audit_death(machine, auditor)
        await machine.start()


async def kill_apart(cluster: Cluster, machine: Machine, auditor: Auditor) -> None:
    """Part it from the other brokers, not from its clients; let it go down when it acknowledges, or after a while."""
    network = cluster.simulation.network
    for other in cluster.machines:
        if other is not machine and other is not cluster.namesrv:
            network.part(machine.host, other.host)
    with suppress(TimeoutError):
        async with asyncio.timeout(cluster.simulation.chance.uniform(0.5, 8.0)):
            for _ in range(cluster.simulation.chance.randint(1, 3)):
                await auditor.next_acknowledgement()
    machine.kill()
    network.heal()


async def kill_with_its_first_answer(cluster: Cluster, machine: Machine, auditor: Auditor) -> None:
    """Start it, and let it go down when it has acknowledged for the first time, in the middle of its start perhaps."""
    starting = asyncio.ensure_future(machine.start())
    with suppress(TimeoutError):
        async with asyncio.timeout(5.0):
            await auditor.next_acknowledgement()
    machine.kill()
    cluster.audit_death(machine, auditor)
    with suppress(Killed):
        await starting


async def until(is_so: Callable[[], bool], seconds: float) -> None:
    """Look again and again, on virtual time."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def stored(client: Client, cluster: Cluster) -> dict[Queue, list[bytes]]:
    """Everything in the topic, from the brokers themselves."""
    found: dict[Queue, list[bytes]] = {}
    for broker in cluster.brokers:
        found |= await stored_at(client, broker, cluster.address(broker))
    return found


async def stored_at(client: Client, broker: str, address: str) -> dict[Queue, list[bytes]]:
    """Everything of the topic at one address."""
    return {(broker, queue_id): await read_topic(client, address, TOPIC, queue_id) for queue_id in range(QUEUES)}


async def read_topic(client: Client, address: str, topic: str, queue_id: int) -> list[bytes]:
    """Everything of a queue, from its beginning."""
    remoting = RemotingClient(client.clock)
    bodies: list[bytes] = []
    while True:
        header = {
            "consumerGroup": "AUDIT", "topic": topic, "queueId": str(queue_id), "queueOffset": str(len(bodies)),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subVersion": "0", "subscription": "*",
        }  # fmt: skip
        try:
            answer = await remoting.invoke(address, Command.request(RequestCode.PULL_MESSAGE, header), 5.0)
        except RemotingError:
            await asyncio.sleep(0.5)
            continue
        if answer.code != ResponseCode.SUCCESS:
            break
        bodies += [record.body for record in decode_records(answer.body)]
    await remoting.close()
    return bodies


async def produce_in_trouble(
    cluster: Cluster,
    clients: list[Client],
    auditor: Auditor,
    faults: tuple[str, ...],
    messages: int,
    *others: asyncio.Task[Any],
) -> None:
    """All clients send their messages, and one thing after the other goes wrong meanwhile; the others' work is waited
    for as well."""
    calm = asyncio.Event()
    producers = [
        client.start(produce(client, cluster, auditor, f"l{number}", messages)) for number, client in enumerate(clients)
    ]
    disturber = asyncio.ensure_future(disturb(cluster, faults, auditor, calm))
    await unless_it_fails(disturber, asyncio.gather(*producers, *others))
    calm.set()
    await disturber


async def unless_it_fails(disturber: asyncio.Future[None], work: asyncio.Future[Any]) -> None:
    """Wait for work; an audit that failed meanwhile ends it, for it would go on with machines that stay down."""
    await asyncio.wait([disturber, work], return_when=asyncio.FIRST_COMPLETED)
    if disturber.done():
        work.cancel()
        disturber.result()
    await work


async def trouble(
    simulation: Simulation,
    brokers: Mapping[str, Mapping[str, str]],
    faults: tuple[str, ...],
    *,
    lanes: int = 2,
    messages: int = 60,
) -> Auditor:
    """The whole play: a cluster, producers and a consumer, faults, and in the end the audit."""
    cluster, auditor = Cluster(simulation, brokers), Auditor()
    await cluster.start()
    clients = [Client(simulation, number + 1) for number in range(lanes + 1)]
    await clients[0].start(make_topic(clients[0], cluster))
    consumed = asyncio.Event()
    consumer = clients[0].start(consume(clients[0], cluster, auditor, consumed))
    await produce_in_trouble(cluster, clients[1:], auditor, faults, messages)
    await cluster.start_again()
    auditor.check_stored(await clients[1].start(stored(clients[1], cluster)))
    with suppress(TimeoutError):
        await until(lambda: auditor.is_all_delivered, 600.0)
    auditor.check_delivered()
    consumed.set()
    await consumer
    for machine in reversed(cluster.machines):
        await machine.stop()
    return auditor
