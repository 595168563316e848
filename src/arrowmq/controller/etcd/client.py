"""The calls to etcd that a controller needs, to whichever member answers.

Numbers of 64 bits travel as text and keys and values in base64, as the JSON gateway has them.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from arrowmq.clock import Clock
from arrowmq.controller.etcd.http import HttpAnswer, HttpFailed, HttpMember
from arrowmq.controller.storage import StorageError, StorageUnreachable

ATTEMPT_S = 1.0  # for one member; then the next is asked
CALL_S = 3.0
_UNAUTHENTICATED = 16  # gRPC's number
_RETRIED = {4, 8, 14}  # deadline exceeded, resource exhausted, unavailable: another member may know better


class EtcdRefused(StorageError):
    """etcd understood and said no."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    revision: int
    found: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A key was put, or deleted (`value` is then empty)."""

    is_delete: bool
    item: KeyValue


@dataclass(frozen=True, slots=True)
class Lease:
    identity: int
    ttl_s: int


class EtcdClient:
    def __init__(
        self,
        endpoints: Sequence[str],
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        self._members = [HttpMember(url, tls) for url in endpoints]
        self._clock = clock
        self._user = user
        self._password = password
        self._token = ""
        self._preferred = 0

    def close(self) -> None:
        for member in self._members:
            member.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def read(self, prefix: str) -> Snapshot:
        answer = await self.call("/v3/kv/range", {"key": _text(prefix), "range_end": _text(_after(prefix))})
        return Snapshot(_revision(answer), tuple(map(_key_value, answer.get("kvs", ()))))

    async def transact(self, compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]) -> tuple[bool, int]:
        """Do all of `success` if all of `compare` holds. Whether it did, and the revision after it."""
        answer = await self.call("/v3/kv/txn", {"compare": list(compare), "success": list(success)}, is_write=True)
        return bool(answer.get("succeeded", False)), _revision(answer)

    async def version(self) -> str:
        """Of the member that answers."""
        return str((await self.call("/v3/maintenance/status", {})).get("version", ""))

    async def grant(self, ttl_s: int) -> Lease:
        answer = await self.call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return Lease(int(answer["ID"]), int(answer["TTL"]))

    async def keep_alive(self, lease: Lease, timeout_s: float) -> int:
        """Seconds the lease has from now on; 0 if it is over."""
        answer = await self.call("/v3/lease/keepalive", {"ID": str(lease.identity)}, timeout_s=timeout_s)
        return int(answer.get("result", {}).get("TTL", 0))

    async def revoke(self, lease: Lease) -> None:
        await self.call("/v3/lease/revoke", {"ID": str(lease.identity)}, timeout_s=ATTEMPT_S)

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[list[Event]]:
        """Changes from a revision on, in order. Raises `StorageUnreachable` when the stream ends."""
        wanted = {"key": _text(prefix), "range_end": _text(_after(prefix)), "start_revision": str(start_revision)}
        body = msgspec.json.encode({"create_request": wanted})
        member = self._members[self._preferred % len(self._members)]
        try:
            async with (
                member.stream("/v3/watch", body, self._headers(), ATTEMPT_S) as lines,
                aclosing(lines),  # type: ignore[type-var]
            ):
                async for line in lines:
                    result = _json(line).get("result", {})
                    if result.get("canceled"):
                        raise StorageUnreachable(f"etcd ended the watch: {result.get('cancel_reason', '')}")
                    yield [_event(event) for event in result.get("events", ())]
        except HttpFailed as error:
            self._preferred += 1
            raise StorageUnreachable(str(error)) from error

    # --- one call -----------------------------------------------------------------------------------------------------

    async def call(
        self, path: str, body: dict[str, Any], *, is_write: bool = False, timeout_s: float = CALL_S
    ) -> dict[str, Any]:
        """Ask members in turn until one answers. Raises `EtcdRefused` or `StorageUnreachable`.

        A write is given to one member only, unless that one surely did not get it: done twice, it might not be what
        was decided.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        failures: list[str] = []
        for attempt in range(2 * len(self._members)):
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                break
            member = self._members[self._preferred % len(self._members)]
            # A write waits for its one answer as long as there is time: what became of it would not be known.
            attempt_s = left_s if is_write else min(ATTEMPT_S, left_s)
            try:
                if self._user and not self._token:
                    await self._authenticate(member, attempt_s)
                answer = await member.post(path, msgspec.json.encode(body), self._headers(), attempt_s)
            except HttpFailed as error:
                self._preferred += 1
                failures.append(str(error))
                if is_write and not isinstance(error.__cause__, ConnectionRefusedError):
                    break
                continue
            found = _json(answer.body)
            if answer.status == 200 and "error" not in found:
                return found
            code, words = _refusal(answer, found)
            failures.append(f"{member.url}: {words}")
            if (code == _UNAUTHENTICATED or "auth token" in words) and self._user and attempt == 0:
                self._token = ""
            elif code in _RETRIED and not is_write:
                self._preferred += 1
            elif code in _RETRIED:
                break
            else:
                raise EtcdRefused(f"etcd refused: {words}")
        raise StorageUnreachable(f"etcd does not answer: {'; '.join(dict.fromkeys(failures))}")

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _authenticate(self, member: HttpMember, timeout_s: float) -> None:
        body = msgspec.json.encode({"name": self._user, "password": self._password})
        answer = await member.post("/v3/auth/authenticate", body, {}, timeout_s)
        found = _json(answer.body)
        if "token" not in found:
            raise EtcdRefused(f"etcd refused the user {self._user}: {_refusal(answer, found)[1]}")
        self._token = str(found["token"])


# --- conditions and deeds of a transaction --------------------------------------------------------------------------


def if_created_at(key: str, revision: int) -> dict[str, Any]:
    return {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}


def if_changed_at(key: str, revision: int) -> dict[str, Any]:
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def put(key: str, value: bytes, lease: Lease | None = None) -> dict[str, Any]:
    request = {"key": _text(key), "value": base64.b64encode(value).decode()}
    if lease is not None:
        request["lease"] = str(lease.identity)
    return {"request_put": request}


def delete(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": _text(key)}}


# --- the gateway's JSON ---------------------------------------------------------------------------------------------


def _text(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise StorageUnreachable(f"this is no etcd: it answered {data[:80]!r}") from None
    return found if isinstance(found, dict) else {}


def _refusal(answer: HttpAnswer, found: dict[str, Any]) -> tuple[int, str]:
    error = found.get("error", found)
    if isinstance(error, dict):
        return int(error.get("grpc_code", error.get("code", 0)) or 0), str(error.get("message", answer.status))
    return int(found.get("code", 0) or 0), str(error)


def _revision(answer: dict[str, Any]) -> int:
    return int(answer.get("header", {}).get("revision", 0))


def _key_value(found: dict[str, Any]) -> KeyValue:
    return KeyValue(
        base64.b64decode(found["key"]).decode("utf-8", "replace"),
        base64.b64decode(found.get("value", "")),
        int(found.get("create_revision", 0)),
        int(found.get("mod_revision", 0)),
    )


def _event(found: dict[str, Any]) -> Event:
    return Event(found.get("type") == "DELETE", _key_value(found["kv"]))
