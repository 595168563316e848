"""Key-value configuration in namespaces, kept in `kvConfig.json` as Apache keeps it.

The file is written on each change; what it held before stays in `kvConfig.json.bak`. The namespace `ORDER_TOPIC_CONFIG`
maps topics to `brokerName:queues;…` and reaches brokers and clients through registrations and routes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from arrowmq.config import ConfigError
from arrowmq.store.disk import Disk
from arrowmq.wire import fastjson
from arrowmq.wire.errors import BodyError

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KvConfig:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, or its predecessor if it is damaged. Without a file the configuration is empty."""
        backup = self._path.with_name(self._path.name + ".bak")
        damage: BodyError | None = None
        for path in (self._path, backup):
            try:
                content = fastjson.loads(path.read_bytes() or b"{}", dict[str, dict[str, dict[str, str]] | None])
            except FileNotFoundError:
                continue
            except BodyError as error:
                log.warning("key-value configuration damaged path=%s reason=%s", path, error)
                damage = error
                continue
            self._table = content.get("configTable") or {}
            return
        if damage is not None:
            raise ConfigError(f"{self._path} and its .bak cannot be read: {damage}; repair or remove them")

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self._persist()

    def delete(self, namespace: str, key: str) -> None:
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._persist()

    def _persist(self) -> None:
        data = fastjson.dumps({"configTable": self._table})
        disk = Disk()
        if self._path.exists():
            disk.write_atomically(self._path.with_name(self._path.name + ".bak"), self._path.read_bytes())
        disk.write_atomically(self._path, data)
