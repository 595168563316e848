"""A sender that is back within milliseconds: it meets a broker in the middle of its start."""

from __future__ import annotations

import asyncio

from auditor import Auditor
from plays import QUEUES, TOPIC, Client
from simulation import Machine

from arrowmq.remoting.client import RemotingClient
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command


async def insist(client: Client, machine: Machine, port: int, auditor: Auditor, lane: str, messages: int) -> None:
    """Sends to one address until so many messages were acknowledged. Attempts whose answer is lost stay in doubt."""
    chance = client.simulation.chance
    remoting = RemotingClient(client.clock)
    attempt = 0
    while messages:
        if not machine.is_running:
            await asyncio.sleep(0.01)
            continue
        attempt += 1
        queue_id = chance.randrange(QUEUES)
        body = f"{lane}:{attempt}".encode()
        auditor.sent.add(body)
        header = {
            "a": f"P-{lane}", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1", "h": "0",
            "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
        try:
            answer = await remoting.invoke(f"{machine.host}:{port}", request, 3.0)
        except RemotingError:
            await asyncio.sleep(chance.uniform(0.0, 0.002))
            continue
        if answer.code == ResponseCode.SUCCESS:
            auditor.acknowledge(lane, body, ("broker-a", queue_id), int(answer.ext["queueOffset"]))
            messages -= 1
        await client.simulation.rest(0.01, 0.4)
    await remoting.close()
