"""What somebody with write access to the database, but without the wallet's key, can do to it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.kernel.chain import MODULUS, LedgerHead, StreamHead
from noetl.kernel.event import Draft, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from tests.simulation.world import World

__all__ = ["TAMPERINGS", "Tampering"]

_FLIPPED = ("payload", "meta", "principal", "event_type", "event_time", "envelope_checksum")


class Tampering(msgspec.Struct, frozen=True):
    """What was done, and words of which a report must contain one."""

    what: str
    names: tuple[str, ...]

    def named_in(self, report: str) -> bool:
        """True when a report says where."""
        return any(name in report for name in self.names)


Tamperer = Callable[[World, Path, int], Awaitable[Tampering | None]]


@contextlib.contextmanager
def _database(directory: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(directory / "ledger.db")
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def _pick(world: World, pick: int) -> Recorded:
    return world.log[pick % len(world.log)]


async def _flip(world: World, directory: Path, pick: int) -> Tampering:
    item = _pick(world, pick)
    column = _FLIPPED[pick % len(_FLIPPED)]
    with _database(directory) as connection:
        sql = f"SELECT CAST({column} AS BLOB) FROM event WHERE position = ?"
        value = bytearray(connection.execute(sql, (item.position,)).fetchone()[0])
        value[pick % len(value)] ^= 1
        sql = f"UPDATE event SET {column} = CAST(? AS TEXT) WHERE position = ?"
        connection.execute(sql, (bytes(value), item.position))
    return Tampering(f"a flipped bit in {column} of event {item.event.event_id}", (str(item.event.event_id),))


async def _delete(world: World, directory: Path, pick: int) -> Tampering:
    item = _pick(world, pick)
    with _database(directory) as connection:
        connection.execute("DELETE FROM event WHERE position = ?", (item.position,))
        if pick % 2:
            connection.execute("UPDATE event SET position = -position WHERE position > ?", (item.position,))
            connection.execute("UPDATE event SET position = -position - 1 WHERE position < 0")
            connection.execute("UPDATE ledger_head SET position = position - 1")
    names = (str(item.event.event_id), f"positions {item.position} ", item.event.stream_id)
    return Tampering(f"a deleted event {item.event.event_id}", names)


async def _swap(world: World, directory: Path, pick: int) -> Tampering | None:
    """Two neighbours change places: of the whole log, or of one stream."""
    first = _pick(world, pick)
    later = world.log[first.position :]
    if pick % 2:
        later = [item for item in later if _stream(item) == _stream(first)]
    if not later:
        return None
    second = later[0]
    moves = ((first.position, -1), (second.position, first.position), (-1, second.position))
    with _database(directory) as connection:
        for source, target in moves:
            connection.execute("UPDATE event SET position = ? WHERE position = ?", (target, source))
    ids = (str(first.event.event_id), str(second.event.event_id))
    names = ids if _stream(first) == _stream(second) else (*ids, "the order in which they were committed")
    return Tampering(f"events {' and '.join(ids)} swapped", names)


def _stream(item: Recorded) -> Stream:
    return Stream(item.event.tenant_id, item.event.stream_id)


async def _cut(world: World, directory: Path, pick: int) -> Tampering | None:
    """The last append to a stream goes, and its older head, with the MAC it had, is put back in place."""
    item = _pick(world, pick)
    stream = _stream(item)
    if len(world.history[stream]) == 1:
        return None
    (kept, older), (_, newer) = world.history[stream][-2:]
    with _database(directory) as connection:
        where = "tenant_id = ? AND stream_id = ? AND position > ?"
        connection.execute(f"DELETE FROM event WHERE {where}", (stream.tenant_id, stream.stream_id, kept))
        marks = ", ".join("?" * len(StreamHead.__struct_fields__))
        connection.execute(f"INSERT OR REPLACE INTO stream_head VALUES ({marks})", msgspec.structs.astuple(older))
        _renumber(connection)
        _fix_ledger_head(connection, newer, older)
    return Tampering(f"the last append to {stream.stream_id} cut off", ("ledger", stream.stream_id))


async def _drop_stream(world: World, directory: Path, pick: int) -> Tampering | None:
    """A stream goes with its head, and the ledger's head is put right as far as that goes without the key."""
    item = _pick(world, pick)
    stream = _stream(item)
    head = world.history[stream][-1][1]
    if len(world.history) == 1:
        return None  # a ledger with nothing left in it is a new ledger; only its anchor knows better
    with _database(directory) as connection:
        of_stream = "tenant_id = ? AND stream_id = ?"
        connection.execute(f"DELETE FROM event WHERE {of_stream}", (stream.tenant_id, stream.stream_id))
        connection.execute(f"DELETE FROM stream_head WHERE {of_stream}", (stream.tenant_id, stream.stream_id))
        _renumber(connection)
        _fix_ledger_head(connection, head, None)
    return Tampering(f"{stream.stream_id} deleted with its head", ("ledger", stream.stream_id))


def _renumber(connection: sqlite3.Connection) -> None:
    """Close the gaps, so that positions alone show nothing."""
    rows = connection.execute("SELECT position FROM event ORDER BY position").fetchall()
    for place, (position,) in enumerate(rows, start=1):
        connection.execute("UPDATE event SET position = ? WHERE position = ?", (place, position))


def _fix_ledger_head(connection: sqlite3.Connection, gone: StreamHead, instead: StreamHead | None) -> None:
    streams, total = connection.execute("SELECT streams, total FROM ledger_head").fetchone()
    rest = int(total, 16) - int.from_bytes(gone.digest(), "big")
    if instead is not None:
        rest += int.from_bytes(instead.digest(), "big")
    checksums = connection.execute("SELECT envelope_checksum FROM event ORDER BY position").fetchall()
    chain = LedgerHead().advanced(checksum for (checksum,) in checksums).chain_hash
    values = (streams - (instead is None), f"{rest % MODULUS:064x}", len(checksums), chain)
    connection.execute("UPDATE ledger_head SET streams = ?, total = ?, position = ?, chain_hash = ?", values)


async def _forge(world: World, directory: Path, pick: int) -> Tampering:
    """A well-chained event, written by the shipped ledger itself, but under no key."""
    item = _pick(world, pick)
    event = item.event
    draft = Draft(
        event_type="frame.noticed",
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        project_id=event.project_id,
        principal=event.principal,
        producer=event.producer,
        execution_id=event.execution_id,
        payload={"forged": True},
    )
    root = Stream(event.tenant_id, "/".join(event.stream_id.split("/")[:2]))
    with _database(directory) as connection:
        connection.execute("UPDATE ledger_head SET key_id = NULL")
    database = Database(directory / "ledger.db", threads=False)
    try:
        await SqliteLedger(database, world.clock, mac_key=None).append([Batch(stream=root, drafts=(draft,))])
    finally:
        database.close()
    return Tampering(f"an event forged at the end of {root.stream_id}", (root.stream_id,))


async def _row(world: World, directory: Path, pick: int) -> Tampering | None:
    """One field of one projection row."""
    with _database(directory) as connection:
        rows = connection.execute("SELECT rowid, surface, row_id, row FROM projection ORDER BY rowid").fetchall()
        if not rows:
            return None
        rowid, surface, row_id, body = rows[pick % len(rows)]
        fields = msgspec.json.decode(body)
        field = sorted(name for name, value in fields.items() if isinstance(value, int) and not name.endswith("_id"))
        if not field:
            return None
        fields[field[0]] += 1
        text = msgspec.json.encode(fields).decode()
        connection.execute("UPDATE projection SET row = ? WHERE rowid = ?", (text, rowid))
    name = f"{surface} row {row_id}, field '{field[0]}'"
    return Tampering(f"a changed projection: {name}", (name,))


TAMPERINGS: Mapping[str, Tamperer] = {
    "flip": _flip,
    "delete": _delete,
    "swap": _swap,
    "cut": _cut,
    "drop_stream": _drop_stream,
    "forge": _forge,
    "row": _row,
}
