"""`make fuzz-grpc`: every request message of the protocol for half an hour, at a proxy with its broker.

    python tests/proxy/fuzz.py [--minutes 30] [--seed N]

Half of the calls have whatever their fields can hold; the others are good requests, with handles that were really given
out, of which some bytes are changed: those are what native code reads. Each must be answered with a status of the
protocol or of gRPC, nothing may be logged with a traceback, memory must not grow, and another client must be served all
the while. Ends with 1 and the request at the first that is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]

import grpc  # noqa: E402
import grpc.aio  # noqa: E402
from any_request import filled, raw, torn, works  # noqa: E402
from conftest import TOPICS  # noqa: E402
from proxy_client import SETTINGS, Clients, Stub, message  # noqa: E402

from arrowmq.client.admin import Admin  # noqa: E402
from arrowmq.proxy.messages import definition_pb2 as v2  # noqa: E402
from arrowmq.proxy.messages import service_pb2 as calls  # noqa: E402
from arrowmq.server import Node, build_node  # noqa: E402

MOST_GROWTH_MIB = 200
ALLOWED = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT)


class Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


def anonymous_kib() -> int:
    """What this process holds: without the pages of mapped files, which are as many as messages were stored."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


class Fuzzer:
    def __init__(self, node: Node, rude: Stub, polite: Stub, seed: int) -> None:
        self.node, self.rude, self.polite, self.chance = node, rude, polite, random.Random(seed)
        self.calls = 0
        self.codes: dict[str, int] = {}
        methods = list(calls.DESCRIPTOR.services_by_name["MessagingService"].methods)
        native = ("SendMessage", "ReceiveMessage", "AckMessage")
        self._methods = [each for each in methods for _ in range(6 if each.name in native else 1)]
        self._held: list[v2.Message] = []

    async def one(self) -> tuple[str, bytes, Any]:
        method = self.chance.choice(self._methods)
        if method.name == "Telemetry":
            return await self._telemetry()
        data = filled(self.chance, getattr(calls, method.input_type.name)()).SerializeToString()
        if self.chance.random() < 0.5:
            good = self._good(method.name)
            data = good.SerializeToString() if good is not None else data
        if self.chance.random() < 0.5:
            data = torn(self.chance, data)
        is_stream = method.name in ("ReceiveMessage", "PullMessage")
        answer = await raw(self.rude, method.name, data, stream=is_stream)
        if method.name == "ReceiveMessage" and isinstance(answer, list):
            found = [calls.ReceiveMessageResponse.FromString(each) for each in answer]
            self._held = [*self._held, *(each.message for each in found if each.HasField("message"))][-20:]
        if answer is grpc.StatusCode.DEADLINE_EXCEEDED and method.name == "ReceiveMessage":
            answer = b""  # a good request may poll for as long as it has
        return method.name, data, answer

    def _good(self, name: str) -> Any:
        """A request that would be served."""
        chance = self.chance
        topic = chance.choice(("normal", "mixed"))
        if name == "SendMessage":
            sent = message(topic, chance.randbytes(chance.randrange(1, 300)), tag=chance.choice(("", "Aa", "BB")))
            return calls.SendMessageRequest(messages=[sent])
        if name == "ReceiveMessage":
            return self.rude.receive_request(
                "group", topic, number=chance.randrange(1, 40), invisible_ms=chance.choice((100, 1000, 60_000)),
                expression=chance.choice(("*", "Aa", "Aa || BB")), auto_renew=chance.random() < 0.3, poll_ms=50,
            )  # fmt: skip
        if not self._held:
            return None
        held = chance.choice(self._held)
        names: dict[str, Any] = {"group": v2.Resource(name="group"), "topic": held.topic}
        handle, identity = held.system_properties.receipt_handle, held.system_properties.message_id
        if name == "AckMessage":
            entries = [
                calls.AckMessageEntry(
                    message_id=each.system_properties.message_id, receipt_handle=each.system_properties.receipt_handle
                )
                for each in chance.sample(self._held, min(len(self._held), chance.choice((1, 1, 1, 3, 30))))
            ]
            return calls.AckMessageRequest(**names, entries=entries)
        if name == "ChangeInvisibleDuration":
            return calls.ChangeInvisibleDurationRequest(**names, receipt_handle=handle, message_id=identity)
        if name == "ForwardMessageToDeadLetterQueue":
            return calls.ForwardMessageToDeadLetterQueueRequest(**names, receipt_handle=handle, message_id=identity)
        return None

    async def _telemetry(self) -> tuple[str, bytes, Any]:
        settings = filled(self.chance, v2.Settings())
        stream = await self.rude.telemetry(settings)
        answer: Any = b""
        try:
            await stream.next(10)
        except grpc.aio.AioRpcError as ended:
            answer = ended.code()
        stream.call.cancel()
        return "Telemetry", settings.SerializeToString(), answer


async def fuzz(minutes: float, seed: int) -> int:
    seen = Tracebacks()
    logging.getLogger().addHandler(seen)
    with tempfile.TemporaryDirectory() as folder:
        node = build_node(Path(folder), SETTINGS, namesrv_port=0, broker_port=0, proxy_port=0)
        await node.start()
        assert node.proxy is not None
        clients = Clients(f"127.0.0.1:{node.proxy.port}")
        try:
            async with Admin(node.namesrv_address) as admin:
                for topic, kind in TOPICS.items():
                    await admin.create_topic(topic, queues=2, attributes={"message.type": kind})
                await admin.create_group("group")
            rude, polite = clients.new(), clients.new()
            await rude.consumes("group", "normal")
            fuzzer = Fuzzer(node, rude, polite, seed)
            return await run(fuzzer, seen, minutes)
        finally:
            await clients.close()
            await node.stop()


async def run(fuzzer: Fuzzer, seen: Tracebacks, minutes: float) -> int:
    ends, before, told = time.monotonic() + minutes * 60, 0, time.monotonic()
    while time.monotonic() < ends:
        name, data, answer = await fuzzer.one()
        fuzzer.calls += 1
        fuzzer.codes[name] = fuzzer.codes.get(name, 0) + 1
        is_bad = isinstance(answer, grpc.StatusCode) and answer not in ALLOWED
        if is_bad or seen.found:
            print(f"{name} {data.hex()} was answered {answer}", *seen.found, sep="\n", flush=True)
            return 1
        if fuzzer.calls % 500 == 0 and not await works(fuzzer.polite):
            print(f"another client was not served after {name} {data.hex()}", flush=True)
            return 1
        if fuzzer.calls == 5000:
            before = anonymous_kib()
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{fuzzer.calls} calls", flush=True)
    grown = (anonymous_kib() - before) // 1024 if before else 0
    handlers: Any = fuzzer.node.broker.fast_path.handlers if fuzzer.node.broker and fuzzer.node.broker.fast_path else {}
    fast = {key: getattr(handlers[key], f"taken_{key}") for key in ("pops", "acks") if key in handlers}
    print(f"{fuzzer.calls} calls in {minutes:g} minutes, no failure; memory grew by {grown} MiB; fast path: {fast}")
    print(", ".join(f"{name} {count}" for name, count in sorted(fuzzer.codes.items())))
    return 1 if grown > MOST_GROWTH_MIB else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    return asyncio.run(fuzz(given.minutes, seed))


if __name__ == "__main__":
    sys.exit(main())
