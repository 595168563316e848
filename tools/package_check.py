"""Looks at an environment into which only ArrowMQ was installed: `python package_check.py NAME`. See tools/packages."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import subprocess
import sys

IMPORT_LIMIT_MS = 150.0
#: What the core needs, with what these need themselves.
CORE = {
    "click", "isal", "lark", "lz4", "msgspec", "prometheus-client", "rich", "uvloop", "zstandard",
    "markdown-it-py", "mdurl", "pygments",
}  # fmt: skip
TOOLS = {"arrowmq", "pip", "setuptools", "wheel"}
IMPORT = "import time; begin = time.process_time(); import arrowmq; arrowmq.Producer; arrowmq.Consumer; arrowmq.Admin; print((time.process_time() - begin) * 1000)"  # noqa: E501


def import_ms() -> float:
    """CPU time of the quickest of several fresh processes: what the import needs, on a busy machine too."""
    return min(float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(7))


async def round_trip() -> str:
    import arrowmq
    from arrowmq.testing import BrokerThread

    with BrokerThread() as broker:
        async with arrowmq.Producer(broker.namesrv) as producer:
            receipt = await producer.send("packages", b"hello")
        async with arrowmq.Consumer(broker.namesrv, group="g", topic="packages", consume_from="first") as consumer:
            message = await anext(consumer)
            await message.ack()
    assert (receipt.msg_id, b"hello") == (message.msg_id, message.body)
    return message.msg_id


def main() -> int:
    installed = {each.metadata["Name"].lower().replace("_", "-") for each in importlib.metadata.distributions()}
    beyond = installed - CORE - TOOLS
    spent_ms = import_ms()
    from arrowmq import native

    is_native = native.is_native(native.load("arrowmq.client.produce._pending_sends"))
    message = asyncio.run(round_trip())
    told = {"package": sys.argv[1], "import_ms": round(spent_ms, 1), "native": is_native, "beyond": sorted(beyond)}
    print(json.dumps({**told, "packages": len(installed - TOOLS), "sent_and_received": message}))
    if beyond or spent_ms >= IMPORT_LIMIT_MS:
        print(f"FAILED: nothing beyond the core may be installed, and an import takes under {IMPORT_LIMIT_MS:g} ms")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
