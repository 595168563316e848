"""Pops, transactions and delays in trouble: what was promised of each kind, held against what became of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from auditor import Auditor
from plays import Client, Cluster, disturb, read_topic, unless_it_fails, until
from simulated_pairs import Pair
from simulation import Simulation

import arrowmq

POPPED, DEALS, LATER = "popped", "deals", "later"
BROKER = "broker-a"
INVISIBLE_S = 20.0
AFTER_LEAPS_S = 75.0  # what was sent while a clock was an hour ahead comes an hour later
SETTINGS = {
    "messageDelayLevel": "1s 3s 5s",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
}


@dataclass
class Kinds(Auditor):
    """Acknowledged by kind, and what it was said to become."""

    popped: dict[bytes, int] = field(default_factory=dict)  # acknowledged by the broker → how often it was popped
    acked: set[bytes] = field(default_factory=set)  # whose ack was answered
    popped_again: set[bytes] = field(default_factory=set)  # after that
    fates: dict[bytes, bool] = field(default_factory=dict)  # half messages that were acknowledged → committed?
    delayed: dict[bytes, float] = field(default_factory=dict)  # acknowledged → due, by the simulation's clock
    recalled: set[bytes] = field(default_factory=set)
    in_doubt: set[bytes] = field(default_factory=set)  # asked back, and nobody answered


async def try_again_soon(client: Client) -> None:
    await asyncio.sleep(client.simulation.chance.uniform(0.05, 0.5))


def producer_of(client: Client, cluster: Cluster, group: str, **more: Any) -> arrowmq.Producer:
    options = {"group": group, "timeout_s": 3.0, "retries": 0, **client.options(), **more}
    return arrowmq.Producer(cluster.names_address, start_timeout_s=3600.0, **options)


async def send_to_be_popped(client: Client, cluster: Cluster, audit: Kinds, messages: int) -> None:
    async with producer_of(client, cluster, "P-pop") as producer:
        for number in range(messages):
            body = b"pop-%d" % number
            try:
                receipt = await producer.send(POPPED, body)
            except arrowmq.ArrowMQError:
                await try_again_soon(client)
                continue
            if receipt.status is arrowmq.SendStatus.SEND_OK:
                audit.popped.setdefault(body, 0)
                audit.notify(BROKER)
            await client.simulation.rest(0.0, 0.3)


async def pop(client: Client, cluster: Cluster, audit: Kinds, ends: asyncio.Event) -> None:
    """Takes a few at a time and acknowledges most of them, well before they would come back."""
    loop, chance = client.simulation.loop, client.simulation.chance
    options = {"group": "poppers", "topic": POPPED, "invisible_s": INVISIBLE_S, "wait_s": 1.0, **client.options()}
    async with arrowmq.SimpleConsumer(cluster.names_address, start_timeout_s=3600.0, **options) as consumer:
        while not ends.is_set():
            try:
                messages = await consumer.receive(chance.randint(1, 8))
            except arrowmq.ArrowMQError:
                await try_again_soon(client)
                continue
            received_s, leaps = loop.time(), client.simulation.leaps
            for message in messages:
                audit.popped[message.body] = audit.popped.get(message.body, 0) + 1
                if message.body in audit.acked:
                    audit.popped_again.add(message.body)
            for message in messages:
                if chance.random() < 0.15:
                    continue  # its consumer dies
                with suppress(arrowmq.ArrowMQError):
                    await message.ack()
                    is_in_time = loop.time() - received_s < INVISIBLE_S / 3
                    if is_in_time and client.simulation.leaps == leaps:
                        audit.acked.add(message.body)


async def deal(
    client: Client, cluster: Cluster, audit: Kinds, messages: int, begun: asyncio.Event, ends: asyncio.Event
) -> None:
    """Transactions that are decided here, or by a check; `begun` says that there will be no more of them."""
    chance = client.simulation.chance

    def verdict(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        commits = message.body.endswith(b"+")
        return arrowmq.TransactionState.COMMIT if commits else arrowmq.TransactionState.ROLLBACK

    async with producer_of(client, cluster, "P-deals", transaction_checker=verdict) as producer:
        for number in range(messages):
            commits, decides = chance.random() < 0.6, chance.random() < 0.7
            body = b"deal-%d%s" % (number, b"+" if commits else b"-")
            with suppress(arrowmq.ArrowMQError):
                async with producer.transaction(DEALS, body) as transaction:
                    audit.fates[body] = commits
                    audit.notify(BROKER)
                    if not decides:
                        transaction.leave_undecided()
                    elif not commits:
                        await transaction.rollback()
            await client.simulation.rest(0.0, 0.5)
        begun.set()
        await ends.wait()


async def delay(client: Client, cluster: Cluster, audit: Kinds, messages: int) -> None:
    """Delay levels and timers; some timers are taken back."""
    loop, chance = client.simulation.loop, client.simulation.chance
    levels_s = {1: 1.0, 2: 3.0, 3: 5.0}
    async with producer_of(client, cluster, "P-later") as producer:
        for number in range(messages):
            body, level = b"later-%d" % number, chance.choice((0, 1, 2, 3))
            wait_s = levels_s.get(level, chance.uniform(2.0, 20.0))
            due_s = loop.time() + wait_s
            try:
                if level:
                    receipt = await producer.send(LATER, body, delay_level=level)
                else:
                    receipt = await producer.send(LATER, body, delay=wait_s)
                if receipt.status is not arrowmq.SendStatus.SEND_OK:
                    continue
                audit.delayed[body] = due_s
                audit.notify(BROKER)
                if not level and chance.random() < 0.4:
                    audit.in_doubt.add(body)
                    await producer.recall(LATER, receipt.recall_handle)
                    audit.in_doubt.remove(body)
                    audit.recalled.add(body)
            except arrowmq.ArrowMQError:
                await try_again_soon(client)
            await client.simulation.rest(0.0, 0.5)


async def kinds_in_trouble(
    simulation: Simulation, settings: Mapping[str, str], faults: tuple[str, ...], *, has_slave: bool = False
) -> Kinds:
    """One broker, or a master that waits for its slave; then each of the two has its troubles."""
    wanted = {**SETTINGS, **settings}
    cluster = Pair(simulation, wanted) if has_slave else Cluster(simulation, {BROKER: wanted})
    audit = Kinds()
    await cluster.start()
    clients = [Client(simulation, number + 1) for number in range(3)]
    await clients[0].start(_make_topics(clients[0], cluster))
    calm, begun, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    dealer = clients[1].start(deal(clients[1], cluster, audit, 40, begun, over))
    popper = clients[0].start(pop(clients[0], cluster, audit, over))
    senders = [
        clients[0].start(send_to_be_popped(clients[0], cluster, audit, 60)),
        clients[2].start(delay(clients[2], cluster, audit, 40)),
    ]
    disturber = asyncio.ensure_future(disturb(cluster, faults, audit, calm))
    await unless_it_fails(disturber, asyncio.gather(*senders, begun.wait()))
    calm.set()
    await disturber
    await cluster.start_again()
    for machine in cluster.machines:
        machine.set_clock(0)
    with suppress(TimeoutError):
        await until(lambda: all(audit.popped.values()) or popper.done(), 300.0)
    came = await clients[1].start(_settled(clients[1], cluster, audit, AFTER_LEAPS_S if "clock" in faults else 5.0))
    over.set()
    await asyncio.gather(dealer, popper)
    audit_kinds(audit, *came)
    for machine in cluster.machines:
        if machine is not cluster.namesrv:
            await machine.stop()
    await cluster.namesrv.stop()
    return audit


async def _make_topics(client: Client, cluster: Cluster) -> None:
    async with arrowmq.Admin(cluster.names_address, **client.options()) as admin:
        for topic in (POPPED, DEALS, LATER):
            await admin.create_topic(topic, queues=2)


async def _settled(
    client: Client, cluster: Cluster, audit: Kinds, pause_s: float
) -> tuple[Counter[bytes], Counter[bytes]]:
    """What is in the topics once everything that was promised has come, or should have."""
    deals: Counter[bytes] = Counter()
    later: Counter[bytes] = Counter()
    for _ in range(60):
        deals, later = await _bodies(client, cluster, DEALS), await _bodies(client, cluster, LATER)
        if _committed(audit) <= deals.keys() and _promised(audit) <= later.keys():
            break
        await asyncio.sleep(pause_s)
    return deals, later


async def _bodies(client: Client, cluster: Cluster, topic: str) -> Counter[bytes]:
    address = cluster.address(BROKER)
    return Counter([body for queue_id in range(2) for body in await read_topic(client, address, topic, queue_id)])


def _committed(audit: Kinds) -> set[bytes]:
    return {body for body, commits in audit.fates.items() if commits}


def _promised(audit: Kinds) -> set[bytes]:
    return audit.delayed.keys() - audit.recalled - audit.in_doubt


def audit_kinds(audit: Kinds, deals: Counter[bytes], later: Counter[bytes]) -> None:
    never = [body for body, count in audit.popped.items() if not count]
    assert not never, f"acknowledged and never popped: {never[:3]}"
    assert not audit.popped_again, f"popped again after its ack was answered: {sorted(audit.popped_again)[:3]}"
    missing = _committed(audit) - deals.keys()
    assert not missing, f"committed and not there: {sorted(missing)[:3]}"
    wrong = [body for body in deals if body.endswith(b"-")]
    assert not wrong, f"rolled back and there: {wrong[:3]}"
    twice = [body for body, count in (deals + later).items() if count > 1]
    assert not twice, f"there twice: {twice[:3]}"
    missing = _promised(audit) - later.keys()
    assert not missing, f"delayed, acknowledged and never there: {sorted(missing)[:3]}"
    back = audit.recalled & later.keys()
    assert not back, f"taken back and there: {sorted(back)[:3]}"
