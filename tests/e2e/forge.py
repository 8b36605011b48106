"""What a forger can do who has the source and the database, but not the wallet's key."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from noetl.kernel import canonical
from noetl.kernel.chain import MODULUS, LedgerHead, StreamHead, extend
from noetl.kernel.event import Record, checksum_of

__all__ = ["append", "head_of", "ledger_head", "move_head", "move_ledger", "rechain", "record_at"]

_HEAD = ", ".join(StreamHead.__struct_fields__)


def record_at(connection: sqlite3.Connection, position: int) -> dict[str, Any]:
    """One stored event by its column names."""
    cursor = connection.execute("SELECT * FROM event WHERE position = ?", (position,))
    names = [column[0] for column in cursor.description]
    return dict(zip(names, cursor.fetchone(), strict=True))


def checksum(row: dict[str, Any]) -> str:
    """The checksum that a row should have."""
    facts = {name: row[name] for name in Record.__struct_fields__ if name not in ("payload", "payload_ref", "meta")}
    ref = UNSET if row["payload_ref"] is None else Raw(row["payload_ref"].encode())
    return checksum_of(
        Record(payload=Raw(row["payload"].encode()), payload_ref=ref, meta=Raw(row["meta"].encode()), **facts)
    )


def head_of(connection: sqlite3.Connection, stream_id: str) -> StreamHead:
    """A stream's head as it is stored."""
    row = connection.execute(f"SELECT {_HEAD} FROM stream_head WHERE stream_id = ?", (stream_id,)).fetchone()
    return StreamHead(**{**dict(zip(StreamHead.__struct_fields__, row, strict=True)), "sealed": bool(row[7])})


def move_head(connection: sqlite3.Connection, head: StreamHead) -> None:
    """Store a head; its MAC stays whatever it says."""
    marks = ", ".join("?" * len(StreamHead.__struct_fields__))
    connection.execute(f"INSERT OR REPLACE INTO stream_head ({_HEAD}) VALUES ({marks})", msgspec.structs.astuple(head))


def ledger_head(connection: sqlite3.Connection) -> LedgerHead:
    """The head that fits the events and stream heads that are there now, without a MAC."""
    rows = connection.execute(f"SELECT {_HEAD} FROM stream_head").fetchall()
    heads = [
        StreamHead(**{**dict(zip(StreamHead.__struct_fields__, row, strict=True)), "sealed": bool(row[7])})
        for row in rows
    ]
    total = sum(int.from_bytes(head.digest(), "big") for head in heads) % MODULUS
    (position,) = connection.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()
    checksums = [text for (text,) in connection.execute("SELECT envelope_checksum FROM event ORDER BY position")]
    chained = LedgerHead().advanced(checksums)
    return LedgerHead(position=position, streams=len(heads), total=f"{total:064x}", chain_hash=chained.chain_hash)


def move_ledger(connection: sqlite3.Connection) -> None:
    """Make the ledger's head fit what is there; only its MAC cannot be made to."""
    head = ledger_head(connection)
    connection.execute(
        "UPDATE ledger_head SET position = ?, streams = ?, total = ?", (head.position, head.streams, head.total)
    )


def append(connection: sqlite3.Connection, stream_id: str, **changes: Any) -> int:
    """Add a well-chained event after the last of a dense stream, heads moved, all but the MACs right."""
    head = head_of(connection, stream_id)
    (position,) = connection.execute("SELECT max(position) FROM event WHERE stream_id = ?", (stream_id,)).fetchone()
    (last,) = connection.execute("SELECT max(position) FROM event").fetchone()
    row = record_at(connection, position) | changes
    row |= {
        "position": last + 1,
        "event_id": head.event_id + 1,
        "stream_version": head.version + 1,
        "prev_event_id": head.event_id,
        "idempotency_key": None,
    }
    row["envelope_checksum"] = checksum(row)
    row["chain_hash"] = extend(head.chain_hash, row["envelope_checksum"])
    connection.execute(f"INSERT INTO event ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    moved = {"version": head.version + 1, "event_id": row["event_id"], "count": head.count + 1}
    move_head(connection, msgspec.structs.replace(head, **moved, chain_hash=row["chain_hash"]))
    move_ledger(connection)
    return int(row["event_id"])


def rechain(connection: sqlite3.Connection, stream_id: str, position: int, **changes: Any) -> int:
    """Change one event of a dense stream and mend every checksum, chain and head after it, but no MAC."""
    row = record_at(connection, position)
    previous = connection.execute(
        "SELECT chain_hash FROM event WHERE stream_id = ? AND stream_version = ?",
        (stream_id, row["stream_version"] - 1),
    ).fetchone()[0]
    following = connection.execute(
        "SELECT position FROM event WHERE stream_id = ? AND position >= ? ORDER BY position", (stream_id, position)
    ).fetchall()
    for (place,) in following:
        now = record_at(connection, place) | (changes if place == position else {})
        now["envelope_checksum"] = checksum(now)
        previous = now["chain_hash"] = extend(previous, now["envelope_checksum"])
        sets = ", ".join(f"{name} = ?" for name in now)
        connection.execute(f"UPDATE event SET {sets} WHERE position = ?", [*now.values(), place])
    move_head(connection, msgspec.structs.replace(head_of(connection, stream_id), chain_hash=previous))
    move_ledger(connection)
    return int(row["event_id"])


def respelled(payload: str) -> str:
    """The same JSON in other bytes."""
    spaced = payload.replace(":", ": ", 1)
    assert canonical.decode(spaced) == canonical.decode(payload)
    return spaced
