"""Settings changed while the broker ran: kept in `config/broker.properties`, and in force again at the next start.

Apache's broker writes all its settings back into the file it was started with. Here only what was changed is kept, and
apart from that file, so that it stays the operator's own; a line in the log says what is in force because of it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from arrowmq.auth.settings import KEYS as AUTH_KEYS
from arrowmq.auth.settings import without_secrets
from arrowmq.config import format_properties, read_properties
from arrowmq.store.disk import Disk

log = logging.getLogger(__name__)

# What the process was started as; another value would describe another broker.
FIXED_KEYS = frozenset(
    {
        "bindAddress",
        "brokerClusterName",
        "brokerId",
        "brokerName",
        "brokerRole",
        "flushDiskType",  # accepted now and in force later, it would promise a safety that messages do not have yet
        "haListenPort",
        "listenPort",
        "storePathCommitLog",
        "storePathRootDir",
        *AUTH_KEYS,
    }
)

# Settings of the store that it looks at each time; its others count from the next start on.
LIVE_STORE_KEYS = frozenset(
    {
        "cleanFileForciblyEnable",
        "commitLogMaxBytes",
        "deleteCommitLogFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "maxMessageSize",
        "syncFlushTimeout",
    }
)


class KeptSettings:
    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()
        self.values: dict[str, str] = {}

    def load(self) -> dict[str, str]:
        if self.path.exists():
            self.values = read_properties(self.path)
            log.info("settings changed at run time are in force, from %s: %s", self.path, without_secrets(self.values))
        return self.values

    def keep(self, changed: dict[str, str]) -> None:
        """Adds settings to the file, which at any moment is the old one or the new one."""
        self.values = {**self.values, **changed}
        self._disk.write_atomically(self.path, format_properties(self.values).encode())
