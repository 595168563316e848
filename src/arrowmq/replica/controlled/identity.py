"""The id that a controller gave this broker, for good, and the files that keep it: Apache's `brokerIdentity`.

    brokerIdentity          CLUSTER#NAME#ID
    brokerIdentity-temp     CLUSTER#NAME#ID#CHECK_CODE, from before the id is applied for until it is given

With the check code, an application whose answer was lost can be repeated; the controller then gives the same id.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from arrowmq.config import ConfigError
from arrowmq.store.disk import Disk

TEMPORARY = "-temp"


class Identity(NamedTuple):
    cluster: str
    name: str
    broker_id: int
    check_code: str = ""


class IdentityFiles:
    def __init__(self, path: Path, disk: Disk, cluster: str, name: str) -> None:
        self.path = path
        self._temporary = path.with_name(path.name + TEMPORARY)
        self._disk = disk
        self._cluster = cluster
        self._name = name

    def load(self) -> Identity | None:
        """This broker's id, if it has one. Raises `ConfigError` if the file is another broker's, or damaged."""
        return self._read(self.path, fields=3)

    def load_applied(self) -> Identity | None:
        """The id that was applied for, and perhaps given."""
        try:
            return self._read(self._temporary, fields=4)
        except ConfigError:
            self._disk.remove(self._temporary)  # no id is lost by it: it was never said to be given
            return None

    def apply(self, broker_id: int, check_code: str) -> Identity:
        identity = Identity(self._cluster, self._name, broker_id, check_code)
        self._write(self._temporary, [self._cluster, self._name, str(broker_id), check_code])
        return identity

    def forget_applied(self) -> None:
        self._disk.remove(self._temporary)

    def given(self, broker_id: int) -> Identity:
        self._write(self.path, [self._cluster, self._name, str(broker_id)])
        self._disk.remove(self._temporary)
        return Identity(self._cluster, self._name, broker_id)

    def _write(self, path: Path, words: list[str]) -> None:
        self._disk.write_atomically(path, "#".join(words).encode())

    def _read(self, path: Path, fields: int) -> Identity | None:
        if not path.exists():
            return None
        text = path.read_bytes().decode("utf-8", "replace").strip()
        words = text.split("#")
        if len(words) != fields or not words[2].isdecimal() or int(words[2]) < 1:
            raise ConfigError(
                f"{path} is damaged: it says {text[:80]!r}, not CLUSTER#NAME#ID. The controller knows the id "
                "(mqadmin getSyncStateSet): write it there, or delete this store to join as a new broker"
            )
        cluster, name, number = words[:3]
        if (cluster, name) != (self._cluster, self._name):
            raise ConfigError(
                f"{path} is the identity of broker {name} of cluster {cluster}, and this one is {self._name} of "
                f"{self._cluster}: its store was copied or its name changed. Correct brokerName and brokerClusterName, "
                "or delete this store"
            )
        return Identity(cluster, name, int(number), words[3] if fields == 4 else "")
