"""ArrowMQ's own servers, started as a user starts them, with the same handle as Apache's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from oracle.java import Value, text
from oracle.process import HOST, Server

COMMAND = Path(sys.executable).with_name("arrowmq")


def _settings(config: dict[str, Value]) -> list[str]:
    return [part for key, value in config.items() for part in ("--set", f"{key}={text(value)}")]


def server(folder: Path, namesrv_port: int, port: int, /, **config: Value) -> Server:
    """NameServer and broker in one process."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"brokerIP1": HOST, "brokerName": "broker-a", **config}
    where = ["--dir", str(folder), "--namesrv-port", str(namesrv_port), "--port", str(port)]
    command = [str(COMMAND), "server", *where, *_settings(config)]
    return Server("arrowmq", command, folder, port=port, ready="ready", env=os.environ)


def namesrv(folder: Path, port: int) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(COMMAND), "namesrv", "--port", str(port), "--dir", str(folder)]
    return Server("arrowmq-namesrv", command, folder, port=port, ready="ready", env=os.environ)


def broker(folder: Path, port: int, namesrv: str, /, name: str = "broker-a", **config: Value) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "store"
    config = {"brokerIP1": HOST, **config}
    where = ["-n", namesrv, "--name", name, "--port", str(port), "--dir", str(store)]
    command = [str(COMMAND), "broker", *where, *_settings(config)]
    return Server("arrowmq-broker", command, folder, port=port, ready="ready", env=os.environ)
