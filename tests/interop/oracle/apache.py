"""The real Apache RocketMQ 5.5.0, or 4.9.7 with profile "servers4": NameServer, broker, mqadmin.

What it writes and says decides what is right. Every server lives in a folder of its own, which receives its
configuration, logs and store; a broker is ready when it is registered with its NameServer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oracle import java, toolchain
from oracle.java import Value, Values
from oracle.ports import HOST
from oracle.process import Server

PACKAGE = "org.apache.rocketmq"


def namesrv(
    folder: Path,
    port: int,
    jvm: Values | None = None,
    /,
    options: Sequence[str] = java.QUICK,
    profile: str = "servers",
    **config: Value,
) -> Server:
    """A NameServer. `config` holds any key of namesrv.conf, `jvm` system properties, `options` flags of the JVM."""
    values: dict[str, Value] = {"listenPort": port, "bindAddress": HOST, **config}
    arguments = ["-c", _properties_file(folder / "namesrv.conf", values)]
    command, env = java.command(
        f"{PACKAGE}.namesrv.NamesrvStartup",
        arguments,
        folder,
        classpath=java.jars(profile),
        options=options,
        properties=jvm,
    )
    return Server("namesrv", command, folder, port=port, ready="Name Server boot success", env=env)


def broker(
    folder: Path,
    port: int,
    namesrv: str,
    jvm: Values | None = None,
    /,
    options: Sequence[str] = java.QUICK,
    profile: str = "servers",
    **config: Value,
) -> Server:
    """A broker listening on `port`, `port - 2` (the "VIP" port) and `port + 1` (replication).

    `config` holds any key of broker.conf and wins over the defaults below.
    """
    values: dict[str, Value] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "bindAddress": HOST,
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": folder / "store",
        **config,
    }
    arguments = ["-c", _properties_file(folder / "broker.conf", values)]
    command, env = java.command(
        f"{PACKAGE}.broker.BrokerStartup",
        arguments,
        folder,
        classpath=java.jars(profile),
        options=options,
        properties=jvm,
    )
    # A 5.x broker says "boot success" even when its first registration came before it had found its NameServer;
    # then it is unknown for another ten seconds.
    logs = (folder / "logs" / "rocketmqlogs" / "broker.log", "Registering current broker to name server completed")
    known = logs if profile == "servers" and namesrv else None
    return Server("broker", command, folder, port=port, ready="boot success", env=env, logs=known)


def controller(folder: Path, port: int, options: Sequence[str] = java.QUICK, **config: Value) -> Server:
    """A controller alone in its group. `config` holds any key of controller.conf."""
    values: dict[str, Value] = {
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{HOST}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": folder / "store",
        "mappedFileSize": 1024 * 1024,
        **config,
    }
    arguments = ["-c", _properties_file(folder / "controller.conf", values)]
    command, env = java.command(
        f"{PACKAGE}.controller.ControllerStartup", arguments, folder, classpath=java.jars(), options=options
    )
    return Server("controller", command, folder, port=port, ready="Controller Server boot success", env=env)


@contextmanager
def cluster(
    folder: Path, namesrv_port: int, broker_port: int, /, profile: str = "servers", **config: Value
) -> Iterator[tuple[Server, Server]]:
    """A NameServer and one master broker."""
    with (
        namesrv(folder / "namesrv", namesrv_port, profile=profile) as names,
        broker(folder / "broker", broker_port, names.address, profile=profile, **config) as master,
    ):
        yield names, master


def mqadmin(*arguments: str, timeout: float = 120) -> str:
    """What `mqadmin SUBCOMMAND …` prints, e.g. mqadmin("topicList", "-n", address)."""
    folder = toolchain.home() / "tools"
    folder.mkdir(exist_ok=True)
    command, env = java.command(f"{PACKAGE}.tools.command.MQAdminStartup", arguments, folder, classpath=java.jars())
    return toolchain.run(command, timeout, env, folder)  # some subcommands write files where they run


def _properties_file(path: Path, values: Values) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker"):  # a 4.9 server does not start without them
        (path.parent / "conf" / f"logback_{name}.xml").write_text("<configuration/>\n")
    path.write_text("".join(f"{key}={java.text(value)}\n" for key, value in values.items()))
    return str(path)
