"""ArrowMQ's own servers, started as a user starts them, with the same handle as Apache's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from oracle.java import Value, text
from oracle.ports import HOST
from oracle.process import Server

SOURCE = Path(__file__).resolve().parents[3] / "src"
_INSTALLED = Path(sys.executable).with_name("arrowmq")
# A tree that was not installed runs all the same.
COMMAND = (
    [str(_INSTALLED)]
    if _INSTALLED.exists()
    else [sys.executable, "-c", "import sys; from arrowmq.cli import main; sys.exit(main())"]
)


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def _settings(config: dict[str, Value]) -> list[str]:
    return [part for key, value in config.items() for part in ("--set", f"{key}={text(value)}")]


def server(folder: Path, namesrv_port: int, port: int, /, proxy_port: int | None = None, **config: Value) -> Server:
    """NameServer and broker in one process."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"brokerIP1": HOST, "brokerName": "broker-a", **config}
    where = ["--dir", str(folder), "--namesrv-port", str(namesrv_port), "--port", str(port)]
    where += ["--no-proxy"] if proxy_port is None else ["--proxy-port", str(proxy_port)]
    command = [*COMMAND, "server", *where, *_settings(config)]
    return Server("arrowmq", command, folder, port=port, ready="ready", env=environment())


def namesrv(folder: Path, port: int, /, **config: Value) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, "namesrv", "--port", str(port), "--dir", str(folder), *_settings(config)]
    return Server("arrowmq-namesrv", command, folder, port=port, ready="ready", env=environment())


def broker(folder: Path, port: int, namesrv: str, /, name: str = "broker-a", **config: Value) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "store"
    config = {"brokerIP1": HOST, **config}
    where = ["-n", namesrv, "--name", name, "--port", str(port), "--dir", str(store)]
    command = [*COMMAND, "broker", *where, *_settings(config)]
    return Server("arrowmq-broker", command, folder, port=port, ready="ready", env=environment())


def controller(folder: Path, port: int, /, etcd: str = "", **config: Value) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"bindAddress": HOST, **config}
    where = ["--dir", str(folder / "data"), "--port", str(port), *(["--etcd", etcd] if etcd else [])]
    command = [*COMMAND, "controller", *where, *_settings(config)]
    return Server("arrowmq-controller", command, folder, port=port, ready="ready", env=environment())
