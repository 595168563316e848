"""Users and policies on disk: one file, readable by its owner only, written before a change is in force.

Apache keeps them in two RocksDB folders beside it (`users`, `acls`), which nothing here can read; a store that comes
from there starts without users, and says so.

A change is made on a copy, written in a thread, and then exchanged as a whole: who asks in the meantime is judged by
the old state, who asks after the answer by the new one, and after a crash the file is one of the two.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from arrowmq.auth.accounts import Accounts, decode_accounts, encode_accounts
from arrowmq.auth.errors import AccountError, AccountFileError
from arrowmq.auth.users import User
from arrowmq.store.disk import Disk
from arrowmq.wire.errors import WireError

log = logging.getLogger(__name__)

FILE_NAME = "accounts.json"
MODE = 0o600
MAX_BYTES = 256 << 20
_FOLDERS_OF_APACHE = ("users", "acls")

Change = Callable[[Accounts], Accounts]


class AccountBook:
    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.path = folder / FILE_NAME
        self._disk = disk or Disk()
        self._changing: asyncio.Lock | None = None
        self.accounts = Accounts()
        self._since = os.urandom(4).hex()
        self._changes = 0
        #: Called whenever users or policies are other ones
        self.on_change: list[Callable[[], object]] = []

    @property
    def revision(self) -> str:
        """Another text for other users or policies, also after a restart."""
        return f"{self._since}.{self._changes}"

    def user(self, name: str) -> User | None:
        return self.accounts.users.get(name)

    def load(self) -> None:
        """Reads the file. Raises `AccountFileError` if there is one that cannot be used."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise AccountFileError(f"{self.path}: more than {MAX_BYTES} bytes, which is no file of users")
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._warn_of_apache()
            return
        except OSError as problem:
            raise AccountFileError(f"{self.path}: users cannot be read: {problem.strerror}") from problem
        self._close_to_others()
        try:
            self.use(decode_accounts(data))
        except (AccountError, WireError) as fault:
            raise AccountFileError(
                f"{self.path}: users cannot be read: {fault}; take the file from a backup, "
                "or delete it to begin with initAuthenticationUser alone"
            ) from None

    def _warn_of_apache(self) -> None:
        found = [name for name in _FOLDERS_OF_APACHE if (self.path.parent / name).is_dir()]
        if found:
            log.warning(
                "the users and rights of an Apache broker in %s are not taken over: they are kept in RocksDB; "
                "copy them while both brokers run (mqadmin copyUser, copyAcl)",
                ", ".join(str(self.path.parent / name) for name in found),
            )

    def _close_to_others(self) -> None:
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & 0o077:
            log.warning("%s could be read by others (mode %o): passwords stand in it; closed to them", self.path, mode)
            os.chmod(self.path, MODE)

    def use(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self._changes += 1
        for listener in self.on_change:
            listener()

    def change_now(self, change: Change) -> None:
        """Before a server serves: changes and writes, in this thread."""
        changed = change(self.accounts)
        if changed is not self.accounts:
            self._write(encode_accounts(changed))
            self.use(changed)

    async def change(self, change: Change) -> None:
        """Returns when the change is on disk and in force. Raises what `change` raises, and `StoreError`."""
        if self._changing is None:
            self._changing = asyncio.Lock()
        async with self._changing:
            changed = change(self.accounts)
            if changed is not self.accounts:
                await asyncio.to_thread(self._write, encode_accounts(changed))
                self.use(changed)

    def _write(self, data: bytes) -> None:
        disk = self._disk
        disk.make_lasting_folder(self.path.parent)
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            # There is no moment in which others could read it: the empty file has the mode already.
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE))
            os.chmod(temporary, MODE)
        except OSError as problem:
            raise disk.explain(problem, temporary) from problem
        disk.write(temporary, data)
        disk.replace(temporary, self.path)
        disk.force_folder(self.path.parent)
