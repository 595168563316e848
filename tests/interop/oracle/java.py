"""Java programs: the jars they need (fetched by Maven), compiling sources, and the command that runs a main class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from oracle import toolchain

HERE = Path(__file__).resolve().parent
Value = str | int | bool | Path
Values = Mapping[str, Value]

# RocketMQ reaches into these on a Java that is newer than 8.
_INTERNALS = ("jdk.internal.misc", "jdk.internal.ref", "java.nio", "sun.nio.ch")
_OPEN = [f"--add-{how}=java.base/{name}=ALL-UNNAMED" for name in _INTERNALS for how in ("opens", "exports")]
# A short-lived process on a small machine: no second compiler, one collector thread.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")


def jars(profile: str = "servers") -> str:
    """The class path of a profile of pom.xml ("servers", "client4", "servers4", "its"), fetched on first use."""
    toolchain.require("java", "javac", "mvn")
    pom = HERE / "pom.xml"
    folder = toolchain.home() / f"lib-{profile}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    with toolchain.made_once(folder) as fresh:
        if fresh:
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
            toolchain.run(["mvn", "-B", "-q", "-f", str(pom), "-P", profile, *goal], timeout=900)
    return ":".join(sorted(str(jar) for jar in folder.glob("*.jar")))


def compiled(sources: Sequence[Path], profile: str = "servers") -> str:
    """The class path with these sources compiled against a profile's jars (once for each content)."""
    classpath = jars(profile)
    content = b"".join(source.read_bytes() for source in sources)
    classes = toolchain.home() / "classes" / hashlib.sha256(classpath.encode() + content).hexdigest()[:12]
    with toolchain.made_once(classes) as fresh:
        if fresh:
            options = ["-nowarn", "-Xlint:none", "-d", str(fresh), "-cp", classpath]
            toolchain.run(["javac", *options, *map(str, sources)], timeout=300)
    return f"{classes}:{classpath}"


def command(
    main: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    classpath: str,
    options: Sequence[str] = QUICK,
    properties: Values | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of a Java program that keeps its files in `folder`."""
    given: dict[str, Value] = {"user.home": folder, "java.net.preferIPv4Stack": True, **(properties or {})}
    defines = [f"-D{key}={text(value)}" for key, value in given.items()]
    env = {**os.environ, "HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
    return ["java", *options, *_OPEN, *defines, "-cp", classpath, main, *arguments], env


def text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
