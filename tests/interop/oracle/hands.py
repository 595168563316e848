"""The hands there are: Java 5.5.0 in both header serializations, Java 4.9.8, Go, Node. Each is built on first use."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from oracle import java, toolchain
from oracle.hand import Hand

SOURCES = Path(__file__).resolve().parent.parent
JAVA_FLAVOURS = {
    "java-5.5-json": ("servers", "JSON"),
    "java-5.5-binary": ("servers", "ROCKETMQ"),
    "java-4.9-json": ("client4", "JSON"),
    "java-4.9-binary": ("client4", "ROCKETMQ"),
}
_number = 0


def start(
    flavour: str,
    namesrv: str,
    broker: str,
    folder: Path,
    credentials: tuple[str, str] | None = None,
    jvm: java.Values | None = None,
) -> Hand:
    """A new hand of a flavour ("java-5.5-json", …, "go", "node") for a cluster; with credentials, its requests (those
    of Java and Go) are signed. `jvm` are further system properties of a Java hand."""
    keys = dict(zip(("HAND_ACCESS_KEY", "HAND_SECRET_KEY"), credentials or (), strict=False))
    global _number
    _number += 1
    name = f"{flavour}-{_number}"
    if flavour in JAVA_FLAVOURS:
        profile, serialization = JAVA_FLAVOURS[flavour]
        classpath = java.compiled(sorted((SOURCES / "java").glob("*.java")), profile)
        properties: dict[str, java.Value] = {
            "rocketmq.serialize.type": serialization,
            # A client that misses the broker's notice looks again after this time; its default of 20 s would make a
            # scene wait, and Apache's broker does lose a notice now and then.
            "rocketmq.client.rebalance.waitInterval": 2000,
            **(jvm or {}),
        }
        command, env = java.command("Hand", [namesrv, broker], folder, classpath=classpath, properties=properties)
        return Hand(name, command, {**env, **keys}, folder)
    if flavour == "go":
        return Hand(name, [str(_go_program()), namesrv, broker], {**os.environ, **keys, "HOME": str(folder)}, folder)
    if flavour == "node":
        env = {**os.environ, "HOME": str(folder)}
        return Hand(name, ["node", str(_node_program()), namesrv, broker], env, folder)
    raise ValueError(f"no hand of flavour {flavour}")


def _digest(folder: Path) -> str:
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())
    return hashlib.sha256(content).hexdigest()[:12]


def _go_program() -> Path:
    toolchain.require("go")
    source = SOURCES / "go"
    folder = toolchain.home() / f"go-{_digest(source)}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(source, fresh)
            toolchain.run(["go", "mod", "tidy"], 600, folder=fresh)
            toolchain.run(["go", "build", "-o", "hand", "."], 900, folder=fresh)
    return folder / "hand"


def _node_program() -> Path:
    toolchain.require("node", "npm")
    source = SOURCES / "node"
    folder = toolchain.home() / f"node-{_digest(source)}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(source, fresh)
            toolchain.run(["npm", "install", "--no-audit", "--no-fund"], 600, folder=fresh)
    return folder / "hand.js"
