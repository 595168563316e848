"""Goal: nobody gets in where no door is: ports only where configured, no file by a peer's name, hard native code."""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from arrowmq.remoting.client import RemotingClient
from arrowmq.server import build_node
from arrowmq.testing.broker import SETTINGS, RoomyDisk
from arrowmq.wire import headers
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers.declare import Header

ROOT = Path(__file__).parent.parent
NATIVE = sorted((ROOT / "src").rglob("*_native.*.so"))
EVIL = ["../../../evil", "/tmp/arrowmq-evil", "%RETRY%../../evil"]


def _fields() -> set[str]:
    """Every field that some request has, by its name on the wire."""
    found: set[str] = set()
    for kind in vars(headers).values():
        if isinstance(kind, type) and issubclass(kind, Header):
            found |= {field.encode_name for field in msgspec.structs.fields(kind)}
    return found | set("abcdefghijklmn")


async def test_no_name_of_a_request_reaches_the_file_system(tmp_path: Path) -> None:
    """Every request code with such a name in every field, and in a body that is JSON: nothing appears elsewhere, and
    nothing under a name with dots."""
    fields = _fields()
    assert {"topic", "consumerGroup", "b"} <= fields
    root = tmp_path / "deep" / "er" / "store"
    node = build_node(root, dict(SETTINGS), namesrv_port=0, broker_port=0, disk=RoomyDisk())
    await node.start()
    client = RemotingClient()
    try:
        numbers = {field: "0" for field in fields if re.search(r"(?i)(id|offset|num|time|flag|count|perm)s?$", field)}
        numbers |= {"d": "4", "e": "0", "readQueueNums": "1", "writeQueueNums": "1"}
        for code in RequestCode:
            name = EVIL[code % len(EVIL)]
            header = dict.fromkeys(fields, name)
            body = msgspec.json.encode(dict.fromkeys(("topicName", "groupName", "consumerGroup", "topic", name), name))
            for server in (node.broker_address, node.namesrv_address):
                for ext in (header, {**header, **numbers}):
                    await client.invoke_oneway(server, Command.request(code, ext, body))
        for server in (node.broker_address, node.namesrv_address):  # what came before is served
            await client.invoke(server, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO, {}), 30)
    finally:
        await client.close()
        await node.stop()
    _nothing_lies_elsewhere(tmp_path, root)


def _nothing_lies_elsewhere(tmp_path: Path, root: Path) -> None:
    outside = [path for path in tmp_path.rglob("*") if root not in path.parents and path not in (root, *root.parents)]
    assert not outside
    strange = [path for path in root.rglob("*") if "evil" in path.name or ".." in path.name]
    assert not strange
    assert not Path("/tmp/arrowmq-evil").exists()


async def test_servers_listen_where_they_are_told_and_nowhere_else(tmp_path: Path) -> None:
    settings = {**SETTINGS, "bindAddress": "127.0.0.1", "metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    before = _listening()
    broker = build_node(tmp_path / "broker", settings, namesrv_port=0, broker_port=0, disk=RoomyDisk())
    controller = build_node(tmp_path / "controller", {"bindAddress": "127.0.0.1"}, controller_port=0)
    await broker.start()
    await controller.start()
    try:
        mine = _listening() - before
        assert len(mine) >= 5  # NameServer, broker, its VIP port, replication, metrics, controller
        assert {"127.0.0.1"} == {host for host, _ in mine}
    finally:
        await controller.stop()
        await broker.stop()
    assert not _listening() - before


def _listening() -> set[tuple[str, int]]:
    """Where this process listens, by the kernel's tables: address and port in hexadecimal, state 0A, inode."""
    own = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            host, _, port = words[1].partition(":")
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                packed = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
                found.add((str(ipaddress.ip_address(packed)), int(port, 16)))
    return found


def _is_open(name: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{name}")


@pytest.mark.parametrize("module", NATIVE, ids=lambda path: path.name.split(".")[0])
def test_native_code_is_built_as_distributions_build_it(module: Path) -> None:
    """Addresses are bound at start and read-only then, the stack is guarded and not executable, code can be moved."""
    dynamic = _readelf("-dW", module)
    assert "BIND_NOW" in dynamic
    assert "TEXTREL" not in dynamic
    segments = _readelf("-lW", module)
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK.*\bRW\b", segments)


def test_native_code_checks_its_stack_and_its_copies() -> None:
    assert NATIVE
    symbols = "".join(_readelf("-sW", module) for module in NATIVE)
    assert "__stack_chk_fail" in symbols
    assert "_chk@" in symbols.replace("__stack_chk_fail@", "")


def _readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", option, str(path)], capture_output=True, text=True, check=True).stdout


def test_no_server_runs_what_it_was_sent(tmp_path: Path) -> None:
    """`make check` holds our code to it; here it is shown what that finds."""
    check = ROOT / "tools" / "doors"
    room = tmp_path / "src" / "arrowmq" / "broker"
    room.mkdir(parents=True)
    (room / "bad.py").write_text("import pickle\n\ndef read(body):\n    return eval(body)\n")
    said = subprocess.run([sys.executable, str(check)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 1 == said.returncode
    assert "pickle" in said.stdout
    assert "eval" in said.stdout
