"""The record of what was sent again, on disk (SQLite): it decides, not anybody's memory.

A letter's row goes from waiting to sending, with the id that the new message will have, before anything is sent; to
sent, failed or skipped after that. A row that is found as sending after a crash says under which id to look.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

WAITING, SENDING, SENT, FAILED, SKIPPED = "waiting", "sending", "sent", "failed", "skipped"
SELECTING, RUNNING, STOPPED, DONE, BROKEN = "selecting", "running", "stopped", "done", "broken"
KEPT_JOBS = 200

_TABLES = """
create table if not exists jobs (
    id integer primary key autoincrement, group_name text not null, who text not null, created_ms integer not null,
    filter text not null, rate real not null, again integer not null, state text not null, note text not null default ''
);
create table if not exists letters (
    job integer not null, number integer not null, place text not null, msg_id text not null, origin text,
    state text not null, new_id text, error text, at_ms integer,
    primary key (job, number)
) without rowid;
create index if not exists letters_by_state on letters (job, state, number);
create table if not exists resent (
    group_name text not null, place text not null, new_id text not null, state text not null, job integer,
    at_ms integer not null,
    primary key (group_name, place)
) without rowid;
"""


class JobRow(msgspec.Struct, kw_only=True, rename="camel"):
    id: int
    group: str
    who: str
    created: int
    filter: dict[str, Any]
    rate: float
    again: bool
    state: str
    note: str
    total: int = 0
    waiting: int = 0
    sent: int = 0
    failed: int = 0
    skipped: int = 0


class ResultRow(msgspec.Struct, kw_only=True, rename="camel"):
    number: int
    place: str
    msg_id: str
    origin: str | None
    state: str
    new_id: str | None
    error: str | None
    at: int | None


class Record:
    """One connection, used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(directory / "console.db", check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _change(self, statements: Iterable[tuple[str, Iterable[Any]]]) -> None:
        with self._lock:
            self._db.execute("begin immediate")
            try:
                for statement, values in statements:
                    self._db.execute(statement, tuple(values))
                self._db.execute("commit")
            except BaseException:
                self._db.execute("rollback")
                raise

    # -- jobs

    def add_job(self, group: str, who: str, chosen: dict[str, Any], rate: float, again: bool) -> int:
        with self._lock:
            done = self._db.execute(
                "insert into jobs (group_name, who, created_ms, filter, rate, again, state) values (?,?,?,?,?,?,?)",
                (group, who, _now_ms(), msgspec.json.encode(chosen).decode(), rate, again, SELECTING),
            )
            assert done.lastrowid is not None
            job = done.lastrowid
            # Old jobs go; what was sent stays known by `resent`.
            self._db.execute("delete from letters where job <= ?", (job - KEPT_JOBS,))
            self._db.execute("delete from jobs where id <= ?", (job - KEPT_JOBS,))
            return job

    def set_state(self, job: int, state: str, note: str = "") -> None:
        self._change([("update jobs set state = ?, note = ? where id = ?", (state, note, job))])

    def set_rate(self, job: int, rate: float) -> None:
        self._change([("update jobs set rate = ? where id = ?", (rate, job))])

    def jobs(self, group: str | None = None, job: int | None = None) -> list[JobRow]:
        with self._lock:
            counts: dict[int, dict[str, int]] = {}
            where = "where job = ?" if job is not None else ""
            values = (job,) if job is not None else ()
            for number, state, count in self._db.execute(
                f"select job, state, count(*) from letters {where} group by job, state", values
            ):
                counts.setdefault(number, {})[state] = count
            rows = self._db.execute(
                "select id, group_name, who, created_ms, filter, rate, again, state, note from jobs "
                "where (?1 is null or group_name = ?1) and (?2 is null or id = ?2) order by id desc",
                (group, job),
            ).fetchall()
        found = []
        for row in rows:
            of_job = counts.get(row[0], {})
            found.append(
                JobRow(
                    id=row[0],
                    group=row[1],
                    who=row[2],
                    created=row[3],
                    filter=msgspec.json.decode(row[4]),
                    rate=row[5],
                    again=bool(row[6]),
                    state=row[7],
                    note=row[8],
                    total=sum(of_job.values()),
                    waiting=of_job.get(WAITING, 0) + of_job.get(SENDING, 0),
                    sent=of_job.get(SENT, 0),
                    failed=of_job.get(FAILED, 0),
                    skipped=of_job.get(SKIPPED, 0),
                )
            )
        return found

    def interrupted(self) -> list[int]:
        """Jobs that were running when the console ended."""
        with self._lock:
            rows = self._db.execute("select id from jobs where state in (?, ?)", (RUNNING, SELECTING)).fetchall()
        return [row[0] for row in rows]

    # -- letters of a job

    def add_letters(self, job: int, first: int, letters: list[tuple[str, str, str | None]]) -> None:
        statement = "insert into letters (job, number, place, msg_id, origin, state) values (?,?,?,?,?,?)"
        self._change((statement, (job, first + index, *letter, WAITING)) for index, letter in enumerate(letters))

    def letters(self, job: int, states: tuple[str, ...], limit: int, offset: int = 0) -> list[ResultRow]:
        marks = ",".join("?" * len(states))
        with self._lock:
            rows = self._db.execute(
                "select number, place, msg_id, origin, state, new_id, error, at_ms from letters "
                f"where job = ? and state in ({marks}) order by number limit ? offset ?",
                (job, *states, limit, offset),
            ).fetchall()
        return [ResultRow(**dict(zip(ResultRow.__struct_fields__, row, strict=True))) for row in rows]

    def forget_letters(self, job: int) -> None:
        self._change([("delete from letters where job = ?", (job,))])

    def will_send(self, group: str, job: int, letters: list[tuple[int, str, str]]) -> None:
        """(number, place, new id) of letters that are about to be sent."""
        now = _now_ms()
        statements: list[tuple[str, Iterable[Any]]] = []
        for number, place, new_id in letters:
            statements.append(
                (
                    "update letters set state = ?, new_id = ? where job = ? and number = ?",
                    (SENDING, new_id, job, number),
                )
            )
            statements.append(
                (
                    "insert or replace into resent (group_name, place, new_id, state, job, at_ms) values (?,?,?,?,?,?)",
                    (group, place, new_id, SENDING, job, now),
                )
            )
        self._change(statements)

    def ended(self, group: str, job: int, letters: list[tuple[int, str, str, str | None]]) -> None:
        """(number, place, state, error) of letters whose outcome is known."""
        now = _now_ms()
        statements: list[tuple[str, Iterable[Any]]] = []
        for number, place, state, error in letters:
            statements.append(
                (
                    "update letters set state = ?, error = ?, at_ms = ? where job = ? and number = ?",
                    (state, error, now, job, number),
                )
            )
            if state == SENT:
                statements.append(
                    (
                        "update resent set state = ?, at_ms = ? where group_name = ? and place = ?",
                        (SENT, now, group, place),
                    )
                )
            elif state == FAILED:
                statements.append(
                    ("delete from resent where group_name = ? and place = ? and state = ?", (group, place, SENDING))
                )
        self._change(statements)

    def skip(self, job: int, letters: list[tuple[int, str]]) -> None:
        """(number, the id it was sent under before)."""
        now = _now_ms()
        statement = "update letters set state = ?, new_id = ?, at_ms = ? where job = ? and number = ?"
        self._change((statement, (SKIPPED, new_id, now, job, number)) for number, new_id in letters)

    # -- what was ever sent again

    def resent(self, group: str, places: list[str]) -> dict[str, tuple[str, str, int | None]]:
        """Place → (new id, state, job), of those that were sent again or may have been."""
        found: dict[str, tuple[str, str, int | None]] = {}
        with self._lock:
            for begin in range(0, len(places), 500):
                part = places[begin : begin + 500]
                marks = ",".join("?" * len(part))
                for place, new_id, state, job in self._db.execute(
                    f"select place, new_id, state, job from resent where group_name = ? and place in ({marks})",
                    (group, *part),
                ):
                    found[place] = (new_id, state, job)
        return found

    def note_single(self, group: str, place: str, new_id: str, state: str) -> None:
        """One letter that a person sends by hand."""
        self._change(
            [
                (
                    "insert or replace into resent (group_name, place, new_id, state, job, at_ms) values (?,?,?,?,?,?)",
                    (group, place, new_id, state, None, _now_ms()),
                )
            ]
        )

    def forget_single(self, group: str, place: str) -> None:
        self._change([("delete from resent where group_name = ? and place = ?", (group, place))])


def _now_ms() -> int:
    return round(time.time() * 1000)
