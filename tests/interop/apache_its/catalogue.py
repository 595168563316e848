"""Which integration tests Apache has, which of them cannot run outside of their JVM, and which a run is about."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from oracle import java

# Classes by their names, or whole packages by theirs.
LEFT_OUT = {
    "container": "starts replicating brokers of its own inside the JVM (BrokerContainer)",
    "DLedgerProduceAndConsumeIT": "starts a DLedger broker of its own inside the JVM",
    "LocalGrpcIT": "starts a gRPC proxy with a broker inside it in the JVM",
    "GrpcBaseIT": "has no tests: it is what the gRPC classes share",
}
# These change the brokers' settings, or stop and start them: nothing else may run on their cluster.
WITH_A_CLUSTER_OF_THEIR_OWN = frozenset(
    {
        "BatchAckIT",
        "ClusterGrpcIT",
        "CreateAndUpdateTopicIT",
        "LagCalculationIT",
        "NormalMessageSendAndRecvIT",
        "OffsetResetForPopIT",
        "OffsetResetIT",
        "PopBigMessageIT",
        "PopOrderlyIT",
        "PopPriorityIT",
        "SendAndRecallDelayMessageIT",
        "StaticTopicIT",
    }
)
# The longest begin first, so that none of them runs on alone at the end.
SLOWEST = ("DynamicAddAndCrashIT", "NormalMsgDelayIT", "PopSubCheckIT")

Selection = dict[str, tuple[str, ...]]  # tests by class; none: all of the class


class UnknownTestError(ValueError):
    """A name that no class, test or package has."""


def classes() -> dict[str, str]:
    """The whole names of the test classes that can run, by their short ones."""
    found = {path.stem: ".".join(path.with_suffix("").parts) for path in _class_files()}
    return {name: whole for name, whole in found.items() if not {*whole.split(".")} & LEFT_OUT.keys()}


def _class_files() -> Iterable[PurePosixPath]:
    [jar] = [path for path in java.jars("its").split(":") if Path(path).match("rocketmq-test-*-tests.jar")]
    with zipfile.ZipFile(jar) as content:
        return [PurePosixPath(name) for name in content.namelist() if name.endswith("IT.class")]


def select(words: Iterable[str], known: dict[str, str]) -> Selection:
    """What these words mean: "TlsIT" a class, "TlsIT#testName" a test, "pop" or "consumer/pop" a package.

    Without any word: everything.
    """
    selection: Selection = {}
    for word in words:
        name, _, test = word.partition("#")
        if name in known:
            # A class that was named whole stays whole.
            whole = name in selection and not selection[name]
            selection[name] = () if whole or not test else (*selection.get(name, ()), test)
            continue
        package = f".{name.strip('/').replace('/', '.')}."
        below = [short for short, whole_name in known.items() if package in whole_name]
        if test or not below:
            raise UnknownTestError(f"{word}: name a class (TlsIT), a test (TlsIT#testName) or a package (pop)")
        selection |= dict.fromkeys(below, ())
    selection = selection or dict.fromkeys(known, ())
    return {name: selection[name] for name in sorted(selection, key=lambda name: (name not in SLOWEST, known[name]))}
