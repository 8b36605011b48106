"""Forgotten roots in SQLite: what happens inside one transaction of forgetting and of recalling."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from noetl.adapters.sqlite.commits import Writer
from noetl.adapters.sqlite.rows import EVENT_INSERT, HEAD_COLUMNS, fetch_head, head, insert_row
from noetl.errors import Archived, Conflict, IntegrityMismatch, NotFound
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import Family, Forgotten, Recollection, Run, check_heads, check_unmoved, runs_of

__all__ = [
    "below",
    "check_not_forgotten",
    "check_position_kept",
    "fetch_forgotten",
    "fetch_runs",
    "forget",
    "in_root",
    "last_forgotten",
    "recall",
]

Seal = Callable[[bytes], str | None]

_CHUNK = 500
_COLUMNS = (
    "tenant_id, root, family, uri, manifest_sha256, first_position, last_position, events, size, forgotten_at, mac"
)
_INSERT = f"INSERT INTO forgotten ({_COLUMNS}) VALUES ({', '.join('?' * 11)})"
_RUN_INSERT = (
    "INSERT INTO forgotten_run (first_position, last_position, tenant_id, root, checksums) VALUES (?, ?, ?, ?, ?)"
)
_RUN_COLUMNS = "tenant_id, root, first_position, checksums"
# Lengths in characters are near enough: they only say how much went.
_SIZE = "length(payload) + length(meta) + coalesce(length(payload_ref), 0)"


def forget(connection: Writer, family: Family, now: str, seal: Seal) -> Sequence[Forgotten]:
    """Take a family's events out. The caller owns the transaction."""
    known = [found for root in family.heads for found in fetch_forgotten(connection, root=root)]
    if len(known) == len(family.heads):
        return known
    for stream in family.unmoved:
        check_unmoved(family, stream, fetch_head(connection, stream))
    return [_forget_root(connection, family, root, now, seal) for root in family.heads]


def _forget_root(connection: Writer, family: Family, root: Stream, now: str, seal: Seal) -> Forgotten:
    expected = check_heads(family, root, _heads(connection, root))
    where, parameters = in_root(root)
    waiting = f"SELECT 1 FROM outbox WHERE position IN (SELECT position FROM event WHERE {where}) LIMIT 1"
    if connection.execute(waiting, parameters).fetchone():
        raise Conflict(f"{root.stream_id} has events that are still to be told", hint="it is looked at again later")
    (events, first, last, size) = connection.execute(
        f"SELECT count(*), min(position), max(position), sum({_SIZE}) FROM event WHERE {where}", parameters
    ).fetchone()
    if events != expected:
        raise IntegrityMismatch(
            f"{expected - events} of {expected} events of {root.stream_id} are missing", hint="run noetl verify --all"
        )
    told = connection.execute(
        f"SELECT position, envelope_checksum FROM event WHERE {where} ORDER BY position", parameters
    )
    connection.executemany(
        _RUN_INSERT,
        (
            (run.first_position, run.last_position, root.tenant_id, root.stream_id, run.checksums)
            for run in runs_of(root, told)
        ),
    )
    connection.execute(f"DELETE FROM event WHERE {where}", parameters)
    left = Forgotten(
        root=root, family=family.root, uri=family.uri, manifest_sha256=family.manifest_sha256,
        first_position=first or 0, last_position=last or 0, events=events, size=size or 0, forgotten_at=now,
    )  # fmt: skip
    left = msgspec.structs.replace(left, mac=seal(left.digest()))
    connection.execute(_INSERT, _row(left))
    connection.known.pop(("last", root), None)
    return left


def recall(connection: Writer, family: Stream, envelopes: Iterable[Envelope]) -> int:
    """Put a family's events back. The caller owns the transaction."""
    members = [
        _forgotten(row)
        for row in connection.execute(
            f"SELECT {_COLUMNS} FROM forgotten WHERE tenant_id = ? AND family = ?", (family.tenant_id, family.stream_id)
        )
    ]
    if not members:
        raise NotFound(f"{family.stream_id} is not archived away: its events are in the ledger, or never were")
    back = Recollection(run for one in members for run in _runs_of_root(connection, one.root))
    events = 0
    chunk: list[tuple[Any, ...]] = []
    for event in envelopes:
        chunk.append(insert_row(*back.place(event)))
        if len(chunk) == _CHUNK:
            events += _insert(connection, chunk)
    events += _insert(connection, chunk)
    back.check_complete(found for one in members for found in _heads(connection, one.root))
    for one in members:
        key = (one.root.tenant_id, one.root.stream_id)
        connection.execute("DELETE FROM forgotten_run WHERE tenant_id = ? AND root = ?", key)
        connection.execute("DELETE FROM forgotten WHERE tenant_id = ? AND root = ?", key)
    return events


def fetch_forgotten(
    connection: sqlite3.Connection, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
) -> list[Forgotten]:
    """Forgotten roots in order, by primary key."""
    where, parameters = "1", ()  # type: tuple[str, tuple[Any, ...]]
    if root is not None:
        where, parameters = "tenant_id = ? AND root = ?", (root.tenant_id, root.stream_id)
    if after is not None:
        where += " AND (tenant_id, root) > (?, ?)"
        parameters = (*parameters, after.tenant_id, after.stream_id)
    sql = f"SELECT {_COLUMNS} FROM forgotten WHERE {where} ORDER BY tenant_id, root LIMIT ?"
    return [_forgotten(row) for row in connection.execute(sql, (*parameters, limit))]


def fetch_runs(connection: sqlite3.Connection, root: Stream | None, after_position: int, limit: int) -> list[Run]:
    """Runs in order of position, by primary key or by root."""
    where, parameters = "1", ()  # type: tuple[str, tuple[Any, ...]]
    if root is not None:
        where, parameters = "tenant_id = ? AND root = ?", (root.tenant_id, root.stream_id)
    sql = f"SELECT {_RUN_COLUMNS} FROM forgotten_run WHERE {where} AND first_position > ? ORDER BY first_position"
    return [_run(row) for row in connection.execute(f"{sql} LIMIT ?", (*parameters, after_position, limit))]


def check_not_forgotten(connection: sqlite3.Connection, root: Stream) -> None:
    """Raise Archived if the events of a root are elsewhere, by primary key."""
    found = connection.execute(
        "SELECT uri FROM forgotten WHERE tenant_id = ? AND root = ?", (root.tenant_id, root.stream_id)
    ).fetchone()
    if found:
        raise Archived(root.stream_id, found[0])


def check_position_kept(connection: sqlite3.Connection, position: int) -> None:
    """Raise Archived if the event at a position is elsewhere, by primary key."""
    found = connection.execute(
        "SELECT run.root, uri, run.last_position FROM forgotten_run AS run "
        "JOIN forgotten USING (tenant_id, root) WHERE run.first_position <= ? ORDER BY run.first_position DESC LIMIT 1",
        (position,),
    ).fetchone()
    if found and position <= found[2]:
        raise Archived(found[0], found[1], position=position)


def last_forgotten(connection: sqlite3.Connection) -> int:
    """The last position whose event is elsewhere."""
    found = connection.execute(
        "SELECT last_position FROM forgotten_run ORDER BY first_position DESC LIMIT 1"
    ).fetchone()
    return int(found[0]) if found else 0


def in_root(root: Stream) -> tuple[str, tuple[Any, ...]]:
    """Which events belong to a root."""
    if root.stream_id.startswith("execution/"):
        return "execution_id = ? AND tenant_id = ?", (int(root.stream_id.split("/")[1]), root.tenant_id)
    return "tenant_id = ? AND stream_id = ?", (root.tenant_id, root.stream_id)


def below(root: Stream) -> tuple[str, tuple[Any, ...]]:
    """The root itself and what stands below it; '0' is the character after '/'."""
    if not root.stream_id.startswith("execution/"):
        return "tenant_id = ? AND stream_id = ?", (root.tenant_id, root.stream_id)
    where = "tenant_id = ? AND (stream_id = ? OR (stream_id > ? AND stream_id < ?))"
    return where, (root.tenant_id, root.stream_id, root.stream_id + "/", root.stream_id + "0")


def _heads(connection: sqlite3.Connection, root: Stream) -> list[StreamHead]:
    where, parameters = below(root)
    return [
        head(row) for row in connection.execute(f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE {where}", parameters)
    ]


def _runs_of_root(connection: sqlite3.Connection, root: Stream) -> Iterator[Run]:
    after = 0
    while page := fetch_runs(connection, root, after, _CHUNK):
        yield from page
        after = page[-1].first_position


def _insert(connection: sqlite3.Connection, chunk: list[tuple[Any, ...]]) -> int:
    events = len(chunk)
    connection.executemany(EVENT_INSERT, chunk)
    chunk.clear()
    return events


def _row(left: Forgotten) -> tuple[Any, ...]:
    root, family, *rest = msgspec.structs.astuple(left)
    return (root.tenant_id, root.stream_id, family.stream_id, *rest)


def _forgotten(row: Sequence[Any]) -> Forgotten:
    tenant_id, root, family, uri, sha256, first, last, events, size, at, mac = row
    return Forgotten(
        root=Stream(tenant_id, root), family=Stream(tenant_id, family), uri=uri, manifest_sha256=sha256,
        first_position=first, last_position=last, events=events, size=size, forgotten_at=at, mac=mac,
    )  # fmt: skip


def _run(row: Sequence[Any]) -> Run:
    tenant_id, root, first, checksums = row
    return Run(Stream(tenant_id, root), first, bytes(checksums))
