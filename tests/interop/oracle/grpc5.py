"""RocketMQ's own clients of the 5.x line, which speak gRPC, as hands; and the proxies that they connect to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from oracle import apache, arrow, java, toolchain
from oracle.hand import Hand
from oracle.java import Value
from oracle.ports import HOST, free_port
from oracle.process import Server

SOURCES = Path(__file__).resolve().parent.parent / "grpc5"
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
#: `ARROWMQ_GRPC_FLAVOURS=python,go` plays the scenes with these clients alone
FLAVOURS = tuple(os.environ.get("ARROWMQ_GRPC_FLAVOURS", "java,python,go,node,rust").split(","))
#: What a client does not have, whichever proxy is there: the crate `rocketmq` 5.0.0 has no push consumer, recall and
#: TLS, and calls a list of addresses an invalid URI; Node's client hands such a list to gRPC as one address
MISSING = {"node": {"list"}, "rust": {"push", "recall", "tls", "list"}}
_number = 0


def start(
    flavour: str, endpoints: str, folder: Path, *, user: tuple[str, str] | None = None, certificate: Path | None = None
) -> Hand:
    """A new hand of a client ("java", "python", …) for a proxy; it signs as `user`, and with a certificate it connects
    by TLS, which the clients of Python and Node trust by that certificate alone."""
    global _number
    _number += 1
    name = f"{flavour}5-{_number}"
    env = {**os.environ, "HOME": str(folder)}
    folder.mkdir(parents=True, exist_ok=True)
    more: dict[str, str] = {}
    if user is not None:
        more |= {"HAND_ACCESS_KEY": user[0], "HAND_SECRET_KEY": user[1]}
    if certificate is not None:
        more["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(certificate)
    env |= more
    arguments = [endpoints, *(["tls"] if certificate is not None else [])]
    if flavour == "java":
        command, env = java.command("Hand", arguments, folder, classpath=java_classes())
        return Hand(name, command, {**env, **more}, folder)
    if flavour == "python":
        # Nothing is remembered of the interpreter: it may be gone when the next run finds the packages.
        env["PYTHONPATH"] = str(_python_packages())
        return Hand(name, [sys.executable, "-s", str(SOURCES / "python" / "hand.py"), *arguments], env, folder)
    if flavour == "go":
        return Hand(name, [str(_go_program()), *arguments], env, folder)
    if flavour == "node":
        return Hand(name, ["node", str(_node_program()), *arguments], env, folder)
    if flavour == "rust":
        return Hand(name, [str(_rust_program()), *arguments], env, folder)
    raise ValueError(f"no hand of flavour {flavour}")


def java_classes() -> str:
    toolchain.require("java", "javac", "mvn")
    source = SOURCES / "java"
    folder = toolchain.home() / f"grpc5-java-{_digest(source)}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
            toolchain.run(["mvn", "-B", "-q", "-f", str(source / "pom.xml"), *goal], timeout=900)
            options = ["-nowarn", "-Xlint:none", "-d", str(fresh), "-cp", f"{fresh}/*"]
            toolchain.run(["javac", *options, *map(str, source.glob("*.java"))], timeout=300)
    return f"{folder}:{folder}/*"


def _python_packages() -> Path:
    """A folder with nothing but the client and what it needs, for the interpreter that runs the tests."""
    folder = toolchain.home() / f"grpc5-python-packages-{hashlib.sha256(PYTHON_CLIENT.encode()).hexdigest()[:12]}"
    with toolchain.made_once(folder) as fresh, tempfile.TemporaryDirectory() as scratch:
        if fresh:
            toolchain.run([sys.executable, "-m", "venv", scratch], 300)
            pip = [f"{scratch}/bin/python", "-m", "pip", "install", "--quiet"]
            toolchain.run([*pip, "--target", str(fresh), PYTHON_CLIENT], 900)
    return folder


def _go_program() -> Path:
    toolchain.require("go")
    source = SOURCES / "go"
    folder = toolchain.home() / f"grpc5-go-{_digest(source)}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(source, fresh)
            toolchain.run(["go", "mod", "tidy"], 600, folder=fresh)
            toolchain.run(["go", "build", "-o", "hand", "."], 900, folder=fresh)
    return folder / "hand"


def _node_program() -> Path:
    toolchain.require("node", "npm")
    source = SOURCES / "node"
    folder = toolchain.home() / f"grpc5-node-{_digest(source)}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(source, fresh)
            toolchain.run(["npm", "install", "--no-audit", "--no-fund"], 600, folder=fresh)
    return folder / "hand.js"


def _rust_program() -> Path:
    """What it is built of stays for the next build: the client has some two hundred dependencies."""
    toolchain.require("cargo", "protoc", "cc")
    source = SOURCES / "rust"
    folder = toolchain.home() / f"grpc5-rust-{_digest(source)}{_digest(source / 'src')}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            shutil.copytree(source, fresh)
            target = toolchain.home() / "cargo-target"
            env = {**os.environ, "CARGO_TARGET_DIR": str(target)}
            toolchain.run(["cargo", "build", "--release", "--quiet"], 1800, env=env, folder=fresh)
            shutil.copy2(target / "release" / "hand", fresh / "hand")
    return folder / "hand"


def _digest(folder: Path) -> str:
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())
    return hashlib.sha256(content).hexdigest()[:12]


# --- proxies ------------------------------------------------------------------------------------------------------


def arrow_proxy(folder: Path, namesrv: str, /, port: int = 0, **config: Value) -> Server:
    """`arrowmq proxy` before a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    config = {"remotingListenPort": free_port(), **config}
    settings = [part for key, value in config.items() for part in ("--set", f"{key}={java.text(value)}")]
    command = [*arrow.COMMAND, "proxy", "-n", namesrv, "--port", str(port), *settings]
    return Server("arrowmq-proxy", command, folder, port=port, ready="ready", env=arrow.environment())


def apache_proxy(folder: Path, namesrv: str, /, port: int = 0, **config: Value) -> Server:
    """Apache's proxy in cluster mode."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    port = port or free_port()
    values: dict[str, Value] = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
        "namesrvAddr": namesrv,
        "localServeAddr": HOST,
        **config,
    }
    (folder / "rmq-proxy.json").write_text(json.dumps(values))
    command, env = java.command(
        f"{apache.PACKAGE}.proxy.ProxyStartup",
        ["-n", namesrv, "-pc", str(folder / "rmq-proxy.json")],
        folder,
        classpath=java.jars(),
        properties={"com.rocketmq.proxy.configPath": folder / "rmq-proxy.json"},
    )
    return Server("apache-proxy", command, folder, port=port, ready="startup successfully", env=env)
